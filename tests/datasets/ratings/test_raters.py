"""Simulated raters of graded explanations: votes follow the truth by the formula, and are named simulated."""

from __future__ import annotations

import math
from itertools import pairwise

import numpy as np
import pytest
from scipy.stats import spearmanr

from quantus_concepts.datasets.birds.painted_birds import PaintedBirds
from quantus_concepts.datasets.ratings.explainers import EXPLAINERS
from quantus_concepts.datasets.ratings.rated import RatedExplanations
from quantus_concepts.datasets.ratings.raters import (
    SITUATIONS,
    GradedExplanations,
    SimulatedRaters,
    concept_words,
    expected_votes,
    f_measure,
    list_likeness,
    map_likeness,
    rate_list,
    rate_map,
    simulated_ratings,
)
from untouched import untouched

PLACES = {explainer.name: place for place, explainer in enumerate(EXPLAINERS)}
N_IMAGES = 10


@pytest.fixture(scope="module")
def graded() -> GradedExplanations:
    return GradedExplanations(PaintedBirds(N_IMAGES, image_size=48, n_classes=5, n_concepts=30))


@pytest.fixture(scope="module")
def expected(graded: GradedExplanations) -> dict[str, np.ndarray]:
    """Expected votes (N_IMAGES, 6) on every explainer."""
    items = np.array([(image, place) for place in range(len(EXPLAINERS)) for image in range(N_IMAGES)])
    votes = expected_votes(graded, items).reshape(len(EXPLAINERS), N_IMAGES, 6)
    return {explainer.name: votes[place] for place, explainer in enumerate(EXPLAINERS)}


@pytest.fixture(scope="module")
def ratings() -> RatedExplanations:
    return simulated_ratings(40, 15, 32)


def test_a_map_by_hand() -> None:
    # 2 x 3 pixels; scaled: 0, 1, 0.5 / 1, 0, 0.5. The bird is the middle column and the left of the lower row.
    relevance = np.array([[-1.0, 3.0, 1.0], [3.0, -1.0, 1.0]])
    mask = np.array([[False, True, False], [True, True, False]])
    right, complete, clear = rate_map(relevance, mask)
    assert right == pytest.approx(2 / 3)
    assert complete == pytest.approx(2 / 3)
    # Down: 1, 1, 0; across: 1, 0.5, 1, 0.5.
    assert clear == pytest.approx((1 - 0.5) * max(0, 1 - 2 * (2 / 3 + 3 / 4)))
    # A map that is the same everywhere shows nothing.
    assert rate_map(np.ones((2, 3)), mask) == (0, 0, 0)
    smooth = np.zeros((10, 10))
    smooth[:, :2] = 5
    assert rate_map(smooth, smooth > 0) == pytest.approx((1, 1, 0.8 * (1 - 2 / 9)))


def test_a_list_by_hand() -> None:
    present = np.zeros(30, dtype=bool)
    present[[4, 7, 9, 20]] = True
    right, complete, clear = rate_list(np.array([7, 1, 4]), present)
    weights = [1, 1 / math.log2(3), 0.5]
    assert right == pytest.approx((weights[0] + weights[2]) / sum(weights))
    assert complete == pytest.approx(2 / 4)
    assert clear == pytest.approx(1 / 1.2)
    many = np.ones(30, dtype=bool)
    assert rate_list(np.arange(15), many)[:2] == pytest.approx((1, 1))


def test_likeness_by_hand() -> None:
    rising = np.arange(6.0).reshape(2, 3)
    assert map_likeness(rising, 10 - 3 * rising) == 0
    assert map_likeness(rising, 2 + 3 * rising) == pytest.approx(1)
    constant = np.ones((2, 3))
    assert map_likeness(constant, rising) == 0
    assert map_likeness(constant, 3 * constant) == 1
    assert list_likeness(np.array([3, 5]), np.array([3, 5])) == 1
    assert list_likeness(np.array([3, 5]), np.array([0, 1])) == 0
    second = 1 / math.log2(3)
    assert list_likeness(np.array([3, 5]), np.array([5, 3])) == pytest.approx(second)
    assert list_likeness(np.array([3]), np.array([3, 0])) == pytest.approx(1 / (1 + second))
    # What is right counts double.
    assert f_measure(0.8, 0.2) == pytest.approx(1.25 * 0.16 / 0.4)
    assert (f_measure(1, 1), f_measure(1, 0), f_measure(0, 1)) == (1, 0, 0)


