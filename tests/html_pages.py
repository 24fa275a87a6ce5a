"""An HTML page read for tests: which elements it has, and that each is closed in order."""

from __future__ import annotations

from html.parser import HTMLParser


class HTMLPage(HTMLParser):
    """The tags, links and classes of a page whose elements are all closed; an AssertionError for another."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: list[str] = []
        self.sources: list[str] = []
        self.feed(text)
        assert not self.open

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Note what is opened."""
        self.tags.append(tag)
        self.sources += [value or "" for name, value in attrs if name in ("src", "href")]
        if tag not in ("meta", "img", "br", "link", "input"):
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        """Check what is closed."""
        assert self.open.pop() == tag
