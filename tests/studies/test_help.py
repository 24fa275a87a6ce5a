"""What `--help` shows: an option is a phrase that stands alone, and each command has examples."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from typing import Any

import pytest
import typer

from quantus_concepts.studies.app import app


def leaves(group: Any, names: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    for name, command in group.commands.items():
        if hasattr(command, "commands"):
            yield from leaves(command, (*names, name))
        else:
            yield (*names, name), command


COMMANDS = dict(leaves(typer.main.get_command(app)))


@pytest.mark.parametrize("names", COMMANDS, ids=" ".join)
def test_examples_name_options_that_there_are(names: tuple[str, ...]) -> None:
    command = COMMANDS[names]
    examples = re.findall("^(?:Example: )?quantus-concepts (.*)", f"{command.help}\n{command.epilog}", re.MULTILINE)
    assert examples
    options = {name for parameter in command.params for name in (*parameter.opts, *parameter.secondary_opts)}
    for example in examples:
        words = shlex.split(example)
        assert tuple(words[: len(names)]) == names
        assert {word for word in words if word.startswith("--")} <= options


@pytest.mark.parametrize("names", COMMANDS, ids=" ".join)
def test_what_an_option_is(names: tuple[str, ...]) -> None:
    for parameter in COMMANDS[names].params:
        assert parameter.help, parameter.name
        assert not parameter.help.startswith("Of "), parameter.help
