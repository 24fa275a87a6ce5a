"""The embedded encoder: fixed, untrained, and enough for a scorer to tell good explanations from bad ones."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from scipy.stats import spearmanr

from quantus_concepts.datasets.ratings.raters import simulated_ratings
from quantus_concepts.datasets.ratings.split import leak_free_split
from quantus_concepts.pasta.embedder import Embedder
from quantus_concepts.pasta.encoders.embedded_encoder import EmbeddedEncoder
from quantus_concepts.pasta.encoders.encoder import is_encoder
from quantus_concepts.pasta.training import TrainingSettings, train_scorer


@pytest.fixture(scope="module")
def images() -> torch.Tensor:
    return torch.rand(3, 3, 40, 50, generator=torch.Generator().manual_seed(0))


@pytest.fixture(scope="module")
def encoder() -> EmbeddedEncoder:
    return EmbeddedEncoder()


def test_the_same_seed_gives_the_same_embeddings_alone_and_in_a_batch(
    encoder: EmbeddedEncoder, images: torch.Tensor
) -> None:
    state = torch.get_rng_state()
    embeddings = encoder.encode_images(images)
    again, other = EmbeddedEncoder(), EmbeddedEncoder(seed=1)
    assert is_encoder(again)
    assert torch.equal(again.encode_images(images), embeddings)
    assert torch.equal(torch.get_rng_state(), state)
    alone = torch.cat([encoder.encode_images(image[None]) for image in images])
    assert torch.allclose(alone, embeddings, atol=1e-5)
    texts = ["red wing, blue eye, ", "blue eye, red wing, "]
    assert torch.equal(again.encode_texts(texts), encoder.encode_texts(texts))
    assert not torch.allclose(other.encode_images(images), embeddings)
    assert not torch.allclose(other.encode_texts(texts), encoder.encode_texts(texts))
    assert other.fingerprint != encoder.fingerprint == again.fingerprint
    assert other.name != encoder.name
    assert encoder.encode_images(images[:0]).shape == (0, encoder.dim)


def test_pictures_and_texts_share_no_number(encoder: EmbeddedEncoder, images: torch.Tensor) -> None:
    pictures, texts = encoder.encode_images(images), encoder.encode_texts(["red wing", "small size, "])
    assert not ((pictures != 0).any(0) & (texts != 0).any(0)).any()
    assert pictures.any(1).all()
    assert texts.any(1).all()
    # The norm does not depend on the width.
    narrow = EmbeddedEncoder(width=16).encode_images(images)
    torch.testing.assert_close(narrow.norm(dim=1), pictures.norm(dim=1), rtol=0.4, atol=0)


def test_a_text_is_the_sum_of_its_names_in_their_order(encoder: EmbeddedEncoder) -> None:
    red, blue, both, turned = encoder.encode_texts(
        ["red wing", "blue eye", "red wing, blue eye, ", "blue eye, red wing"]
    )
    half = encoder.dim - 64
    assert torch.allclose(both[:half], (red + blue)[:half], atol=1e-6)
    assert torch.allclose(both[half:], (red + blue / 2**0.5)[half:], atol=1e-6)
    assert torch.allclose(both[:half], turned[:half], atol=1e-6)
    assert not torch.allclose(both[half:], turned[half:], atol=1e-3)
    assert torch.equal(encoder.encode_texts([""])[0], torch.zeros(encoder.dim))


def test_a_scorer_on_it_orders_unseen_explanations_of_unseen_images() -> None:
    ratings = simulated_ratings(80)
    embeddings = Embedder(EmbeddedEncoder(), size=64, batch_size=64).embed(ratings.explanations)
    votes = ratings.targets()[:, 0]

    def correlation(goal: np.ndarray, seed: int) -> float:
        split = leak_free_split(ratings.image_ids, ratings.explainer_ids, seed=seed)
        scorer = train_scorer(
            embeddings,
            goal,
            ratings.labels.tolist(),
            train=split.train,
            validation=split.validation,
            questions=("Q1",),
            label_names=sorted(set(ratings.labels.tolist())),
            settings=TrainingSettings(epochs=20, learning_rate=3e-3),
            seed=seed,
        ).scorer
        scores = scorer.score(embeddings[split.test], ratings.labels[split.test].tolist())[:, 0].numpy()
        return float(spearmanr(scores, votes[split.test]).statistic)

    best = spearmanr(ratings.expected[:, 0], votes).statistic
    assert np.mean([correlation(votes, 0), correlation(votes, 2)]) >= 0.6 * best
    assert correlation(np.random.default_rng(0).permutation(votes), 0) < 0.35 < 0.6 * best


def test_bad_arguments(encoder: EmbeddedEncoder) -> None:
    with pytest.raises(ValueError, match="`seed` to be at least 0"):
        EmbeddedEncoder(-1)
    assert (EmbeddedEncoder.of_name("embedded").dim, EmbeddedEncoder.of_name("embedded/8/3").seed) == (384, 3)
    for name in ("embedded/", "embedded/wide", "embedded/8/3/1"):
        with pytest.raises(ValueError, match="to be embedded/WIDTH/SEED but got"):
            EmbeddedEncoder.of_name(name)
    with pytest.raises(TypeError, match="`texts` to be a sequence of texts"):
        encoder.encode_texts("wing")
