"""The directive `metrics`: a table of all metrics, a row for each page of `metrics/` that has `metric:` on top."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import yaml
from docutils import nodes
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective


class Metrics(SphinxDirective):
    """Name and question of each metric, from the page's title, and the columns named, from its front matter."""

    has_content = False
    optional_arguments = 4

    def run(self) -> list[nodes.Node]:
        """Return the table."""
        columns = ["metric", "question", *self.arguments]
        lines = [f"| {' | '.join(columns)} |", "| --- " * len(columns) + "|"]
        for page in sorted((Path(self.env.srcdir) / "metrics").glob("*.md")):
            self.env.note_dependency(str(page))
            row = _row(page)
            if row:
                lines.append(f"| {' | '.join(row[column] for column in columns)} |")
        return self.parse_text_to_nodes("\n".join(lines))


def _row(page: Path) -> dict[str, Any]:
    """Return the entries of a page by column, none for a page that is not about a metric."""
    _, front, text = page.read_text("utf-8").split("---\n", 2)
    entries = yaml.safe_load(front).get("metric")
    if not entries:
        return {}
    name, question = re.findall(r"^# ([\w ]+): (.+)$", text, flags=re.MULTILINE)[0]
    link = f"[{name}](/metrics/{page.name})"
    return {"metric": link, "question": question, **entries}


def setup(app: Sphinx) -> dict[str, bool]:
    """Register the directive."""
    app.add_directive("metrics", Metrics)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
