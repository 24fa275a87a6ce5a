from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from quantus.helpers.enums import ScoreDirection

from quantus_concepts import PASTAScore
from quantus_concepts.pasta.embedder import Embedder
from quantus_concepts.pasta.encoders.overlay import overlay_maps, unit_maps
from quantus_concepts.pasta.scorer import Scorer
from quantus_concepts.pasta.scorer_files import save_scorer
from reference.ratings import forward
from tiny_encoders import PoolingEncoder

N, SIZE = 6, 24
LABELS = ("cat", "dog", "car")
MEAN, STD = (0.4, 0.5, 0.6), (0.2, 0.25, 0.3)
QUESTIONS = ("Q1", "Q5")


@pytest.fixture
def rng():
    return np.random.default_rng(3)


@pytest.fixture
def images(rng):
    return rng.uniform(size=(N, 3, SIZE, SIZE)).astype(np.float32)


@pytest.fixture
def maps(rng):
    return rng.normal(size=(N, 1, SIZE, SIZE)).astype(np.float32)


@pytest.fixture
def scorer():
    network = Scorer(PoolingEncoder.dim, QUESTIONS, LABELS, hidden=(16, 8), seed=1)
    # Another answer to each question.
    with torch.no_grad():
        network.biases[-1][1] += 0.2
    return network


@pytest.fixture
def classes():
    return np.array([0, 1, 2, 0, 1, 2])


def by_hand(scorer: Scorer, embeddings: np.ndarray, labels: np.ndarray | None, question: int) -> np.ndarray:
    """Return what the network of one question says by its formula."""
    layers = [
        (weight[question].detach(), bias[question].detach())
        for weight, bias in zip(scorer.weights, scorer.biases, strict=True)
    ]
    labels = np.full(len(embeddings), -1) if labels is None else labels
    return forward(embeddings, labels, len(scorer.labels), layers)


def encode_overlaid(images: np.ndarray, maps: np.ndarray) -> np.ndarray:
    """What the encoder gives of images with their maps laid over them."""
    pictures = torch.nn.functional.interpolate(torch.as_tensor(images), (224, 224), mode="bilinear", antialias=True)
    scaled = unit_maps(torch.as_tensor(maps[:, 0]))
    return PoolingEncoder().encode_images(overlay_maps(pictures.clamp(0, 1), scaled)).numpy()


class TestScores:
    def test_are_those_of_the_network_by_hand(self, scorer, images, maps, classes):
        metric = PASTAScore(scorer, PoolingEncoder(), labels=classes)
        scores = metric(None, images, classes, maps)
        np.testing.assert_allclose(scores, by_hand(scorer, encode_overlaid(images, maps), classes, 0), atol=2e-2)
        embedded = Embedder(PoolingEncoder()).embed_maps(torch.as_tensor(images), torch.as_tensor(maps[:, 0])).numpy()
        np.testing.assert_allclose(scores, by_hand(scorer, embedded, classes, 0), atol=1e-5)
        assert np.ptp(scores) > 1e-3

    def test_of_every_question_come_from_one_pass(self, scorer, images, maps, classes):
        encoder = PoolingEncoder()
        metric = PASTAScore(scorer, encoder, labels=classes)
        scores = metric(None, images, classes, maps, batch_size=4)
        assert encoder.images_seen == N
        np.testing.assert_array_equal(metric.question_scores["Q1"], scores)
        other = PASTAScore(scorer, PoolingEncoder(), question="Q5", labels=classes)
        # Other batches: the last bit may differ.
        np.testing.assert_allclose(metric.question_scores["Q5"], other(None, images, classes, maps), rtol=1e-5)
        assert metric.question_scores["Q5"].min() > metric.question_scores["Q1"].max()

    def test_of_concepts_read_the_sentence_of_their_names(self, scorer, classes, rng):
        encoder = PoolingEncoder()
        values = rng.normal(size=(N, 3))
        values[0] = (0.1, -3, 2)
        metric = PASTAScore(scorer, encoder, labels=classes, concept_names=["wing", "beak", "tail"])
        scores = metric(None, values, classes, values)
        assert encoder.texts_seen[0] == "beak, tail, wing, "
        sentences = ["".join(f"{metric.concept_names[place]}, " for place in row) for row in np.argsort(-abs(values))]
        assert set(encoder.texts_seen) == set(sentences)
        embedded = PoolingEncoder().encode_texts(sentences).numpy()
        np.testing.assert_allclose(scores, by_hand(scorer, embedded, classes, 0), atol=1e-5)

    def test_labels_by_name_by_index_and_by_class_are_the_same(self, scorer, images, maps, classes):
        names = [LABELS[place] for place in classes]
        expected = PASTAScore(scorer, PoolingEncoder(), labels=classes)(None, images, classes, maps)
        by_name = PASTAScore(scorer, PoolingEncoder(), labels=names)(None, images, classes, maps)
        model_order = ["car", "cat", "dog"]
        of_model = np.array([model_order.index(name) for name in names])
        by_class = PASTAScore(scorer, PoolingEncoder(), class_names=model_order)(None, images, of_model, maps)
        passed = PASTAScore(scorer, PoolingEncoder())
        in_call = passed(None, images, classes, maps, custom_batch={"labels": names})
        for scores in (by_name, by_class, in_call):
            np.testing.assert_array_equal(scores, expected)

    def test_a_scorer_with_labels_warns_without_labels(self, scorer, images, maps, classes):
        with pytest.warns(UserWarning, match="trained with labels and gets none"):
            scores = PASTAScore(scorer, PoolingEncoder())(None, images, classes, maps)
        embedded = Embedder(PoolingEncoder()).embed_maps(torch.as_tensor(images), torch.as_tensor(maps[:, 0])).numpy()
        np.testing.assert_allclose(scores, by_hand(scorer, embedded, None, 0), atol=1e-5)

    def test_normalisation_is_undone(self, scorer, images, maps, classes):
        expected = PASTAScore(scorer, PoolingEncoder(), labels=classes)(None, images, classes, maps)
        mean, std = (np.array(value, dtype=np.float32)[:, None, None] for value in (MEAN, STD))
        undone = {"mean": MEAN, "std": STD}, {"denormalise": lambda x: x * torch.tensor(std) + torch.tensor(mean)}
        for arguments in undone:
            metric = PASTAScore(scorer, PoolingEncoder(), labels=classes, **arguments)
            np.testing.assert_allclose(metric(None, (images - mean) / std, classes, maps), expected, atol=2e-2)

    def test_channels_are_summed(self, scorer, images, classes, rng):
        maps = rng.normal(size=(N, 3, SIZE, SIZE))
        metric = PASTAScore(scorer, PoolingEncoder(), labels=classes)
        summed = metric(None, images, classes, maps.sum(1))
        np.testing.assert_allclose(metric(None, images, classes, maps), summed, atol=1e-6)


