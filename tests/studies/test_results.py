"""Means over seeds, and the painted subject to try metrics on."""

from __future__ import annotations

import math

import numpy as np
import pandas as pd
import pytest
import torch
from scipy import stats

from quantus_concepts import score_concepts
from quantus_concepts.studies import PaintedSubject, painted_subject
from quantus_concepts.studies._kit.results import over_seeds
from quantus_concepts.studies._models.options import PaintedOptions

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


def test_whole_numbers_among_the_keys_stay_whole():
    frame = pd.concat([runs([0.4, 0.6]).assign(l=level) for level in (1, None)]).astype({"l": "Int64"})
    means = over_seeds(frame)
    assert means["l"].dtype == "Int64"
    assert means["l"].tolist() == [1, pd.NA]
    assert means["n"].tolist() == [20, 20]


@pytest.fixture(scope="module")
def subject() -> PaintedSubject:
    return painted_subject(
        120, 40, image_size=32, n_classes=4, n_concepts=8, epochs=2, random_directions=4, correlation=0.5
    )


def test_metrics_score_its_models_and_baselines(subject: PaintedSubject) -> None:
    table = score_concepts(
        subject.models, subject.loader(16), class_concepts=subject.test.class_concepts, controls=subject.baselines
    )
    present = table[(table["metric"] == "CEM") & (table["explanation"] == "value") & (table["set"] == "all")]
    present = present[present["l"] == 1].set_index("model")["value"]
    assert set(present.index) == {*subject.models, *subject.baselines}
    # The best one can do; directions without knowledge are not above it.
    assert present["oracle"] == 1
    assert (present <= 1).all()


def test_the_same_seed_makes_the_same_subject(subject: PaintedSubject) -> None:
    state = torch.get_rng_state()
    again = painted_subject(
        120, 40, image_size=32, n_classes=4, n_concepts=8, epochs=2, random_directions=4, correlation=0.5
    )
    assert torch.equal(torch.get_rng_state(), state)
    images = torch.stack([subject.test[row].image for row in range(4)])
    first, second = (painted.models["post-hoc CBM"](images) for painted in (subject, again))
    assert torch.equal(first, second)
    other = painted_subject(120, 40, image_size=32, n_classes=4, n_concepts=8, epochs=2, random_directions=4, seed=1)
    assert not torch.equal(other.test[0].image, subject.test[0].image)


def test_a_bad_argument_is_named() -> None:
    with pytest.raises(ValueError, match="n_concepts"):
        painted_subject(20, 10, n_concepts=3)
    with pytest.raises(ValueError, match="n_pos"):
        painted_subject(40, 10, image_size=32, n_classes=4, n_concepts=8, epochs=1, n_pos=0)


def test_options_of_painted_birds_bring_no_choice_of_data() -> None:
    options = PaintedOptions(n_train=40, n_classes=4)
    assert not hasattr(options, "data")
    assert not options.idle
    with pytest.raises(ValueError, match="--n-test"):
        PaintedOptions(n_test=1)
