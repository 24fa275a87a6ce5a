"""Means over seeds."""

from __future__ import annotations

import math

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from quantus_concepts.functional.statistics.seeds import seeds_interval
from quantus_concepts.studies._kit.results import image_intervals, over_seeds

T1, T3, NORMAL = stats.t.ppf(0.975, 1), stats.t.ppf(0.975, 3), stats.norm.ppf(0.975)


def runs(values, low=math.nan, high=math.nan):
    frame = pd.DataFrame({"model": "ours", "value": values, "low": low, "high": high, "n": 10})
    return frame.assign(seed=range(len(values)))


@pytest.mark.parametrize(
    ("frame", "half"),
    [
        # Seeds that differ more than their own intervals allow: Student's interval over seeds.
        (runs([0.4, 0.6], [0.39, 0.59], [0.41, 0.61]), T1 * 0.1),
        # Equal means: two standard errors of 0.05 / 1.96 each, of the mean one over the square root of 2.
        (runs([0.44, 0.44], 0.39, 0.49), T1 * 0.05 / NORMAL / math.sqrt(2)),
        (runs([0.5] * 4, [0.45, 0.35, 0.45, 0.35], [0.55, 0.65, 0.55, 0.65]), T3 * math.sqrt(0.05) / NORMAL / 4),
        # At the end of the scale the side that is not clipped counts, and undefined runs are left out.
        (runs([1.0, 1.0, math.nan], [0.9, 0.9, math.nan], [1.0, 1.0, math.nan]), T1 * 0.1 / NORMAL / math.sqrt(2)),
        (runs([0.0, 0.0], 0.0, [0.1, 0.2]), T1 * math.sqrt(0.05) / NORMAL / 2),
        # Without intervals of their own.
        (runs([0.1, 0.2, 0.3, 0.4]), T3 * np.std([0.1, 0.2, 0.3, 0.4], ddof=1) / 2),
        (runs([0.44, 0.44]), math.nan),
        (runs([0.44, math.nan], 0.4, 0.5), math.nan),
    ],
)
def test_seeds_that_agree_are_no_surer_than_each_of_them(frame, half):
    (row,) = over_seeds(frame).to_dict("records")
    mean = np.nanmean(frame["value"])
    np.testing.assert_allclose([row["value"], row["low"], row["high"]], [mean, mean - half, mean + half], rtol=1e-9)


def test_coverage_over_seeds():
    """Seeds whose truths differ, each measured on 200 images of its own."""
    rng, hits = np.random.default_rng(0), 0
    for _ in range(300):
        rates = rng.normal(0.5, 0.02, 3)
        values = rng.binomial(200, rates) / 200
        error = NORMAL * np.sqrt(values * (1 - values) / 200)
        (row,) = over_seeds(runs(values, values - error, values + error)).to_dict("records")
        hits += row["low"] <= 0.5 <= row["high"]
    assert hits / 300 >= 0.93


def test_by_hand_with_an_interval_of_ones_own_and_seeds_without_a_number():
    frame = runs([0.1, 0.2, math.nan]).drop(columns=["low", "high", "n"]).assign(other=[1, 2, 3])
    (row,) = over_seeds(frame, ["model"], interval=lambda group: (0.0, float(len(group)))).to_dict("records")
    assert row == {
        **{"model": "ours", "value": pytest.approx(0.15), "low": 0.0, "high": 3.0},
        **{"undefined": 1, "deviation": pytest.approx(math.sqrt(0.005)), "seeds": 2},
    }


def test_scores_of_the_same_images_have_an_interval_over_seeds_and_images():
    rng = np.random.default_rng(0)
    images = pd.DataFrame(
        [("ours", seed, image, image % 5, rng.random()) for seed in range(3) for image in range(20)],
        columns=["model", "seed", "image", "label", "value"],
    )
    (row,) = image_intervals(images, ["model"], lambda _: (0, 1)).to_dict("records")
    wide = images["value"].to_numpy().reshape(3, 20)
    assert (row["low"], row["high"]) == seeds_interval(wide, np.arange(20) % 5)


def test_whole_numbers_among_the_keys_stay_whole():
    frame = pd.concat([runs([0.4, 0.6]).assign(l=level) for level in (1, None)]).astype({"l": "Int64"})
    means = over_seeds(frame)
    assert means["l"].dtype == "Int64"
    assert means["l"].tolist() == [1, pd.NA]
    assert means["n"].tolist() == [20, 20]
