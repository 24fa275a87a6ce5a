"""Whether a model uses the feature that it should, by hand and against a slow reference."""

from __future__ import annotations

import math

import numpy as np
import pandas as pd
import pytest
import torch
from torch import Tensor, nn

from quantus_concepts.metrics import Limits, check_premise
from quantus_concepts.metrics.contrast.premises import premise_rows
from reference.premises import premises as slow_premises
from two_halves import N_CLASSES, Looks, TwoHalves
from untouched import untouched


def numbered(place: int, n: int) -> Tensor:
    """Images that hold nothing but their number, on one of three sets."""
    images = torch.zeros(n, 3, 8, 8, dtype=torch.uint8)
    images[:, 0, 0, 0] = place
    images[:, 1, 0, 0] = torch.arange(n)
    return images


class Table(nn.Module):
    """Gives each numbered image the logits that a table (3, N, K) has for it."""

    def __init__(self, logits: np.ndarray) -> None:
        super().__init__()
        self.logits = nn.Parameter(torch.as_tensor(logits))

    def forward(self, images: Tensor) -> Tensor:
        place, number = (images[:, :2, 0, 0] * 255).round().long().T
        return self.logits[place, number]


def checked(logits, labels, **settings) -> pd.DataFrame:
    sets = [numbered(place, len(labels)) for place in range(3)]
    return check_premise(Table(np.asarray(logits)), *sets, labels, name="f_o", feature="scene", **settings)


def check_model(model, data, target="object") -> pd.DataFrame:
    """Check a model of objects, or of scenes, on images of both."""
    views = {view: data.with_view(view).images for view in ("os", "og", "0s")}
    if target == "object":
        sets, labels, feature = ("og", "0s"), data.object_labels, "scene"
    else:
        sets, labels, feature = ("0s", "og"), data.scene_labels, "object"
    return check_premise(model, views["os"], *(views[name] for name in sets), labels, name="f_o", feature=feature)


def value(table: pd.DataFrame, metric: str) -> float:
    return table.set_index("metric").loc[metric, "value"]


def failed(table: pd.DataFrame) -> list[str]:
    return list(table.loc[~table["holds"].fillna(value=True).astype(bool), "metric"])


def test_the_quantities_by_hand():
    probabilities = [
        [[0.9, 0.1], [0.8, 0.2], [0.4, 0.6], [0.3, 0.7], [0.6, 0.4]],
        [[0.9, 0.1], [0.6, 0.4], [0.6, 0.4], [0.2, 0.8], [0.7, 0.3]],
        [[0.9, 0.1], [0.4, 0.6], [0.4, 0.6], [0.6, 0.4], [0.6, 0.4]],
    ]
    # With the scene 0 0 1 1 0 is predicted, without it 0 0 0 1 0, from the scene alone 0 1 1 0 0.
    check = checked(np.log(probabilities), [0, 1, 1, 1, 0])
    assert value(check, "accuracy with") == pytest.approx(4 / 5)
    assert value(check, "accuracy without") == pytest.approx(3 / 5)
    assert value(check, "accuracy only") == pytest.approx(4 / 5)
    assert value(check, "remains correct") == pytest.approx(3 / 4)
    same = [
        0.0,
        0.8 * math.log(0.8 / 0.6) + 0.2 * math.log(0.2 / 0.4),
        0.3 * math.log(0.3 / 0.2) + 0.7 * math.log(0.7 / 0.8),
        0.6 * math.log(0.6 / 0.7) + 0.4 * math.log(0.4 / 0.3),
    ]
    assert value(check, "median KL same") == pytest.approx(sum(sorted(same)[1:3]) / 2, abs=1e-12)
    assert value(check, "median KL changed") == pytest.approx(
        0.4 * math.log(0.4 / 0.6) + 0.6 * math.log(0.6 / 0.4), abs=1e-12
    )
    assert value(check, "chance") == 0.5
    assert check[["n", "model", "feature"]].drop_duplicates().values.tolist() == [[5, "f_o", "scene"]]


