"""The study that CONTRIBUTING.md tells to copy runs and makes its files."""

from __future__ import annotations

from pathlib import Path

import pandas as pd

from example_study import density


def test_the_example_of_a_study_makes_its_files(tmp_path: Path) -> None:
    folder = density(n_images=20, out=tmp_path / "density")
    assert pd.read_csv(folder / "results.csv")["value"].between(0, 1).all()
    assert set(pd.read_csv(folder / "tables/verdicts.csv")["verdict"]) <= {"above", "within", "below"}
    assert (folder / "report.html").is_file()
