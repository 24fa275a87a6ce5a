"""What publishes the project: the folder of all versions of the site, workflows, and what they take for granted."""

from __future__ import annotations

import importlib.util
import json
import re
import tomllib
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parent.parent
WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))


def extension(name: str) -> Any:
    spec = importlib.util.spec_from_file_location(name, ROOT / "docs" / "_extensions" / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def versions() -> Any:
    return extension("versions")


def test_a_page_is_a_notebook_that_brings_what_it_imports() -> None:
    pytest.importorskip("myst_nb")
    notebooks = extension("notebooks")
    text = (ROOT / "docs" / "index.md").read_text("utf-8")
    notebook = notebooks.as_notebook(text, ROOT / "docs" / "examples")
    install, module, *cells = notebook.cells
    assert "quantus-concepts" in install.source
    assert module.source.startswith("%%writefile small_network.py")
    assert {"markdown", "code"} == {cell.cell_type for cell in cells}
    assert not notebooks.is_notebook((ROOT / "docs" / "faq.md").read_text("utf-8"))


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


@pytest.mark.parametrize("version", ["", "main", "../dev", "1"])
def test_a_site_of_no_version_is_refused(versions: Any, tmp_path: Path, version: str) -> None:
    (tmp_path / "index.html").touch()
    with pytest.raises(ValueError, match="version"):
        versions.publish(tmp_path, tmp_path / "pages", version, "https://example.org")


def test_a_folder_that_is_no_site_is_refused(versions: Any, tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"index\.html"):
        versions.publish(tmp_path, tmp_path / "pages", "dev", "https://example.org")


def test_workflows_run_what_is_there() -> None:
    assert {path.stem for path in WORKFLOWS} == {"tests", "site", "release", "weekly"}
    text = "\n".join(path.read_text("utf-8") for path in WORKFLOWS)
    tox = (ROOT / "tox.ini").read_text("utf-8")
    environments = re.findall(r"tox -e (\w+)", text)
    assert environments
    assert [name for name in environments if f"[testenv:{name}]" not in tox] == []
    assert [
        path for path in re.findall(r"python ((?:docs|tests|speed)/\S+\.py)", text) if not (ROOT / path).is_file()
    ] == []
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    extras = set(re.findall(r'"\.\[(\w+)\]"', text))
    assert extras <= set(project["optional-dependencies"])
    # Pythons that are tested are those the package says it supports.
    (lowest,) = re.findall(r">=3\.(\d+)", project["requires-python"])
    named = {int(minor) for minor in re.findall(r"Python :: 3\.(\d+)", "\n".join(project["classifiers"]))}
    tested = {int(minor) for minor in re.findall(r'"3\.(\d+)"', (WORKFLOWS[-2]).read_text("utf-8"))}
    assert min(named) == int(lowest)
    assert named <= tested


def test_the_changelog_has_a_section_of_this_version() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    assert f"## [{project['version']}]" in (ROOT / "CHANGELOG.md").read_text("utf-8")


def test_the_conda_recipe_has_the_dependencies_of_the_package() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    names = {"torch": "pytorch", "matplotlib": "matplotlib-base"}

    def recipe_line(requirement: str) -> str:
        name, bounds = re.fullmatch(r"([\w-]+)(.*)", requirement).groups()  # type: ignore[union-attr]
        lower = name.lower()
        lower = lower if lower == "huggingface_hub" else lower.replace("_", "-")
        return f"    - {names.get(lower, lower)} {bounds}"

    lines = (ROOT / "recipe" / "meta.yaml").read_text("utf-8").splitlines()
    assert [line for line in map(recipe_line, project["dependencies"]) if line not in lines] == []
