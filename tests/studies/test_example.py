"""The study that CONTRIBUTING.md tells to copy: a number known beforehand, its files, and a run that goes on."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
import pytest

import example_study
from example_study import COMMANDS


def test_the_example_of_a_study_makes_its_files_and_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    presence = COMMANDS["benchmark presence"]
    settings = {"n_train": 60, "n_test": 20, "device": "cpu", "progress": False, "out": tmp_path / "presence"}
    with monkeypatch.context() as patched:
        patched.setattr(example_study, "write_report", lambda *_: pytest.fail("killed here"))
        with pytest.raises(pytest.fail.Exception, match="killed here"):
            presence(**settings)
    # What is expensive was kept.
    monkeypatch.setattr(example_study, "painted_subject", lambda *_, **__: pytest.fail("painted again"))
    folder = presence(**settings)
    rows = pd.read_csv(folder / "results.csv").set_index(["model", "l"])["value"]
    assert rows["oracle", 1] == 1
    assert {model for model, _ in rows.index} == {"post-hoc CBM", "traditional CBM", "oracle", "random directions"}
    verdicts = pd.read_csv(folder / "tables/verdicts.csv")
    assert set(verdicts["verdict"]) <= {"above", "within", "below"}
    assert verdicts["random_low"].notna().all()
    assert (folder / "report.html").is_file()
