"""Lines in place of bars where a command's output is no terminal."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import captum_concepts
import quantus_concepts
from captum_concepts.support import log
from captum_concepts.support.log import LOG
from captum_concepts.support.running import progress


def test_a_bar_is_a_line_a_minute(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    now = [0.0]
    monkeypatch.setattr(log.time, "monotonic", lambda: now[0])
    monkeypatch.setattr(LOG, "is_on", True)
    monkeypatch.setattr(LOG, "_last", 0.0)
    LOG.line("benchmark concepts: networks 0")
    for _ in progress(range(100), "Embedding \x1b images", show=True, mininterval=0, miniters=1):
        now[0] += 2.0
    lines = capsys.readouterr().err.splitlines()
    assert re.fullmatch(r"\d\d:\d\d:\d\d benchmark concepts: networks 0", lines[0])
    assert [re.sub(r"^\d\d:\d\d:\d\d ", "", line) for line in lines[1:]] == [
        rf"Embedding \x1b images: {count} of 100 it" for count in (30, 60, 90)
    ]
    for _ in progress(range(100), "hidden", show=False):
        now[0] += 2.0
    assert not capsys.readouterr().err


def test_bars_are_made_in_one_place() -> None:
    """So that each of them is silent, or a line of a log, where the output is no terminal."""
    packages = [Path(str(package.__file__)).parent for package in (captum_concepts, quantus_concepts)]
    files = [path for package in packages for path in package.rglob("*.py")]
    assert [path.name for path in files if "import tqdm" in path.read_text("utf-8")] == ["running.py"]
