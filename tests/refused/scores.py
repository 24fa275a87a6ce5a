"""Bad input to scores, patches and premises, one argument at a time."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from pooling_encoder import PoolingEncoder
from quantus_concepts.datasets.ratings.explanations import MapExplanation
from quantus_concepts.datasets.ratings.rated import RatedExplanations
from quantus_concepts.metrics import (
    ConceptRanges,
    Explainer,
    Patch,
    Subject,
    attribute_regions,
    check_premise,
    metric_values,
    optimise_patch,
    score_concepts,
    score_contrasts,
    score_explanations,
    score_relative,
    score_shards,
    score_substitutions,
    score_vision_language,
    shared_passes,
)
from refusals import Refusal
from refused.interventions import LEVELS
from refused.metric_classes import (
    CHANGED,
    CLASSES,
    IMAGES,
    LABELS,
    MASKS,
    MODEL,
    NO_CLASSES,
    NO_MASKS,
    NO_RANGE,
    NO_SUBSTITUTES,
    OTHER,
    PARTS,
    PIXELS,
    POINTS,
    SCORER,
    TRUTH,
    Answers,
    N,
    explain,
)
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
    spoilt,
)


def rated() -> RatedExplanations:
    explanations = [MapExplanation(torch.rand(3, 4, 4), torch.rand(4, 4))]
    texts = {"image_ids": ["0"], "explainer_ids": ["a"], "labels": [""], "datasets": ["d"], "modalities": ["map"]}
    return RatedExplanations(
        explanations, np.full((1, 1, 6), 3.0), **{key: np.array(value) for key, value in texts.items()}, name="r"
    )


LOADER = [(torch.from_numpy(IMAGES), torch.from_numpy(CLASSES), torch.from_numpy(LABELS), torch.from_numpy(POINTS))]
SAMPLES = TensorDataset(*LOADER[0])
SUBSTITUTED = {"added": CLASSES, "removed": CLASSES, "concept_names": [f"wing::{j}" for j in range(LABELS.shape[1])]}
SUBSTITUTIONS = {"model": MODEL, "loader": LOADER, "class_concepts": TRUTH, **SUBSTITUTED}
LOADER_OF_UNIT_IMAGES = [(torch.from_numpy(IMAGES).sigmoid(), *LOADER[0][1:])]
FIRST, SECOND = Subject(MODEL, IMAGES, CLASSES), Subject(OTHER, IMAGES, CLASSES)
SUBJECT_ARRAYS: Bad = {
    "text": "birds",
    "None": None,
    "a number": 3,
    "strings": np.array(["a"] * N),
    "of rank 1": CLASSES,
}
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


def no_rows(start: int, stop: int) -> Any:
    """Score nothing, which nobody asks for."""
    raise AssertionError


TABLE: Table = {
    "Patch": spoilt(
        Patch,
        {"init": IMAGES[0]},
        init={**NO_ARRAY, "None": None, "of rank 2": IMAGES[0, 0], "infinite": IMAGES[0] * INF},
        **PATCH_SETTINGS,
    )
    | spoilt(
        Patch,
        {"init": IMAGES[0], "mean": [0.5] * 3, "std": [0.5] * 3},
        **{name: {what: bad for what, bad in of.items() if what != "a number"} for name, of in PIXELS.items()},
    ),
    "optimise_patch": spoilt(
        optimise_patch,
        PATCH,
        model=NO_MODULE,
        images={**NO_ARRAY, "None": None, "of rank 3": IMAGES[0]},
        masks={**NO_ARRAY, "None": None, "of rank 2": MASKS[0, 0]},
        init={**NO_ARRAY, "None": None, "of rank 2": IMAGES[0, 0]},
        preprocess=NO_FUNCTION,
        **PATCH_SETTINGS,
    )
    | {
        f"model that returns {what}": Refusal(
            lambda answer=answer: optimise_patch(**{**PATCH, "model": Answers(answer)}), "return"
        )
        for what, answer in {"nothing": None, "texts": ["a"], "a vector": lambda n: torch.ones(n)}.items()
    },
    "check_premise": spoilt(
        check_premise,
        PREMISE,
        model=NO_MODULE | {"on the meta device": nn.Linear(3, 2, device="meta")},
        with_feature={**SUBJECT_ARRAYS, "NaN": IMAGES * NAN},
        without_feature=SUBJECT_ARRAYS,
        only_feature=SUBJECT_ARRAYS,
        labels={**NO_CLASSES, "None": None, "empty": CLASSES[:0]},
    ),
    "Subject": spoilt(
        Subject,
        {"model": MODEL, "images": IMAGES, "labels": CLASSES},
        model=NO_MODULE,
        images={
            **SUBJECT_ARRAYS,
            "complex": IMAGES + 1j,
            "a generator": (each for each in [IMAGES]),
            "a data set": TensorDataset(torch.from_numpy(IMAGES)),
            "shuffled": DataLoader(torch.from_numpy(IMAGES), shuffle=True),
        },
        labels={**NO_CLASSES, "None": None, "one too few": CLASSES[:5]},
    ),
    "Subject.batches": spoilt(lambda batch_size: list(FIRST.batches(batch_size)), {}, batch_size=NO_POSITIVE)
    | {
        f"images: {what}": Refusal(lambda batches=batches: list(Subject(MODEL, batches, CLASSES).batches()), name)
        for what, batches, name in (
            ("too few", [IMAGES[:4]], "`labels`"),
            ("too many", [IMAGES, IMAGES], "`labels`"),
            ("of rank 2", [IMAGES[:2], IMAGES[0, 0]], "`images`"),
            ("texts", [IMAGES[:2], "birds"], "`images`"),
        )
    }
    | {"rows of batches": Refusal(lambda: Subject(MODEL, [IMAGES], CLASSES).batch([0]), "`images`")},
    "Subject.logits": spoilt(FIRST.logits, {}, batch_size=NO_POSITIVE),
    "Subject.correct": spoilt(FIRST.correct, {}, batch_size=NO_POSITIVE),
    "attribute_regions": spoilt(
        attribute_regions,
        {"methods": {"a": explain}, "subjects": [FIRST], "masks": MASKS},
        methods={what: bad for what, bad in NO_METHODS.items() if what != "empty"},
        subjects={"None": None, "a model": MODEL, "models": [MODEL]},
        masks={**NO_MASKS, "None": None, "one too few": MASKS[:5], "of another size": MASKS[..., 1:]},
        elsewhere={"a list": [MASKS], "of another subject": {SECOND: MASKS}, "of text": {FIRST: "masks"}},
        keep={
            "a list": [0],
            "of another subject": {SECOND: [0]},
            "out of range": {FIRST: [99]},
            "a fraction": {FIRST: [0.5]},
        },
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
    )
    | spoilt(
        score_contrasts,
        {"methods": {"a": explain}, "masks": MASKS, "iir": (FIRST, Subject(MODEL, CHANGED, CLASSES))},
        converged={
            **NO_ARRAY,
            "one too few": [True] * 5,
            "shares": np.full(N, 0.5),
            "of rank 2": np.ones((N, 1), bool),
        },
    ),
    "score_shards": spoilt(
        score_shards,
        {"make_scorer": lambda: no_rows, "n_items": 8, "out": "out", "fingerprint": {"run": 1}},
        make_scorer={**NO_FUNCTION, "None": None},
        n_items={**NO_POSITIVE, "None": None},
        out={"a number": 3, "None": None, "empty": "", "no path": "a\x00b"},
        fingerprint={**TEXT, "None": None, "of objects": {"run": object()}, "of folders": {"run": Path("/")}},
        shard_size=NO_POSITIVE,
        batch_size={**NO_POSITIVE, "no part of a range": 3},
        names={**TEXT, "a number": 3, "one too few": list("abcdefg")},
        engine=NO_CHOICE,
        address={"a number": 3},
        n_workers=NO_POSITIVE,
        num_cpus={**NO_NUMBER, "negative": -1, "NaN": NAN},
        num_gpus={**NO_NUMBER, "negative": -1, "infinite": INF},
        display_progressbar={**TEXT, "None": None},
    ),
    "score_relative": spoilt(
        score_relative,
        RELATIVE,
        methods=NO_METHODS,
        masks={**NO_MASKS, "None": None},
        models={
            "of texts": {0.5: "a", 1.0: "b"},
            "by name": {"a": MODEL, "b": OTHER},
            "NaN": {NAN: MODEL, 1.0: OTHER},
            "above 1": {0.5: MODEL, 2.0: OTHER},
            "zero": {0: MODEL, 1.0: OTHER},
        },
        images=SUBJECT_ARRAYS,
        without={**SUBJECT_ARRAYS, "one too few": IMAGES[:5]},
        labels={**NO_CLASSES, "None": None, "one too few": CLASSES[:5]},
    ),
    "score_explanations": spoilt(
        score_explanations,
        {"scorer": SCORER, "encoder": PoolingEncoder(), "loader": [(IMAGES, IMAGES[:, 0], ["cat"] * N)]},
        scorer={"a number": 3, "a model": MODEL},
        encoder={"a number": 3, "text": "siglop"},
        loader={"of texts": [("a", "b")], "of None": [None], "empty": []},
    )
    | spoilt(
        score_explanations,
        {"scorer": SCORER, "encoder": PoolingEncoder(), "loader": [], "mean": [0.5] * 3, "std": [0.5] * 3},
        **PIXELS,
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
        interventions={"None": None, "a number": 3, "text": "1", "bools": (True,), "negative": (-1,)},
        n_threads=NO_POSITIVE,
        concept_names={"a number": 3, "text": "wings", "one too few": ["a"]},
        class_names={"a number": 3, "text": "bird", "one too few": ["a"]},
        seed=NO_SEED,
    )
    | spoilt(
        score_concepts,
        {"model": MODEL, "loader": LOADER, "top_l": (1,), "value_threshold": 0.5, "added": CLASSES},
        added={**NO_SUBSTITUTES, "one too few": CLASSES[:5]},
        removed={**NO_SUBSTITUTES, "one too few": CLASSES[:5]},
    )
    | LEVELS,
    "ConceptRanges": spoilt(
        ConceptRanges,
        {"model": MODEL, "data": SAMPLES, "top_l": (1,)},
        model={**NO_MODULE, "of texts": {"a": "b"}, "a plain network": nn.Linear(1, 1)},
        data={"None": None, "a number": 3, "a loader": DataLoader(SAMPLES), "empty": []},
        batch_size=NO_POSITIVE,
        num_workers={**NO_COUNT, "negative": -1},
        baselines={"text": "yes", "None": None},
        seed=NO_SEED,
        class_concepts={**NO_ARRAY, "of rank 1": TRUTH[0]},
        no_setting={"unknown": 3},
    ),
    "ConceptRanges.rows": spoilt(
        ConceptRanges(MODEL, SAMPLES, batch_size=2, top_l=(1,)).rows,
        {"start": 0, "stop": 2},
        start={**NO_COUNT, "negative": -2, "within a batch": 1, "too large": N},
        stop={**NO_POSITIVE, "too large": N + 1},
    ),
    "ConceptRanges.table": spoilt(
        ConceptRanges(MODEL, SAMPLES, batch_size=2, top_l=(1,)).table,
        {"rows": ConceptRanges(MODEL, SAMPLES, batch_size=2, top_l=(1,)).rows(0, N)},
        rows={**TEXT, "None": None, "others": pd.DataFrame({"model": [0]})},
        per_image={"text": "yes", "None": None},
    ),
    "score_substitutions": spoilt(
        score_substitutions,
        SUBSTITUTIONS,
        model={**NO_MODULE, "of texts": {"a": "b"}, "a plain network": nn.Linear(1, 1)},
        loader={"None": None, "a number": 3, "of texts": [("a", "b")], "of None": [None]},
        added={**NO_SUBSTITUTES, "None": None, "one too few": CLASSES[:5]},
        removed={**NO_SUBSTITUTES, "one too few": CLASSES[:5]},
        labels={**NO_CLASSES, "one too few": CLASSES[:5]},
        pairs={**NO_CLASSES, "one too few": CLASSES[:5]},
        class_concepts={**NO_ARRAY, "of rank 1": TRUTH[0], "empty": TRUTH[:0], "NaN": TRUTH * NAN},
        threshold={**NO_NUMBER, "None": None, "NaN": NAN, "of text": {"model": "a"}},
        seen={"a number": 3, "text": "birds"},
        controls={"None": None, "a number": 3, "models that are none": [nn.Linear(1, 1)]},
        concept_names={"a number": 3, "text": "wings", "one too few": ["a"]},
        class_names={"a number": 3, "text": "bird", "one too few": ["a"]},
        per_image={"text": "yes", "None": None},
    ),
    "shared_passes": spoilt(
        shared_passes,
        {"memory": 1.0},
        memory={"None": None, "text": "much", "negative": -1, "NaN": float("nan"), "infinite": float("inf")},
    ),
    "score_vision_language": spoilt(
        score_vision_language,
        {"encoder": PoolingEncoder(), "loader": LOADER_OF_UNIT_IMAGES, **SUBSTITUTED},
        encoder={"None": None, "a number": 3, "unknown": "clop", "a list": ["clip"]},
        loader={"None": None, "a number": 3, "of texts": [("a", "b")], "of None": [None]},
        added={**NO_SUBSTITUTES, "None": None, "one too few": CLASSES[:5]},
        removed={**NO_SUBSTITUTES, "one too few": CLASSES[:5]},
        labels={**NO_CLASSES, "one too few": CLASSES[:5]},
        pairs={**NO_CLASSES, "one too few": CLASSES[:5]},
        concept_names={"None": None, "a number": 3, "text": "wings"},
        class_names={"a number": 3, "text": "bird", "one too few": ["a"]},
        options={"a number": 3, "text": "wings", "of others": ["a::b"]},
        prompts={"None": None, "a number": 3, "without a place": "a bird", "one too few": ["a"]},
        none={"a number": 3, "a list": ["none"]},
        seen={"a number": 3, "text": "birds"},
        per_image={"text": "yes", "None": None},
    ),
    "Explainer": spoilt(
        Explainer,
        {"model": MODEL},
        model=NO_MODULE,
        explain_func=NO_FUNCTION,
        explain_func_kwargs={"None": None, "a list": [1], "text": "method"},
        size={
            "text": "ab",
            "a number": 8,
            "of one": (8,),
            "fractions": (8.5, 8.0),
            "zero": (0, 8),
            "bools": (True, True),
        },
    )
    | spoilt(Explainer, {"model": MODEL, "mean": [0.5] * 3, "std": [0.5] * 3}, **PIXELS),
    "metric_values": spoilt(metric_values, {"ratings": rated()}, explainers={"models": {"a": MODEL}}),
}
