"""The table "What differs from the papers" names every metric, and nothing that does not exist."""

import re
from pathlib import Path

import pytest

import captum_concepts
import quantus_concepts
from quantus_concepts import AVAILABLE_METRICS, datasets, diffusion, functional, pasta

PAGE = Path(__file__).parents[1] / "docs" / "limits.md"
PACKAGES = (captum_concepts, quantus_concepts, datasets, functional, pasta)


def rows() -> list[list[str]]:
    text = PAGE.read_text(encoding="utf-8").partition("| metric or model |")[2]
    lines = [line for line in text.splitlines() if line.startswith("| ")]
    return [[cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]] for line in lines if set(line) - set("| -")]


@pytest.mark.parametrize("metric", AVAILABLE_METRICS["Concepts"].values(), ids=lambda metric: metric.__name__)
def test_every_metric_has_a_row(metric: type) -> None:
    assert any(f"`{metric.__name__}`" in row[0] for row in rows())


def test_rows_are_complete_and_about_public_names() -> None:
    pytest.importorskip("diffusers")
    packages = (*PACKAGES, diffusion)
    for row in rows():
        assert len(row) == 5, row
        assert all(row), row
        # What follows a colon are settings.
        names = re.findall(r"`([\w.]+)`", row[0].partition(":")[0])
        assert names or "`benchmark " in row[0], row
        for name in names:
            first, _, _ = name.partition(".")
            assert any(hasattr(package, first) for package in packages), name


def test_commands_that_reproduce_concept_tables_use_the_values_of_the_paper() -> None:
    commands = [
        line for line in PAGE.read_text(encoding="utf-8").splitlines() if "`benchmark concepts --data cub" in line
    ]
    assert commands
    assert all("--values raw" in line for line in commands)
