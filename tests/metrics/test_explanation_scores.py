"""The streaming PASTA-score agrees with the metric class, for every kind of batches."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
import torch
from torch.utils.data import DataLoader, TensorDataset

from quantus_concepts import PASTAScore, score_explanations
from quantus_concepts.datasets.ratings.explanations import (
    ConceptExplanation,
    DrawingExplanation,
    LazyExplanations,
    MapExplanation,
)
from quantus_concepts.pasta.scorer import Scorer
from tiny_encoders import PoolingEncoder

N, SIZE = 7, 12
LABELS = ("cat", "dog", "car")
QUESTIONS = ("Q1", "Q5")
random = torch.Generator().manual_seed(0)
IMAGES = torch.rand(N, 3, SIZE, SIZE, generator=random)
MAPS = torch.randn(N, SIZE, SIZE, generator=random)
CLASSES = torch.arange(N) % 3
NAMES = [LABELS[place] for place in CLASSES]


def scorer(labels: tuple[str, ...] | None = LABELS) -> Scorer:
    return Scorer(PoolingEncoder.dim, QUESTIONS, labels, hidden=(16, 8), seed=1)


def explanation(place: int) -> MapExplanation:
    return MapExplanation(IMAGES[place], MAPS[place])


def of_metric(**arguments: object) -> pd.DataFrame:
    metric = PASTAScore(scorer(), PoolingEncoder(), labels=CLASSES, **arguments)
    metric(None, IMAGES.numpy(), CLASSES.numpy(), MAPS.numpy(), batch_size=3)
    return pd.DataFrame(metric.question_scores)


def test_a_loader_gives_what_the_metric_does_to_the_bit():
    loader = DataLoader(TensorDataset(IMAGES, MAPS, CLASSES), 3)
    table = score_explanations(scorer(), PoolingEncoder(), loader)
    pd.testing.assert_frame_equal(table[[*QUESTIONS]], of_metric(), check_exact=True)
    assert table["label"].tolist() == NAMES
    assert (table["modality"] == "map").all()
    assert (table["reason"] == "").all()


def test_generators_lists_names_and_channels_say_the_same():
    splits = [slice(0, 3), slice(3, 6), slice(6, N)]
    expected = of_metric()
    channels = torch.stack([MAPS / 4, 3 * MAPS / 4], 1)
    for loader in (
        ((IMAGES[rows].numpy(), MAPS[rows].numpy(), NAMES[rows]) for rows in splits),
        [[IMAGES[rows], channels[rows], CLASSES[rows]] for rows in splits],
        [([explanation(place) for place in range(N)[rows]], NAMES[rows]) for rows in splits],
    ):
        table = score_explanations(scorer(), PoolingEncoder(), loader)
        np.testing.assert_allclose(table[[*QUESTIONS]], expected, atol=1e-5)
        assert table["label"].tolist() == NAMES


def test_explanations_of_every_kind_and_size_in_one_batch():
    kinds = [
        explanation(0),
        ConceptExplanation({"wing": 1.0, "beak": -2.0}),
        DrawingExplanation(IMAGES[1, :, :5]),
        MapExplanation(IMAGES[2, :, :8], MAPS[2]),
    ]
    loader = DataLoader(LazyExplanations(kinds.__getitem__, range(4)), 4, collate_fn=list)
    table = score_explanations(scorer(None), PoolingEncoder(), loader)
    assert table["modality"].tolist() == ["map", "concepts", "drawing", "map"]
    assert set(table["label"]) == {""}
    for place, kind in enumerate(kinds):
        alone = score_explanations(scorer(None), PoolingEncoder(), [[kind]])
        np.testing.assert_allclose(alone[[*QUESTIONS]].to_numpy()[0], table.loc[place, [*QUESTIONS]].astype(float))


def test_what_cannot_be_scored_costs_its_own_score_and_one_warning():
    maps = MAPS.clone()
    maps[1], maps[4, 0, 0] = 0.25, torch.nan
    expected = of_metric()
    tensors = [(IMAGES[:3], maps[:3], CLASSES[:3]), (IMAGES[3:], maps[3:], CLASSES[3:])]
    objects = [MapExplanation(image, heat_map) for image, heat_map in zip(IMAGES, maps, strict=True)]
    for loader in (tensors, [(objects[:3], NAMES[:3]), (objects[3:], NAMES[3:])]):
        with pytest.warns(UserWarning, match=r"2 of 7.*map is constant \(1\); the explanation holds NaN or infinity"):
            table = score_explanations(scorer(), PoolingEncoder(), loader)
        assert np.flatnonzero(table["Q1"].isna()).tolist() == [1, 4]
        assert table["reason"][1] == "the map is constant"
        good = table["reason"] == ""
        np.testing.assert_allclose(table.loc[good, [*QUESTIONS]], expected[good], atol=1e-5)


def test_missing_labels_are_counted():
    n = len(IMAGES)
    for loader, without in (([(IMAGES, MAPS)], n), ([(IMAGES, MAPS), (IMAGES, MAPS, ["cat"] * n)], n)):
        with pytest.warns(UserWarning, match=rf"trained with labels, and {without} of {n * len(loader)} .* have none"):
            score_explanations(scorer(), PoolingEncoder(), loader)


BAD = {
    "nothing": ([], "at least one explanation but it is empty"),
    "an empty batch": ([[]], "list of nothing"),
    "four items": ([(IMAGES, MAPS, CLASSES, CLASSES)], "got 4 items"),
    "too few maps": ([(IMAGES, MAPS[:2])], r"`maps` to have shape \(B, h, w\) = \(7, \*, \*\)"),
    "too few labels": ([(IMAGES, MAPS, CLASSES[:2])], r"`labels` to have shape \(N,\) = \(7,\)"),
    "an unknown label": ([(IMAGES, MAPS, ["dgo"] * N)], "dog"),
    "images out of range": ([(3 * IMAGES, MAPS, CLASSES)], r"`loader` to hold images in \[0, 1\].*`mean` and `std`"),
    "images that are not finite": ([(IMAGES * torch.nan, MAPS, CLASSES)], "`loader` to be finite but it holds NaN"),
}


@pytest.mark.parametrize(("loader", "message"), BAD.values(), ids=BAD)
def test_bad_batches(loader, message):
    with pytest.raises(ValueError, match=message):
        score_explanations(scorer(), PoolingEncoder(), loader)
    with pytest.raises(ValueError, match="trained without"):
        score_explanations(scorer(None), PoolingEncoder(), [(IMAGES, MAPS, CLASSES)])
