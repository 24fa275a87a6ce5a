"""Options of the `pasta` commands: what they change, and which have no effect beside others."""

from __future__ import annotations

import inspect
import json
import shlex
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

import quantus_concepts.studies.pasta.training as training
from fixtures_pasta import write_pasta_release
from quantus_concepts.studies.app import EXIT_BAD_INPUT, main
from quantus_concepts.studies.pasta import COMMANDS

TRAIN = "pasta train --data rated --question Q1 --encoder embedded --seeds 1 --no-progress --device cpu"
IDLE = {
    "benchmark pasta --no-uses --n-masks 7": "`--n-masks` has no effect with --no-uses",
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


def test_a_learning_rate_of_zero_trains_nothing_and_is_refused(rated, capsys):
    assert main(shlex.split(f"{TRAIN} --learning-rate 0 --out out")) == EXIT_BAD_INPUT
    assert "`learning_rate` to lie in (0, 1000] but got 0.0" in capsys.readouterr().err


def test_pictures_that_were_replaced_are_another_run(rated, monkeypatch, capsys):

    def write(settings, folder):
        with folder:
            folder.write("a.txt", "a")

    monkeypatch.setattr(training, "run_training", write)
    assert main(shlex.split(f"{TRAIN} --out out")) == 0
    assert main(shlex.split(f"{TRAIN} --out out")) == 0
    draw = np.random.default_rng(1)
    for path in rated.rglob("*.png"):
        Image.fromarray(draw.integers(0, 255, (8, 8, 3), np.uint8)).save(path)
    assert main(shlex.split(f"{TRAIN} --out out")) == EXIT_BAD_INPUT
    assert "holds another run (data: rated (" in capsys.readouterr().err
    assert json.loads(Path("out/run.json").read_text())["settings"]["data"].startswith("rated (")


@pytest.mark.parametrize("name", COMMANDS)
def test_help_shows_at_most_twenty_options(name):
    assert len(inspect.signature(COMMANDS[name]).parameters) <= 20
