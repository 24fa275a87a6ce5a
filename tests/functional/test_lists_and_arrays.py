"""Arrays and lists give what tensors of the same numbers give, to the bit."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

from quantus_concepts import functional as f
from quantus_concepts.functional.bottleneck.concept_quality import QUALITIES
from quantus_concepts.pasta.encoders.overlay import overlay_maps, usable_maps

RNG = np.random.default_rng(0)
VALUES = RNG.normal(size=(4, 3))
LABELS = RNG.integers(0, 2, (4, 3))
TRUTH = RNG.random((4, 3))
INDICES = np.array([0, 2, 1, 0])
OTHERS = np.array([1, -1, 2, 2])
MAPS = RNG.random((4, 5, 5))
MASKS = np.repeat(np.arange(8)[:, None] < np.array([[2], [4], [5], [8]])[:, None], 8, 2)
PICTURES = RNG.random((4, 3, 8, 8))
POINTS = RNG.uniform(0, 7, (4, 2, 2))
SHARES = RNG.random((4, 5))


CALLS: list[tuple[Callable[..., Any], list[Any], dict[str, Any]]] = [
    (f.cem, [VALUES, LABELS], {"top_l": 2}),
    (f.cem_gain, [VALUES, LABELS], {}),
    (f.commonest_concept, [LABELS], {}),
    (f.class_recital, [TRUTH, INDICES], {}),
    (f.cgim, [VALUES, TRUTH], {}),
    (f.cgim_reasons, [VALUES, TRUTH], {}),
    (f.cgim_difference, [VALUES, -VALUES, TRUTH], {}),
    (lambda v, c: [f.concept_quality(v, c, score).float() for score in QUALITIES], [TRUTH, LABELS], {}),
    (f.concept_quality_interval, [TRUTH, LABELS, INDICES], {"score": "calibration_error"}),
    (lambda v, c: [f.entanglement(v, c).float()], [VALUES.T, LABELS], {}),
    (lambda c: [f.simulate_answers(c, 0.5, 0.1)], [LABELS], {}),
    (f.completeness, [INDICES, INDICES, INDICES], {}),
    (f.concept_set_ceiling, [LABELS, INDICES], {}),
    (f.monosemanticity, [VALUES, SHARES], {}),
    (f.concept_task_leakage, [VALUES, INDICES, LABELS], {}),
    (f.interconcept_leakage, [VALUES, LABELS], {}),
    (lambda v, y, c: [f.noise_equivalent(v, y, c, 0.1)], [VALUES, INDICES, LABELS], {}),
    (lambda c, y: [f.ceiling_noise_equivalent(c, y, 1.0)], [LABELS, INDICES], {}),
    (lambda v, y: f.sparse_head_path(v, y, [1]).weights, [VALUES, INDICES], {}),
    (
        lambda v, y, w: f.concept_swap([v] * 2, [y] * 2, [w] * 2, [w[0]] * 2, [v[0]] * 2, [w[1]] * 2),
        [VALUES, INDICES, TRUTH[:3]],
        {},
    ),
    (f.oracle_head, [LABELS, TRUTH, INDICES], {}),
    (f.clm, [TRUTH], {"top_l": 2}),
    (f.concept_attribution, [PICTURES, MASKS[:, None]], {}),
    (f.mcs, [TRUTH[0], TRUTH[1]], {}),
    (f.idr, [TRUTH[0], TRUTH[1]], {}),
    (f.perturbation, [TRUTH[0], TRUTH[1]], {}),
    (f.iir, [TRUTH[0], TRUTH[1]], {}),
    (f.paired_difference, [TRUTH[0], TRUTH[1]], {}),
    (f.find_discoveries, [TRUTH[0], VALUES], {}),
    (f.relevance_ranks, [MAPS, np.arange(25)[::-1] + np.zeros((4, 1), int)], {}),
    (f.faithfulness, [SHARES, SHARES[::-1]], {"thresholds": [10]}),
    (f.interval, [TRUTH[0]], {}),
    (f.seeds_interval, [TRUTH], {}),
    (f.baseline_range, [TRUTH[0]], {}),
    (lambda v, t, w: f.intervention_ranks("contribution", v, t, weights=w), [VALUES, TRUTH, VALUES], {}),
    (f.intervene_values, [VALUES, TRUTH, np.array([[0, 2, 1]] * 4)], {"counts": [1, 2]}),
    (f.mask_centres, [MASKS], {}),
    (f.mask_shares, [MAPS, MASKS], {}),
    (f.region_scores, [MAPS, MASKS], {}),
    (f.mask_threshold_shares, [MAPS, MASKS], {"threshold": 0.5}),
    (f.part_specificity, [TRUTH, INDICES, TRUTH[0]], {}),
    (f.patch_objective, [VALUES, TRUTH, PICTURES, PICTURES], {"pixel_range": (0, 1)}),
    (f.rank_concepts, [VALUES], {"top": 2}),
    (f.is_ranked, [VALUES], {}),
    (f.point_hits, [MAPS, POINTS], {"size": (8, 8)}),
    (f.threshold_hits, [MAPS, POINTS], {"size": (8, 8), "threshold": 0.5}),
    (f.relative_contrast, [VALUES, LABELS == 1, LABELS], {}),
    (f.substitution, [VALUES, INDICES, OTHERS], {}),
    (f.recital, [VALUES, LABELS], {}),
    (f.movement, [VALUES, TRUTH, INDICES, OTHERS], {}),
    (f.group_choice, [VALUES, np.array([0, 0, 1]), LABELS[:, 0], TRUTH[:, 0]], {}),
    (f.upsample, [MAPS], {"size": (8, 8)}),
    (usable_maps, [MAPS], {}),
    (overlay_maps, [PICTURES, MAPS], {}),
]


@pytest.mark.parametrize(("function", "arguments", "further"), CALLS)
def test_the_same_as_of_tensors(function: Callable[..., Any], arguments: list[Any], further: dict[str, Any]) -> None:
    expected = function(*(torch.tensor(array.copy()) for array in arguments), **further)
    # The second is read-only, with negative strides.
    for make in (np.ndarray.tolist, lambda array: np.broadcast_to(array[::-1].copy()[::-1], array.shape)):
        _assert_equal(function(*map(make, arguments), **further), expected)


def test_a_mask_is_not_lost() -> None:
    with pytest.raises(TypeError, match=r"`importance` .*whose mask would be lost"):
        f.is_ranked(np.ma.masked_invalid([[1.0, np.nan]]))


def _assert_equal(result: Any, expected: Any) -> None:
    if isinstance(expected, tuple | list):
        for part, other in zip(result, expected, strict=True):
            _assert_equal(part, other)
    else:
        assert type(result) is type(expected)
        np.testing.assert_equal(np.asarray(result), np.asarray(expected))
