"""Bad arguments that no constraint describes: of calls, of further settings, and those that do not fit each other.

`test_bad_input` has what messages say.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

from bad_arguments import Case, assert_refused, public_functions, spoilt
from metric_inputs import (
    ARGUMENTS,
    CHANGED,
    CLASSES,
    IMAGES,
    LABELS,
    LOADER,
    LOADER_OF_UNIT_IMAGES,
    MASKS,
    METRICS,
    MODEL,
    OTHER,
    PARTS,
    POINTS,
    SAMPLES,
    SCORER,
    TRUTH,
    N,
    updated_metrics,
)
from quantus_concepts import metrics
from quantus_concepts.metrics import (
    CEM,
    CGIM,
    CLM,
    ConceptRanges,
    Explainer,
    Faithfulness,
    PASTAScore,
    Patch,
    Subject,
    attribute_regions,
    intervention_curve,
    metric_values,
    optimise_patch,
    plot_interventions,
    score_concepts,
    score_contrasts,
    score_explanations,
    score_relative,
    score_substitutions,
    score_vision_language,
)
from tiny_encoders import PoolingEncoder
from tiny_models import N_CLASSES

Bad = Mapping[str, Any]
NAN, INF = float("nan"), float("inf")
#: What is no array of numbers, no module and no whole number from 1.
NO_ARRAY: Bad = {"text": np.array([["a", "b"]]), "complex": np.array([[1j, 0]]), "ragged": [[1.0], [1.0, 2.0]]}
NO_MODULE: Bad = {"text": "resnet18", "a list": [1], "a class": nn.Linear}
NO_POSITIVE: Bad = {"text": "many", "a bool": True, "a fraction": 1.5, "zero": 0}
NO_MASKS: Bad = {**NO_ARRAY, "of rank 2": MASKS[0, 0], "NaN": MASKS * NAN, "probabilities": MASKS / 2}
PIXELS: dict[str, Bad] = {
    "mean": {"text": "many", "NaN": [NAN] * 3, "complex": [1j] * 3, "ragged": [[1], [1, 2]]},
    "std": {"text": "many", "NaN": [NAN] * 3, "infinite": [INF] * 3, "negative": [-1.0] * 3},
}
NORMALISED = {"mean": [0.5] * 3, "std": [0.5] * 3}
#: Batches that are none, of a loader.
NO_BATCHES: Bad = {"of texts": [("a", "b")], "of None": [None]}
NO_NAMES: Bad = {"one too few": ["a"]}
NO_LEVELS: Bad = {
    "a number": 1.0,
    "one": [[0.0] * 5],
    "text": ("a", "b"),
    "of rank 2": np.zeros((2, 1, 5)),
    "NaN": np.full((2, 5), NAN),
    "of two lengths": ([0.0], [1.0, 1.0]),
    "descending": np.array([[1.0] * 5, [0.0] * 5]),
    "of two concepts": np.array([[0.0] * 2, [1.0] * 2]),
}


def explain(model: Any, inputs: Any, targets: Any, **kwargs: Any) -> np.ndarray:
    raise AssertionError("explained before the arguments were checked")


class Answers(nn.Module):
    """A model with a fixed answer, or one for the number of images."""

    def __init__(self, answer: Any) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(1))
        self.answer = answer

    def forward(self, images: Tensor) -> Any:
        return self.answer(len(images)) if callable(self.answer) else self.answer


CALL = {"model": MODEL, "x_batch": IMAGES, "y_batch": CLASSES, "s_batch": MASKS, "explain_func": explain}
#: With explanations, since the model does not run without them.
WITH_MAPS = {**CALL, "a_batch": IMAGES}
ANSWERS = {
    "nothing": None,
    "an empty tuple": (),
    "texts": ["a"],
    "a vector": lambda n: torch.ones(n),
    "maps": lambda n: torch.ones(n, N_CLASSES, 2, 2),
    "one row": lambda n: torch.ones(1, N_CLASSES) if n > 1 else torch.ones(2, N_CLASSES),
}
#: What all metrics take from Quantus.
QUANTUS: dict[str, Bad] = {
    "normalise_func": {"text": "max", "a number": 3},
    "normalise_func_kwargs": {"a list": [1], "text": "max"},
    "aggregate_func": {"text": "mean"},
    "default_plot_func": {"text": "hist"},
    "abs": {"text": "yes", "a number": 2},
    "normalise": {"text": "yes"},
    "return_aggregate": {"text": "yes"},
    "disable_warnings": {"text": "yes"},
    "display_progressbar": {"text": "yes"},
}
#: What a call of any metric takes, checked in one place.
CALLED: dict[str, Bad] = {
    "model": {**NO_MODULE, "on the meta device": nn.Linear(3, 2, device="meta")},
    "x_batch": {**NO_ARRAY, "None": None, "infinite": IMAGES * INF},
    "y_batch": {
        **NO_ARRAY,
        "None": None,
        "names": ["cat"] * N,
        "negative": -CLASSES - 1,
        "bools": CLASSES > 1,
    },
    "batch_size": NO_POSITIVE,
    "explain_func": {"text": "mean", "a number": 3, "a list": [explain]},
    "explain_func_kwargs": {"text": "Saliency", "a list": [1]},
    "model_predict_kwargs": {"text": "mask", "a list": [1]},
    "custom_batch": {"a list": [1], "an array": LABELS},
    "channel_first": {"text": "yes"},
    "device": {"text": "gpu number one", "a list": ["cpu"]},
}
UPDATED = updated_metrics(ARGUMENTS | {"labels": CLASSES})
FIRST, SECOND = Subject(MODEL, IMAGES, CLASSES), Subject(OTHER, IMAGES, CLASSES)
PATCH = {"model": MODEL, "images": IMAGES, "masks": MASKS, "init": IMAGES[0], "steps": 1}
PAIR: Bad = {"one subject": FIRST, "models": (MODEL, OTHER)}
RANGES = ConceptRanges(MODEL, SAMPLES, batch_size=2, top_l=(1,))
CONCEPTS = {"model": MODEL, "loader": LOADER, "top_l": (1,)}
SUBSTITUTED = {"added": CLASSES, "removed": CLASSES, "concept_names": [f"wing::{j}" for j in range(LABELS.shape[1])]}
SUBSTITUTIONS = {"model": MODEL, "loader": LOADER, "class_concepts": TRUTH, **SUBSTITUTED}
CURVES = pd.DataFrame(
    {"model": "a", "order": "random", "labels": "true labels", "count": [0, 1]}
    | {"value": 0.5, "low": 0.4, "high": 0.6, "n": 9}
)


def called(name: str) -> dict[str, Case]:
    """Return the cases of a metric's call: in full for one metric, in part for the others."""
    bad = CALLED if name == "CEM" else {key: dict([*of.items()][:2]) for key, of in CALLED.items()}
    cases = spoilt(METRICS[name], WITH_MAPS, **bad)
    if name in ("CLM", "MCS", "IDR", "IIR"):
        other_sizes = {"one too few": MASKS[:5], "of another size": MASKS[..., 1:]}
        cases |= spoilt({**METRICS, "CLM": CLM()}[name], CALL, s_batch={**NO_MASKS, **other_sizes})
    if name in ("MCS", "IDR", "IIR", "Faithfulness"):
        cases |= answered(METRICS[name], WITH_MAPS)
    return cases


