"""Quantus's patterns for tests of metrics over metrics here, on its own LeNet and on a table of concept values.

The pattern there: a metric is made from some of its nine arguments, called with Quantus's keywords, and its scores are
numbers, one for each sample; and `quantus.evaluate` takes it in every form in which it returns results. That every
metric gives in `quantus.evaluate` what a call gives is in the contract.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import quantus
import torch
from matplotlib import pyplot
from quantus.helpers.enums import DataType
from quantus.helpers.model.models import LeNet
from torch import nn

from captum_concepts import ConceptBank, PostHocCBM
from metric_inputs import OF_SEVERAL_CLASSES, metric_makers, predicted, region
from quantus_concepts import AVAILABLE_METRICS
from quantus_concepts.metrics.host.concept_metric import ConceptMetric
from quantus_concepts.metrics.host.scores import nanmean
from quantus_concepts.pasta.scorer import Scorer
from tiny_encoders import PoolingEncoder

N, N_CLASSES, N_CONCEPTS, SIDE = 6, 10, 5, 28
SALIENCY = {"method": "Saliency"}


def lenet(seed: int = 0) -> LeNet:
    with torch.random.fork_rng([]):
        torch.manual_seed(seed)
        return LeNet().eval()


def concept_lenet() -> PostHocCBM:
    """Return a concept model on the maps of Quantus's LeNet, with a head as wide as LeNet's."""
    net = lenet()
    features = nn.Sequential(net.conv_1, net.relu_1, net.pool_1, net.conv_2, net.relu_2)
    bank = ConceptBank.random(N_CONCEPTS, 16)
    with torch.random.fork_rng([]):
        torch.manual_seed(1)
        model = PostHocCBM(features, bank, nn.Linear(N_CONCEPTS, N_CLASSES)).eval()
    model.absent_values = torch.zeros(N_CONCEPTS)
    return model


@dataclass(frozen=True)
class Inputs:
    """A model, what it is called with, and the ground truth to which metrics are bound."""

    model: nn.Module
    x_batch: np.ndarray
    y_batch: np.ndarray
    s_batch: np.ndarray | None
    truth: dict[str, Any]

    def metric(self, name: str, **arguments: Any) -> Any:
        """Return a metric bound to its ground truth."""
        return metric_makers(self.truth)[name](**arguments)

    def first(self) -> Inputs:
        """Return the first sample alone."""
        truth = {k: v[:1] if isinstance(v, np.ndarray) and len(v) == N else v for k, v in self.truth.items()}
        masks = None if self.s_batch is None else self.s_batch[:1]
        return replace(self, x_batch=self.x_batch[:1], y_batch=self.y_batch[:1], s_batch=masks, truth=truth)

    def call(self, metric: Any, **arguments: Any) -> list[float]:
        """Call a metric as Quantus's tests do; without attributions it asks for them."""
        settings = {"explain_func": quantus.explain, "explain_func_kwargs": SALIENCY} | arguments
        return metric(self.model, self.x_batch, self.y_batch, s_batch=self.s_batch, **settings)

    def evaluate(self, metric: Any, **arguments: Any) -> Any:
        """Return what `quantus.evaluate` does of one metric."""
        data = {"x_batch": self.x_batch, "y_batch": self.y_batch, "s_batch": self.s_batch}
        return quantus.evaluate({"metric": metric}, {"Saliency": SALIENCY}, self.model, **data, **arguments)


def image_inputs(model: nn.Module) -> Inputs:
    rng = np.random.default_rng(0)
    images = rng.random((N, 1, SIDE, SIDE), dtype=np.float32)
    masks = region(N, SIDE)
    changed = np.where(masks == 1, 0.8 * images, images).astype(np.float32)
    other = lenet(1)
    truth = {
        "concept_labels": rng.integers(0, 2, (N, N_CONCEPTS)),
        "class_concepts": rng.uniform(size=(N_CLASSES, N_CONCEPTS)),
        "points": rng.uniform(0, SIDE, (N, 3, 2)),
        "part_of_concept": np.array([0, 1, -1, 2, 0]),
        "added": rng.integers(0, N_CONCEPTS, N),
        "contrast_model": other,
        "contrast_labels": predicted(other, images),
        "counterpart": changed,
        "patched": changed,
        "scorer": Scorer(PoolingEncoder.dim, ("Q1",), ("even", "odd"), hidden=(4, 4)),
        "encoder": PoolingEncoder(),
        "class_names": ["even", "odd"] * 5,
        "embeddings": np.random.default_rng(1).normal(size=(N, 7)),
        "regions": np.random.default_rng(2).random((N, 3, SIDE, SIDE)) < 0.2,
    }
    truth["network_classes"] = np.where(np.arange(N) < 1, 0, predicted(model, images))
    return Inputs(model, images, predicted(model, images), masks, truth)


def table_inputs() -> Inputs:
    """Return the values of concepts, with the head that reads them as the model."""
    images = image_inputs(concept_lenet())
    with torch.no_grad():
        values = images.model.concept_predictor(torch.as_tensor(images.x_batch)).numpy()
    truth = {**images.truth, "concept_names": list("abcde")}
    return replace(images, model=images.model.head, x_batch=values, s_batch=None, truth=truth)


