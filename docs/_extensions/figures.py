"""Figures that cells make are told by the heading they stand under, where a reader cannot see them."""

from __future__ import annotations

from docutils import nodes
from sphinx.application import Sphinx


def _tell(app: Sphinx, doctree: nodes.document, docname: str) -> None:
    for image in doctree.findall(nodes.image):
        section = image
        while section is not None and not isinstance(section, nodes.section):
            section = section.parent
        if section is not None:
            image.setdefault(
                "alt", f"Figure made by the code above: {section[0].astext()}"
            )


def setup(app: Sphinx) -> dict[str, bool]:
    """Register it."""
    app.connect("doctree-resolved", _tell)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
