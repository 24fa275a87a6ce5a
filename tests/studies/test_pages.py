"""The report of every small run: one well-formed page that needs no other file and opens with its verdicts."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from golden.runs import RUNS
from html_pages import HTMLPage


@pytest.mark.parametrize("name", [*(name for name, run in RUNS.items() if "results.csv" in run.tables), "pasta-score"])
def test_a_page_is_well_formed_and_self_contained(name: str, golden: Callable[[str], Path]) -> None:
    folder = golden(name)
    text = (folder / "report.html").read_text("utf-8")
    page = HTMLPage(text)
    assert not {"script", "link"} & set(page.tags)
    links = [source for source in page.sources if not source.startswith(("data:image/", "#"))]
    # A link is no request: files that lie next to the page.
    assert links
    assert [link for link in links if not (folder / link).is_file()] == []
    assert "nan" not in {cell.lower() for cell in text.replace("<", ">").split(">")}
    assert text.index('<table class="verdicts"') < text.index("<h2")
