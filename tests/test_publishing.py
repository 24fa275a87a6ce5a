"""What publishes the project: the folder of all versions of the site, and what repeats pyproject.toml."""

from __future__ import annotations

import importlib.util
import json
import re
import subprocess
import tomllib
from importlib.metadata import metadata
from pathlib import Path
from typing import Any

import pytest
from hatchling.builders.sdist import SdistBuilder
from hatchling.builders.wheel import WheelBuilder

ROOT = Path(__file__).parent.parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]


def load_extension(name: str) -> Any:
    spec = importlib.util.spec_from_file_location(name, ROOT / "docs" / "_extensions" / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_notebooks_bring_the_modules_that_their_modules_import(tmp_path: Path) -> None:
    pytest.importorskip("myst_nb")
    (tmp_path / "a.py").write_text("from b import x\nfrom numpy import y\n")
    (tmp_path / "b.py").write_text("from a import z\n")
    (tmp_path / "c.py").write_text("")
    assert [*load_extension("notebooks").needed_modules("from a import w\n", tmp_path)] == ["a", "b"]


def test_sites_of_versions_lie_side_by_side(tmp_path: Path) -> None:
    versions = load_extension("versions")
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
        ("recipe/recipe.yaml", r'^  version: "(.*)"$'),
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

    lines = (ROOT / "recipe" / "recipe.yaml").read_text("utf-8").splitlines()
    assert [line for line in map(recipe_line, PROJECT["dependencies"]) if line not in lines] == []


@pytest.fixture
def tracked() -> set[str]:
    if not (ROOT / ".git").exists():
        pytest.skip("not a checkout: nobody tracks what belongs to the project")
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    return {name for name in listed.split("\0") if name and (ROOT / name).is_file()}


def test_the_source_distribution_holds_what_git_tracks(tracked: set[str]) -> None:
    shipped = {file.distribution_path for file in SdistBuilder(str(ROOT)).recurse_included_files()}
    # Hatchling adds nothing; a file that was just made, and is not added to git yet, is there all the same.
    assert tracked - shipped == set()


def test_the_wheel_holds_both_packages_and_nothing_else(tracked: set[str]) -> None:
    shipped = {file.distribution_path for file in WheelBuilder(str(ROOT)).recurse_included_files()}
    packages = {
        name.removeprefix("adapters/") for name in tracked if name.startswith(("quantus_concepts/", "adapters/"))
    }
    assert packages - shipped == set()
    assert {name.partition("/")[0] for name in shipped} == {"quantus_concepts", "captum_concepts"}


def test_the_package_page_leads_somewhere() -> None:
    page = str(metadata("quantus-concepts").get_payload() or metadata("quantus-concepts")["Description"])
    links = re.findall(r"\]\(([^)\s]+)\)", page)
    assert len(links) > 20
    assert [link for link in links if not link.startswith("https://")] == []
    assert "pip install quantus-concepts\n" in page
    assert "pip install .\n" not in page


def test_the_placeholder_of_the_public_place_stands_in_one_file(tracked: set[str]) -> None:
    texts = {name: (ROOT / name).read_bytes() for name in tracked if not name.startswith("tests/")}
    assert [name for name, text in texts.items() if b"example.org" in text] == ["pyproject.toml"]
