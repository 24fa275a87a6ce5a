"""Bad input to the functions, one argument at a time; `test_bad_input` has what each message says."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest
import torch

from quantus_concepts import functional
from quantus_concepts.functional import (
    ClassMeans,
    RandomBank,
    baseline_range,
    cem,
    cgim,
    clm,
    concept_attribution,
    faithfulness,
    group_choice,
    idr,
    iir,
    interval,
    intervene_values,
    intervention_counts,
    intervention_ranks,
    mask_centres,
    mask_shares,
    mask_threshold_shares,
    mcs,
    movement,
    patch_objective,
    perturbation,
    point_hits,
    positive_percentile,
    random_bank_scores,
    random_banks,
    random_masks,
    rank_concepts,
    recital,
    relative_contrast,
    relevance_ranks,
    substitution,
    threshold_hits,
    upsample,
)
from refusals import Refusal, check_all
from spoiling import (
    INF,
    NAN,
    NO_ARRAY,
    NO_CHOICE,
    NO_COUNT,
    NO_NUMBER,
    NO_POSITIVE,
    NO_SEED,
    NO_TENSOR,
    NOTHING,
    TEXT,
    Bad,
    Table,
    public_callables,
    spoilt,
)

ZEROS, MAPS = torch.zeros(2, 3), torch.zeros(2, 4, 4)
MASKS = torch.ones(2, 4, 4, dtype=torch.bool)
FOUR = torch.ones(2, 1, 4, 4)
G = torch.ones(2)
CHANGES = torch.zeros(2, 5)
IMAGES = torch.zeros(2, 3, 4, 4)
FEATURES, CLASSES = torch.arange(32.0).reshape(8, 4) % 5, torch.arange(8) % 2
NO_BOOLS: Bad = {**NO_TENSOR, "numbers": torch.ones(2, 4, 4)}
NO_LABELS: Bad = {
    **NO_TENSOR,
    "fractions": torch.full((8,), 0.5),
    "bools": torch.ones(8, dtype=torch.bool),
    "negative": torch.full((8,), -1),
    "one too few": CLASSES[:7],
    "of rank 2": CLASSES[:, None],
}
NO_SIZE: Bad = {**TEXT, **NOTHING, "a bool": (True, 4), "NaN": (NAN, 4), "negative": (-1, 4)}
NO_ALPHAS: Bad = {
    "None": None,
    "a number": 1.0,
    "text": ("a",),
    "a bool": (True,),
    "infinite": (INF,),
    "nested": ((1,),),
}
NO_PAIR: Bad = {**NO_TENSOR, "of whole numbers": torch.ones(2, dtype=torch.int64)}
NO_POINTS: Bad = {"None": None, "complex": torch.zeros(2, 1, 2, dtype=torch.complex64), "bools": MASKS[:, :1, :2]}


def banks(**arguments: Any) -> list[Any]:
    return list(random_banks(**arguments))


def update(**arguments: Any) -> None:
    ClassMeans(3, 3).update(**arguments)


def values_of_a_bank(features: Any = FEATURES, values: Any = "margin") -> object:
    return RandomBank(torch.ones(3, 4), torch.zeros(3), torch.nn.Linear(3, 2)).concept_values(features, values)


HITS = {"maps": MAPS, "points": torch.zeros(2, 1, 2), "size": (4, 4)}
OBJECTIVE = {"logits_patched": ZEROS, "logits": ZEROS, "images": IMAGES, "delta": IMAGES, "pixel_range": (0.0, 1.0)}
CONTRAST = {
    "scores": torch.zeros(2, 5),
    "correct_with": torch.ones(2, 5, dtype=torch.bool),
    "correct_without": torch.ones(2, 5, dtype=torch.bool),
    "n_resamples": 100,
}
BANKS = {"features": FEATURES, "labels": CLASSES, "n_concepts": 3, "n_banks": 1}
SCORES = {
    "features": FEATURES,
    "labels": CLASSES,
    "test_features": FEATURES,
    "test_labels": CLASSES,
    "concept_labels": torch.ones(8, 3),
    "class_concepts": torch.ones(2, 3),
    "n_banks": 1,
}
TWO = torch.tensor([0, 1])
NO_CONCEPTS: Bad = {
    **NO_TENSOR,
    "fractions": torch.tensor([0.0, 1.0]),
    "bools": TWO > 0,
    "below -1": TWO - 2,
    "too large": TWO + 2,
    "one too few": TWO[:1],
    "of rank 2": TWO[:, None],
}
NO_GROUPS: Bad = {what: bad for what, bad in NO_CONCEPTS.items() if what not in ("below -1", "too large")}
NO_THRESHOLD: Bad = {**NO_NUMBER, **NOTHING, "NaN": NAN, "infinite": INF}
VALUES = {"values": ZEROS, "added": TWO, "removed": TWO}
TABLE: Table = {
    "substitution": spoilt(
        substitution, VALUES, values=NO_TENSOR, added=NO_CONCEPTS, removed=NO_CONCEPTS, threshold=NO_THRESHOLD
    ),
    "recital": spoilt(
        recital,
        {"values": ZEROS, "class_concepts": ZEROS},
        values=NO_TENSOR,
        class_concepts={**NO_TENSOR, "halves": ZEROS + 0.5, "of another size": ZEROS[:1]},
        threshold=NO_THRESHOLD,
    ),
    "movement": spoilt(
        movement,
        {"before": ZEROS, "after": ZEROS, "added": TWO, "removed": TWO},
        before={**NO_TENSOR, "of another size": ZEROS[:1]},
        after=NO_TENSOR,
        added=NO_CONCEPTS,
        removed=NO_CONCEPTS,
    ),
    "group_choice": spoilt(
        group_choice,
        {"similarity": ZEROS[:, :2], "groups": TWO, "wanted": TWO},
        similarity={**NO_TENSOR, "NaN": ZEROS[:, :2] * NAN},
        groups=NO_GROUPS,
        wanted=NO_GROUPS,
        none={what: bad for what, bad in NO_TENSOR.items() if what != "None"} | {"one too few": G[:1]},
    ),
    "cem": spoilt(
        cem,
        {"importance": ZEROS, "concept_labels": ZEROS},
        importance=NO_TENSOR,
        concept_labels={**NO_TENSOR, "infinite": ZEROS + INF},
    )
    | {
        f"top_l: {what}": Refusal(lambda top_l=top_l: cem(ZEROS, ZEROS, top_l), "`top_l`")
        for what, top_l in NO_POSITIVE.items()
    },
    "rank_concepts": spoilt(
        rank_concepts,
        {"importance": ZEROS, "top": 1},
        importance=NO_TENSOR,
        top={"text": "1", "NaN": NAN, "negative": -1, **NOTHING},
        eligible={"text": "all", "a list": [True, True, True], "indices": torch.tensor([0, 1])},
    ),
    "cgim": spoilt(
        cgim,
        {"importance": ZEROS, "class_concepts": ZEROS},
        importance=NO_TENSOR,
        class_concepts={**NO_TENSOR, "negative": ZEROS - 0.1, "infinite": ZEROS + INF},
        per=NO_CHOICE,
    ),
    "ClassMeans": spoilt(
        ClassMeans,
        {"n_classes": 2, "n_concepts": 3},
        n_classes=NO_POSITIVE,
        n_concepts=NO_POSITIVE,
        device={"text": "gpu number one", "a list": []},
        dtype={"text": "float64", "a type": float, "complex": torch.complex64},
    ),
    "ClassMeans.merge": spoilt(
        ClassMeans(3, 3).merge,
        {"other": ClassMeans(3, 3)},
        other={"None": None, "a tensor": torch.zeros(3, 3), "of other classes": ClassMeans(2, 3)},
    ),
    "ClassMeans.update": spoilt(
        update,
        {"values": ZEROS, "classes": torch.tensor([0, 1])},
        values=NO_TENSOR,
        classes={**NO_TENSOR, "complex": torch.zeros(2, dtype=torch.complex64), "an array": np.array([0, 1])},
        mask={"text": "all", "a list": [True, True], "indices": torch.tensor([0, 1])},
        checked={"text": "yes", "two": 2},
    ),
    "clm": spoilt(
        clm,
        {"hits": ZEROS, "top_l": 1},
        hits={**NO_TENSOR, "infinite": ZEROS + INF},
        top_l={**NO_COUNT, "negative": -1},
    ),
    "concept_attribution": spoilt(
        concept_attribution,
        {"maps": FOUR, "masks": FOUR},
        maps=NO_TENSOR,
        masks={**NO_TENSOR, "an array": FOUR.numpy(), "negative": -FOUR},
    ),
    "random_masks": spoilt(
        random_masks,
        {"masks": FOUR, "generator": torch.Generator()},
        masks={"None": None, "a list": [1], "of no pixel": torch.ones(2, 1, 0, 4)},
        generator={"None": None, "a seed": 0, "of NumPy": np.random.default_rng(0)},
    ),
    "mcs": spoilt(mcs, {"g_first": G, "g_second": G}, g_first=NO_PAIR, g_second=NO_PAIR),
    "idr": spoilt(idr, {"g_with": G, "g_without": G}, g_with=NO_PAIR, g_without=NO_PAIR),
    "perturbation": spoilt(perturbation, {"g_original": G, "g_patched": G}, g_original=NO_PAIR, g_patched=NO_PAIR),
    "iir": spoilt(
        iir,
        {"g_original": G, "g_patched": G},
        g_original=NO_PAIR,
        g_patched=NO_PAIR,
        threshold={**NO_NUMBER, **NOTHING, "negative": -0.1},
    ),
    "faithfulness": spoilt(
        faithfulness,
        {"irrelevant": CHANGES, "relevant": CHANGES, "thresholds": (10,)},
        irrelevant=NO_TENSOR,
        relevant=NO_TENSOR,
        thresholds={"None": None, "a number": 10, "text": "10", "bools": (True,), "negative": (-10,), "NaN": (NAN,)},
    ),
    "relevance_ranks": spoilt(
        relevance_ranks,
        {"maps": MAPS},
        maps=NO_TENSOR,
        order={
            "text": "random",
            "a list": [list(range(16))] * 2,
            "fractions": torch.rand(2, 16),
            "no permutation": torch.zeros(2, 16, dtype=torch.int64),
            "out of range": torch.arange(16).expand(2, 16) + 1,
            "negative": torch.arange(16).expand(2, 16) - 1,
        },
    ),
    "positive_percentile": spoilt(
        positive_percentile,
        {"a": np.ones((2, 3))},
        a={**NO_ARRAY, "None": None, "a complex tensor": FOUR + 1j},
        percentile={**NO_NUMBER, **NOTHING, "negative": -1, "infinite": INF},
    ),
    "intervention_counts": spoilt(intervention_counts, {}, n={**NO_POSITIVE, **NOTHING}),
    "intervention_ranks": spoilt(
        intervention_ranks,
        {"order": "contribution", "values": ZEROS, "targets": ZEROS, "weights": ZEROS},
        order=NO_CHOICE,
        values={**NO_TENSOR, "of rank 1": G},
        targets={**NO_TENSOR, "of another shape": ZEROS.T},
        weights={**NO_TENSOR, "of another shape": ZEROS.T},
        groups={
            **NO_ARRAY,
            "with a gap": [0, 2, 2],
            "negative": [-1, 0, 1],
            "one too few": [0, 1],
            "bools": [True] * 3,
        },
        seed=NO_SEED,
        first={**NO_COUNT, "negative": -1},
    )
    | spoilt(
        intervention_ranks,
        {"order": "uncertainty", "values": ZEROS, "targets": ZEROS},
        boundary={"text": "a", "None": None, "one too few": [0.5, 0.5]},
    ),
    "interval": spoilt(
        interval,
        {"scores": [0.5, 1.0], "clusters": [0, 1]},
        scores={"text": "a", "None": None},
        clusters={"one too few": [0]},
    ),
    "baseline_range": spoilt(baseline_range, {"draws": [0.5]}, draws={"text": "a", "None": None}),
    "intervene_values": spoilt(
        intervene_values,
        {"values": ZEROS, "targets": ZEROS, "ranks": ZEROS.long(), "counts": (1,)},
        values={**NO_TENSOR, "of rank 1": G},
        targets={**NO_TENSOR, "of another shape": ZEROS.T},
        ranks={**NO_TENSOR, "fractions": ZEROS, "of another shape": ZEROS.T.long()},
        counts={"None": None, "text": "1", "a number": 1, "negative": (-1,), "fractions": (0.5,)},
    ),
    "mask_centres": spoilt(
        mask_centres, {}, masks={**NO_ARRAY, "None": None, "of rank 2": np.ones((4, 4)), "infinite": MAPS + INF}
    ),
    "mask_shares": spoilt(
        mask_shares, {"maps": MAPS, "masks": MASKS}, maps=NO_TENSOR, masks=NO_BOOLS, alphas=NO_ALPHAS | {"empty": ()}
    ),
    "mask_threshold_shares": spoilt(
        mask_threshold_shares,
        {"maps": MAPS, "masks": MASKS, "threshold": 0.5},
        maps=NO_TENSOR,
        masks=NO_BOOLS,
        threshold={**NO_NUMBER, **NOTHING, "NaN": NAN},
    ),
    "patch_objective": spoilt(
        patch_objective,
        OBJECTIVE,
        logits_patched=NO_TENSOR,
        logits=NO_TENSOR,
        images=NO_TENSOR,
        delta=NO_TENSOR,
        pixel_range={
            "None": None,
            "a number": 1.0,
            "three": (0, 1, 2),
            "text": ("a", "b"),
            "NaN": (NAN, 1),
            "down": (1, 0),
        },
        eta1={**NO_NUMBER, "NaN": NAN, "negative": -1.0},
        eta2={**NO_NUMBER, "NaN": NAN, "negative": -1.0},
    ),
    "point_hits": spoilt(point_hits, HITS, maps=NO_TENSOR, points=NO_POINTS, size=NO_SIZE, alphas=NO_ALPHAS),
    "threshold_hits": spoilt(
        threshold_hits,
        HITS | {"threshold": 0.5},
        maps=NO_TENSOR,
        points={**NO_POINTS, "outside": torch.full((2, 1, 2), 9.0)},
        size=NO_SIZE,
        threshold={**NO_NUMBER, **NOTHING, "NaN": NAN},
    ),
    "upsample": spoilt(upsample, {"maps": MAPS, "size": (9, 9)}, maps=NO_TENSOR, size=NO_SIZE),
    "random_banks": spoilt(
        banks,
        BANKS,
        features={**NO_TENSOR, "NaN": FEATURES * NAN, "of rank 1": FEATURES[0]},
        labels={**NO_LABELS, "of one class": CLASSES * 0},
        n_concepts=NO_COUNT | {"negative": -1},
        n_classes={**NO_COUNT, "too few": 1},
        n_banks=NO_COUNT | {"negative": -1},
        values=NO_CHOICE,
        seed=NO_SEED,
    ),
    "RandomBank.concept_values": {
        "features: None": Refusal(lambda: values_of_a_bank(None), "`features`"),
        "features: of another width": Refusal(lambda: values_of_a_bank(FEATURES[:, :2]), "`features`"),
        "values: nonsense": Refusal(lambda: values_of_a_bank(values="margins"), "`values`"),
    },
    "random_bank_scores": spoilt(
        random_bank_scores,
        SCORES,
        features=NO_TENSOR,
        labels=NO_LABELS,
        test_features={**NO_TENSOR, "of another width": FEATURES[:, :2], "NaN": FEATURES * NAN},
        test_labels=NO_LABELS,
        concept_labels={**NO_TENSOR, "of other concepts": torch.ones(8, 2), "one too few": torch.ones(7, 3)},
        class_concepts={**NO_TENSOR, "of rank 1": torch.ones(3), "percentages": torch.full((2, 3), 55.0)},
        top_l={**NO_COUNT, "too many": 4},
        n_banks={"zero": 0, "text": "many"},
        values={"nonsense": "margins"},
        seed={"negative": -1, "a fraction": 0.5},
    ),
    "relative_contrast": spoilt(
        relative_contrast,
        CONTRAST,
        scores=NO_TENSOR,
        correct_with=NO_BOOLS,
        correct_without=NO_BOOLS,
        n_resamples=NO_COUNT | {"too many": 10**9},
        seed=NO_SEED,
    ),
}
#: What takes no input of a user.
RESULTS = {"Estimate", "FaithfulnessScores", "Movement", "RandomBank", "RelativeContrast", "SubstitutionScores"}


@pytest.mark.parametrize("refusals", TABLE.values(), ids=TABLE)
@pytest.mark.usefixtures("empty_folder")
def test_refused(refusals: Mapping[str, Refusal]) -> None:
    check_all(refusals)


def test_every_function_is_in_the_table() -> None:
    assert set(public_callables(functional, ("quantus_concepts",))) == TABLE.keys() | RESULTS