def answered(call: Any, good: dict[str, Any], *kinds: str) -> dict[str, Case]:
    """Return the cases of models whose outputs are none, of some kinds or of all."""
    return {
        f"model that returns {what}": (lambda answer=answer: call(**{**good, "model": Answers(answer)}), "return")
        for what, answer in ANSWERS.items()
        if what in (kinds or ANSWERS)
    }


def updated(name: str) -> dict[str, Case]:
    """Return the cases of a batch that is none, and of what cannot be merged."""
    make, names = UPDATED[name]
    truth = {key: (ARGUMENTS | {"labels": CLASSES})[key] for key in names}
    good = {"model": MODEL, "x_batch": IMAGES, "y_batch": CLASSES, **truth}
    bad: dict[str, Bad] = {key: {**NO_ARRAY, "one too few": value[:5]} for key, value in truth.items()}
    no_metrics = {"None": None, "another": Faithfulness(), "a number": 3}
    return spoilt(
        lambda **batch: make().update(**batch),
        good,
        x_batch={"text": "x", "None": None},
        y_batch={"text": "y", "one too few": CLASSES[:5]},
        **bad,
    ) | spoilt(make().merge_state, {"other": make()}, other=no_metrics)


TABLE: dict[str, dict[str, Case]] = {
    **{f"{name}.__call__": called(name) for name in METRICS},
    **{f"{name}.update": updated(name) for name in UPDATED},
    "arguments of Quantus": spoilt(CEM, {"concept_labels": LABELS}, **QUANTUS),
    "CGIM": spoilt(CGIM, {"class_concepts": TRUTH}, labels={"too large": CLASSES + 9}),
    "Faithfulness": spoilt(Faithfulness, NORMALISED, **PIXELS),
    "PASTAScore": spoilt(
        PASTAScore,
        {"scorer": SCORER, "encoder": PoolingEncoder(), **NORMALISED},
        scorer={"None": None, "a number": 3, "a list": ["PASTA_Q1.pth"]},
        encoder={"a number": 3, "unknown": "clop", "a list": ["clip"]},
        question={"unknown": "Q9", "a number": 1},
        labels={"text": "cat", "a number": 3, "fractions": [0.5] * N, "bools": [True] * N, "unknown": ["cta"] * N},
        concept_names={"text": "wing", "a number": 3, "twice the same": ["wing", "wing"]},
    ),
    "Patch": spoilt(Patch, {"init": IMAGES[0], **NORMALISED}, **PIXELS),
    "optimise_patch": answered(optimise_patch, PATCH, "nothing", "texts", "a vector")
    | spoilt(optimise_patch, PATCH, init={"of rank 2": IMAGES[0, 0]}),
    "Subject": spoilt(
        Subject,
        {"model": MODEL, "images": IMAGES, "labels": CLASSES},
        images={
            "a data set": TensorDataset(torch.from_numpy(IMAGES)),
            "shuffled": DataLoader(torch.from_numpy(IMAGES), shuffle=True),
        },
    ),
    "Subject.batches": {
        f"images: {what}": (lambda batches=batches: list(Subject(MODEL, batches, CLASSES).batches()), name)
        for what, batches, name in (
            ("too few", [IMAGES[:4]], "`labels`"),
            ("too many", [IMAGES, IMAGES], "`labels`"),
            ("of rank 2", [IMAGES[:2], IMAGES[0, 0]], "`images`"),
            ("texts", [IMAGES[:2], "birds"], "`images`"),
        )
    }
    | {"rows of batches": (lambda: Subject(MODEL, [IMAGES], CLASSES).batch([0]), "`images`")},
    "attribute_regions": spoilt(
        attribute_regions,
        {"methods": {"a": explain}, "subjects": [FIRST], "masks": MASKS},
        masks={"of another size": MASKS[..., 1:]},
        elsewhere={"of another subject": {SECOND: MASKS}, "of text": {FIRST: "masks"}},
        keep={"of another subject": {SECOND: [0]}, "out of range": {FIRST: [99]}, "a fraction": {FIRST: [0.5]}},
    ),
    "score_contrasts": spoilt(
        score_contrasts,
        {"methods": {"a": explain}, "masks": MASKS, "mcs": (FIRST, SECOND)},
        masks={"of another size": MASKS[..., 1:]},
        mcs={**PAIR, "three": (FIRST, SECOND, FIRST), "text": "ab"},
        idr=PAIR,
        iir=PAIR,
    )
    | spoilt(
        score_contrasts,
        {"methods": {"a": explain}, "masks": MASKS, "iir": (FIRST, Subject(MODEL, CHANGED, CLASSES))},
        converged={"one too few": [True] * 5},
    ),
    "score_relative": spoilt(
        score_relative,
        {"methods": {"a": explain}, "masks": MASKS, "models": {0.5: MODEL, 1.0: OTHER}}
        | {"images": IMAGES, "without": IMAGES, "labels": CLASSES},
        models={
            "by name": {"a": MODEL, "b": OTHER},
            "NaN": {NAN: MODEL, 1.0: OTHER},
            "above 1": {0.5: MODEL, 2.0: OTHER},
            "zero": {0: MODEL, 1.0: OTHER},
        },
        without={"one too few": IMAGES[:5]},
        labels={"one too few": CLASSES[:5]},
    ),
    "score_explanations": spoilt(
        score_explanations,
        {"scorer": SCORER, "encoder": PoolingEncoder(), "loader": [(IMAGES, IMAGES[:, 0], ["cat"] * N)]},
        scorer={"a number": 3, "a model": MODEL},
        encoder={"a number": 3, "text": "siglop"},
        loader=NO_BATCHES,
    )
    | spoilt(score_explanations, {"scorer": SCORER, "encoder": PoolingEncoder(), "loader": [], **NORMALISED}, **PIXELS),
    "score_concepts": spoilt(
        score_concepts,
        {**CONCEPTS, "class_concepts": TRUTH, "part_of_concept": PARTS},
        loader=NO_BATCHES,
        concept_labels={"one too few": LABELS[:5]},
        points={"one too few": POINTS[:5]},
        class_names=NO_NAMES,
    )
    | spoilt(
        score_concepts,
        {**CONCEPTS, "value_threshold": 0.5, "added": CLASSES},
        removed={"one too few": CLASSES[:5]},
    )
    | spoilt(score_concepts, {**CONCEPTS, "interventions": (1,)}, levels=NO_LEVELS),
    "ConceptRanges": spoilt(
        ConceptRanges,
        {"model": MODEL, "data": SAMPLES, "top_l": (1,)},
        data={"None": None, "a number": 3, "a loader": DataLoader(SAMPLES), "empty": []},
        class_concepts={**NO_ARRAY, "of rank 1": TRUTH[0]},
        top_l={"a number": 3, "text": "1", "bools": (True,)},
        no_setting={"unknown": 3},
    ),
    "ConceptRanges.rows": spoilt(
        RANGES.rows, {"start": 0, "stop": 2}, start={"within a batch": 1}, stop={"not above the start": 0}
    ),
    "ConceptRanges.table": spoilt(RANGES.table, {}, rows={"others": pd.DataFrame({"model": [0]})}),
    "score_substitutions": spoilt(
        score_substitutions,
        SUBSTITUTIONS,
        loader=NO_BATCHES,
        removed={"one too few": CLASSES[:5]},
        labels={"one too few": CLASSES[:5]},
        class_names=NO_NAMES,
    ),
    "score_vision_language": spoilt(
        score_vision_language,
        {"encoder": PoolingEncoder(), "loader": LOADER_OF_UNIT_IMAGES, **SUBSTITUTED},
        encoder={"None": None, "a number": 3, "unknown": "clop", "a list": ["clip"]},
        loader=NO_BATCHES,
        added={"one too few": CLASSES[:5]},
        removed={"one too few": CLASSES[:5]},
        labels={"one too few": CLASSES[:5]},
    ),
    "Explainer": spoilt(
        Explainer,
        {"model": MODEL, **NORMALISED},
        explain_func_kwargs={"None": None, "a list": [1], "text": "method"},
        **PIXELS,
    ),
    "metric_values": {
        "explainers: models": (lambda: metric_values(good_ratings(), explainers={"a": MODEL}), "`explainers`")
    },
    "intervention_curve": spoilt(
        intervention_curve,
        {"model": MODEL, "loader": LOADER},
        loader=NO_BATCHES,
        concept_labels={"one too few": LABELS[:5]},
        labels={"one too few": CLASSES[:5]},
        counts={"too large": (99,)},
        groups={**NO_ARRAY, "with a gap": [0, 2, 2, 2, 2], "one too few": [0, 1], "bools": [True] * 5},
        levels=NO_LEVELS,
    ),
    "plot_interventions": spoilt(
        plot_interventions,
        {"table": CURVES},
        table={"None": None, "of other columns": CURVES.drop(columns="order"), "empty": CURVES[:0]},
        control={"text": "a", "of other columns": CURVES.drop(columns="low"), "empty": CURVES[:0]},
        ax={"text": "a", "a number": 3, "too few": []},
    ),
}
#: Results, and the parts of a metric that its host calls.
RESULTS = {"Premise", "PremiseCheck", "RegionAttributions"}
HOOKS = {
    *("custom_preprocess", "custom_postprocess", "evaluate_batch", "recall", "concept_features", "concept_outputs"),
    *("usable", "concept_attributions", "fail", "leave_out", "plot", "plot_scores", "check", "make", "inputs", "batch"),
    *("update", "merge_state", "__call__"),
}


def good_ratings() -> Any:
    from good.metrics import RATINGS

    return RATINGS


@pytest.mark.filterwarnings("ignore")
@pytest.mark.usefixtures("empty_folder")
@pytest.mark.parametrize("cases", TABLE.values(), ids=TABLE)
def test_refused(cases: Mapping[str, Case]) -> None:
    assert_refused(cases)


def test_every_callable_has_constraints_or_is_in_the_table() -> None:
    unconstrained = {
        name
        for name, function in public_functions(metrics)
        if not hasattr(function, "constraints") and name.partition(".")[2] not in HOOKS
    }
    assert unconstrained - TABLE.keys() == RESULTS