INPUTS = {
    "LeNet": image_inputs(lenet()),
    "concept LeNet": image_inputs(concept_lenet()),
    "table": table_inputs(),
}
#: Metrics with a score for each concept.
OF_CONCEPTS = ("CGIM", "ConceptAUC", "ConceptQuality", "ConceptTaskLeakage", "InterconceptLeakage", "Monosemanticity")


@cache
def plain_scores(name: str, kind: str) -> list[float]:
    """Return the scores of a call without further arguments."""
    return INPUTS[kind].call(INPUTS[kind].metric(name))


def cases() -> list[tuple[str, str]]:
    """Return each metric that the package offers with the inputs that are for it."""
    every = []
    for metric in AVAILABLE_METRICS["Concepts"].values():
        if DataType.IMAGE in metric.data_applicability:
            every.append((metric.__name__, "concept LeNet"))
            if not issubclass(metric, ConceptMetric):
                every.append((metric.__name__, "LeNet"))
        if DataType.TABULAR in metric.data_applicability:
            every.append((metric.__name__, "table"))
    return every


#: One of each kind: of concepts by images and by values, of concepts' places, of explanations, of pairs, of ratings.
KINDS = [
    ("CEM", "table"),
    ("CGIM", "concept LeNet"),
    ("CLM", "concept LeNet"),
    ("Faithfulness", "LeNet"),
    ("MCS", "LeNet"),
    ("PASTAScore", "table"),
]
of_each_kind = pytest.mark.parametrize(("name", "kind"), KINDS)
pytestmark = pytest.mark.filterwarnings("ignore::UserWarning")


@pytest.mark.parametrize(("name", "kind"), cases())
def test_arguments(name: str, kind: str) -> None:
    arguments = {"abs": True, "normalise": True, "disable_warnings": True, "display_progressbar": True}
    inputs = INPUTS[kind]
    scores = inputs.call(inputs.metric(name, **arguments))
    assert len(scores) == {**dict.fromkeys(OF_CONCEPTS, N_CONCEPTS), "Completeness": 1}.get(name, N)
    assert all(isinstance(score, float) for score in scores)
    assert np.isfinite(scores).any() or name in OF_SEVERAL_CLASSES
    a_batch = quantus.explain(inputs.model, inputs.x_batch, inputs.y_batch, **SALIENCY)
    assert inputs.call(inputs.metric(name, **arguments), a_batch=a_batch) == pytest.approx(scores, nan_ok=True)


@of_each_kind
def test_aggregate(name: str, kind: str) -> None:
    inputs = INPUTS[kind]
    mean = pytest.approx(nanmean(plain_scores(name, kind)), nan_ok=True)
    assert inputs.call(inputs.metric(name, return_aggregate=True)) == [mean]
    assert inputs.call(inputs.metric(name, return_aggregate=True, aggregate_func=nanmean)) == [mean]
    assert inputs.evaluate(inputs.metric(name), agg_func=nanmean)["Saliency"]["metric"] == mean


@of_each_kind
def test_return_as_df(name: str, kind: str) -> None:
    frame = INPUTS[kind].evaluate(INPUTS[kind].metric(name), return_as_df=True)
    assert isinstance(frame, pd.DataFrame)
    assert frame.loc["metric", "Saliency"] == pytest.approx(plain_scores(name, kind), nan_ok=True)


@of_each_kind
def test_float64(name: str, kind: str) -> None:
    inputs, expected = INPUTS[kind], plain_scores(name, kind)
    arrays = replace(inputs, x_batch=inputs.x_batch.astype(float))
    assert arrays.call(arrays.metric(name)) == pytest.approx(expected, rel=1e-4, abs=1e-5, nan_ok=True)


@of_each_kind
def test_one_sample(name: str, kind: str) -> None:
    alone = INPUTS[kind].first()
    scores = alone.call(alone.metric(name))
    if name == "CGIM":
        # Scores of concepts, over the one class that is left.
        assert len(scores) == N_CONCEPTS
        assert not (np.abs(scores) > 1 + 1e-9).any()
    else:
        assert scores == pytest.approx(plain_scores(name, kind)[:1], rel=1e-4, abs=1e-6, nan_ok=True)


@of_each_kind
def test_plot(name: str, kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    save = pyplot.savefig
    # Quantus asks for 400 dots per inch.
    monkeypatch.setattr(pyplot, "savefig", lambda fname, **_: save(fname, dpi=20))
    inputs = INPUTS[kind]
    metric = inputs.metric(name)
    scores = inputs.call(metric)
    metric.plot(show=False, path_to_save=str(tmp_path / "plot.png"))
    assert (tmp_path / "plot.png").read_bytes().startswith(b"\x89PNG")
    drawn: list[Any] = []
    metric.plot(lambda values, **_: drawn.append(values), show=False, values=metric.evaluation_scores)
    assert drawn == [pytest.approx(scores, nan_ok=True)]
    pyplot.close("all")
