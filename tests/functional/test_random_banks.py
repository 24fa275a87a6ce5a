"""The distribution over random banks, and the coverage of intervals of what knows nothing."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import Tensor

from quantus_concepts.functional import cem, random_bank_scores, random_banks
from quantus_concepts.functional.statistics.intervals import distribution, interval
from reference.cem import cem as reference_cem
from reference.cgim import cgim as reference_cgim
from reference.cgim import class_means
from reference.comparisons import cem_gain, centred_cgim

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


@pytest.fixture(scope="module")
def scores(photographs) -> dict[tuple[str, str], Tensor]:
    return random_bank_scores(**photographs)


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


@pytest.mark.parametrize("only_correct", [False, True])
def test_scores_agree_with_the_formulas_one_number_at_a_time(photographs, only_correct):
    data = {key: value if key.startswith("class") else value[::20] for key, value in photographs.items()}
    scores = random_bank_scores(**data, top_l=3, n_banks=2, seed=5, only_correct=only_correct)
    banks = random_banks(data["features"], data["labels"], N_CONCEPTS, N_CLASSES, n_banks=2, seed=5)
    truth = data["class_concepts"].numpy()
    for number, bank in enumerate(banks):
        theta = bank.head.weight.detach().double().numpy()
        u = data["test_features"].double().numpy() @ bank.cavs.double().numpy().T + bank.intercepts.double().numpy()
        predicted = (u @ theta.T + bank.head.bias.detach().double().numpy()).argmax(1)
        correct = predicted == data["test_labels"].numpy()
        of_cem = correct if only_correct else np.full(len(u), True)
        for name, importance in {"weight": theta[predicted], "value": u, "contribution": theta[predicted] * u}.items():
            present = data["concept_labels"][of_cem]
            means = theta if name == "weight" else class_means(importance, predicted, N_CLASSES, correct)
            expected = {
                "CEM": reference_cem(importance[of_cem], present, 3),
                "CEM gain": cem_gain(importance[of_cem], present, 3),
                "CGIM": reference_cgim(means, truth, "concept"),
                "CGIM correlation": centred_cgim(means, truth, "concept"),
            }
            for metric, column in expected.items():
                # float32 through one product of 64 numbers.
                assert float(scores[metric, name][number]) == pytest.approx(np.nanmean(column), abs=1e-4), metric


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


def test_contributions_of_a_fitted_head_agree_with_any_truth(scores):
    mean, low, high = distribution(scores["CGIM", "contribution"])
    # Which is why nothing is held against 0.
    assert 0.05 < low < mean < high
    for name in ("weight", "value"):
        mean, low, high = distribution(scores["CGIM", name])
        assert low < 0 < high


def test_true_concepts_lie_above_the_distribution(photographs, scores):
    """The true directions of the classes' concepts, by least squares, against random ones."""
    x, y = photographs["features"], photographs["labels"]
    centred = photographs["class_concepts"][y] - photographs["class_concepts"].mean(0)
    cavs = torch.linalg.lstsq(x - x.mean(0), centred).solution.T
    u = (photographs["test_features"] - x.mean(0)) @ torch.nn.functional.normalize(cavs, dim=1).T
    ours = cem(u, photographs["concept_labels"]).mean()
    _, _, high = distribution(scores["CEM", "value"])
    assert ours > high + 0.2


def test_distribution_literal():
    assert distribution(np.arange(39) / 10) == pytest.approx((1.9, 0.0, 3.8))
    assert distribution([0.5, float("nan")]) == (0.5, 0.5, 0.5)
    assert np.isnan(distribution([float("nan")])).all()


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"labels": torch.arange(19) % 2}, r"`labels` .*\(N,\) = \(20,\)"),
        ({"test_labels": torch.arange(20) % 3}, r"`test_labels` to lie in \[0, 1\]"),
        ({"features": torch.full((20, 4), torch.nan)}, "`features` to be finite"),
        ({"class_concepts": torch.ones(2, 3) * 50}, "`class_concepts` .*Divide percentages"),
        ({"concept_labels": torch.ones(20, 3) / 2}, "`concept_labels` to hold only 0 and 1"),
    ],
)
def test_refused(changed: dict[str, Tensor], message: str):
    features, labels = torch.ones(20, 4), torch.arange(20) % 2
    good = {"features": features, "labels": labels, "test_features": features, "test_labels": labels}
    truth = {"concept_labels": torch.ones(20, 3), "class_concepts": torch.ones(2, 3)}
    with pytest.raises(ValueError, match=message):
        random_bank_scores(**{**good, **truth, **changed})
