"""A study is declared once: its fields are the options of its command, and its folder is opened for it."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import pytest
import typer
from typer.testing import CliRunner

from quantus_concepts.studies._kit import options as kit
from quantus_concepts.studies._kit.folder import RunFolder
from quantus_concepts.studies._kit.study import Settings, command_of


@dataclass(frozen=True, kw_only=True)
class Counting(Settings):
    """Count.

    Example: quantus-concepts count things
    """

    words = "count"
    shown = "what out n_steps"

    what: Annotated[str, typer.Argument(help="What is counted.")]
    n_steps: Annotated[int, typer.Option(min=1, help="Steps.")] = 2
    overwrite: kit.Overwrite = False
    fast: Annotated[bool, typer.Option("--fast", help="Skip some.")] = False
    out: kit.Out = None
    device: kit.Device = "cpu"

    def check(self) -> None:
        if self.what == "nothing":
            raise ValueError("Expected `what` to be something.")

    def idle(self) -> tuple[str, tuple[str, ...]]:
        return "when all is skipped", ("n_steps",) if self.fast else ()


def run(settings: Counting, folder: RunFolder) -> None:
    if settings.what == "missing":
        raise ValueError("There is no such thing.")
    with folder:
        folder.write("count.txt", f"{settings.what} {settings.n_steps} {settings.place}")


count = command_of(Counting, run)


def call(*words: str) -> object:
    app = typer.Typer()
    app.command()(count)
    return CliRunner().invoke(app, words)


def test_fields_are_the_options_and_their_values_are_those_given(tmp_path):
    done = call("birds", "--n-steps", "3", "--out", str(tmp_path / "a"))
    assert done.exit_code == 0, done.output
    assert (tmp_path / "a" / "count.txt").read_text() == "birds 3 cpu"
    run = json.loads((tmp_path / "a" / "run.json").read_text())
    assert run["command"] == "count"
    assert {name: text for name, text in run["settings"].items() if name != "version"} == {
        "what": "birds",
        "n steps": "3",
        "device": "cpu",
    }
    # A default is that of the field, and the bounds are those of its annotation.
    assert call("birds", "--out", str(tmp_path / "b")).exit_code == 0
    assert (tmp_path / "b" / "count.txt").read_text() == "birds 2 cpu"
    assert call("birds", "--n-steps", "0").exit_code != 0
    assert call("--n-steps", "1").exit_code != 0


def test_help_has_the_shown_options_in_the_order_of_the_fields(monkeypatch):
    monkeypatch.setenv("COLUMNS", "200")
    names = [parameter.name for parameter in typer.main.get_command(_app()).params]
    assert names[:6] == ["what", "n_steps", "overwrite", "fast", "out", "device"]
    text = call("--help").output
    assert "Count." in text
    assert "--n-steps" in text
    assert "--out" in text
    assert "--device" not in text
    assert "--fast" not in text
    assert kit.hidden_options(count) == ["--overwrite", "--fast", "--device"]
    # The types that studies share are not changed.
    assert not kit.Device.__metadata__[0].hidden


def _app() -> typer.Typer:
    app = typer.Typer(add_completion=False)
    app.command()(count)
    return app


def test_options_without_an_effect_are_refused_if_given_and_not_listed():
    assert "n steps" not in Counting(what="a", fast=True).listed()
    with pytest.raises(ValueError, match="`--n-steps` has no effect when all is skipped"):
        count(what="a", fast=True, n_steps=3)
    assert Counting(what="a", n_steps=3).listed()["n steps"] == "3"


def test_settings_that_are_refused_write_nothing_and_keep_an_earlier_run(tmp_path):
    out = tmp_path / "out"
    assert count(what="birds", out=out) == out
    refused = {"what": "nothing"}, {"fast": True, "n_steps": 3}, {"what": "missing"}
    for changed, reason in zip(refused, ("Expected", "no effect", "no such thing"), strict=True):
        with pytest.raises(ValueError, match=reason):
            count(**({"what": "birds", "out": out, "overwrite": True} | changed))
        assert (out / "count.txt").read_text() == "birds 2 cpu"
    with pytest.raises(ValueError, match="holds another run"):
        count(what="birds", out=out, n_steps=5)
    count(what="birds", out=out, n_steps=5, overwrite=True)
    assert (out / "count.txt").read_text() == "birds 5 cpu"


def test_a_new_folder_is_made_where_none_is_named_and_a_command_may_write_elsewhere(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    path = count(what="birds")
    assert path.parent == Path("reports")
    assert (path / "count.txt").exists()
    elsewhere = command_of(Counting, lambda settings, folder: tmp_path / "here")
    assert elsewhere(what="birds", out=tmp_path / "there") == tmp_path / "here"
    assert not (tmp_path / "there").exists()
