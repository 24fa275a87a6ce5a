"""The score of a mask: the rating on [0, 1], in the direction of its question, for the right label and image."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from captum_concepts.attributions.steered_rise import SteeredRISE
from quantus_concepts.pasta.applications.steering import score_masks
from quantus_concepts.pasta.embedder import Embedder
from quantus_concepts.pasta.scorer import Scorer
from tiny_encoders import PoolingEncoder

MEAN, STD = (0.5, 0.4, 0.3), (0.2, 0.3, 0.4)


class Means:
    """An embedder whose numbers are the means of image, map, and upper half of the map."""

    dim = 3

    def __init__(self) -> None:
        self.images: Tensor | None = None

    def embed_maps(self, images: Tensor, maps: Tensor) -> Tensor:
        self.images = images
        half = maps.shape[1] // 2
        return torch.stack([images.mean((1, 2, 3)), maps.mean((1, 2)), maps[:, :half].mean((1, 2))], 1)


class Rater:
    """Q1: 1 plus four times the upper half of the map, Q5 likewise; with a label a tenth of its index is added."""

    questions = ("Q5", "Q1")
    labels = ("cat", "dog", "bird")

    def score(self, embeddings: Tensor, labels: Tensor | None = None) -> Tensor:
        shift = 0 if labels is None else 0.1 * (labels + 1)
        ratings = 1 + 3 * embeddings[:, 2] + shift
        return torch.stack([ratings, ratings], 1)


@pytest.fixture
def masks() -> Tensor:
    return torch.rand(4, 6, 6, generator=torch.Generator().manual_seed(0))


@pytest.fixture
def images() -> Tensor:
    return torch.rand(4, 3, 6, 6, generator=torch.Generator().manual_seed(1))


def test_by_hand_in_the_direction_of_the_question(images, masks):
    masks[1] = 1
    upper = masks[:, :3].mean((1, 2))
    good = score_masks(Rater(), Means())(images, masks, None)
    torch.testing.assert_close(good[[0, 2, 3]], 0.75 * upper[[0, 2, 3]])
    low_is_good = score_masks(Rater(), Means(), question="Q5")(images, masks, None)
    # A constant mask scores 0.
    torch.testing.assert_close(low_is_good[[0, 2, 3]], 1 - 0.75 * upper[[0, 2, 3]])
    assert low_is_good[1] == good[1] == 0


def test_labels(images, masks):
    plain = 0.75 * masks[:, :3].mean((1, 2))
    targets = torch.tensor([0, 1, 3, 2])
    # Classes of the model are others than the scorer's: the third has no label at all.
    score = score_masks(Rater(), Means(), labels=["dog", "bird", None, 0])
    torch.testing.assert_close(score(images, masks, targets), plain + torch.tensor([2, 3, 1, 0]) * 0.1 / 4)
    for label in ("dog", 1):
        torch.testing.assert_close(score_masks(Rater(), Means(), labels=label)(images, masks, None), plain + 0.05)


def test_normalisation_is_undone(images, masks):
    embedder = Means()
    shift, scale = (torch.tensor(values)[:, None, None] for values in (MEAN, STD))
    inputs = (images - shift) / scale
    score_masks(Rater(), embedder, mean=MEAN, std=STD)(inputs, masks, None)
    torch.testing.assert_close(embedder.images, images)
    noisy = inputs + 3
    with pytest.raises(ValueError, match=r"`images` to hold images in \[0, 1\]"):
        score_masks(Rater(), embedder, mean=MEAN, std=STD)(noisy, masks, None)
    score_masks(Rater(), embedder, mean=MEAN, std=STD, clip=True)(noisy, masks, None)
    torch.testing.assert_close(embedder.images, (images + 3 * scale).clamp(0, 1))


class Linear(nn.Module):
    def forward(self, images: Tensor) -> Tensor:
        return images.flatten(1)[:, :3]


def test_steers_towards_what_the_scorer_likes(images):
    score = score_masks(Rater(), Means(), labels=["cat", "dog", "bird"], mean=MEAN, std=STD)
    shift, scale = (torch.tensor(heat)[:, None, None] for heat in (MEAN, STD))
    steered = SteeredRISE(Linear(), score)
    maps = [steered.attribute((images - shift) / scale, 1, lam=lam, n_masks=200, cells=3) for lam in (0, 0.5, 1)]
    upper = [float(heat[:, :, :3].mean() / heat.mean()) for heat in maps]
    assert upper == sorted(upper)
    assert upper[2] > 1.05


def test_with_an_embedder_of_the_package_whose_cache_stays_empty(images, masks, tmp_path):
    cached, plain = (Embedder(PoolingEncoder(), cache=cache, size=12) for cache in (tmp_path, None))
    scorer = Scorer(cached.dim, labels=None, seed=1)
    scores = score_masks(scorer, cached)(images, masks, None)
    assert not [path for path in tmp_path.rglob("*") if path.is_file()]
    torch.testing.assert_close(scores, (scorer.score(plain.embed_maps(images, masks))[:, 0] - 1) / 4)


def test_refused(images, masks):
    with pytest.raises(ValueError, match="`std` to be positive"):
        score_masks(Rater(), Means(), mean=MEAN, std=(0.0,) * 3)
    with pytest.raises(ValueError, match="`labels` to be None, since the scorer was trained without"):
        score_masks(Scorer(3, labels=None), Means(), labels="cat")
    with pytest.raises(ValueError, match="`labels` to have a label for each class"):
        score_masks(Rater(), Means(), labels=["cat", "dog"])(images, masks, torch.tensor([0, 1, 2, 1]))
