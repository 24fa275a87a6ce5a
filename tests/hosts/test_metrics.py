"""What all metrics have from Quantus beyond their contract: arguments, models without shared features, variants."""

from __future__ import annotations

import inspect
import typing
from typing import Any

import numpy as np
import pytest
import quantus
import torch

import quantus_concepts
from contributing_metric import ConceptMass
from metric_inputs import (
    EXPORTED,
    metric_arguments,
    metric_makers,
    predicted,
)
from quantus_concepts import CEM, CGIM, IIR
from quantus_concepts.functional import positive_percentile
from quantus_concepts.metrics.contrast.reexplaining import ReExplainingMetric
from quantus_concepts.metrics.host.record import DEFAULTS, QuantusArguments
from tiny_models import N_CLASSES, N_CONCEPTS, SharingConceptModel, TinyConceptModel

N, SIZE = 12, 12

#: And the one that CONTRIBUTING.md tells to write.
METRICS = [*EXPORTED, ConceptMass]


@pytest.fixture
def rng():
    return np.random.default_rng(7)


@pytest.fixture
def model():
    return SharingConceptModel()


@pytest.fixture
def images(rng):
    return rng.normal(size=(N, 3, SIZE, SIZE)).astype(np.float32)


@pytest.fixture
def truth(rng, images):
    truth = metric_arguments(images, rng)
    truth["points"][0] = np.nan
    return truth


#: Metrics that on images ask the concept model itself, and no explanation method.
ON_IMAGES = [metric.__name__ for metric in METRICS if "importance" in inspect.signature(metric).parameters]


def on_images(truth: dict[str, Any]) -> dict[str, Any]:
    makers = metric_makers(truth, METRICS)
    return {name: makers[name]() for name in ON_IMAGES}


