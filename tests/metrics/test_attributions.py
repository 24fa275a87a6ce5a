"""Attributions of every kind: scored where they are numbers, NaN with one warning where they are not."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest
import quantus
import torch
from torch import nn

from metric_inputs import MASKS, SIZE, N, metric_arguments, metric_makers, predicted
from quantus_concepts import CLM
from tiny_models import N_CLASSES, N_CONCEPTS, SharingConceptModel

MODEL, RNG = SharingConceptModel(), np.random.default_rng(0)
IMAGES = RNG.normal(size=(N, 3, SIZE, SIZE)).astype(np.float32)
CLASSES = predicted(MODEL, IMAGES)
with torch.no_grad():
    VALUES = MODEL.concept_predictor(torch.as_tensor(IMAGES)).numpy()
ARGUMENTS = metric_arguments(IMAGES, RNG) | {"contrast_model": MODEL, "contrast_labels": CLASSES}
MAKERS = metric_makers(ARGUMENTS)
#: What they are given has to come again from `explain_func`: see `test_reexplaining`.
EXPLAINING_AGAIN = "MCS"
METRICS: dict[str, Callable[..., Any]] = {
    **{name: MAKERS[name] for name in ("CEM", "Faithfulness", "PASTAScore")},
    "MCS": partial(MAKERS["MCS"], agreement=-1, labels=CLASSES),
    "CLM": partial(CLM, alpha=3),
}
# A metric of concepts at the bottleneck; the others are of images.
AT_THE_BOTTLENECK = "CEM"


def whole_numbers(name: str) -> np.ndarray:
    """Attributions that are exact in every type, of the shape a metric wants."""
    shape = (N, N_CONCEPTS) if name == AT_THE_BOTTLENECK else (N, SIZE, SIZE)
    return np.random.default_rng(1).integers(-90, 90, shape).astype(float)


def scored(name: str, a_batch: Any = None, explain_func: Any = None) -> np.ndarray:
    call = {"x_batch": IMAGES, "s_batch": MASKS, "model": MODEL}
    if name == AT_THE_BOTTLENECK:
        call = {"x_batch": VALUES, "model": MODEL.head}

    def constant(model, inputs, targets, **kwargs):
        return np.ones((len(inputs), SIZE, SIZE))

    # What explains again needs to be able to.
    explain_func = constant if explain_func is None and name == EXPLAINING_AGAIN else explain_func
    return np.asarray(METRICS[name]()(**call, y_batch=CLASSES, a_batch=a_batch, explain_func=explain_func))


GOOD: dict[str, Callable[[np.ndarray], Any]] = {
    "int64": lambda values: values.astype(np.int64),
    "float16": lambda values: values.astype(np.float16),
    "tensor with gradient": lambda values: torch.as_tensor(values).requires_grad_(),
    "bfloat16": lambda values: torch.as_tensor(values).to(torch.bfloat16),
    "list of tensors": lambda values: [torch.as_tensor(row).requires_grad_() for row in values],
    "masked, nothing hidden": lambda values: np.ma.masked_array(values, mask=False),
}
BAD: dict[str, tuple[Callable[[np.ndarray], Any], str]] = {
    "no values": (lambda values: values.reshape(N, -1)[:, :0], "without a value"),
    "objects": (lambda values: values.astype(object), "not numeric but object"),
    "ragged": (lambda values: [row[: i + 1] for i, row in enumerate(values.reshape(N, -1))], "gave no array but list"),
    "nothing": (lambda values: None, r"shape \(\)"),
    "fewer samples": (lambda values: values[:2], r"of shape \(2, .* for 6 samples"),
    "another shape": (lambda values: values.reshape(N, -1)[:, :3], "shape|agree|called again"),
    "NaN": (lambda values: values * np.nan, "NaN or infinity"),
    "hidden": (lambda values: np.ma.masked_array(values, mask=True), "NaN or infinity"),
}


@pytest.mark.parametrize("name", [name for name in METRICS if name != EXPLAINING_AGAIN])
@pytest.mark.parametrize("kind", GOOD)
def test_scores_are_those_of_floats(name, kind):
    expected = scored(name, whole_numbers(name))
    assert np.isfinite(expected).any()
    np.testing.assert_allclose(scored(name, GOOD[kind](whole_numbers(name))), expected, rtol=1e-5)


CASES = [(name, kind) for name in METRICS for kind in BAD]
# A row for each sample is of concepts for it.
CASES.remove(("PASTAScore", "another shape"))


@pytest.mark.parametrize(("name", "kind"), CASES)
def test_what_is_no_attribution_gives_nan_and_a_warning(name, kind):
    spoil, message = BAD[kind]
    a_batch = spoil(whole_numbers(name))
    for computed in (True, False) if a_batch is not None else (True,):
        explain = (lambda model, inputs, targets, **kwargs: a_batch) if computed else None
        with pytest.warns(UserWarning, match=message) as caught:
            scores = scored(name, None if computed else a_batch, explain)
        assert np.isnan(scores).all()
        assert len([warning for warning in caught if issubclass(warning.category, UserWarning)]) == 1


def test_attributions_that_are_zero_everywhere_are_no_explanation():
    with pytest.warns(UserWarning, match="failed: attributions are zero everywhere"):
        scores = scored("CLM", np.zeros((N, SIZE, SIZE)))
    assert np.isnan(scores).all()


@pytest.mark.parametrize("name", METRICS)
def test_a_method_that_raises_within_quantus_gives_nan_and_a_warning(name):
    kwargs = {"method": "LayerGradCam", "gc_layer": "no such layer", "xai_lib": "captum"}
    call = {"x_batch": IMAGES, "model": MODEL, "s_batch": MASKS}
    if name == AT_THE_BOTTLENECK:
        call = {"x_batch": VALUES, "model": MODEL.head}
    metric = METRICS[name]()
    with pytest.warns(UserWarning, match="the explanation method 'LayerGradCam' failed: .*it raised"):
        scores = metric(**call, y_batch=CLASSES, explain_func=quantus.explain, explain_func_kwargs=kwargs, device="cpu")
    assert np.isnan(scores).all()
    assert any(reason.startswith("the explanation method failed: ") for reason in metric.records[-1].reasons)


def test_a_classifier_is_no_concept_model_and_no_method_is_to_blame():
    message = r"argument `model`, Sequential, is no concept model, which .*PostHocCBM\.fit makes one"
    plain = nn.Sequential(nn.Flatten(), nn.Linear(3 * SIZE * SIZE, N_CLASSES))
    with pytest.raises(ValueError, match=message):
        METRICS[AT_THE_BOTTLENECK]()(plain, IMAGES, CLASSES)
    with pytest.warns(UserWarning, match=message) as caught:
        scores = METRICS[AT_THE_BOTTLENECK]()(plain, IMAGES, CLASSES, explain_func=quantus.explain, device="cpu")
    assert np.isnan(scores).all()
    assert "failed" not in "".join(
        str(warning.message) for warning in caught if AT_THE_BOTTLENECK in str(warning.message)
    )
    # Importances of concepts are welcome, wherever they come from.
    assert np.isfinite(
        METRICS[AT_THE_BOTTLENECK]()(plain, IMAGES, predicted(plain, IMAGES), whole_numbers(AT_THE_BOTTLENECK))
    ).any()
