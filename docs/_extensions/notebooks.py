"""Executed pages as notebooks to download, and to open in Colab once the repository has a public place."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

import nbformat
from myst_nb.core.read import read_myst_markdown_notebook
from sphinx.application import Sphinx
from sphinx.environment import BuildEnvironment

FOLDER = "notebooks"
INSTALL = "%pip install --quiet quantus-concepts scikit-image"


def is_notebook(text: str) -> bool:
    """Return whether a page has code that is executed."""
    return text.startswith("---\nfile_format: mystnb")


def needed_modules(text: str, examples: Path) -> dict[str, str]:
    """Return the source of the modules of `examples` that a text imports, and of those that they import."""
    sources: dict[str, str] = {}
    texts = [text]
    while texts:
        for name in re.findall(r"^from (\w+) import", texts.pop(), flags=re.M):
            path = examples / f"{name}.py"
            if name not in sources and path.is_file():
                sources[name] = path.read_text("utf-8")
                texts.append(sources[name])
    return sources


def as_notebook(text: str, examples: Path) -> nbformat.NotebookNode:
    """Return a page as a notebook that installs the package and writes the modules of `examples` it imports."""
    notebook = read_myst_markdown_notebook(text)
    first = [nbformat.v4.new_code_cell(INSTALL)]
    for name, source in sorted(needed_modules(text, examples).items()):
        first.append(nbformat.v4.new_code_cell(f"%%writefile {name}.py\n{source}"))
    notebook.cells = first + [cell for cell in notebook.cells if cell.source.strip()]
    notebook.metadata = {"kernelspec": {"name": "python3", "display_name": "Python 3"}}
    for number, cell in enumerate(notebook.cells):
        cell.metadata = {}
        cell["id"] = f"cell-{number}"
    return notebook


def add_links(app: Sphinx, docname: str, source: list[str]) -> None:
    """Write the links below the heading of a page."""
    text = source[0]
    if not is_notebook(text):
        return
    up = "../" * docname.count("/")
    name = docname.replace("/", "-")
    links = [f'<a download href="{up}{FOLDER}/{name}.ipynb">Download as a notebook</a>']
    if repository := os.environ.get("DOCS_REPOSITORY"):
        version = os.environ.get("DOCS_VERSION", "dev")
        place = f"{repository}/blob/gh-pages/{version}/{FOLDER}/{name}.ipynb"
        address = f"https://colab.research.google.com/github/{place}"
        links.append(f'<a href="{address}">Open in Colab</a>')
    below = f"\\1\n\n```{{raw}} html\n<p>{' · '.join(links)}</p>\n```\n"
    source[0] = re.sub(r"^(# .+)$", below, text, count=1, flags=re.M)


def spread_notebooks(app: Sphinx, env: BuildEnvironment, docnames: list[str]) -> None:
    """Spread executed pages evenly over the list of pages, of which each process of `-j` reads a part at a time.

    In the order of their names all of them are in the last part, which one process reads while the others wait.
    """
    pages = [
        name for name in docnames if is_notebook(env.doc2path(name).read_text("utf-8"))
    ]
    rest = [name for name in docnames if name not in pages]
    for number, page in enumerate(pages):
        rest.insert(number * len(docnames) // len(pages), page)
    docnames[:] = rest


def write_notebooks(app: Sphinx, error: Exception | None) -> None:
    """Write the notebook of every executed page next to the built pages."""
    if error is not None or app.builder.format != "html":
        return
    folder = Path(app.outdir) / FOLDER
    folder.mkdir(exist_ok=True)
    for docname in app.env.found_docs:
        path = Path(app.env.doc2path(docname))
        text = path.read_text("utf-8") if path.suffix == ".md" else ""
        if is_notebook(text):
            notebook = as_notebook(text, Path(app.srcdir) / "examples")
            nbformat.write(notebook, folder / f"{docname.replace('/', '-')}.ipynb")


def setup(app: Sphinx) -> dict[str, Any]:
    """Register all three."""
    app.connect("env-before-read-docs", spread_notebooks)
    app.connect("source-read", add_links)
    app.connect("build-finished", write_notebooks)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
