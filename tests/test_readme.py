"""Every code block of the README runs, one after the other, as a reader would run them."""

from __future__ import annotations

import inspect
import re
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from quantus_concepts.functional import random_bank_scores, random_banks

README = Path(__file__).parent.parent / "README.md"
COMMANDS = (
    "python -m pip install . && quantus-concepts benchmark concepts",
    "python -m pip install tox && tox",
)


#: As far as the numbers say nothing of what runs.
SMALLER = {"n_images=400,": "n_images=120,", "n_images=30)": "n_images=16)", "epochs=5,": "epochs=1,"}


def blocks(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", README.read_text(encoding="utf-8"), flags=re.DOTALL)


@pytest.fixture
def own_images(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    rng = np.random.default_rng(0)
    for name in ("gull", "cardinal"):
        (tmp_path / "birds" / name).mkdir(parents=True)
        for i in range(12):
            pixels = rng.integers(0, 255, (64, 64, 3), dtype=np.uint8)
            Image.fromarray(pixels).save(tmp_path / "birds" / name / f"{i}.png")
    (tmp_path / "concepts.csv").write_text("class,webbed_feet,red_bill\ngull,1,0\ncardinal,0,1\n")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_code(own_images: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    found = blocks("python")
    assert len(found) >= 5
    code = "\0".join(found)
    for text, smaller in SMALLER.items():
        assert code.count(text) == 1
        code = code.replace(text, smaller)
    for function in (random_banks, random_bank_scores):
        monkeypatch.setitem(inspect.unwrap(function).__kwdefaults__, "n_banks", 4)
    names: dict[str, Any] = {}
    with warnings.catch_warnings():
        # a few birds have fewer samples than asked for, and say so
        warnings.simplefilter("ignore", UserWarning)
        for number, block in enumerate(code.split("\0")):
            exec(compile(block, f"README.md, block {number}", "exec"), names)
    assert "Failed to evaluate" not in capsys.readouterr().out
    assert names["maps"].shape[:2] == (32, 1)
    assert len(names["scores"]) == len(names["own"])
    assert 0 <= np.nanmean(names["results"]["CoAM"]["CLM"]) <= 1


def test_commands_are_those_a_newcomer_runs() -> None:
    assert tuple(block.strip() for block in blocks("bash")) == COMMANDS


def test_files_it_points_at_exist() -> None:
    for target in re.findall(r"\]\(([^)#:]+)\)", README.read_text(encoding="utf-8")):
        assert (README.parent / target).exists(), target
