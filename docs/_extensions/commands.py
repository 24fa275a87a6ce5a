"""The directive `commands`: a section for each command, with help, options and examples as the command prints them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import typer
from docutils import nodes
from docutils.statemachine import StringList
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective


def walk(command: Any, name: str) -> Iterator[tuple[str, Any]]:
    """Yield the name and the click command of every command, without the groups."""
    if not hasattr(command, "commands"):
        yield name, command
        return
    for part, inner in command.commands.items():
        yield from walk(inner, f"{name} {part}")


def option_lines(command: Any, name: str) -> list[str]:
    """Return a table of the options: name, what it is, default."""
    context = typer.Context(command, info_name=name)
    rows = []
    for parameter in command.params:
        record = parameter.get_help_record(context) or (
            parameter.name,
            getattr(parameter, "help", "") or "",
        )
        flags, text = record
        default = parameter.default
        default_text = (
            str(default)
            if isinstance(default, str | int | float) and not isinstance(default, bool)
            else ""
        )
        names = " ".join(flags.replace("<", "").replace(">", "").split())
        rows.append(
            (
                names,
                " ".join(text.partition("[default:")[0].split()).rstrip(),
                default_text,
            )
        )
    lines = [".. list-table::", "   :header-rows: 1", "   :widths: 30 55 15", ""]
    for option, text, default in [("option", "meaning", "default"), *rows]:
        code = option == "option"
        lines += [
            f"   * - {option if code else f'``{option}``'}",
            f"     - {_escaped(text)}",
            f"     - {default if code else f'``{default}``' if default else ''}",
        ]
    return [*lines, ""]


def _escaped(text: str) -> str:
    """Return a text for reStructuredText: signs as they are, and names of options as code."""
    text = re.sub(r"([\\*`|_])", r"\\\1", text)
    return re.sub(r"(?<![\w-])--[a-zA-Z][\w-]*", r"``\g<0>``", text)


class Commands(SphinxDirective):
    """Every command of the package, in the order of its help."""

    def run(self) -> list[nodes.Node]:
        """Return the sections."""
        from quantus_concepts.studies.app import app

        sections: list[nodes.Node] = []
        for name, command in walk(typer.main.get_command(app), "quantus-concepts"):
            title = name.partition(" ")[2]
            section = nodes.section(
                ids=[nodes.make_id(title)], names=[nodes.fully_normalize_name(title)]
            )
            section += nodes.title(text=title)
            texts = (command.help or "").split("\n\n")
            examples = [
                text.removeprefix("Example: ")
                for text in texts
                if text.removeprefix("Example: ").startswith("quantus-concepts ")
            ]
            text = "\n\n".join(
                text for text in texts if not text.startswith("Example: ")
            )
            lines = [*_escaped(text).splitlines(), ""]
            if examples:
                lines += [
                    ".. code-block:: console",
                    "",
                    *(f"   $ {line}" for line in examples),
                    "",
                ]
            lines += option_lines(command, name)
            section += self.parse_text_to_nodes(
                StringList(lines, source=self.get_source_info()[0])
            )
            self.state.document.note_implicit_target(section, section)
            sections.append(section)
        return sections


def setup(app: Sphinx) -> dict[str, bool]:
    """Register it."""
    app.add_directive("commands", Commands)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