def test_all_six_questions_from_their_parts() -> None:
    graded = GradedExplanations(PaintedBirds(10, image_size=32, n_classes=5, n_concepts=30), seed=4)
    for name, words in (("shifted 15 %", 1.0), ("replaced in 5 40 %", 0.5)):
        place = PLACES[name]
        rated, light, strong = (graded.draw(2, place, situation) for situation in ("rated", "light", "strong"))
        if words == 1:
            p, r, c = rate_map(rated, graded.birds.part_masks(2).numpy().any(0))
            alike = [map_likeness(rated, other) for other in (light, strong)]
        else:
            p, r, c = rate_list(rated, graded.birds.concept_labels[2].numpy() > 0)
            alike = [list_likeness(rated, other) for other in (light, strong)]
        f = 1.25 * p * r / (0.25 * p + r)
        by_hand = [f, p, 0.7 * c + 0.3 * f, 0.4 * c + 0.3 * f + 0.3 * words, 1 - alike[0], 1 - alike[1]]
        assert expected_votes(graded, np.array([[2, place]]))[0] == pytest.approx(1 + 4 * np.array(by_hand))


def test_the_truth_is_rated_best_and_nothing_worst(expected: dict[str, np.ndarray]) -> None:
    for name in ("true map", "true list 15"):
        assert expected[name][:, :2] == pytest.approx(5)
    assert expected["replaced in 15 100 %"][:, :2] == pytest.approx(1)
    # Low is good in Q5; what is always the middle of the picture does not follow another bird either.
    assert expected["true map"][:, 4] == pytest.approx(1)
    assert expected["noisy 100 %"][:, 4].mean() > 4.8
    assert expected["centred 25 %"][:, 4:] == pytest.approx(1)
    assert expected["true map"][:, 5].mean() > 3


@pytest.mark.parametrize(
    "order",
    [
        ("true map", "blurred 2 %", "blurred 7 %", "blurred 16 %"),
        ("true map", "shifted 5 %", "shifted 15 %", "shifted 45 %"),
        ("true map", "noisy 20 %", "noisy 60 %", "noisy 100 %"),
        ("true map", "parts 8", "parts 3", "parts 1"),
        ("true map", "other bird 25 %", "other bird 75 %", "other bird 100 %"),
        ("true list 15", "replaced in 15 20 %", "replaced in 15 60 %", "replaced in 15 100 %"),
        ("true list 15", "random list 15"),
    ],
)
def test_worse_grades_are_rated_lower(expected: dict[str, np.ndarray], order: tuple[str, ...]) -> None:
    means = [expected[name][:, 0].mean() for name in order]
    assert all(better > worse + 0.1 for better, worse in pairwise(means)), means


def test_raters_follow_what_is_expected_and_differ_by_their_bias(ratings: RatedExplanations) -> None:
    for question in range(6):
        means = ratings.votes[:, :, question].mean(1)
        assert spearmanr(means, ratings.expected[:, question]).statistic > 0.85
    middle = (ratings.expected[:, 0] > 2) & (ratings.expected[:, 0] < 4)
    strictness = (ratings.votes[middle, :, 0] - ratings.expected[middle, None, 0]).mean(0)
    assert np.abs(strictness - [-0.35, -0.175, 0, 0.175, 0.35]).max() < 0.12
    assert (np.diff(strictness) > 0).all()


def test_noise_and_bias_have_their_stated_size() -> None:
    exact = SimulatedRaters(n_raters=3, bias=0, noise=0)
    assert np.array_equal(exact.vote(np.array([[2.2, 3.6]])), [[[2, 4]] * 3])
    biased = SimulatedRaters(n_raters=3, bias=1, noise=0)
    assert np.array_equal(biased.vote(np.array([[2.0], [5.0]]))[:, :, 0], [[1, 2, 3], [4, 5, 5]])
    # Rounding adds 1/12 to the variance.
    votes = SimulatedRaters(n_raters=1, noise=0.6).vote(np.full((20_000, 1), 3.0))
    assert votes.std() == pytest.approx(math.sqrt(0.36 + 1 / 12), abs=0.02)


def test_the_same_seed_gives_the_same_votes_and_another_seed_others() -> None:
    first, again, other = (simulated_ratings(5, 8, 32, seed=seed) for seed in (0, 0, 1))
    assert np.array_equal(again.votes, first.votes)
    assert np.array_equal(again.expected, first.expected)
    assert np.array_equal(again.explainer_ids, first.explainer_ids)
    assert not np.array_equal(other.votes, first.votes)


