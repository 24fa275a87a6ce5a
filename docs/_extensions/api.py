"""The directive `api`, a summary of public names and then each in full, and the role of names in docstrings."""

from __future__ import annotations

import importlib
import inspect
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

OURS = ("quantus_concepts", "captum_concepts")
PACKAGES = (
    *OURS,
    *(
        f"quantus_concepts.{name}"
        for name in ("metrics", "datasets", "pasta", "functional", "diffusion")
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
    """Names a line each, as the package exports them; constants with `: what they are`."""

    required_arguments = 1
    has_content = True
    option_spec: ClassVar[dict[str, Any]] = {"members": directives.flag}

    def run(self) -> list[nodes.Node]:
        """Return the summary and the entries."""
        package = importlib.import_module(self.arguments[0])
        names, entries = [], []
        for line in filter(None, self.content):
            name, _, told = (part.strip() for part in line.partition(":"))
            kind = _kind(getattr(package, name))
            if kind == "data":
                entries += [f".. py:data:: {name}", "", f"   {told}", ""]
                continue
            names.append(name)
            members = kind == "class" and "members" in self.options
            entries += [f".. auto{kind}:: {name}", *(MEMBERS if members else ()), ""]
        summary = (
            [
                ".. autosummary::",
                "   :nosignatures:",
                "",
                *(f"   {name}" for name in names),
                "",
            ]
            if names
            else []
        )
        lines = [f".. currentmodule:: {self.arguments[0]}", "", *summary, *entries]
        return self.parse_text_to_nodes(
            StringList(lines, source=self.get_source_info()[0])
        )


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
    app: Sphinx, env: BuildEnvironment, node: pending_xref, shown: nodes.Node
) -> nodes.Node | None:
    """Link what another page documents; leave an argument, and what can be imported, as it is; warn of the rest."""
    # numpydoc writes the attributes of a class as such references, too.
    if node.get("reftype") != "obj":
        return None
    target = node["reftarget"]
    last = target.rpartition(".")[2] if target.startswith(OURS) else target
    for package in PACKAGES:
        found = env.domains.python_domain.objects.get(f"{package}.{last}")
        if found is not None:
            return make_refnode(
                app.builder, node["refdoc"], found.docname, found.node_id, shown, target
            )
    return (
        shown
        if not target.startswith(tuple(f"{name}." for name in OURS)) or _exists(target)
        else None
    )


def _exists(target: str) -> bool:
    parent, _, name = target.rpartition(".")
    try:
        return hasattr(importlib.import_module(parent), name)
    except ImportError:
        return bool(parent) and _exists(parent)


def setup(app: Sphinx) -> dict[str, bool]:
    """Register both."""
    app.add_directive("api", Api)
    app.add_role("name", name_role)
    app.connect("missing-reference", resolve_name)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
