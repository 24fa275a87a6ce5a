"""The distribution over random banks, and the coverage of intervals of what knows nothing."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
import torch
from torch import Tensor, nn

from captum_concepts import ConceptBank, PostHocCBM
from quantus_concepts.functional import cem, random_banks
from quantus_concepts.functional.statistics.intervals import distribution, interval
from quantus_concepts.metrics import UsualMetrics, score_concepts

N_CLASSES, N_CONCEPTS, WIDTH = 10, 20, 64


def draw_embeddings(means: np.ndarray, n: int, rng: np.random.Generator) -> tuple[Tensor, Tensor]:
    """Return embeddings as after a ReLU, as many of each class."""
    labels = np.repeat(np.arange(len(means)), n // len(means))
    features = np.maximum(means[labels] + 2 * rng.standard_normal((n, means.shape[1])), 0)
    return torch.tensor(features, dtype=torch.float32), torch.tensor(labels)


@pytest.fixture(scope="module")
def photographs() -> dict[str, Tensor]:
    """As CIFAR-10 with a small network: ten classes in two families, a thousand images, concept labels by class."""
    rng = np.random.default_rng(0)
    families = rng.standard_normal((2, WIDTH))[(np.arange(N_CLASSES) >= 4).astype(int)]
    means = 1.5 * (families + rng.standard_normal((N_CLASSES, WIDTH)))
    class_concepts = torch.tensor(rng.random((N_CLASSES, N_CONCEPTS)) < 0.25).float()
    features, labels = draw_embeddings(means, 2000, rng)
    test_features, test_labels = draw_embeddings(means, 1000, rng)
    return {
        "features": features,
        "labels": labels,
        "test_features": test_features,
        "test_labels": test_labels,
        "concept_labels": class_concepts[test_labels],
        "class_concepts": class_concepts,
    }


def test_intervals_over_predicted_classes_hold_chance_as_often_as_they_say(photographs):
    present = photographs["concept_labels"]
    # What random directions score on average: every concept is as likely as any to come first.
    chance = float(present.mean())
    covered: dict[tuple[str, str], list[bool]] = {}
    banks = random_banks(photographs["features"], photographs["labels"], N_CONCEPTS, N_CLASSES, n_banks=30)
    for bank in banks:
        u = bank.concept_values(photographs["test_features"])
        predicted = bank.head(u).argmax(1)
        theta = bank.head.weight.detach()[predicted]
        for name, importance in (("weight", theta), ("value", u), ("contribution", theta * u)):
            scores = cem(importance, present)
            for kind, clusters in (("classes", predicted), ("images", None)):
                low, high = interval(scores, clusters=clusters)
                covered.setdefault((name, kind), []).append(low <= chance <= high)
    for name in ("weight", "value", "contribution"):
        assert np.mean(covered[name, "classes"]) >= 0.85, name
        # Taken as independent, a thousand images tell far more than the few concepts that ten classes share.
        assert np.mean(covered[name, "images"]) < 0.6, name


def test_banks_drawn_in_parts_are_those_of_one_call_and_raw_values_have_no_boundary(photographs):
    x = photographs["features"][::20]
    few = x, photographs["labels"][::20], 3, N_CLASSES
    at_once = list(random_banks(*few, n_banks=2, seed=5))
    part = next(random_banks(*few, n_banks=1, seed=5, first=1))
    assert torch.equal(at_once[1].cavs, part.cavs)
    torch.testing.assert_close(at_once[1].head.weight, part.head.weight)
    # The boundary of a margin goes through the mean embedding.
    assert part.concept_values(x.mean(0, keepdim=True)).abs().max() < 1e-4
    torch.testing.assert_close(part.concept_values(x, "raw"), x @ part.cavs.T)
    torch.testing.assert_close(part.cavs.norm(dim=1), torch.ones(3))


@pytest.fixture(scope="module")
def scores(photographs) -> pd.DataFrame:
    """The rows of 39 random banks, by metric and explanation."""
    banks = list(random_banks(photographs["features"], photographs["labels"], N_CONCEPTS, N_CLASSES))
    model = PostHocCBM(nn.Identity(), ConceptBank(banks[0].cavs, banks[0].intercepts), banks[0].head).eval()
    images = [tuple(photographs[name] for name in ("test_features", "test_labels", "concept_labels"))]
    truth = photographs["class_concepts"]
    table = score_concepts(model, images, UsualMetrics(top_l=[1]), class_concepts=truth, controls=banks)
    rows = table[(table["model"] == "control") & (table["item"] == "") & (table["item_kind"] != "class")]
    return rows[(rows["set"] == "all") | (rows["metric"] == "CGIM")].set_index(["metric", "explanation"])


def test_contributions_of_a_fitted_head_agree_with_any_truth(scores):
    mean, low, high = scores.loc[("CGIM", "contribution"), ["value", "low", "high"]]
    # Which is why nothing is held against 0.
    assert 0.05 < low < mean < high
    for name in ("weight", "value"):
        low, high = scores.loc[("CGIM", name), ["low", "high"]]
        assert low < 0 < high


def test_true_concepts_lie_above_the_distribution(photographs, scores):
    """The true directions of the classes' concepts, by least squares, against random ones."""
    x, y = photographs["features"], photographs["labels"]
    centred = photographs["class_concepts"][y] - photographs["class_concepts"].mean(0)
    cavs = torch.linalg.lstsq(x - x.mean(0), centred).solution.T
    u = (photographs["test_features"] - x.mean(0)) @ torch.nn.functional.normalize(cavs, dim=1).T
    ours = cem(u, photographs["concept_labels"]).mean()
    assert ours > scores.loc[("CEM", "value"), "high"] + 0.2


def test_distribution_literal():
    assert distribution(np.arange(39) / 10) == pytest.approx((1.9, 0.0, 3.8))
    assert distribution([0.5, float("nan")]) == (0.5, 0.5, 0.5)
    assert np.isnan(distribution([float("nan")])).all()
