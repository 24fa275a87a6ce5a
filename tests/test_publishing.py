"""What publishes the project: the folder of all versions of the site, and what repeats pyproject.toml."""

from __future__ import annotations

import importlib.util
import json
import re
import tomllib
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parent.parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]


@pytest.fixture
def versions() -> Any:
    spec = importlib.util.spec_from_file_location("versions", ROOT / "docs" / "_extensions" / "versions.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_sites_of_versions_lie_side_by_side(versions: Any, tmp_path: Path) -> None:
    pages = tmp_path / "pages"
    pages.mkdir()
    for version in ("dev", "0.9.0", "0.10.0", "0.10.0"):
        site = tmp_path / version
        site.mkdir(exist_ok=True)
        (site / "index.html").write_text(version)
        versions.publish(site, pages, version, "https://example.org/docs/")
    entries = json.loads((pages / "switcher.json").read_text())
    assert [entry["name"] for entry in entries] == ["0.10.0 (stable)", "0.9.0", "dev"]
    assert entries[0]["url"] == "https://example.org/docs/0.10.0/"
    assert (pages / "0.9.0" / "index.html").read_text() == "0.9.0"
    assert 'url=0.10.0/"' in (pages / "index.html").read_text()
    with pytest.raises(ValueError, match="version"):
        versions.publish(tmp_path / "dev", pages, "../dev", "https://example.org")


@pytest.mark.parametrize(
    ("file", "pattern"),
    [
        ("CHANGELOG.md", r"^## \[(\d.*)\]$"),
        ("CITATION.cff", r'^version: "(.*)"$'),
        ("recipe/meta.yaml", r'^{% set version = "(.*)" %}$'),
        ("docs/about.md", r"^  version = {(.*)},$"),
    ],
)
def test_one_version(file: str, pattern: str) -> None:
    """What repeats the version of pyproject.toml repeats it as it is; of the changelog, the newest release."""
    shown = re.findall(pattern, (ROOT / file).read_text("utf-8"), re.MULTILINE)
    assert shown[0] == PROJECT["version"]


def test_the_conda_recipe_has_the_dependencies_of_the_package() -> None:
    names = {"torch": "pytorch", "matplotlib": "matplotlib-base"}

    def recipe_line(requirement: str) -> str:
        name, bounds = re.fullmatch(r"([\w-]+)(.*)", requirement).groups()  # type: ignore[union-attr]
        lower = name.lower()
        lower = lower if lower == "huggingface_hub" else lower.replace("_", "-")
        return f"    - {names.get(lower, lower)} {bounds}"

    lines = (ROOT / "recipe" / "meta.yaml").read_text("utf-8").splitlines()
    assert [line for line in map(recipe_line, PROJECT["dependencies"]) if line not in lines] == []
