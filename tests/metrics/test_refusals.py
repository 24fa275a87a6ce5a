"""Bad input to metrics and what is built on them, one argument at a time; `test_bad_input` has what messages say."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from pooling_encoder import PoolingEncoder
from quantus_concepts import metrics
from quantus_concepts.datasets.ratings.explanations import MapExplanation
from quantus_concepts.datasets.ratings.rated import RatedExplanations
from quantus_concepts.metrics import (
    CEM,
    CGIM,
    CLM,
    IDR,
    IIR,
    MCS,
    Explainer,
    Faithfulness,
    Limits,
    PASTAScore,
    Patch,
    Subject,
    attribute_regions,
    check_premise,
    metric_values,
    optimise_patch,
    score_concepts,
    score_contrasts,
    score_relative,
)
from quantus_concepts.pasta.scorer import Scorer
from refusals import Refusal
from spoiling import (
    INF,
    NAN,
    NO_ARRAY,
    NO_CHOICE,
    NO_COUNT,
    NO_FUNCTION,
    NO_MODULE,
    NO_NUMBER,
    NO_POSITIVE,
    NO_SEED,
    TEXT,
    Bad,
    Table,
    cases,
    public_callables,
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
VALUES = RNG.random((N, N_CONCEPTS))


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
    "PASTAScore": PASTAScore(SCORER, PoolingEncoder(), class_names=["cat", "dog", "car", "cat"]),
}

NO_MASKS: Bad = {**NO_ARRAY, "of rank 2": MASKS[0, 0], "negative": -MASKS, "NaN": MASKS * NAN, "probabilities": MASKS / 2}
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
NO_IMAGES: Bad = {**NO_ARRAY, "None": None, "infinite": IMAGES * INF, "of rank 3": IMAGES[0], "none": IMAGES[:0]}
SHARED: dict[str, Bad] = {
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
PIXELS: dict[str, Bad] = {
    "mean": {**TEXT, "a number": 0.5, "NaN": [NAN] * 3, "complex": [1j] * 3, "ragged": [[1], [1, 2]]},
    "std": {**TEXT, "a number": 0.5, "NaN": [NAN] * 3, "infinite": [INF] * 3, "negative": [-1.0] * 3},
}
NO_RANGE: Bad = {"text": "ab", "a number": 1, "of one": (1,), "of texts": ("a", "b"), "NaN": (NAN, 1), "down": (1, 0)}
NO_AGREEMENT: Bad = {**NO_NUMBER, "None": None, "NaN": NAN, "below -1": -2}


def called(name: str) -> dict[str, Refusal]:
    """Return the cases of the call that all metrics share."""
    metric = METRICS[name]
    models = {key: bad for key, bad in NO_MODULE.items() if key != "None"}
    return spoilt(
        metric,
        WITH_MAPS,
        model=models | {"on the meta device": nn.Linear(3, 2, device="meta")},
        x_batch={key: bad for key, bad in NO_IMAGES.items() if key != "of rank 3"},
        y_batch={**NO_CLASSES, "None": None, "one too few": CLASSES[:5], "out of range": CLASSES + 99},
        batch_size=NO_POSITIVE,
        explain_func={**NO_FUNCTION, "a list": [explain]},
        explain_func_kwargs={"text": "Saliency", "a list": [1]},
        model_predict_kwargs={"text": "mask", "a list": [1]},
        custom_batch={"a list": [1], "an array": LABELS, "of another name": {"label": CLASSES}},
        channel_first={"text": "yes"},
    )


def regions(name: str) -> dict[str, Refusal]:
    """Return the cases of a call that asks about regions."""
    return spoilt(METRICS[name], CALL, s_batch={**NO_MASKS, "one too few": MASKS[:5], "of another size": MASKS[..., 1:]})


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
        f"model that returns {what}": Refusal(lambda answer=answer: METRICS[name](**{**WITH_MAPS, "model": Answers(answer)}), "return")
        for what, answer in answers.items()
    }


def rated() -> RatedExplanations:
    explanations = [MapExplanation(torch.rand(3, 4, 4), torch.rand(4, 4))]
    texts = {"image_ids": ["0"], "explainer_ids": ["a"], "labels": [""], "datasets": ["d"], "modalities": ["map"]}
    return RatedExplanations(
        explanations, np.full((1, 1, 6), 3.0), **{key: np.array(value) for key, value in texts.items()}, name="r"
    )


LOADER = [(torch.from_numpy(IMAGES), torch.from_numpy(CLASSES), torch.from_numpy(LABELS), torch.from_numpy(POINTS))]
FIRST, SECOND = Subject(MODEL, IMAGES, CLASSES), Subject(OTHER, IMAGES, CLASSES)
SUBJECT_ARRAYS: Bad = {"text": "birds", "None": None, "a number": 3, "strings": np.array(["a"] * N), "of rank 1": CLASSES}
NO_METHODS: Bad = {"None": None, "a list": [explain], "text": "Saliency", "names alone": {"a": "Saliency"}, "empty": {}}
PATCH = {"model": MODEL, "images": IMAGES, "masks": MASKS, "init": IMAGES[0], "steps": 1}
PATCH_SETTINGS: dict[str, Bad] = {
    "pixel_range": NO_RANGE,
    "steps": NO_POSITIVE,
    "step_size": NO_NUMBER,
    "eta1": {**NO_NUMBER, "None": None},
    "eta2": {**NO_NUMBER, "None": None},
    "tolerance": {**NO_NUMBER, "None": None},
    "chunk_size": NO_POSITIVE,
}
PREMISE = {
    "model": MODEL,
    "with_feature": IMAGES,
    "without_feature": IMAGES,
    "only_feature": IMAGES,
    "labels": CLASSES,
}
CONTRASTS = {"methods": {"a": explain}, "masks": MASKS, "mcs": (FIRST, SECOND)}
RELATIVE = {
    "methods": {"a": explain},
    "masks": MASKS,
    "models": {0.5: MODEL, 1.0: OTHER},
    "images": IMAGES,
    "without": IMAGES,
    "labels": CLASSES,
}

TABLE: Table = {
    "CGIM": spoilt(
        CGIM,
        {"class_concepts": TRUTH},
        class_concepts={**NO_ARRAY, "None": None, "of rank 1": TRUTH[0], "negative": -TRUTH, "empty": TRUTH[:0]},
        per=NO_CHOICE,
        labels={**NO_CLASSES, "too large": CLASSES + 9},
        importance=NO_CHOICE,
        **SHARED,
    ),
    "CEM": spoilt(
        CEM,
        {"concept_labels": LABELS},
        concept_labels={**NO_ARRAY, "negative": -LABELS, "infinite": LABELS * INF, "of rank 3": LABELS[None]},
        top_l=NO_POSITIVE,
        only_correct={"text": "yes", "None": None},
        labels=NO_CLASSES,
        importance=NO_CHOICE,
        **SHARED,
    ),
    "CLM": spoilt(
        CLM,
        {"points": POINTS, "part_of_concept": PARTS},
        alpha={**NO_NUMBER, "None": None, "NaN": NAN, "negative": -1},
        threshold={**NO_NUMBER, "NaN": NAN, "infinite": INF},
        points={**NO_ARRAY, "of rank 2": POINTS[0], "infinite": POINTS * INF},
        part_of_concept={**NO_ARRAY, "fractions": PARTS / 2, "bools": PARTS > 0, "below -1": PARTS - 2},
        top_l=NO_POSITIVE,
        masks=NO_MASKS,
        mask_hit=NO_CHOICE,
        importance=NO_CHOICE,
        **SHARED,
    ),
    "MCS": spoilt(
        MCS,
        {"contrast_model": OTHER, "contrast_labels": CLASSES},
        contrast_model=NO_MODULE | {"on the meta device": nn.Linear(3, 2, device="meta")},
        contrast_labels=NO_CLASSES,
        masks=NO_MASKS,
        labels=NO_CLASSES,
        random_region={"text": "yes", "None": None},
        seed=NO_SEED,
        agreement=NO_AGREEMENT,
        **SHARED,
    ),
    "IDR": spoilt(
        IDR,
        {"counterpart": CHANGED},
        counterpart={**NO_ARRAY, "of rank 3": CHANGED[0], "infinite": CHANGED * INF},
        masks=NO_MASKS,
        labels=NO_CLASSES,
        agreement=NO_AGREEMENT,
        **SHARED,
    ),
    "IIR": spoilt(
        IIR,
        {"patched": CHANGED},
        patched={**NO_ARRAY, "of rank 3": CHANGED[0], "infinite": CHANGED * INF},
        patch={"text": "dog.png", "settings": {"steps": 3}, "the class": Patch},
        threshold={**NO_NUMBER, "None": None, "NaN": NAN, "infinite": INF},
        masks=NO_MASKS,
        labels=NO_CLASSES,
        average={"text": "yes", "None": None},
        tolerance={**NO_NUMBER, "NaN": NAN, "zero": 0},
        agreement=NO_AGREEMENT,
        **SHARED,
    ),
    "Faithfulness": spoilt(
        Faithfulness,
        {"perturbation": "uniform"},
        perturbation=NO_CHOICE,
        thresholds={"None": None, "a number": 10, "text": "10", "bools": (True,), "empty": (), "above 100": (101,)},
        noise={**NO_NUMBER, "NaN": NAN, "negative": -1, "infinite": INF},
        pixel_range=NO_RANGE,
        outputs=NO_CHOICE,
        chunk_size=NO_POSITIVE,
        seed=NO_SEED,
        **SHARED,
    )
    | spoilt(Faithfulness, {"mean": [0.5] * 3, "std": [0.5] * 3}, **PIXELS),
    "PASTAScore": spoilt(
        PASTAScore,
        {"scorer": SCORER, "encoder": PoolingEncoder()},
        scorer={"None": None, "a number": 3, "a list": ["PASTA_Q1.pth"]},
        encoder={"a number": 3, "unknown": "clop", "a list": ["clip"]},
        question=NO_CHOICE | {"None": "Q9"},
        labels={"text": "cat", "a number": 3, "fractions": [0.5] * N, "bools": [True] * N, "unknown": ["cta"] * N},
        class_names={"text": "cat", "a number": 3, "not names": [None, 3]},
        concept_names={"text": "wing", "a number": 3, "twice the same": ["wing", "wing"]},
        denormalise=NO_FUNCTION,
        cache={"a number": 3, "a list": ["cache"]},
        clip={"text": "yes", "None": None},
        **SHARED,
    )
    | spoilt(
        PASTAScore, {"scorer": SCORER, "encoder": PoolingEncoder(), "mean": [0.5] * 3, "std": [0.5] * 3}, **PIXELS
    ),
    **{
        f"{name}.__call__": called(name)
        | (regions(name) if name in ("MCS", "IDR", "IIR") else {})
        | (broken(name) if name in ("MCS", "IDR", "IIR", "Faithfulness") else {})
        for name in METRICS
    },
    "Patch": spoilt(
        Patch,
        {"init": IMAGES[0]},
        init={**NO_ARRAY, "None": None, "of rank 2": IMAGES[0, 0], "infinite": IMAGES[0] * INF},
        **{name: bad for name, bad in PATCH_SETTINGS.items()},
    )
    | spoilt(
        Patch,
        {"init": IMAGES[0], "mean": [0.5] * 3, "std": [0.5] * 3},
        **{name: {what: bad for what, bad in of.items() if what != "a number"} for name, of in PIXELS.items()},
    ),
    "optimise_patch": spoilt(
        optimise_patch,
        PATCH,
        model=NO_MODULE | {"on the meta device": nn.Linear(3, 2, device="meta")},
        images={**NO_ARRAY, "None": None, "of rank 3": IMAGES[0]},
        masks={**NO_ARRAY, "None": None, "of rank 2": MASKS[0, 0]},
        init={**NO_ARRAY, "None": None, "of rank 2": IMAGES[0, 0]},
        preprocess=NO_FUNCTION,
        **PATCH_SETTINGS,
    )
    | {
        f"model that returns {what}": Refusal(lambda answer=answer: optimise_patch(**{**PATCH, "model": Answers(answer)}), "return")
        for what, answer in {"nothing": None, "texts": ["a"], "a vector": lambda n: torch.ones(n)}.items()
    },
    "Limits": spoilt(
        Limits,
        {},
        drop={**NO_NUMBER, "None": None, "NaN": NAN, "percentages": 5},
        remain={**NO_NUMBER, "None": None, "NaN": NAN, "percentages": 95},
        above_chance={**NO_NUMBER, "None": None, "NaN": NAN, "negative": -0.1},
    ),
    "check_premise": spoilt(
        check_premise,
        PREMISE,
        model=NO_MODULE | {"on the meta device": nn.Linear(3, 2, device="meta")},
        with_feature={**SUBJECT_ARRAYS, "NaN": IMAGES * NAN},
        without_feature=SUBJECT_ARRAYS,
        only_feature=SUBJECT_ARRAYS,
        labels={**NO_CLASSES, "None": None, "empty": CLASSES[:0]},
        limits={"text": "strict", "a number": 0.02, "a dict": {"drop": 0.1}},
        batch_size=NO_POSITIVE,
    ),
    "Subject": spoilt(
        Subject,
        {"model": MODEL, "images": IMAGES, "labels": CLASSES},
        model=NO_MODULE,
        images={**SUBJECT_ARRAYS, "complex": IMAGES + 1j},
        labels={**NO_CLASSES, "None": None, "one too few": CLASSES[:5]},
    ),
    "Subject.logits": spoilt(FIRST.logits, {}, batch_size=NO_POSITIVE),
    "Subject.correct": spoilt(FIRST.correct, {}, batch_size=NO_POSITIVE),
    "attribute_regions": spoilt(
        attribute_regions,
        {"methods": {"a": explain}, "subjects": [FIRST], "masks": MASKS},
        methods={what: bad for what, bad in NO_METHODS.items() if what != "empty"},
        subjects={"None": None, "a model": MODEL, "models": [MODEL]},
        masks={**NO_MASKS, "None": None, "one too few": MASKS[:5], "of another size": MASKS[..., 1:]},
        elsewhere={"a list": [MASKS], "of another subject": {SECOND: MASKS}, "of text": {FIRST: "masks"}},
        keep={"a list": [0], "of another subject": {SECOND: [0]}, "out of range": {FIRST: [99]}, "a fraction": {FIRST: [0.5]}},
        batch_size=NO_POSITIVE,
    ),
    "score_contrasts": spoilt(
        score_contrasts,
        CONTRASTS,
        methods=NO_METHODS,
        masks={**NO_MASKS, "None": None, "of another size": MASKS[..., 1:]},
        mcs={"one subject": FIRST, "models": (MODEL, OTHER), "three": (FIRST, SECOND, FIRST), "text": "ab"},
        idr={"one subject": FIRST, "models": (MODEL, OTHER)},
        iir={"one subject": FIRST, "models": (MODEL, OTHER)},
        tolerance={**NO_NUMBER, "None": None, "NaN": NAN, "negative": -1},
        threshold={**NO_NUMBER, "None": None, "NaN": NAN},
        seed=NO_SEED,
        batch_size=NO_POSITIVE,
    )
    | spoilt(
        score_contrasts,
        {"methods": {"a": explain}, "masks": MASKS, "iir": (FIRST, Subject(MODEL, CHANGED, CLASSES))},
        converged={**NO_ARRAY, "one too few": [True] * 5, "shares": np.full(N, 0.5), "of rank 2": np.ones((N, 1), bool)},
    ),
    "score_relative": spoilt(
        score_relative,
        RELATIVE,
        methods=NO_METHODS,
        masks={**NO_MASKS, "None": None},
        models={
            "None": None,
            "a list": [MODEL, OTHER],
            "of texts": {0.5: "a", 1.0: "b"},
            "by name": {"a": MODEL, "b": OTHER},
            "NaN": {NAN: MODEL, 1.0: OTHER},
            "above 1": {0.5: MODEL, 2.0: OTHER},
            "zero": {0: MODEL, 1.0: OTHER},
        },
        images=SUBJECT_ARRAYS,
        without={**SUBJECT_ARRAYS, "one too few": IMAGES[:5]},
        labels={**NO_CLASSES, "None": None, "one too few": CLASSES[:5]},
        seed=NO_SEED,
        batch_size=NO_POSITIVE,
    ),
    "score_concepts": spoilt(
        score_concepts,
        {"model": MODEL, "loader": LOADER, "top_l": (1,), "class_concepts": TRUTH, "part_of_concept": PARTS},
        model={**NO_MODULE, "of texts": {"a": "b"}, "a plain network": nn.Linear(1, 1)},
        loader={"None": None, "a number": 3, "of texts": [("a", "b")], "of None": [None]},
        class_concepts={**NO_ARRAY, "of rank 1": TRUTH[0], "empty": TRUTH[:0], "NaN": TRUTH * NAN},
        concept_labels={**NO_ARRAY, "of rank 1": LABELS[0], "halves": LABELS / 2 + 0.1, "one too few": LABELS[:5]},
        labels={**NO_CLASSES, "one too few": CLASSES[:5]},
        points={**NO_ARRAY, "of rank 2": POINTS[0], "one too few": POINTS[:5]},
        part_of_concept={**NO_ARRAY, "fractions": PARTS / 2, "bools": PARTS > 0},
        explanations={"None": None, "text": "weight", "a number": 3, "empty": (), "unknown": ("wieght",)},
        top_l={"None": None, "a number": 3, "text": "1", "bools": (True,), "a fraction": (1.5,), "NaN": (NAN,)},
        alphas={"None": None, "a number": 3.0, "text": "1", "NaN": (NAN,), "bools": (True,)},
        value_threshold={**TEXT, "a list": [0.5], "NaN": NAN, "of text": {"model": "a"}},
        controls={"None": None, "a number": 3, "models that are none": [nn.Linear(1, 1)]},
        control_stride=NO_COUNT | {"negative": -1},
        concept_names={"a number": 3, "text": "wings", "one too few": ["a"]},
        class_names={"a number": 3, "text": "bird", "one too few": ["a"]},
        seed=NO_SEED,
    ),
    "Explainer": spoilt(
        Explainer,
        {"model": MODEL},
        model=NO_MODULE,
        explain_func=NO_FUNCTION,
        explain_func_kwargs={"None": None, "a list": [1], "text": "method"},
        size={"text": "ab", "a number": 8, "of one": (8,), "fractions": (8.5, 8.0), "zero": (0, 8), "bools": (True, True)},
    )
    | spoilt(Explainer, {"model": MODEL, "mean": [0.5] * 3, "std": [0.5] * 3}, **PIXELS),
    "metric_values": spoilt(
        metric_values,
        {"ratings": rated()},
        ratings={"None": None, "a path": "ratings", "a list": [1]},
        explainers={"a list": [MODEL], "models": {"a": MODEL}, "text": "a"},
        thresholds={"None": None, "a number": 10, "empty": (), "fractions": (0.5,)},
        noise={**NO_NUMBER, "None": None, "NaN": NAN, "infinite": INF},
        n_samples=NO_COUNT | {"negative": -1},
        batch_size=NO_POSITIVE,
        seed=NO_SEED,
    ),
}
#: Results, and the parts of a metric that its host calls.
RESULTS = {"PatchResult", "Premise", "PremiseCheck", "RegionAttributions"}
HOOKS = {
    "custom_preprocess",
    "custom_postprocess",
    "evaluate_batch",
    "usable",
    "concept_attributions",
    "fail",
    "leave_out",
    "plot",
    "plot_scores",
    "check",
    "make",
    "inputs",
    "batch",
}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("case", [pytest.param(refusal, id=name) for name, refusal in cases(TABLE)])
def test_refused(case: Refusal, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    case.check()


def test_every_callable_is_in_the_table() -> None:
    public = set(public_callables(metrics, ("quantus_concepts",)))
    assert {name for name in public if name.partition(".")[2] not in HOOKS} == TABLE.keys() | RESULTS
