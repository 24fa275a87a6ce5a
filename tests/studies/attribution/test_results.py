import dataclasses
import math

import numpy as np
import pandas as pd
import pytest
import torch

from quantus_concepts.studies.attribution.results import (
    Record,
    against,
    against_reference,
    commonalities,
    leaders,
    mean_record,
    methods_of,
)
from quantus_concepts.studies.records import find, select, to_frame

NAN = math.nan


def record(method, value, half=0.02, metric="MCS", **fields):
    return Record(method, metric, value=value, low=value - half, high=value + half, n=9, **fields)


def test_mean_record_leaves_nan_out_and_counts_it():
    found = mean_record([0.4, 0.2, NAN, 0.0], method="Grad-CAM", metric="MCS", reference=0.1, seed=3)
    assert (found.value, found.n, found.undefined) == (pytest.approx(0.2), 3, 1)
    # Student's t with 2 degrees of freedom: 0.2 ± 4.3027 * 0.2 / sqrt(3).
    assert found.ends == pytest.approx((0.2 - 0.49683, 0.2 + 0.49683), abs=1e-4)
    assert (found.reference, found.seed, found.k) == (0.1, 3, None)


def test_shares_have_wilsons_interval():
    found = mean_record(torch.tensor([1.0] * 8 + [0.0] * 2), method="a", metric="IIR", unconverged=5)
    assert found.ends == pytest.approx((0.4902, 0.9433), abs=1e-4)
    assert found.unconverged == 5


@pytest.mark.parametrize(
    ("metric", "scores", "ends"),
    [
        ("MCS", [-1.0, 1.0], (-1.0, 1.0)),  # a wider interval is clipped to what the metric can be
        ("perturbation", [0.0, 4.0], (0.0, 2 + 12.7062 * 2.828427 / math.sqrt(2))),
        ("MCS", [0.0, 0.0, 0.0], (0.0, 0.0)),
    ],
)
def test_intervals_stay_within_the_metric(metric, scores, ends):
    assert mean_record(scores, method="a", metric=metric).ends == pytest.approx(ends, rel=1e-4)


def test_mean_record_of_nothing_defined_is_nan():
    found = mean_record([NAN, NAN], method="a", metric="IDR")
    assert (found.n, found.undefined, found.defined) == (0, 2, False)
    assert math.isnan(found.low)


def test_mean_record_refuses_what_it_cannot_mean():
    with pytest.raises(ValueError, match=r"`metric` to be one of .* Did you mean 'IDR'"):
        mean_record([1.0], method="a", metric="IDRR")
    with pytest.raises(ValueError, match="0, 1 and NaN for IDR"):
        mean_record([0.5], method="a", metric="IDR")


def test_frame_has_the_fields_in_order_and_survives_csv(tmp_path):
    records = [record("a", 0.5, metric="relative MCS", k=0.3, seed=1), mean_record([NAN], method="b", metric="IIR")]
    frame = to_frame(records, Record)
    assert list(frame.columns) == [field.name for field in dataclasses.fields(Record)]
    assert frame["seed"].tolist() == [1, pd.NA]
    frame.to_csv(tmp_path / "results.csv", index=False)
    back = pd.read_csv(tmp_path / "results.csv")
    assert back.loc[0, "k"] == 0.3
    assert math.isnan(back.loc[1, "value"])
    assert back["undefined"].tolist() == [0, 1]
    assert to_frame([], Record).empty


def test_find_and_select():
    records = [record("a", 0.1), record("b", 0.2), record("a", 0.3, metric="IDR")]
    assert select(records, method="a") == [records[0], records[2]]
    assert find(records, method="a", metric="IDR") is records[2]
    assert find(records, method="c") is None


def test_methods_keep_their_order_with_controls_last():
    records = [record(name, 0.1) for name in ("Sobel edges", "z", "random", "a", "z")]
    assert methods_of(records) == ["z", "a", "Sobel edges", "random"]


def test_commonalities_ascend():
    records = [record("a", 0.1, metric="relative MCS", k=k) for k in (1.0, 0.1, 0.5, 0.1)]
    assert commonalities([*records, record("a", 0.1)]) == [0.1, 0.5, 1.0]


def test_against_goes_by_the_intervals():
    assert against(record("a", 0.5), 0.45) == "above"
    assert against(record("a", 0.5), 0.51) == "at"
    assert against(record("a", 0.5), 0.55) == "below"
    assert against(record("a", 0.5), record("b", 0.53)) == "at"
    assert against(record("a", 0.5), record("b", 0.55)) == "below"
    assert against(Record("a", "MCS", value=0.5), 0.1) == ""


def test_reference_of_mcs_is_the_random_mask_with_its_interval():
    ours = record("a", 0.1, 0.02, reference=0.05)
    mask = record("a", 0.05, 0.04, metric="MCS baseline")
    other = record("b", 0.05, 0.001, metric="MCS baseline")
    assert against_reference([ours, mask, other], ours) == "at"
    assert against_reference([ours], ours) == "above"
    assert against_reference([], record("a", 0.6, metric="IDR", reference=0.5)) == "above"
    assert against_reference([], record("a", 0.6, metric="IIR")) == ""


def test_leaders_are_the_best_and_what_overlaps_it():
    records = [record("a", 0.2), record("b", 0.5), record("c", 0.47), record("d", 0.44)]
    # d overlaps c but not b, the best.
    assert [r.method for r in leaders(records, "MCS")] == ["b", "c"]
    assert [r.method for r in leaders(records, "MCS", lowest=True)] == ["a"]
    assert leaders(records, "IDR") == []


def test_controls_and_tcav_do_not_lead():
    records = [record("random", 0.9), record("TCAV", 0.8), record("a", 0.1), record("b", np.nan)]
    assert [r.method for r in leaders(records, "MCS")] == ["a"]
    followed = [record(name, value, metric="correlation") for name, value in (("TCAV", 0.9), ("a", 0.1))]
    assert [r.method for r in leaders(followed, "correlation")] == ["TCAV"]
