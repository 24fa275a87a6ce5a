"""Put a built site into the folder of all versions: `python versions.py SITE PAGES VERSION ADDRESS`.

Each version has a folder. `switcher.json` lists them for the switch of the theme, and `index.html` leads to the newest
release, or to `dev` as long as there is none.
"""

from __future__ import annotations

import json
import re
import shutil
import sys
from pathlib import Path

DEVELOPMENT = "dev"


def release_key(name: str) -> tuple[int, ...]:
    """Return what releases are sorted by."""
    return tuple(int(number) for number in re.findall(r"\d+", name))


def publish(site: Path, pages: Path, version: str, address: str) -> list[str]:
    """Copy `site` to `pages/version`, list the versions, which lie below `address`; return them, the newest first."""
    if not re.fullmatch(rf"{DEVELOPMENT}|\d+(\.\d+)+\w*", version):
        raise ValueError(
            f"Expected argument `version` to be 'dev' or a release such as '1.2.3' but got {version!r}."
        )
    if not (site / "index.html").is_file():
        raise FileNotFoundError(
            f"Expected argument `site` to be a built site but {site} has no index.html."
        )
    shutil.rmtree(pages / version, ignore_errors=True)
    shutil.copytree(
        site, pages / version, ignore=shutil.ignore_patterns(".doctrees", ".buildinfo")
    )
    names = [
        folder.name for folder in pages.iterdir() if (folder / "index.html").is_file()
    ]
    releases = sorted(
        (name for name in names if name != DEVELOPMENT), key=release_key, reverse=True
    )
    listed = releases + [name for name in names if name == DEVELOPMENT]
    entries = [
        {
            "name": f"{name} (stable)" if name in releases[:1] else name,
            "version": name,
            "url": f"{address.rstrip('/')}/{name}/",
        }
        for name in listed
    ]
    (pages / "switcher.json").write_text(json.dumps(entries, indent=2), "utf-8")
    # GitHub Pages leaves out folders with an underscore without this file.
    (pages / ".nojekyll").touch()
    first = listed[0]
    (pages / "index.html").write_text(
        f'<!doctype html><meta charset="utf-8"><title>quantus-concepts</title>'
        f'<meta http-equiv="refresh" content="0; url={first}/"><a href="{first}/">quantus-concepts {first}</a>\n',
        "utf-8",
    )
    return listed


if __name__ == "__main__":
    print("\n".join(publish(Path(sys.argv[1]), Path(sys.argv[2]), *sys.argv[3:])))  # noqa: T201
