"""Every code block of the README runs, one after the other, as a reader would run them."""

from __future__ import annotations

import re
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

README = Path(__file__).parent.parent / "README.md"
COMMANDS = (
    "python -m pip install . && quantus-concepts benchmark concepts",
    "python -m pip install tox && tox",
)


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


def test_code(own_images: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code = blocks("python")
    assert len(code) >= 5
    names: dict[str, Any] = {}
    with warnings.catch_warnings():
        # a few birds have fewer samples than asked for, and say so
        warnings.simplefilter("ignore", UserWarning)
        for number, block in enumerate(code):
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
