"""Concept models whose scores are known beforehand, on painted birds; with their expected values."""

from __future__ import annotations

import itertools
import math
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from torch import Tensor, nn

from quantus_concepts import score_concepts
from quantus_concepts.datasets import PaintedBirds
from quantus_concepts.datasets.base import ConceptSample
from quantus_concepts.metrics import UsualMetrics
from quantus_concepts.painted.images import KeptImages, sample_loader
from quantus_concepts.painted.subject import OracleModel, oracle_model

N_CLASSES, SIZE = 10, 64
ALPHAS = (1.0, 3.0, 6.0)
TOPS = (1, 3, 5)
#: Of the random control: images that directions are drawn for, images they are scored on, and banks.
N_KNOWN, N_SEEN, N_DRAWN = 120, 100, 6


@pytest.fixture(scope="module")
def train() -> PaintedBirds:
    return PaintedBirds(1500, image_size=SIZE, n_classes=N_CLASSES)


@pytest.fixture(scope="module")
def test() -> KeptImages:
    return KeptImages(PaintedBirds(400, "test", image_size=SIZE, n_classes=N_CLASSES))


@pytest.fixture(scope="module")
def oracle(train, test) -> OracleModel:
    return oracle_model(train, test, N_CLASSES)


def table_of(model: Any, test: KeptImages, train: PaintedBirds, **changed: Any) -> pd.DataFrame:
    loader = changed.pop("loader", sample_loader(test, 100))
    usual = UsualMetrics(top_l=changed.pop("top_l", (1, 3, 5)))
    return score_concepts(
        model,
        loader,
        usual,
        class_concepts=train.class_concepts,
        truth={"part_of_concept": test.part_of_concept},
        **changed,
    )


def scored(model: nn.Module, test: KeptImages, train: PaintedBirds, **changed: Any) -> dict[Any, np.ndarray]:
    """Scores of the images by metric, explanation, l, alpha and baseline; 0 where one says nothing."""
    table = table_of(model, test, train, per_image=True, **changed)
    table[["l", "alpha"]] = table[["l", "alpha"]].astype(float).fillna(0)
    keys = ["metric", "explanation", "l", "alpha", "baseline"]
    return {key: group["value"].to_numpy() for key, group in table.groupby(keys)}


def test_the_oracle_scores_the_best_everywhere(oracle, train, test):
    scores = scored(oracle, test, train, value_threshold=0.5)
    present = test.concept_labels.sum(1).numpy()
    for top in TOPS:
        # Ranked by value the first l are present in every image that has as many.
        np.testing.assert_array_equal(scores["CEM", "value", top, 0, ""][present >= top], 1.0)
    for (metric, name, *_, baseline), column in scores.items():
        if metric != "CLM" or baseline:
            continue
        # Whatever ranks, the map peaks at the part: 1 wherever the part is to be seen.
        np.testing.assert_array_equal(column[~np.isnan(column)], 1.0)
        assert name != "value" or not np.isnan(column).any()
    np.testing.assert_array_equal(scores["concept accuracy", "", 0, 0, ""], 1.0)
    table = table_of(oracle, test, train)
    # Mean attributes of the images against the attribute frequencies of the classes: 1 but for the draw.
    means = table[(table["metric"] == "CGIM") & (table["explanation"] == "value") & (table["item"] == "")]
    assert len(means) == 2
    assert (means["value"] > 0.98).all()
    # Twelve parts and more tell ten classes apart, also with a tenth of the attributes changed.
    assert table.loc[table["metric"] == "accuracy", "value"].item() > 0.97


def test_constant_maps_score_exactly_the_size_of_the_region(oracle, train, test, monkeypatch):
    def constant(features: Tensor, concepts: Tensor) -> Tensor:
        return torch.full((len(features), concepts.shape[1], 8, 8), 0.3)

    monkeypatch.setattr(oracle, "maps_from_features", constant)
    scores = scored(oracle, test, train)
    for top, alpha in itertools.product(TOPS, ALPHAS):
        column = scores["CLM", "value", top, alpha, ""]
        np.testing.assert_allclose(column[~np.isnan(column)], alpha / 12, rtol=1e-6)


def test_labels_shuffled_among_the_concepts_score_their_density(oracle, train, test):
    rng = np.random.default_rng(5)

    def shuffled(sample: ConceptSample) -> ConceptSample:
        order = torch.as_tensor(rng.permutation(len(sample.concepts)))
        return sample._replace(concepts=sample.concepts[order])

    samples = [shuffled(test[index]) for index in range(len(test))]
    scores = scored(oracle, test, train, loader=sample_loader(samples, 100))
    density = scores["density", "", 0, 0, ""].mean()
    for importance in ("weight", "value", "contribution", "effect"):
        # At 99 %, given the deviation of one draw.
        half = 2.5758 * math.sqrt(density * (1 - density) / len(test))
        assert abs(scores["CEM", importance, 1, 0, ""].mean() - density) < half


def test_the_honest_baselines_lie_between_chance_and_the_oracle(oracle, train, test):
    scores = scored(oracle, test, train)
    for name in ("parts of another image", "centred Gaussian"):
        for alpha in ALPHAS:
            baseline = np.nanmean(scores["CLM", "effect", 5, alpha, name])
            # Birds stand in the middle: their parts are found better than a point anywhere, and not always.
            assert alpha / 12 < baseline < 0.99


def test_the_oracle_takes_unknown_images_for_an_error(oracle):
    bird = KeptImages(PaintedBirds(N_CLASSES, "test", image_size=SIZE, n_classes=N_CLASSES))[0].image
    with pytest.raises(ValueError, match=r"does not know image 1 of this batch"):
        oracle(torch.stack([bird, 1 - bird]))


def test_maps_of_the_oracle_peak_at_the_part_and_are_empty_without_one(oracle, test):
    sample = test[0]
    parts = test.part_of_concept
    every = oracle.concept_maps(sample.image[None])[0]
    assert every.shape == (len(parts), SIZE // 4, SIZE // 4)
    for concept, part in enumerate(parts.tolist()):
        place = sample.points[part, 0]
        if part < 0 or place.isnan().any():
            assert every[concept].max() == 0
        else:
            row, column = divmod(int(every[concept].argmax()), SIZE // 4)
            # The nearest place of the map: at most half a stride away in each direction.
            assert abs(4 * column + 1.5 - place[0]) <= 2
            assert abs(4 * row + 1.5 - place[1]) <= 2
    some = torch.tensor([[3, 1]])
    assert torch.equal(oracle.concept_maps(sample.image[None], some)[0], every[[3, 1]])
