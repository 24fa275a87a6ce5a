"""Concept quality: by hand, against loops, what knows everything or nothing, and its interval."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from quantus_concepts.functional import concept_quality, concept_quality_interval
from quantus_concepts.functional.bottleneck import concept_quality as module
from quantus_concepts.functional.bottleneck.concept_quality import QUALITIES, chance_quality
from reference import concept_quality as reference
from refusals import refusals

VALUES = [[0.2, 0.5], [0.2, 0.5], [0.8, 0.5], [0.9, 0.5], [0.9, 0.5]]
CONCEPTS = [[0, 1], [1, 0], [1, 0], [0, 0], [1, 0]]


def test_by_hand() -> None:
    # Thresholds name 2, 3 and 5 images, of which 1, 2 and 3 show the first concept; the second has its prevalence.
    found = concept_quality(VALUES, CONCEPTS).tolist()
    assert found == pytest.approx([(1 / 2 + 2 / 3 + 3 / 5) / 3, 1 / 5])
    # Hits 2/3, false alarms 1/2; all named.
    found = concept_quality(VALUES, CONCEPTS, "f1").tolist()
    assert found == pytest.approx([2 * (2 / 3) / (1 + 2 / 3 + 1 / 2), 2 / 3])
    found = concept_quality(VALUES, CONCEPTS, "brier").tolist()
    assert found == pytest.approx([(0.04 + 0.64 + 0.04 + 0.81 + 0.01) / 5, 0.25])
    # Halves {.2, .2} and {.8, .9, .9}: .2 against 1/2, .8667 against 2/3; one bin of equal values: .5 against .2.
    found = concept_quality(VALUES, CONCEPTS, "calibration_error", n_bins=2).tolist()
    assert found == pytest.approx([2 / 5 * 0.3 + 3 / 5 * 0.2, 0.3])
    # A value that is NaN spoils its own concept.
    values = torch.tensor(VALUES)
    values[0, 1] = math.nan
    assert concept_quality(values, CONCEPTS, "brier").isnan().tolist() == [False, True]


@pytest.mark.parametrize("score", QUALITIES)
@pytest.mark.parametrize("decimals", [1, 9])
def test_against_loops(score: str, decimals: int, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(decimals)
    for n in (5, 16, 40):
        values = rng.random((n, 6)).round(decimals)
        concepts, classes = (rng.random((n, 6)) < rng.random(6)).astype(int), rng.integers(0, 5, n)
        concepts[:, 5] = 1
        expected = reference.concept_quality(values.tolist(), concepts.tolist(), score, 0.4, 7)
        ends = concept_quality_interval(values, concepts, classes, score)
        for at_a_time in (2**20, 1, 2 * n):
            monkeypatch.setattr(module, "_AT_A_TIME", at_a_time)
            np.testing.assert_allclose(concept_quality(values, concepts, score, 0.4, 7), expected, atol=1e-12)
            assert concept_quality_interval(values, concepts, classes, score) == pytest.approx(ends, nan_ok=True)
        monkeypatch.undo()
    assert math.isnan(expected[5]) == (score in ("average_precision", "f1"))


def test_optimum_worst_and_chance() -> None:
    concepts = (torch.rand(4000, 3, generator=torch.Generator().manual_seed(0)) < torch.tensor([0.1, 0.5, 0.8])).int()
    best = {"average_precision": 1, "f1": 1, "brier": 0, "calibration_error": 0}
    worst = {"f1": 0, "brier": 1, "calibration_error": 1}
    noise = torch.rand(4000, 3, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    prevalence = concepts.double().mean(0).expand(4000, 3)
    for score in QUALITIES:
        assert concept_quality(concepts, concepts, score).tolist() == pytest.approx([best[score]] * 3)
        if score in worst:
            assert concept_quality(1 - concepts, concepts, score).tolist() == pytest.approx([worst[score]] * 3)
        # A constant has its chance; noise has the chance of what it names.
        constant, chance = concept_quality(prevalence, concepts, score), chance_quality(prevalence, concepts, score)
        if score == "calibration_error":
            assert constant.abs().max() < 1e-12
            assert chance.isnan().all()
            continue
        torch.testing.assert_close(constant, chance)
        if score != "brier":
            found, chance = (call(noise, concepts, score) for call in (concept_quality, chance_quality))
            assert (found - chance).abs().max() < 0.04
    # Noise that says how sure it is has no more calibration error than 267 images in a bin have by chance.
    honest = (torch.rand(4000, 3, generator=torch.Generator().manual_seed(2)) < noise).int()
    assert concept_quality(noise, honest, "calibration_error").max() < 0.04


def drawn(run: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    rng = np.random.default_rng(run)
    n_classes, n, n_concepts = 12, 240, 6
    shares, effect = rng.random((n_classes, n_concepts)), rng.normal(0, 0.5, (n_classes, n_concepts))
    classes = rng.integers(0, n_classes, n)
    concepts = (rng.random((n, n_concepts)) < shares[classes]).astype(int)
    values = concepts - 0.5 + effect[classes] + rng.normal(size=(n, n_concepts))
    return 1 / (1 + np.exp(-values)), concepts, classes


@pytest.mark.parametrize("score", QUALITIES)
def test_the_interval_is_that_of_leaving_out_classes(score: str) -> None:
    values, concepts, classes = drawn(0)
    low, high = concept_quality_interval(values, concepts, classes, score)
    expected = reference.interval(values.tolist(), concepts.tolist(), classes.tolist(), score)
    # That of a mean over images is the same; bins are those of all images.
    tolerance = {"brier": 1e-9, "calibration_error": 0.15}.get(score, 0.08)
    assert high - low == pytest.approx(expected[1] - expected[0], rel=tolerance)
    assert (low + high) / 2 == pytest.approx(concept_quality(values, concepts, score).nanmean().item())


@pytest.mark.parametrize("score", QUALITIES)
def test_the_interval_holds_the_mean(score: str) -> None:
    ends, means = [], []
    for run in range(120):
        values, concepts, classes = drawn(run)
        ends.append(concept_quality_interval(values, concepts, classes, score))
        means.append(float(concept_quality(values, concepts, score).nanmean()))
    held = np.mean([low <= np.mean(means) <= high for low, high in ends])
    assert 0.9 <= held <= 0.995


def test_an_interval_without_spread_and_without_classes() -> None:
    concepts, classes = torch.arange(40)[:, None] % 2, torch.arange(40) % 5
    low, high = concept_quality_interval(concepts.double(), concepts, classes)
    # All right: Wilson's of 20 images.
    assert (round(low, 3), high) == (0.839, 1)
    low, high = concept_quality_interval(concepts.double(), concepts, classes, "brier")
    assert (low, round(high, 3)) == (0, 0.161)
    assert all(map(math.isnan, concept_quality_interval(concepts.double(), concepts, torch.zeros(40, dtype=int))))
    assert all(map(math.isnan, concept_quality_interval(concepts.double(), torch.zeros_like(concepts), classes)))


test_refused = refusals(
    (lambda: concept_quality(torch.zeros(4, 2), torch.zeros(4, 3)), "`concepts` to have shape"),
    (lambda: concept_quality(torch.zeros(0, 2), torch.zeros(0, 2)), "`values` to be"),
    (lambda: concept_quality(torch.zeros(4, 2), torch.full((4, 2), 0.5)), "`concepts`"),
    (lambda: concept_quality(torch.zeros(4, 2), torch.zeros(4, 2), "precision"), "`score` to be one of"),
    (lambda: concept_quality(torch.full((4, 2), 2.0), torch.zeros(4, 2), "brier"), "`values` to lie in"),
    (lambda: concept_quality(torch.zeros(4, 2), torch.zeros(4, 2), "f1", math.inf), "`threshold`"),
    (lambda: concept_quality(torch.zeros(4, 2), torch.zeros(4, 2), n_bins=1), "`n_bins`"),
    (lambda: concept_quality_interval(torch.zeros(4, 2), torch.zeros(4, 2), [0, 1]), "`classes`"),
)
