"""Verdicts of models without random banks: against chance."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
import torch
from torch import nn

from captum_concepts import BottleneckCBM
from quantus_concepts.functional import baseline_range
from quantus_concepts.metrics import UsualMetrics, predict_concepts, score_predictions
from quantus_concepts.results.verdicts import with_verdicts
from quantus_concepts.studies._kit.results import pick
from quantus_concepts.studies.concepts.comparisons import compared_rows, shuffled_correlations, with_chance

N_CLASSES, N_CONCEPTS = 8, 4


@pytest.fixture(scope="module")
def truth() -> torch.Tensor:
    """Return class concepts (K, L), no two classes alike."""
    bits = torch.arange(3, 3 + N_CLASSES)[:, None] >> torch.arange(N_CONCEPTS)
    return (bits % 2).float()


def scored(head: torch.Tensor, truth: torch.Tensor) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Score a model whose concepts are right, and whose head has these weights, on classes of 2 to 9 images."""
    layers = nn.Linear(N_CLASSES, N_CONCEPTS, bias=False), nn.Linear(N_CONCEPTS, N_CLASSES)
    model = BottleneckCBM(nn.Identity(), *layers, activation=None).eval()
    model.absent_values = torch.zeros(N_CONCEPTS)
    with torch.no_grad():
        layers[0].weight.copy_(truth.T)
        layers[1].weight.copy_(head)
        # Without weights the answer is the last class, which is the commonest.
        layers[1].bias.copy_(-truth.sum(1) if head.any() else torch.arange(N_CLASSES))
    labels = torch.arange(N_CLASSES).repeat_interleave(torch.arange(2, N_CLASSES + 2))
    images = nn.functional.one_hot(labels, N_CLASSES).float()[:, :, None, None].expand(-1, -1, 4, 4)
    usual = UsualMetrics(top_l=[1])
    predicted = predict_concepts(model, [(images, labels, truth[labels])], usual, class_concepts=truth)
    images = compared_rows(score_predictions(predicted, usual, per_image=True)).assign(seed=0)
    return with_chance(
        score_predictions(predicted, usual).assign(random_low=np.nan, random_high=np.nan), images
    ), images


def verdicts(rows: pd.DataFrame) -> dict[str, str]:
    rows = with_verdicts(rows)
    assert set(rows["against"]) == {"chance"}
    rows = rows[rows["explanation"].isin(["", "effect"]) & (rows["baseline"] == "") & (rows["item"] == "")]
    chosen = [
        pick(rows, metric="accuracy"),
        pick(rows, metric="CEM gain", set="all"),
        pick(rows, metric="CGIM correlation", item_kind="concept"),
    ]
    return {found["metric"].item(): found["verdict"].item() for found in chosen}


def test_a_model_that_knows_is_above_and_one_that_names_the_commonest_class_is_not(truth):
    noise = torch.randn(truth.shape, generator=torch.Generator().manual_seed(0)) / 10
    rows, images = scored(2 * truth - 1 + noise, truth)
    correlation = pick(rows, metric="CGIM correlation", explanation="effect", item_kind="concept", item="")
    draws = shuffled_correlations(images, "effect")
    # Importance is the truth, and a little noise.
    assert correlation["value"].item() == pytest.approx(1, abs=0.05)
    assert (draws.mean(), draws.max()) == (pytest.approx(0, abs=0.05), pytest.approx(0.4, abs=0.3))
    assert tuple(correlation[["random_low", "random_high"]].iloc[0]) == baseline_range(draws)
    assert verdicts(rows) == {"accuracy": "above", "CEM gain": "above", "CGIM correlation": "above"}

    rows, _ = scored(torch.zeros_like(truth), truth)
    accuracy = pick(rows, metric="accuracy").iloc[0]
    assert accuracy[["value", "random_low", "random_high"]].tolist() == pytest.approx([9 / 44] * 3)
    assert verdicts(rows) == {"accuracy": "within", "CEM gain": "–", "CGIM correlation": "–"}
