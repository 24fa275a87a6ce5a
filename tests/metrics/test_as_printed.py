"""The metrics with the settings that their papers print: the same as written out, and other numbers than ours."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn

import known_truth
from captum_concepts import BottleneckCBM
from known_truth import World
from quantus_concepts import CEM, CGIM, CLM, IDR, IIR, MCS, summarise
from quantus_concepts.functional import cgim
from quantus_concepts.metrics import UsualMetrics, predict_concepts, score_predictions
from tiny_models import two_concepts

VALUES = np.array([[1.0, 1.0], [3.0, 1.0]], dtype="float32")
LABELS = [[1, 0], [1, 0]]
CLASSES = np.array([0, 0])


@pytest.fixture
def model() -> BottleneckCBM:
    made = two_concepts()
    made.absent_values = torch.zeros(2)
    return made


def test_cem_ranks_contributions_by_magnitude(model: BottleneckCBM) -> None:
    """Contributions to class 0 are (1, -2) and (3, -2): by magnitude the absent second concept is the first image's."""
    written = CEM(LABELS, importance="contribution", abs=True, gain=False, only_correct=False)
    assert CEM.as_printed(concept_labels=LABELS)(model, VALUES, CLASSES) == [0.0, 1.0]
    assert written(model, VALUES, CLASSES) == [0.0, 1.0]
    assert CEM(LABELS, importance="contribution")(model, VALUES, CLASSES) == [1.0, 1.0]
    assert CEM.as_printed(concept_labels=LABELS, abs=False)(model, VALUES, CLASSES) == [1.0, 1.0]


def test_a_table_as_printed_ranks_contributions_alone_by_magnitude(model: BottleneckCBM) -> None:
    data = [(torch.as_tensor(VALUES), torch.as_tensor(CLASSES), torch.tensor(LABELS))]
    usual = UsualMetrics(top_l=[1], by_magnitude=True)
    # Both images are predicted as class 0, which is explained.
    model.head.bias = nn.Parameter(torch.tensor([9.0, 0.0]))
    rows = predict_concepts(model, data, usual)

    def cems(metric: UsualMetrics | CEM) -> dict[str, float]:
        table = score_predictions(rows, metric)
        table = table[(table.metric == "CEM") & (table.set == "all") & (table.baseline == "") & (table.what == "score")]
        return dict(zip(table.explanation, table.value, strict=True))

    assert cems(usual) == {"weight": 1, "value": 1, "contribution": 0.5, "effect": 1}
    assert set(cems(UsualMetrics(top_l=[1])).values()) == {1}
    assert cems(CEM.as_printed()) == {"contribution": 0.5}


def test_cgim_is_the_cosine_of_contributions(model: BottleneckCBM) -> None:
    """Type 3 of the classes' mean contributions, one image each."""
    images, y = np.array([[3.0, 1.0], [1.0, 4.0]], dtype="float32"), np.array([0, 1])
    table = [[1, 0.5], [0, 1]]
    printed = CGIM.as_printed(class_concepts=table, labels=y)(model, images, y)
    assert printed == CGIM(table, labels=y, importance="contribution", centred=False)(model, images, y)
    assert printed == pytest.approx(cgim([[3.0, -2.0], [0.0, 4.0]], table).tolist())
    assert printed != CGIM(table, labels=y)(model, images, y)


def test_clm_ranks_by_contribution() -> None:
    settings = {"points": [[[4, 3]]], "part_of_concept": [0]}
    printed = CLM.as_printed(**settings)
    assert (printed.importance, printed.specificity) == ("contribution", False)
    assert CLM.as_printed(**settings, importance="weight", alpha=3).importance == "weight"


def ramp(model: nn.Module, inputs: np.ndarray, targets: np.ndarray, **_: object) -> np.ndarray:
    """One map for every image: twice as large for the model of objects, half where no object is seen."""
    size = known_truth.SIZE
    columns = np.broadcast_to(np.arange(size, dtype=float), (len(inputs), 1, size, size))
    factor = 2.0 if model.uses == "object" else 1.0
    return columns * factor * np.where(known_truth.object_mask(inputs).any((1, 2, 3)), 0.5, 1.0)[:, None, None, None]


#: By name: the metric, what it is about, and its call's model, images and classes; last what raw maps and others score.
REGIONS = {
    "MCS": (MCS, ("contrast_model", "scene_model"), ("contrast_labels", "scene_labels"), "object", None, 0.0),
    "IDR": (IDR, ("counterpart", "scenes"), None, "scene", 1.0, 0.0),
    "IIR": (IIR, ("patched", "patched"), None, "blind", 0.0, 1.0),
}


@pytest.mark.parametrize("name", [*REGIONS])
def test_maps_keep_their_scale(name: str) -> None:
    """A factor on the whole map is a difference; where each map has its own scale it is none."""
    world = World()
    metric, *about, who, raw, scaled = REGIONS[name]
    given = {key: getattr(world, of) for key, of in filter(None, about)} | {"masks": world.masks}
    given["labels"] = classes = world.object_labels if who == "object" else world.scene_labels
    model = world.blind if who == "blind" else getattr(world, f"{who}_model")
    images = world.scenes if who == "blind" else world.images

    def score(made: MCS | IDR | IIR) -> list[float]:
        return made(model=model, x_batch=images, y_batch=classes, explain_func=ramp)

    printed = score(metric.as_printed(**given))
    assert printed == score(metric(**given, normalise=False))
    assert score(metric(**given)) == [scaled] * 8
    means = [np.arange(known_truth.SIZE)[mask[0].any(0)].mean() / 2 for mask in world.masks]
    np.testing.assert_allclose(printed, means if raw is None else [raw] * 8)


def test_a_raw_contrast_has_no_bounds() -> None:
    def explain(model: nn.Module, inputs: np.ndarray, targets: np.ndarray, **_: object) -> np.ndarray:
        return 40 * known_truth.knows(model, inputs, targets)

    world = World()
    metric, call = known_truth.metric_and_call("MCS", world, explain, labels=world.object_labels)
    scores = metric(**call)
    assert scores == [40.0] * 8
    assert metric.bounds == (-np.inf, np.inf)
    table = summarise({"own": {"MCS": scores}}, {"MCS": metric})
    assert table["value"].tolist() == [40.0]
    assert MCS(world.scene_model).bounds == (-1.0, 1.0)
