import dataclasses
import math

import numpy as np
import pandas as pd
import pytest
import torch

from quantus_concepts.functional.intervals import interval
from quantus_concepts.studies.concepts.results import (
    Record,
    against,
    baseline_name,
    item_records,
    mean_record,
    models_of,
    over_seeds,
    parse_setting,
    seeds_of,
    setting_name,
)
from quantus_concepts.studies.records import find, select, to_frame

NAN = math.nan


def test_mean_record_leaves_nan_out_and_counts_it():
    record = mean_record([1.0, 0.5, NAN, 0.0], model="oracle", metric="CEM", explanation="value", l=3, chance=0.2)
    assert (record.value, record.n, record.undefined) == (0.5, 3, 1)
    # Student's t with 2 degrees of freedom: 0.5 ± 4.3027 * 0.5 / sqrt(3) = 0.5 ± 1.242, clipped to [0, 1].
    assert (record.low, record.high) == (0.0, 1.0)
    assert (record.explanation, record.l, record.chance, record.seed) == ("value", 3, 0.2, None)


def test_mean_record_of_nothing_defined_is_nan():
    record = mean_record([NAN, NAN], model="oracle", metric="CLM")
    assert (record.n, record.undefined) == (0, 2)
    assert math.isnan(record.value)
    assert math.isnan(record.low)


def test_mean_record_takes_tensors():
    assert mean_record(torch.tensor([0.25, 0.75]), model="oracle", metric="CEM").value == 0.5


def test_wilson_interval_literal():
    # 8 of 10, z = 1.96: centre (0.8 + z²/20) / (1 + z²/10) = 0.7168, half width 0.2266.
    assert interval([1] * 8 + [0] * 2) == pytest.approx((0.4902, 0.9433), abs=1e-4)


def test_wilson_interval_is_not_empty_at_the_end():
    low, high = interval(np.ones(20))
    assert low == pytest.approx(20 / (20 + 1.959964**2), abs=1e-6)
    assert high == 1.0


def test_t_interval_literal():
    # Mean 0.5, standard deviation 0.1, N = 4: 0.5 ± 3.1824 * 0.1 / 2.
    deviation = 0.1 * math.sqrt(3) / 2
    scores = [0.5 - deviation, 0.5 + deviation, 0.5 - deviation, 0.5 + deviation]
    assert interval(scores) == pytest.approx((0.5 - 0.15912, 0.5 + 0.15912), abs=1e-4)


def test_cgim_intervals_reach_below_zero():
    record = mean_record([-0.5, 0.0, 0.1], model="oracle", metric="CGIM", item_kind="concept")
    assert -1.0 <= record.low < -0.5


def test_interval_covers_the_truth_as_often_as_it_says():
    generator = np.random.default_rng(0)
    covered = 0
    for _ in range(400):
        low, high = interval(generator.random(40) < 0.3)
        covered += low <= 0.3 <= high
    # 380 expected with a deviation of 4.4; 360 is more than four deviations away.
    assert 360 <= covered <= 400


def test_item_records_hold_the_mean_first_and_every_item():
    records = item_records(
        [0.5, NAN, 1.0], ["a", "b", "c"], model="oracle", item_kind="concept", explanation="weight", seed=2
    )
    assert [record.item for record in records] == ["", "a", "b", "c"]
    assert (records[0].value, records[0].n, records[0].undefined) == (0.75, 2, 1)
    assert (records[2].n, records[2].undefined) == (0, 1)
    assert {record.seed for record in records} == {2}


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: mean_record([1], model="m", metric="CME"), "`metric` to be one of .* but got 'CME'"),
        (lambda: mean_record([1], model="m", metric="CEM", explanation="weights"), "Did you mean 'weight'"),
        (lambda: mean_record([1], model="m", metric="CEM", set="test"), "`set` to be one of"),
        (lambda: item_records([1, 2], ["a"], model="m", item_kind="concept"), r"shape \(1,\) but got \(2,\)"),
        (lambda: item_records([1], ["a"], model="m", item_kind="part"), "`item_kind` to be one of"),
        (lambda: baseline_name("parts"), "`baseline` to be one of"),
        (lambda: parse_setting("C 1, n 50"), "form 'C=0.1, n=100' but got 'C 1, n 50'"),
    ],
)
def test_bad_input(call, message):
    with pytest.raises(ValueError, match=message):
        call()


