"""The report of every small run: one well-formed page that needs no other file and opens with its answers."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest

from golden.runs import RUNS
from html_pages import HTMLPage
from quantus_concepts import AVAILABLE_METRICS
from quantus_concepts.studies._kit.page import site_address

ROOT = Path(__file__).parent.parent.parent


def metric_pages() -> dict[str, str]:
    """Return the page of each metric by the name that reports call it."""
    titles = {path.stem: path.read_text("utf-8") for path in (ROOT / "docs/metrics").glob("*.md")}
    pages = {
        name: next(stem for stem, text in titles.items() if f"# {metric.__name__}: " in text)
        for name, metric in AVAILABLE_METRICS["Concepts"].items()
    }
    return pages | {"S+": pages["SubstitutionScore"]}


@pytest.mark.parametrize("name", [*(name for name, run in RUNS.items() if "results.csv" in run.tables), "pasta-score"])
def test_a_page_is_well_formed_and_self_contained(name: str, golden: Callable[[str], Path]) -> None:
    folder = golden(name)
    text = (folder / "report.html").read_text("utf-8")
    page = HTMLPage(text)
    assert not {"script", "link"} & set(page.tags)
    assert {"table", "dl"} <= set(page.tags)
    links = [source for source in page.sources if not source.startswith(("data:image/", "#"))]
    # A link is no request: tables that lie next to the page, and pages of the site that explain its metrics.
    explained = [link for link in links if link.startswith(site_address())]
    assert [link for link in explained if not (ROOT / f"docs{link[len(site_address()) : -5]}.md").is_file()] == []
    # The page of each metric that it names.
    for metric, link in metric_pages().items():
        if re.search(rf"(?<![\w-]){re.escape(metric)}(?!\w)", text):
            assert f"{site_address()}/metrics/{link}.html" in explained
    tables = [f"./{path.name}" for path in folder.glob("*.csv")]
    assert sorted(links) == sorted([*explained, *tables])
    assert "<td>nan" not in text.lower()
    # The two splits of one run lie as far apart as its choices: there is nothing to answer.
    if name != "pasta-ablate":
        assert text.index('class="verdict answers"') < text.index("<h2")
