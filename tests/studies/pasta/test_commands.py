"""Options of the `pasta` commands: what they change, and which have no effect beside others."""

from __future__ import annotations

import inspect
import shlex
import warnings
from pathlib import Path

import pytest

import quantus_concepts.studies.pasta.training as training
from fixtures_pasta import write_pasta_release
from golden.runs import smaller
from kills import raising
from quantus_concepts.studies.app import EXIT_BAD_INPUT, main
from quantus_concepts.studies.pasta import COMMANDS

TRAIN = "pasta train --data rated --question Q1 --encoder embedded --seeds 1 --no-progress --device cpu"
IDLE = {
    "benchmark pasta --no-uses --n-masks 7": "`--n-masks` has no effect with --no-uses",
    "benchmark pasta --no-uses --methods Lime": "`--methods` has no effect with --no-uses",
}


@pytest.fixture
def rated(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    explainers = ("0", "3", "6", "9", "12", "15", "39", "40", "41", "46")
    write_pasta_release(Path("rated"), datasets=("coco", "catsdogscars"), n_images=6, explainers=explainers)
    return tmp_path / "rated"


@pytest.mark.parametrize("words", IDLE)
def test_options_without_effect_are_refused(words, rated, capsys):
    assert main(shlex.split(f"{words} --out out")) == EXIT_BAD_INPUT
    assert IDLE[words] in capsys.readouterr().err
    assert not Path("out").exists()


@pytest.mark.parametrize(
    ("more", "epochs", "rate"), [("", 20, 0.003), ("--epochs 3", 3, 0.003), ("--epochs 2 --learning-rate 0.1", 2, 0.1)]
)
def test_a_scorer_is_trained_as_the_options_and_the_help_say(more, epochs, rate, rated, monkeypatch):
    plans = []
    monkeypatch.setattr(
        training, "run_training", lambda settings, folder: plans.append(training.load_material(settings)[2])
    )
    assert main(shlex.split(f"{TRAIN} {more} --out out")) == 0
    assert (plans[0].settings.epochs, plans[0].settings.learning_rate) == (epochs, rate)


def test_warnings_of_a_training_are_notes_of_its_report(rated, monkeypatch):
    done = training.train_on_ratings

    def warn_and_train(*arguments):
        warnings.warn("The ratings are odd.", stacklevel=1)
        return done(*arguments)

    monkeypatch.setattr(training, "train_on_ratings", warn_and_train)
    with smaller(figures=False):
        assert main(shlex.split(f"{TRAIN} --epochs 1 --out out")) == 0
    assert "<li>The ratings are odd.</li>" in Path("out/report.html").read_text("utf-8")


def test_a_learning_rate_of_zero_trains_nothing_and_is_refused(rated, capsys):
    assert main(shlex.split(f"{TRAIN} --learning-rate 0 --out out")) == EXIT_BAD_INPUT
    assert "`learning_rate` to lie in (0, 1000] but got 0.0" in capsys.readouterr().err


MINE = """
def fails(model, inputs, targets, **more):
    raise RuntimeError("no explanation")

def flat(model, inputs, targets, **more):
    return inputs[:, 0]

def twice(model, inputs, targets, **more):
    return inputs.repeat(2, 0)

def half(model, inputs, targets, **more):
    return inputs[..., ::2]
"""


@pytest.mark.parametrize(
    ("methods", "message"),
    [
        ("hirescm", "Nearest: ['HiResCAM'"),
        ("Grad-CAM,,Lime", "names with commas between them"),
        ("ShapleyValues", "`--methods` names what cannot be used. Expected a method that ends"),
        ("Grad-CAM,mine.py:fails", "names mine.py:fails, which does not explain the small network"),
        *(
            (f"mine.py:{name}", f"mine.py:{name} of `--methods` to return (N, C, 64, 64)")
            for name in ("flat", "twice", "half")
        ),
    ],
)
def test_explainers_that_cannot_be_used_are_refused_before_anything_is_made(
    methods, message, tmp_path, monkeypatch, capsys
):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(training, "load_material", raising(AssertionError("too late")))
    Path("mine.py").write_text(MINE)
    assert main(["benchmark", "pasta", "--methods", methods, "--out", "out"]) == EXIT_BAD_INPUT
    assert message in capsys.readouterr().err
    assert not Path("out").exists()


def test_maps_of_a_library_that_is_not_there_are_refused(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(training, "load_material", raising(AssertionError("too late")))
    monkeypatch.setattr("captum_concepts.lazy.find_spec", lambda name: None)
    assert main(["benchmark", "pasta", "--methods", "ScoreCAM", "--out", "out"]) == EXIT_BAD_INPUT
    assert "map ScoreCAM needs the package pytorch_grad_cam: python -m pip install '.[cam]'" in capsys.readouterr().err


@pytest.mark.parametrize("name", COMMANDS)
def test_help_shows_at_most_twenty_options(name):
    assert len(inspect.signature(COMMANDS[name]).parameters) <= 20