def test_they_are_named_simulated_and_every_image_gets_its_share(ratings: RatedExplanations) -> None:
    assert ratings.simulated
    assert "simulated" in ratings.name
    assert "No person voted" in ratings.notes[0]
    assert np.unique(ratings.image_ids, return_counts=True)[1].tolist() == [15] * 40
    assert len(set(zip(ratings.image_ids, ratings.explainer_ids, strict=True))) == 600
    assert len(set(ratings.labels)) == 5
    modality = {explainer.name: explainer.modality for explainer in EXPLAINERS}
    assert [modality[name] for name in ratings.explainer_ids] == ratings.modalities.tolist()
    # A selection keeps its expected votes.
    some = ratings.select(np.array([5, 2]))
    assert np.array_equal(some.expected, ratings.expected[[5, 2]])
    assert some.explainer_ids.tolist() == ratings.explainer_ids[[5, 2]].tolist()
    assert some.explanations[1].modality == ratings.modalities[2]


@pytest.mark.parametrize(
    ("call", "name"),
    [
        (lambda: SimulatedRaters(n_raters=0), "n_raters"),
        (lambda: SimulatedRaters(noise=6), "noise"),
        (lambda: simulated_ratings(2, len(EXPLAINERS) + 1), "n_per_image"),
        (lambda: simulated_ratings(2, 2, n_concepts=25), "n_concepts"),
    ],
)
def test_settings_out_of_range_are_refused(call, name) -> None:
    with pytest.raises(ValueError, match=f"`{name}`"):
        call()


def bird(graded: GradedExplanations, image: int) -> np.ndarray:
    return graded.birds.part_masks(image).numpy().any(0)


def test_the_same_explanation_comes_in_any_order_without_global_randomness(graded: GradedExplanations) -> None:
    again = GradedExplanations(PaintedBirds(N_IMAGES, image_size=48, n_classes=5, n_concepts=30))
    cases = [(3, place, situation) for place in range(len(EXPLAINERS)) for situation in SITUATIONS]
    with untouched():
        forwards, backwards = (
            [some.draw(*case) for case in cases[::step]] for some, step in ((graded, 1), (again, -1))
        )
    assert all(np.array_equal(a, b) for a, b in zip(forwards, reversed(backwards), strict=True))
    other = GradedExplanations(graded.birds, seed=1)
    assert not np.array_equal(other.draw(3, PLACES["noisy 40 %"]), graded.draw(3, PLACES["noisy 40 %"]))


def test_true_maps_are_the_bird(graded: GradedExplanations) -> None:
    for image in range(5):
        mask = bird(graded, image)
        assert np.array_equal(graded.draw(image, PLACES["true map"]), mask)
        assert np.array_equal(graded.draw(image, PLACES["other bird 100 %"]), bird(graded, graded.others[image]))


def test_the_share_of_true_concepts_is_the_grade(graded: GradedExplanations) -> None:
    for image in range(8):
        present = graded.birds.concept_labels[image].numpy() > 0
        n_present = int(present.sum())
        true_of = lambda name: present[graded.draw(image, PLACES[name])].tolist()  # noqa: B023, E731
        for length in (1, 3, 6, 15):
            assert true_of(f"true list {length}") == [True] * min(length, n_present)
        for share in (20, 60, 100):
            listed = true_of(f"replaced in 15 {share} %")
            assert len(listed) == min(15, n_present)
            assert sum(listed) == len(listed) - round(share / 100 * len(listed))


def test_a_light_perturbation_draws_anew_and_a_strong_one_shows_another_bird(graded: GradedExplanations) -> None:
    true, noisy = PLACES["true map"], PLACES["noisy 60 %"]
    assert np.array_equal(graded.draw(0, true, "light"), graded.draw(0, true))
    assert not np.array_equal(graded.draw(0, noisy, "light"), graded.draw(0, noisy))
    assert np.array_equal(graded.draw(0, true, "strong"), bird(graded, graded.others[0]))


def test_names_are_plain_words_and_stay_different_in_the_whole_catalogue() -> None:
    concepts = ("has_wing_color::red", "has_breast_pattern::striped", "has_bill_shape::cone", "has_size::small")
    assert [concept_words(name) for name in concepts] == ["red wing", "striped breast", "cone bill shape", "small size"]
    names = PaintedBirds(2, image_size=32, n_classes=2, n_concepts=104).concept_names
    assert len({concept_words(name) for name in names}) == len(names)
    assert not any("," in concept_words(name) for name in names)
