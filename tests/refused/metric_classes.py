"""Bad input to the metric classes and their calls, one argument at a time."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from pooling_encoder import PoolingEncoder
from quantus_concepts.metrics import (
    CEM,
    CGIM,
    CLM,
    IDR,
    IIR,
    MCS,
    Faithfulness,
    PASTAScore,
    SubstitutionScore,
)
from quantus_concepts.pasta.scorer import Scorer
from refusals import Refusal
from spoiling import (
    INF,
    NAN,
    NO_ARRAY,
    NO_CHOICE,
    NO_FUNCTION,
    NO_MODULE,
    NO_NUMBER,
    NO_POSITIVE,
    TEXT,
    Bad,
    Table,
    spoilt,
)
from tiny_models import N_CLASSES, N_CONCEPTS, SharingConceptModel

N, SIZE = 6, 12
RNG = np.random.default_rng(0)
MODEL, OTHER = SharingConceptModel(), SharingConceptModel(seed=1)
IMAGES = RNG.random((N, 3, SIZE, SIZE), dtype=np.float32)
CLASSES = np.arange(N) % N_CLASSES
LABELS = RNG.integers(0, 2, (N, N_CONCEPTS))
TRUTH = RNG.random((N_CLASSES, N_CONCEPTS))
POINTS = RNG.uniform(0, SIZE, (N, 3, 2))
PARTS = np.array([0, 1, -1, 2, 0])
MASKS = np.zeros((N, 1, SIZE, SIZE))
MASKS[:, :, 2:7, 3:9] = 1
CHANGED = np.where(MASKS == 1, 0.5 * IMAGES, IMAGES)


def explain(model: Any, inputs: Any, targets: Any, **kwargs: Any) -> np.ndarray:
    raise AssertionError("explained before the arguments were checked")


class Answers(nn.Module):
    """A model that answers with what it is told, for as many images as it gets."""

    def __init__(self, answer: Any) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(1))
        self.answer = answer

    def forward(self, images: Tensor) -> Any:
        return self.answer(len(images)) if callable(self.answer) else self.answer


CALL = {"model": MODEL, "x_batch": IMAGES, "y_batch": CLASSES, "s_batch": MASKS, "explain_func": explain}
#: Its model is not asked where there is no map.
WITH_MAPS = {**CALL, "a_batch": IMAGES}
SCORER = Scorer(PoolingEncoder.dim, ("Q1",), ("cat", "dog", "car"), hidden=(4, 4))
METRICS = {
    "CGIM": CGIM(TRUTH),
    "CEM": CEM(LABELS),
    "CLM": CLM(points=POINTS, part_of_concept=PARTS),
    "MCS": MCS(OTHER, CLASSES),
    "IDR": IDR(CHANGED),
    "IIR": IIR(CHANGED),
    "Faithfulness": Faithfulness(),
    "SubstitutionScore": SubstitutionScore(CLASSES),
    "PASTAScore": PASTAScore(SCORER, PoolingEncoder(), class_names=["cat", "dog", "car", "cat"]),
}

NO_MASKS: Bad = {
    **NO_ARRAY,
    "of rank 2": MASKS[0, 0],
    "negative": -MASKS,
    "NaN": MASKS * NAN,
    "probabilities": MASKS / 2,
}
NO_CLASSES: Bad = {
    **NO_ARRAY,
    "names": ["cat"] * N,
    "of rank 2": CLASSES[:, None],
    "fractions": CLASSES / 2 + 0.1,
    "NaN": CLASSES * NAN,
    "infinite": CLASSES + INF,
    "negative": -CLASSES - 1,
    "bools": CLASSES > 1,
}
NO_SUBSTITUTES: Bad = {
    **NO_ARRAY,
    "names": ["red"] * N,
    "of rank 2": CLASSES[:, None],
    "fractions": CLASSES / 2,
    "bools": CLASSES > 1,
    "below -1": CLASSES - 2,
}
NO_IMAGES: Bad = {**NO_ARRAY, "None": None, "infinite": IMAGES * INF, "of rank 3": IMAGES[0], "none": IMAGES[:0]}
#: What all metrics take from Quantus, checked in one place: in full for one metric, in part for the others.
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
SHARED: dict[str, Bad] = {"normalise_func": {"text": "max"}, "abs": {"text": "yes"}}
PIXELS: dict[str, Bad] = {
    "mean": {**TEXT, "a number": 0.5, "NaN": [NAN] * 3, "complex": [1j] * 3, "ragged": [[1], [1, 2]]},
    "std": {**TEXT, "a number": 0.5, "NaN": [NAN] * 3, "infinite": [INF] * 3, "negative": [-1.0] * 3},
}
NO_RANGE: Bad = {"text": "ab", "a number": 1, "of one": (1,), "of texts": ("a", "b"), "NaN": (NAN, 1), "down": (1, 0)}
NO_AGREEMENT: Bad = {**NO_NUMBER, "None": None, "NaN": NAN, "below -1": -2}


def called(name: str) -> dict[str, Refusal]:
    """Return the cases of the call that all metrics share."""
    models = {key: bad for key, bad in NO_MODULE.items() if key != "None"}
    bad: dict[str, Bad] = {
        "model": models | {"on the meta device": nn.Linear(3, 2, device="meta")},
        "x_batch": {key: value for key, value in NO_IMAGES.items() if key != "of rank 3"},
        "y_batch": {**NO_CLASSES, "None": None, "one too few": CLASSES[:5], "out of range": CLASSES + 99},
        "batch_size": NO_POSITIVE,
        "explain_func": {**NO_FUNCTION, "a list": [explain]},
        "explain_func_kwargs": {"text": "Saliency", "a list": [1]},
        "model_predict_kwargs": {"text": "mask", "a list": [1]},
        "custom_batch": {"a list": [1], "an array": LABELS, "of another name": {"label": CLASSES}},
        "channel_first": {"text": "yes"},
        "device": {"text": "gpu number one", "a list": ["cpu"]},
    }
    if name != "CEM":
        bad = {key: dict([*of.items()][:2]) for key, of in bad.items()}
    return spoilt(METRICS[name], WITH_MAPS, **bad)


def regions(metric: Any) -> dict[str, Refusal]:
    """Return the cases of a call that asks about regions."""
    return spoilt(metric, CALL, s_batch={**NO_MASKS, "one too few": MASKS[:5], "of another size": MASKS[..., 1:]})


def broken(name: str) -> dict[str, Refusal]:
    """Return the cases of models whose outputs are none."""
    answers = {
        "nothing": None,
        "an empty tuple": (),
        "texts": ["a"],
        "a vector": lambda n: torch.ones(n),
        "maps": lambda n: torch.ones(n, N_CLASSES, 2, 2),
        "one row": lambda n: torch.ones(1, N_CLASSES) if n > 1 else torch.ones(2, N_CLASSES),
    }
    return {
        f"model that returns {what}": Refusal(
            lambda answer=answer: METRICS[name](**{**WITH_MAPS, "model": Answers(answer)}), "return"
        )
        for what, answer in answers.items()
    }


#: Metrics that take one batch after another, with the truth of a batch.
UPDATED = {
    "CGIM": (lambda: CGIM(TRUTH), {"labels": CLASSES}),
    "CEM": (CEM, {"concept_labels": LABELS}),
    "CLM": (lambda: CLM(part_of_concept=PARTS), {"points": POINTS}),
    "SubstitutionScore": (SubstitutionScore, {"added": CLASSES}),
}


def updates(name: str) -> dict[str, Refusal]:
    """Return the cases of a batch that is none."""
    make, truth = UPDATED[name]
    bad: dict[str, Bad] = {
        "x_batch": {"text": "x", "None": None},
        "y_batch": {"text": "y", "one too few": CLASSES[:5]},
        **{key: {**NO_ARRAY, "one too few": value[:5]} for key, value in truth.items()},
    }
    return spoilt(
        lambda **batch: make().update(**batch), {"model": MODEL, "x_batch": IMAGES, "y_batch": CLASSES, **truth}, **bad
    )


TABLE: Table = {
    **{f"{name}.update": updates(name) for name in UPDATED},
    **{
        f"{name}.merge_state": spoilt(
            make().merge_state, {"other": make()}, other={"None": None, "another": Faithfulness(), "a number": 3}
        )
        for name, (make, _) in UPDATED.items()
    },
    "CGIM": spoilt(
        CGIM,
        {"class_concepts": TRUTH},
        class_concepts={**NO_ARRAY, "None": None, "of rank 1": TRUTH[0], "negative": -TRUTH, "empty": TRUTH[:0]},
        labels={**NO_CLASSES, "too large": CLASSES + 9},
        **SHARED,
    ),
    "CEM": spoilt(
        CEM,
        {"concept_labels": LABELS},
        concept_labels={
            **NO_ARRAY,
            "negative": -LABELS,
            "infinite": np.where(LABELS > 0, INF, LABELS),
            "of rank 3": LABELS[None],
        },
        labels=NO_CLASSES,
        **QUANTUS,
    ),
    "CLM": spoilt(
        CLM,
        {"points": POINTS, "part_of_concept": PARTS},
        points={**NO_ARRAY, "of rank 2": POINTS[0]},
        part_of_concept={**NO_ARRAY, "fractions": PARTS / 2, "bools": PARTS > 0, "below -1": PARTS - 2},
        masks=NO_MASKS,
        **SHARED,
    ),
    "MCS": spoilt(
        MCS,
        {"contrast_model": OTHER, "contrast_labels": CLASSES},
        contrast_model=NO_MODULE | {"on the meta device": nn.Linear(3, 2, device="meta")},
        contrast_labels=NO_CLASSES,
        masks=NO_MASKS,
        labels=NO_CLASSES,
        **SHARED,
    ),
    "IDR": spoilt(
        IDR,
        {"counterpart": CHANGED},
        counterpart={**NO_ARRAY, "of rank 3": CHANGED[0], "infinite": CHANGED * INF},
        masks=NO_MASKS,
        labels=NO_CLASSES,
        **SHARED,
    ),
    "IIR": spoilt(
        IIR,
        {"patched": CHANGED},
        patched={**NO_ARRAY, "of rank 3": CHANGED[0], "infinite": CHANGED * INF},
        masks=NO_MASKS,
        labels=NO_CLASSES,
        **SHARED,
    ),
    "Faithfulness": spoilt(
        Faithfulness,
        {"perturbation": "uniform"},
        perturbation=NO_CHOICE,
        noise={**NO_NUMBER, "NaN": NAN, "negative": -1, "infinite": INF},
        pixel_range=NO_RANGE,
        **SHARED,
    )
    | spoilt(Faithfulness, {"mean": [0.5] * 3, "std": [0.5] * 3}, **PIXELS),
    "SubstitutionScore": spoilt(
        SubstitutionScore,
        {"added": CLASSES, "removed": CLASSES},
        added=NO_SUBSTITUTES,
        removed=NO_SUBSTITUTES,
        pairs=NO_CLASSES,
        **SHARED,
    ),
    "PASTAScore": spoilt(
        PASTAScore,
        {"scorer": SCORER, "encoder": PoolingEncoder()},
        scorer={"None": None, "a number": 3, "a list": ["PASTA_Q1.pth"]},
        encoder={"a number": 3, "unknown": "clop", "a list": ["clip"]},
        question=NO_CHOICE | {"None": "Q9"},
        labels={"text": "cat", "a number": 3, "fractions": [0.5] * N, "bools": [True] * N, "unknown": ["cta"] * N},
        concept_names={"text": "wing", "a number": 3, "twice the same": ["wing", "wing"]},
        **SHARED,
    )
    | spoilt(
        PASTAScore, {"scorer": SCORER, "encoder": PoolingEncoder(), "mean": [0.5] * 3, "std": [0.5] * 3}, **PIXELS
    ),
    **{
        f"{name}.__call__": called(name)
        | (regions({**METRICS, "CLM": CLM()}[name]) if name in ("CLM", "MCS", "IDR", "IIR") else {})
        | (broken(name) if name in ("MCS", "IDR", "IIR", "Faithfulness") else {})
        for name in METRICS
    },
}