def test_over_seeds_averages_and_takes_the_interval_of_the_seeds():
    records = [
        Record(
            "oracle",
            "CEM",
            "value",
            l=1,
            value=value,
            n=10,
            undefined=2,
            chance=chance,
            low=0,
            high=1,
            seed=seed,
        )
        for seed, (value, chance) in enumerate([(0.4, 0.1), (0.5, 0.2), (0.6, 0.3)])
    ]
    (joined,) = over_seeds(records)
    assert joined.value == pytest.approx(0.5)
    assert joined.chance == pytest.approx(0.2)
    assert (joined.n, joined.undefined, joined.seed) == (30, 6, None)
    # 0.5 ± 4.30265 * 0.1 / sqrt(3)
    assert (joined.low, joined.high) == pytest.approx((0.5 - 0.24841, 0.5 + 0.24841), abs=1e-4)


def test_over_seeds_of_one_seed_keeps_its_interval():
    record = mean_record([1, 0, 1, 1], model="oracle", metric="CEM", l=1, seed=7)
    assert over_seeds([record]) == [dataclasses.replace(record, seed=None)]


def test_over_seeds_leaves_undefined_seeds_out():
    records = [Record("oracle", "CGIM", item_kind="class", item="a", value=v, seed=s) for s, v in enumerate([NAN, 0.2])]
    (joined,) = over_seeds(records)
    assert joined.value == 0.2
    assert math.isnan(joined.low)


def test_over_seeds_keeps_order_and_may_be_applied_twice():
    records = [
        mean_record([seed % 2, 1, 0.5], model=model, metric="CEM", l=1, seed=seed)
        for seed in range(3)
        for model in ("oracle", "post-hoc CBM")
    ]
    once = over_seeds(records)
    assert [record.model for record in once] == ["oracle", "post-hoc CBM"]
    assert over_seeds(once) == once
    assert over_seeds([*records, *once]) == once


def test_to_frame_has_the_columns_of_the_csv_and_survives_it(tmp_path):
    records = [
        mean_record(
            [1, 0, NAN],
            model="oracle",
            metric="CLM",
            explanation="value",
            l=1,
            alpha=3.0,
            chance=0.25,
            seed=0,
        ),
        Record("plain backbone", "accuracy"),
    ]
    frame = to_frame(records, Record)
    assert list(frame.columns) == (
        [
            "model",
            "metric",
            "explanation",
            "set",
            "l",
            "alpha",
            "item_kind",
            "item",
            "value",
            "n",
            "undefined",
            "chance",
            "low",
            "high",
            "seed",
        ]
    )
    frame.to_csv(tmp_path / "results.csv", index=False)
    text = (tmp_path / "results.csv").read_text()
    assert text.splitlines()[1].startswith("oracle,CLM,value,all,1,3.0,,,0.5,2,1,0.25,0.09")
    assert text.splitlines()[2] == "plain backbone,accuracy,,all,,,,,,0,0,,,,"
    assert pd.read_csv(tmp_path / "results.csv")["value"].iloc[0] == 0.5


def test_to_frame_of_nothing_has_the_columns_too():
    assert len(to_frame([], Record).columns) == 15


def test_find_and_select():
    first, second = Record("oracle", "CEM", l=1), Record("oracle", "CEM", l=3)
    assert select([first, second], model="oracle") == [first, second]
    assert find([first, second], l=3) == second
    assert find([first, second], l=5) is None


def test_models_of_is_ordered_and_leaves_baselines_out():
    names = ["random directions", "mine", "parts of another image, oracle", "oracle", "post-hoc CBM"]
    records = [Record(name, "CLM") for name in names] + [Record("plain backbone", "accuracy")]
    assert models_of(records) == ["post-hoc CBM", "oracle", "random directions", "mine"]


def test_seeds_of():
    assert seeds_of([Record("m", "CEM", seed=seed) for seed in (3, None, 1, 3)]) == [1, 3]


def test_setting_names_are_read_back():
    assert setting_name(0.001, 50) == "C=0.001, n=50"
    assert parse_setting(setting_name(10.0, 100)) == (10.0, 100)


def test_baseline_names():
    assert baseline_name("centred Gaussian") == "centred Gaussian"
    assert baseline_name("centred Gaussian", "oracle") == "centred Gaussian, oracle"


@pytest.mark.parametrize(
    ("reference", "said"),
    [
        (0.3, "above"),
        (0.4, "at"),
        (0.5, "at"),
        (0.7, "below"),
        (Record("m", "CEM", low=0.1, high=0.39), "above"),
        (Record("m", "CEM", low=0.1, high=0.45), "at"),
        (Record("m", "CEM", low=0.65, high=0.9), "below"),
        (NAN, ""),
        (Record("m", "CEM"), ""),
    ],
)
def test_against(reference, said):
    assert against(Record("m", "CEM", value=0.5, low=0.4, high=0.6), reference) == said