@pytest.mark.parametrize(("n", "n_classes", "seed"), [(1, 2, 0), (101, 10, 2)])
def test_the_quantities_are_those_of_the_slow_reference(n, n_classes, seed):
    generator = np.random.default_rng(seed)
    logits = generator.normal(size=(3, n, n_classes)) * 3
    logits[1] = logits[0] + generator.normal(size=(n, n_classes))
    labels = generator.integers(0, n_classes, n)
    labels[: n // 2] = logits[0].argmax(1)[: n // 2]
    check = checked(logits, labels, batch_size=16)
    for name, expected in slow_premises(*logits, labels).items():
        quantity = name.replace("_", " ").replace("kl", "KL")
        assert value(check, quantity) == pytest.approx(expected, abs=1e-9, nan_ok=True), name


def test_a_divergence_far_below_single_precision_is_found():
    # The paper's medians are 1e-8: in float32 they would drown in rounding.
    logits = np.zeros((3, 1, 2))
    logits[0] = 1.0, 0.0
    logits[1] = 1.0 + 2e-6, 0.0
    p = 1 / (1 + math.exp(-1))
    assert value(checked(logits, [0]), "median KL same") == pytest.approx(0.5 * p * (1 - p) * 4e-12, rel=1e-3)


@pytest.mark.parametrize(("at", "target"), [("left", "object"), ("right", "scene")])
def test_a_model_that_looks_where_it_should_is_verified(at, target):
    check = check_model(Looks(at), TwoHalves(), target)
    assert check["holds"].all()
    assert set(check["feature"]) == {("scene" if target == "object" else "object")}
    assert (value(check, "accuracy with"), value(check, "accuracy without"), value(check, "remains correct")) == (
        1,
        1,
        1,
    )
    # It says class 0 of all images without what it looks at.
    assert value(check, "accuracy only") == pytest.approx(1 / N_CLASSES)
    assert value(check, "median KL same") == 0
    assert math.isnan(value(check, "median KL changed"))


def test_a_model_that_needs_both_is_not_verified():
    check = check_model(Looks("both"), TwoHalves())
    assert failed(check) == ["removed", "remain correct"]
    assert value(check, "removed") == pytest.approx(2 / 3)
    assert value(check, "remain correct") == pytest.approx(1 / 3)
    assert value(check, "median KL changed") > 0.5
    assert not check["holds"].all()


def test_a_common_feature_that_gives_the_label_away_is_found():
    data = TwoHalves()
    data.object_labels = data.scene_labels
    check = check_model(Looks("right"), data)
    assert "alone" in failed(check)
    assert value(check, "alone") == pytest.approx(2 / 3)


PASSING = {
    "accuracy with": 0.91,
    "accuracy without": 0.93,
    "remains correct": 0.98,
    "accuracy only": 0.10,
    "chance": 0.1,
    "median KL same": 1e-8,
    "median KL changed": 2.0,
}


@pytest.mark.parametrize(
    ("changed", "fails"),
    [
        ({}, None),
        ({"accuracy without": 0.89}, None),  # exactly the limit: 0.91 - 0.89 is more than 0.02 in binary
        ({"accuracy without": 0.8899}, "removed"),
        ({"remains correct": 0.95}, None),
        ({"remains correct": 0.9499}, "remain correct"),
        ({"accuracy only": 0.15}, None),
        ({"accuracy only": 0.1501}, "alone"),
        ({"accuracy with": math.nan}, "removed"),
        ({"accuracy only": math.nan}, "alone"),
    ],
)
def test_each_limit_is_kept_to_the_last_digit(changed, fails):
    rows = premise_rows(PASSING | changed, Limits())
    broken = [row["metric"] for row in rows if row["holds"] is not None and not row["holds"]]
    assert broken[:1] == ([] if fails is None else [fails])


def test_a_model_without_a_correct_prediction_or_that_ignores_everything_is_not_verified():
    # It ignores the scene perfectly, and all else.
    check = checked(np.zeros((3, 9, 3)), np.arange(9) % 3)
    assert failed(check) == ["learned"]
    logits = np.zeros((3, 4, 2))
    logits[..., 0] = 1
    check = checked(logits, [1, 1, 1, 1])
    assert math.isnan(value(check, "remains correct"))
    assert "remain correct" in failed(check)


def test_the_limits_are_arguments():
    for limit in (0.5, 0.1):
        table = checked(np.zeros((3, 4, 2)), [0, 1, 0, 1], limits=Limits(drop=limit))
        assert table.set_index("metric").loc["removed", "limit"] == limit
    with pytest.raises(ValueError, match="`drop`"):
        Limits(drop=2)


def test_the_model_is_left_as_it_was():
    model = nn.Sequential(Looks("left"), nn.Dropout(0.9))
    model[1].train()
    with untouched(model):
        assert check_model(model, TwoHalves())["holds"].all()


@pytest.mark.parametrize(
    ("logits", "labels", "message"),
    [
        (np.zeros((3, 3, 2)), [0, 1, 2], r"`labels` to hold class indices 0 to 1, .* got 2 at 2"),
        (np.full((3, 3, 2), np.nan), [0, 1, 0], "`logits of f_o` to be finite"),
        (np.zeros((3, 3, 2, 2)), [0, 1, 0], r"outputs \(N, K\) = \(3, \*\) but got shape \(3, 2, 2\)"),
    ],
)
def test_refused(logits, labels, message):
    with pytest.raises(ValueError, match=message):
        checked(logits, labels)


def test_sets_of_another_size_are_refused():
    sets = numbered(0, 3), numbered(1, 3), numbered(2, 4)
    with pytest.raises(ValueError, match=r"`labels` to have shape \(N,\) = \(4,\)"):
        check_premise(Table(np.zeros((3, 4, 2))), *sets, [0, 1, 0], name="f_o", feature="scene")
