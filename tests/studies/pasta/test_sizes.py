from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pandas as pd
import pytest

from quantus_concepts.studies.pasta.material import METHODS
from quantus_concepts.studies.pasta.sizes import slopes, whole_numbers


def test_a_slope_is_per_ten_times_the_parameters() -> None:
    frame = pd.DataFrame(
        [
            ("a", size, seed + value * (1 + 0.01 * seed), seed)
            for seed in range(3)
            for size, value in ((10, 2.0), (100, 2.5), (1000, 3.0))
        ],
        columns=["name", "parameters", "value", "seed"],
    )
    (slope,) = slopes(frame).to_dict("records")
    # The seeds differ in height, and a little in slope: 0.5, 0.505 and 0.51.
    assert slope["value"] == pytest.approx(0.505)
    assert (slope["low"], slope["high"]) == (pytest.approx(0.505, abs=0.02), pytest.approx(0.505, abs=0.02))
    flat = slopes(frame.assign(value=[1.0, 0, 0, 0, 1, 0, 0, 0, 1]))
    # -0.5, 0 and 0.5.
    assert flat["value"].iloc[0] == pytest.approx(0)
    assert flat["low"].iloc[0] < 0 < flat["high"].iloc[0]
    assert slopes(frame[frame["parameters"] == 10])["value"].isna().all()


@pytest.fixture(scope="module")
def folder(golden: Callable[[str], Path]) -> Path:
    return golden("pasta-sizes")


def test_what_does_not_look_at_a_network_is_rated_alike_at_every_size(folder: Path) -> None:
    networks = pd.read_csv(folder / "networks.csv")
    assert set(networks["name"]) == {"network", *METHODS}
    assert len(networks) == 2 * 2 * (1 + len(METHODS))
    assert networks.loc[networks["name"] == "Sobel edges", "value"].nunique() == 1
    results = pd.read_csv(folder / "results.csv")
    slope = results[(results["measure"] == "slope") & (results["name"] == "Sobel edges")]
    assert slope["value"].tolist() == pytest.approx([0], abs=1e-9)
    assert (folder / "figures" / "networks.png").is_file()
    assert "Simulated raters" in (folder / "report.html").read_text(encoding="utf-8")


def test_sizes_are_at_least_two_whole_numbers() -> None:
    assert whole_numbers("8, 4", "--channels") == (4, 8)
    for text in ("8", "8,a", "1,2"):
        with pytest.raises(ValueError, match="--channels"):
            whole_numbers(text, "--channels")
