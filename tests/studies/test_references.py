"""What a report says to cite is what the site says, for the metrics that it has."""

from __future__ import annotations

import re
from importlib.metadata import version
from pathlib import Path

import pytest

from quantus_concepts.studies._kit.references import PAPERS, bibtex

SITE = Path(__file__).parents[2] / "docs" / "about.md"


@pytest.mark.parametrize(
    ("names", "keys"),
    [
        (["benchmark concepts", "accuracy", "CEM gain"], ["aysel2025conceptbased"]),
        (["benchmark substitution", "S+"], ["bader2025sub"]),
        (["benchmark attribution", "MCS baseline", "TCAV"], ["yang2019bim"]),
        (["pasta train", "MSE"], ["kazmierczak2024benchmarking"]),
        (["benchmark concepts", "accuracy"], []),
    ],
)
def test_the_papers_of_metrics(names, keys):
    assert re.findall(r"^@\w+{(\w+),", bibtex(names), re.MULTILINE) == ["quantus_concepts", *keys]


@pytest.mark.skipif(not SITE.exists(), reason="The site is not in the wheel.")
def test_entries_are_those_of_the_site():
    site = SITE.read_text(encoding="utf-8")
    (shown,) = re.findall(r"version = {(.*)}", site)
    for entry in bibtex(["CEM", "S+", "MCS", "PASTA-score"]).split("\n\n"):
        # A checkout may be newer than what is installed: tests/test_publishing.py compares the versions.
        assert entry.replace(f"{{{version('quantus-concepts')}}}", f"{{{shown}}}") in site
    assert len(PAPERS) == 4
