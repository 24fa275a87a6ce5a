"""Monosemanticity at the head, on images and in tables of `score_concepts`."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from metric_inputs import CLASSES, IMAGES, LOADER, MODEL
from quantus_concepts import Monosemanticity, score_concepts
from quantus_concepts.functional import monosemanticity
from quantus_concepts.functional.discovered.monosemanticity import mean_likeness
from tiny_models import SharingConceptModel

EMBEDDINGS = np.random.default_rng(3).normal(size=(len(IMAGES), 5)) + 0.5
with torch.no_grad():
    VALUES = MODEL.concept_predictor(torch.as_tensor(IMAGES))
EXPECTED = monosemanticity(VALUES, EMBEDDINGS).tolist()


def test_at_the_head_and_on_images() -> None:
    metric = Monosemanticity(EMBEDDINGS)
    assert metric(MODEL.head, VALUES.numpy(), CLASSES, a_batch=VALUES.numpy()) == pytest.approx(EXPECTED, abs=1e-6)
    assert metric.records[-1].chance == pytest.approx(mean_likeness(EMBEDDINGS), abs=1e-6)
    assert not metric.records[-1].uses_explanations
    assert metric(MODEL, IMAGES, CLASSES) == pytest.approx(EXPECTED, abs=1e-6)


def test_in_a_table_beside_random_banks() -> None:
    banks = [SharingConceptModel(seed=seed) for seed in (1, 2, 3)]
    arguments = {"metrics": [Monosemanticity()], "truth": {"embeddings": EMBEDDINGS}, "controls": banks}
    table = score_concepts(MODEL, LOADER, **arguments)
    own, of_banks = (table[table["what"].isin(kinds)] for kinds in (("score", "item"), ("random range",)))
    assert own["metric"].unique().tolist() == ["monosemanticity"]
    assert own["value"].tolist() == pytest.approx([np.mean(EXPECTED), *EXPECTED], abs=1e-6)
    assert own["chance"].iloc[0] == pytest.approx(mean_likeness(EMBEDDINGS), abs=1e-6)
    with torch.no_grad():
        of_second = [monosemanticity(bank.concept_predictor(torch.as_tensor(IMAGES)), EMBEDDINGS)[1] for bank in banks]
        draws = [score.item() for score in of_second]
    assert of_banks[["low", "high"]].iloc[2].tolist() == pytest.approx([min(draws), max(draws)], abs=1e-6)
    assert "monosemanticity" in set(score_concepts(MODEL, LOADER, "all", truth={"embeddings": EMBEDDINGS})["metric"])


def test_undefined_is_counted_by_reason() -> None:
    values = VALUES.clone()
    values[:, 1] = 2
    metric = Monosemanticity(EMBEDDINGS)
    with pytest.warns(UserWarning, match=r"fewer than two images are above .* \(1 of 5 concepts\)"):
        scores = metric(MODEL.head, values.numpy(), CLASSES, a_batch=values.numpy())
    assert np.isnan(scores).tolist() == [False, True, False, False, False]
    with pytest.raises(ValueError, match="`embeddings` to hold embeddings other than 0"):
        Monosemanticity(0 * EMBEDDINGS)
