"""What `--help` shows: an option is a phrase that stands alone, and each command ends with examples."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from typing import Any

import pytest
import typer

from quantus_concepts.studies.app import COMMANDS as EXPORTED
from quantus_concepts.studies.app import app, main


def leaves(group: Any, names: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    for name, command in group.commands.items():
        if hasattr(command, "commands"):
            yield from leaves(command, (*names, name))
        else:
            yield (*names, name), command


COMMANDS = dict(leaves(typer.main.get_command(app)))
#: Commands whose options are not yet parameters of a function.
OLD = [names for names in COMMANDS if not callable(EXPORTED[" ".join(names)])]


@pytest.mark.parametrize("names", OLD, ids=" ".join)
def test_examples_parse(names: tuple[str, ...]) -> None:
    head, *examples = COMMANDS[names].epilog.split("\n\n")
    assert (head, len(examples)) == ("Examples:", 2 + bool(EXPORTED[" ".join(names)][0].quick))
    for example in examples:
        program, *words = shlex.split(example)
        assert (program, tuple(words[: len(names)])) == ("quantus-concepts", names)
        COMMANDS[names].make_context(names[-1], words[len(names) :])


@pytest.mark.parametrize("names", COMMANDS, ids=" ".join)
def test_what_an_option_is(names: tuple[str, ...]) -> None:
    for parameter in COMMANDS[names].params:
        assert parameter.help, parameter.name
        assert not parameter.help.startswith("Of "), parameter.help


def test_flags_have_no_kind_of_value(capsys: pytest.CaptureFixture[str]) -> None:
    for words in ([], ["benchmark"], ["benchmark", "concepts"]):
        assert main([*words, "--help"]) == 0
        assert "<bool>" not in capsys.readouterr().out


def test_a_paragraph_fills_its_lines(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "110")
    assert main(["benchmark", "attribution", "--help"]) == 0
    lines = [line.strip() for line in capsys.readouterr().out.partition("With no option")[2].splitlines()]
    paragraph = lines[: lines.index("")]
    assert min(map(len, paragraph[1:-1])) > 90
