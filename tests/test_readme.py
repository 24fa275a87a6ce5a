"""What the README shows runs, as a reader would run it; tox builds the pages it points at."""

from __future__ import annotations

import re
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest

README = Path(__file__).parent.parent / "README.md"


def blocks(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", README.read_text(encoding="utf-8"), flags=re.DOTALL)


def test_the_first_example_prints_the_table_below_it(capsys: pytest.CaptureFixture[str]) -> None:
    first, _ = blocks("python")
    exec(compile(first, "README.md", "exec"), {})
    printed = capsys.readouterr().out
    text = README.read_text(encoding="utf-8")
    shown = text[text.index("| model ") :].partition("\n\n")[0]
    number = r"\d+\.\d+"
    printed, shown = (re.sub(r"\d+ of (\d+)", r"\1", text) for text in (printed, shown))
    # Its interval touches the range: above or within, by the processor.
    texts = [re.sub(r"(post-hoc CBM +\| CEM gain.*)\b(above|within)\b", r"\1", text) for text in (printed, shown)]
    words, expected = (re.sub(number, "", text).split() for text in texts)
    assert words == expected
    # Another processor trains another network: 0.19 seen (ONEDNN_MAX_CPU_ISA=AVX2).
    np.testing.assert_allclose(*([float(x) for x in re.findall(number, table)] for table in (printed, shown)), atol=0.3)


def test_installed_and_run_in_one_line() -> None:
    assert "python -m pip install . && quantus-concepts benchmark concepts\n" in blocks("bash")


def test_the_longer_example(capsys: pytest.CaptureFixture[str]) -> None:
    _, code = blocks("python")
    # As far as the numbers say nothing of what runs.
    for text, smaller in {"n_images=400,": "n_images=60,", "n_images=32,": "n_images=8,"}.items():
        assert code.count(text) == 1
        code = code.replace(text, smaller)
    names: dict[str, Any] = {}
    with warnings.catch_warnings():
        # a few birds have fewer samples than requested, and say so
        warnings.simplefilter("ignore", UserWarning)
        exec(compile(code, "README.md", "exec"), names)
    assert "Failed to evaluate" not in capsys.readouterr().out
    assert len(names["results"]["Saliency"]["CEM"]) == 8
