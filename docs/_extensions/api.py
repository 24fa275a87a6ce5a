"""The directive `api`, a summary of public names with a page for each, and the role of names in docstrings."""

from __future__ import annotations

import importlib
import inspect
import re
from pathlib import Path
from typing import Any, ClassVar

from docutils import nodes
from docutils.parsers.rst import directives
from docutils.parsers.rst.states import Inliner
from docutils.statemachine import StringList
from sphinx.addnodes import pending_xref
from sphinx.application import Sphinx
from sphinx.environment import BuildEnvironment
from sphinx.util.docutils import SphinxDirective
from sphinx.util.nodes import make_refnode

from quantus_concepts import AVAILABLE_METRICS

OURS = ("quantus_concepts", "captum_concepts")
#: Folder of the pages of public objects, below that of the reference.
OBJECTS = "objects"
PACKAGES = (
    *OURS,
    *(
        f"quantus_concepts.{name}"
        for name in ("metrics", "datasets", "pasta", "functional", "diffusion", "testing")
    ),
)
#: With those of our own base classes; what comes from the classes named is told where they are.
MEMBERS = (
    "   :members:",
    "   :inherited-members: Module, Attribution, Dataset, ABC, Protocol, Generic, tuple, dict, object",
    # Captum's, which its classes have anew.
    "   :exclude-members: attribute_future, compute_convergence_delta, has_convergence_delta, interpolate",
)


class Api(SphinxDirective):
    """Names a line each, as the package exports them; constants with `: what they are`.

    With `:all:` all that the package exports, with `:metrics:` all metrics.
    Each name has a page of its own, which `write_pages` makes.
    """

    required_arguments = 1
    has_content = True
    option_spec: ClassVar[dict[str, Any]] = {
        "members": directives.flag,
        "all": directives.flag,
        "metrics": directives.flag,
    }

    def run(self) -> list[nodes.Node]:
        """Return the summary, the constants, and the hidden contents."""
        package = self.arguments[0]
        names, constants = [], []
        for name, text in _entries(package, self.block_text.splitlines()[1:]):
            if _kind(getattr(importlib.import_module(package), name)) == "data":
                constants += [f".. py:data:: {name}", "", f"   {text}", ""]
            else:
                names.append(name)
        lines = [f".. currentmodule:: {package}", ""]
        if names:
            lines += [
                ".. autosummary::",
                "   :nosignatures:",
                "",
                *(f"   {name}" for name in names),
                "",
            ]
            lines += [
                ".. toctree::",
                "   :hidden:",
                "",
                *(f"   {OBJECTS}/{package}.{name}" for name in names),
                "",
            ]
        lines += constants
        return self.parse_text_to_nodes(
            StringList(lines, source=self.get_source_info()[0])
        )


def _entries(package: str, lines: list[str]) -> list[tuple[str, str]]:
    """Return name and text of each line, after the names that options stand for."""
    options = {line.strip() for line in lines if line.strip().startswith(":")}
    parts = (
        line.partition(":")
        for line in lines
        if line.strip() and line.strip() not in options
    )
    names: list[str] = []
    if ":all:" in options:
        names += importlib.import_module(package).__all__
    if ":metrics:" in options:
        names += [metric.__name__ for metric in AVAILABLE_METRICS["Concepts"].values()]
    return [
        *((name, "") for name in names),
        *((name.strip(), text.strip()) for name, _, text in parts),
    ]


def write_pages(app: Sphinx) -> None:
    """Write a page for each public object that a page of the reference names, and remove those of others."""
    folder = Path(app.srcdir) / "api" / OBJECTS
    folder.mkdir(exist_ok=True)
    pages = {}
    for page in (Path(app.srcdir) / "api").glob("*.md"):
        for package, text in re.findall(
            r"\.\. api:: (\S+)\n(.*?)```", page.read_text("utf-8"), flags=re.DOTALL
        ):
            for name, _ in _entries(package, text.splitlines()):
                kind = _kind(getattr(importlib.import_module(package), name))
                if kind != "data":
                    members = MEMBERS if kind == "class" and ":members:" in text else ()
                    title = f"{name}\n{'=' * len(name)}"
                    lines = [
                        title,
                        "",
                        f".. currentmodule:: {package}",
                        "",
                        f".. auto{kind}:: {name}",
                        *members,
                        "",
                    ]
                    pages[folder / f"{package}.{name}.rst"] = "\n".join(lines)
    for path in set(folder.glob("*.rst")) - set(pages):
        path.unlink()
    for path, text in pages.items():
        # A page that is as it was is not built again.
        if not path.is_file() or path.read_text("utf-8") != text:
            path.write_text(text, "utf-8")


def _kind(value: Any) -> str:
    return (
        "class"
        if inspect.isclass(value)
        else "function"
        if inspect.isroutine(value)
        else "data"
    )


def name_role(
    name: str,
    rawtext: str,
    text: str,
    lineno: int,
    inliner: Inliner,
    options: Any = None,
    content: Any = (),
) -> tuple[list[nodes.Node], list[nodes.system_message]]:
    """Read a name in backticks, an argument or something public: a link where it is in the reference."""
    env: BuildEnvironment = inliner.document.settings.env
    scope = {
        f"py:{key}": env.ref_context.get(f"py:{key}") for key in ("module", "class")
    }
    target = pending_xref(
        rawtext,
        nodes.literal(rawtext, text),
        reftype="obj",
        refdomain="py",
        reftarget=text,
        **scope,
    )
    target["refdoc"] = env.docname
    return [target], []


def resolve_name(
    app: Sphinx, env: BuildEnvironment, node: pending_xref, text: nodes.Node
) -> nodes.Node | None:
    """Link what another page documents; leave an argument, and what can be imported, as it is; warn of the rest."""
    target = node["reftarget"]
    ours = target.startswith(tuple(f"{name}." for name in OURS))
    # Types in signatures are classes; those of others are for intersphinx.
    if node.get("reftype") != "obj" and not (node.get("reftype") == "class" and ours):
        return None
    last = target.rpartition(".")[2] if ours else target
    for package in PACKAGES:
        entry = env.domains.python_domain.objects.get(f"{package}.{last}")
        if entry is not None:
            return make_refnode(
                app.builder, node["refdoc"], entry.docname, entry.node_id, text, target
            )
    return text if not ours or _exists(target) else None


def _exists(target: str) -> bool:
    parent, _, name = target.rpartition(".")
    try:
        return hasattr(importlib.import_module(parent), name)
    except ImportError:
        return bool(parent) and _exists(parent)


def setup(app: Sphinx) -> dict[str, bool]:
    """Register both."""
    app.add_directive("api", Api)
    app.connect("builder-inited", write_pages)
    app.add_role("name", name_role)
    app.connect("missing-reference", resolve_name)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