def values_and_weights(model: TinyConceptModel, images: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    with torch.no_grad():
        values = model.concept_predictor(torch.as_tensor(images)).numpy()
    return values, model.head[0].weight.detach().numpy()


class TestHost:
    """Quantus's own names, calls and results."""

    def test_the_shared_arguments_are_those_of_quantus(self):
        host = list(inspect.signature(quantus.metrics.base.Metric.__init__).parameters)[1:-1]
        assert list(typing.get_type_hints(QuantusArguments)) == list(DEFAULTS) == host

    @pytest.mark.parametrize("metric", METRICS)
    def test_constructors_take_only_the_shared_arguments(self, metric):
        *_, last = inspect.signature(metric).parameters.values()
        assert (last.kind, last.annotation) == (last.VAR_KEYWORD, "Unpack[QuantusArguments]")
        own_defaults = (
            {"normalise": True, "normalise_func": positive_percentile} if issubclass(metric, ReExplainingMetric) else {}
        )
        with_bar = {"display_progressbar": None} if metric is IIR else {}
        assert metric.quantus_defaults == {**DEFAULTS, **own_defaults, **with_bar}

    def test_an_unknown_argument_raises_and_names_the_nearest(self):
        for wrong, near in (("normalize", "normalise"), ("concept_label", "concept_labels"), ("topl", "top_l")):
            with pytest.raises(TypeError, match=rf"CEM has no argument `{wrong}`\. Did you mean `{near}`"):
                CEM(**{wrong: 1})
        with pytest.raises(TypeError, match=r"no argument `xyz`\. It takes concept_labels, top_l, .*progressbar"):
            CEM(xyz=1)

    def test_available_metrics_merge_with_those_of_quantus_without_loss(self):
        merged = quantus.AVAILABLE_METRICS | quantus_concepts.AVAILABLE_METRICS
        assert merged["Concepts"]["CEM"] is CEM
        assert all(merged[category] == metrics for category, metrics in quantus.AVAILABLE_METRICS.items())


class TestCalls:
    """Keywords stay as they were, models may share features or not, and each sample is normalised by itself."""

    def test_keywords_of_the_explanation_are_not_changed(self, model, images, truth):
        values, _ = values_and_weights(model, images)
        kwargs = {"method": "InputXGradient"}
        explained = {"explain_func": quantus.explain, "explain_func_kwargs": kwargs, "device": "cpu"}
        CEM(truth["concept_labels"])(model.head, values, predicted(model, images), **explained)
        assert kwargs == {"method": "InputXGradient"}

    @pytest.mark.parametrize("name", ON_IMAGES)
    def test_a_model_that_does_not_share_features_scores_the_same(self, name, model, images, truth):
        classes = predicted(model, images)
        metric = on_images(truth)[name]
        np.testing.assert_array_equal(metric(model, images, classes), metric(TinyConceptModel(), images, classes))

    def test_normalisation_is_by_sample(self, model, images, truth, rng):
        values, _ = values_and_weights(model, images)
        a_batch = rng.normal(size=(N, N_CONCEPTS)) * 10.0 ** np.arange(N)[:, None]
        metric = CGIM(truth["class_concepts"], normalise=True)
        together = metric(model.head, values, predicted(model, images), a_batch)
        apart = metric(model.head, values, predicted(model, images), a_batch, batch_size=1)
        np.testing.assert_allclose(together, apart)


class TestPaperIdentities:
    """The paper's variants are explanation methods: Gradient, the values, InputXGradient."""

    @pytest.fixture
    def explained(self, model, images):
        values, weights = values_and_weights(model, images)
        return values, weights, predicted(model, images)

    @staticmethod
    def through_quantus(
        metric: Any, model: TinyConceptModel, values: np.ndarray, classes: np.ndarray
    ) -> dict[str, list[float]]:
        methods = {"weight": {"method": "Gradient"}, "contribution": {"method": "InputXGradient"}, "value": values}
        results = quantus.evaluate({"metric": metric}, methods, model.head, x_batch=values, y_batch=classes)
        return {name: scores["metric"] for name, scores in results.items()}

    @pytest.mark.parametrize("per", ["concept", "class"])
    def test_cgim(self, per, model, explained, truth, images):
        values, weights, classes = explained
        host = self.through_quantus(CGIM(truth["class_concepts"], per=per), model, values, classes)
        seen, every = np.unique(classes), np.arange(N_CLASSES)
        assert len(seen) < N_CLASSES
        means = np.stack([values[classes == k].mean(0) for k in seen])
        # The weights of a linear head need no image.
        types = {"weight": (weights, every), "value": (means, seen), "contribution": (weights[seen] * means, seen)}
        axis = 0 if per == "concept" else 1
        for name, (A, rows) in types.items():
            V = truth["class_concepts"][rows]
            expected = (A * V).sum(axis) / np.linalg.norm(A, axis=axis) / np.linalg.norm(V, axis=axis)
            if per == "class":
                cosine, expected = expected, np.full(N_CLASSES, np.nan)
                expected[rows] = cosine
            np.testing.assert_allclose(host[name], expected, atol=1e-6)
            image_view = CGIM(truth["class_concepts"], per=per, importance=name)(model, images, classes)
            np.testing.assert_allclose(image_view, expected, atol=1e-6)


def test_a_metric_at_the_head_says_what_it_needs(model, images, truth):
    values, _ = values_and_weights(model, images)
    classes, labels = predicted(model, images), truth["concept_labels"]
    with pytest.raises(ValueError, match="needs argument `concept_labels`"):
        ConceptMass()(model.head, values, classes, values)
    for metric in (ConceptMass(labels), CEM(labels)):
        with pytest.raises(ValueError, match=r"pass `a_batch` or `explain_func`\. With images and a concept model as"):
            metric(model.head, values, classes)


def test_zero_attributions_cost_only_their_own_scores(model, images, truth, rng):
    values, _ = values_and_weights(model, images)
    metrics = {"CEM": CEM(truth["concept_labels"]), "CGIM": CGIM(truth["class_concepts"])}
    methods = {"zero": np.zeros((N, N_CONCEPTS)), "random": rng.normal(size=(N, N_CONCEPTS))}
    with pytest.warns(UserWarning, match="'zero' failed: attributions are zero everywhere"):
        results = quantus.evaluate(metrics, methods, model.head, values, predicted(model, images))
    for name in metrics:
        assert np.isnan(results["zero"][name]).all()
        assert np.isfinite(results["random"][name]).any()