class TestHost:
    def test_name_parameters_and_direction_tell_question_and_encoder(self, scorer, classes):
        scorer.metadata["simulated"] = True
        metric = PASTAScore(scorer, PoolingEncoder(), question="Q5", labels=classes)
        assert metric.name == "PASTA-score Q5 (pooling, simulated raters)"
        assert metric.get_params["question"] == "Q5"
        assert metric.get_params["encoder"] == "pooling"
        assert metric.score_direction is ScoreDirection.LOWER
        assert PASTAScore(scorer, PoolingEncoder(), labels=classes).score_direction is ScoreDirection.HIGHER

    def test_the_file_of_a_scorer_and_a_cache_are_used(self, scorer, images, maps, classes, tmp_path):
        save_scorer(scorer, tmp_path / "scorer.safetensors")
        first, second = PoolingEncoder(), PoolingEncoder()
        scores = PASTAScore(scorer, first, labels=classes, cache=tmp_path / "cache")(None, images, classes, maps)
        from_file = PASTAScore(tmp_path / "scorer.safetensors", second, labels=classes, cache=tmp_path / "cache")
        np.testing.assert_array_equal(from_file(None, images, classes, maps), scores)
        assert (first.images_seen, second.images_seen) == (N, 0)


class TestUndefined:
    def test_one_bad_map_costs_only_its_own_score(self, scorer, images, maps, classes):
        expected = PASTAScore(scorer, PoolingEncoder(), labels=classes)(None, images, classes, maps)
        maps[1] = np.nan
        maps[3] = 0.25
        metric = PASTAScore(scorer, PoolingEncoder(), labels=classes)
        with pytest.warns(UserWarning, match=r"NaN or infinity \(1 of 6 samples\); maps are constant.*\(1 of 6"):
            scores = metric(None, images, classes, maps)
        assert np.flatnonzero(np.isnan(scores)).tolist() == [1, 3]
        assert metric.undefined == 2
        good = [0, 2, 4, 5]
        np.testing.assert_allclose(np.array(scores)[good], np.array(expected)[good], atol=1e-6)


BAD: list[tuple[dict[str, Any], str]] = [
    ({"question": "Q2"}, r"`question`.*Q1.*Q5"),
    ({"labels": ["cat", "dgo"] * 3}, r"dgo.*dog"),
    ({"class_names": ["cat", "dogg", "car"]}, r"dogg.*dog"),
    ({"labels": [0, 7, 0, 0, 0, 0]}, "labels"),
    ({"labels": [0] * N, "class_names": LABELS}, "either argument `labels` or argument `class_names`"),
    ({"mean": MEAN}, "`mean` without `std`"),
    ({"mean": MEAN, "std": STD, "denormalise": abs}, "either `mean` and `std` or argument `denormalise`"),
    ({"scorer": Scorer(PoolingEncoder.dim, labels=None), "labels": [0] * N}, "trained without labels: leave it out"),
    ({"scorer": Scorer(1024)}, "27"),
    ({"encoder": None}, "does not name the one it was trained on"),
]


@pytest.mark.parametrize(("arguments", "message"), BAD)
def test_bad_arguments(scorer, arguments, message):
    with pytest.raises(ValueError, match=message):
        PASTAScore(**{"scorer": scorer, "encoder": PoolingEncoder(), **arguments})


def test_bad_calls(scorer, images, maps, classes, rng):
    def refused(message, *call, **arguments):
        metric = PASTAScore(scorer, PoolingEncoder(), **(arguments or {"labels": classes}))
        with pytest.raises(ValueError, match=message):
            metric(None, *call, batch_size=2)

    values = rng.normal(size=(N, 2))
    refused("needs argument `concept_names`", values, classes, values)
    names = ["a", "b", "c"]
    refused("a name for each of 2 concepts", values, classes, values, labels=classes, concept_names=names)
    refused("`mean` to have 3 numbers", images, classes, maps, labels=classes, mean=(0.5,), std=(0.5,))
    other_classes = np.array([0, 1, 2, 3, 0, 1])
    refused("indices of the 3 `class_names` but got 0 to 3", images, other_classes, maps, class_names=LABELS)
    images[-1] = 3 * images[-1] - 1
    refused(r"\[0, 1\] but got values from -1 to 2", images, classes, maps)
