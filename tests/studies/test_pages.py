"""The report of every small run: one well-formed page that needs no other file and opens with its answers."""

from __future__ import annotations

from collections.abc import Callable
from html.parser import HTMLParser
from pathlib import Path

import pytest

from golden.runs import RUNS
from quantus_concepts.studies._kit.page import site_address

ROOT = Path(__file__).parent.parent.parent


class Balance(HTMLParser):
    """Checks that every element is closed in order."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: list[str] = []
        self.sources: list[str] = []
        self.classes: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Note what is opened."""
        self.tags.append(tag)
        self.sources += [value or "" for name, value in attrs if name in ("src", "href")]
        self.classes += [value or "" for name, value in attrs if name == "class"]
        if tag not in ("meta", "img", "br", "link"):
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        """Check what is closed."""
        assert self.open.pop() == tag


@pytest.mark.parametrize("name", [*(name for name, run in RUNS.items() if "results.csv" in run.tables), "pasta-score"])
def test_a_page_is_well_formed_and_self_contained(name: str, golden: Callable[[str], Path]) -> None:
    folder = golden(name)
    text = (folder / "report.html").read_text("utf-8")
    page = Balance()
    page.feed(text)
    assert not page.open
    assert not {"script", "link"} & set(page.tags)
    assert {"table", "dl"} <= set(page.tags)
    links = [source for source in page.sources if not source.startswith(("data:image/", "#"))]
    # A link is no request: tables that lie next to the page, and pages of the site that explain its metrics.
    explained = [link for link in links if link.startswith(site_address())]
    assert explained
    assert [link for link in explained if not (ROOT / f"docs{link[len(site_address()) : -5]}.md").is_file()] == []
    tables = [f"./{path.name}" for path in folder.glob("*.csv")]
    assert sorted(links) == sorted([*explained, *tables])
    assert "<td>nan" not in text.lower()
    # The two splits of one run lie as far apart as its choices: there is nothing to answer.
    if name != "pasta-ablate":
        assert text.index('class="verdict answers"') < text.index("<h2")
