"""Graded explanations: each is what its name says, to the pixel, and the same every time."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest

from quantus_concepts.datasets.birds.painted_birds import PaintedBirds
from quantus_concepts.datasets.ratings.explainers import EXPLAINERS
from quantus_concepts.datasets.ratings.raters import SITUATIONS, GradedExplanations, plain_name
from untouched import untouched

PLACES = {explainer.name: place for place, explainer in enumerate(EXPLAINERS)}


@pytest.fixture(scope="module")
def graded() -> GradedExplanations:
    return GradedExplanations(PaintedBirds(20, image_size=48, n_classes=5, n_concepts=30))


def bird(graded: GradedExplanations, image: int) -> np.ndarray:
    return graded.birds.part_masks(image).numpy().any(0)


def test_the_same_explanation_comes_in_any_order_without_global_randomness(graded: GradedExplanations) -> None:
    again = GradedExplanations(PaintedBirds(20, image_size=48, n_classes=5, n_concepts=30))
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
        assert np.array_equal(graded.draw(image, PLACES["inverted sharp"]), ~mask)
        head_and_body = graded.draw(image, PLACES["head"]) + graded.draw(image, PLACES["body"])
        assert np.array_equal(head_and_body, mask)
        assert np.array_equal(graded.draw(image, PLACES["other bird 100 %"]), bird(graded, graded.others[image]))
        assert np.unique(graded.draw(image, PLACES["uniform"])).size == 1


def test_grown_maps_hold_the_bird_and_shrunk_ones_are_held_by_it(graded: GradedExplanations) -> None:
    names = ["eroded 70 %", "eroded 40 %", "eroded 25 %", "true map", "dilated 3 %", "dilated 10 %", "dilated 25 %"]
    masks = [graded.draw(2, PLACES[name]) > 0 for name in names]
    assert masks[0].any()
    for smaller, larger in pairwise(masks):
        assert not (smaller & ~larger).any()
        assert smaller.sum() < larger.sum()
    box = graded.draw(2, PLACES["box"]) > 0
    rows, columns = np.nonzero(masks[3])
    assert box.sum() == (np.ptp(rows) + 1) * (np.ptp(columns) + 1)
    assert (box | ~masks[3]).all()


def test_shifted_maps_mark_as_much_somewhere_else(graded: GradedExplanations) -> None:
    means = []
    for name in ("shifted 5 %", "shifted 15 %", "shifted 45 %"):
        masks = np.stack([bird(graded, image) for image in range(20)])
        shifted = np.stack([graded.draw(image, PLACES[name]) for image in range(20)])
        np.testing.assert_array_equal(shifted.sum((1, 2)), masks.sum((1, 2)))
        means.append(np.mean((shifted * masks).sum((1, 2)) / masks.sum((1, 2))))
    assert means[0] > 0.6 > means[1] > 0.25 > means[2]


def test_the_number_of_parts_is_the_grade(graded: GradedExplanations) -> None:
    for count in (1, 3, 6):
        marked = graded.draw(4, PLACES[f"parts {count}"]) > 0
        touched = [part for part, mask in enumerate(graded.birds.part_masks(4).numpy()) if (mask & marked).any()]
        assert len(touched) == count


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
        first, last = true_of("half true first"), true_of("half true last")
        assert first == sorted(first, reverse=True)
        assert last == sorted(last)
        assert sum(first) == sum(last) == min(8, n_present)
        groups = graded.birds.group_of_concept[graded.draw(image, PLACES["contradictory 3"])]
        assert len(groups.unique()) == 3
        assert len(groups) == sum(len(graded.birds.groups[g].options) for g in groups.unique().tolist())


def test_class_lists_hold_what_defines_a_class(graded: GradedExplanations) -> None:
    for image in range(5):
        for name, source in (("class list 15", image), ("other class list 15", int(graded.others[image]))):
            label = int(graded.birds.labels[source])
            listed = graded.draw(image, PLACES[name])
            groups = graded.birds.group_of_concept[listed].tolist()
            assert len(set(groups)) == len(groups) == min(15, len(graded.birds.groups))
            for concept, group in zip(listed.tolist(), groups, strict=True):
                option = graded.birds.groups[group].options[int(graded.birds.class_options[label, group])]
                assert graded.birds.concept_names[concept].endswith(f"::{option}")
        assert graded.birds.labels[image] != graded.birds.labels[graded.others[image]]


def test_a_light_perturbation_draws_anew_and_a_strong_one_shows_another_bird(graded: GradedExplanations) -> None:
    true, noisy = PLACES["true map"], PLACES["noisy 60 %"]
    assert np.array_equal(graded.draw(0, true, "light"), graded.draw(0, true))
    assert not np.array_equal(graded.draw(0, noisy, "light"), graded.draw(0, noisy))
    assert np.array_equal(graded.draw(0, true, "strong"), bird(graded, graded.others[0]))


def test_names_are_plain_words_and_stay_different_in_the_whole_catalogue() -> None:
    concepts = ("has_wing_color::red", "has_breast_pattern::striped", "has_bill_shape::cone", "has_size::small")
    assert [plain_name(name) for name in concepts] == ["red wing", "striped breast", "cone bill shape", "small size"]
    names = PaintedBirds(2, image_size=32, n_classes=2, n_concepts=104).concept_names
    assert len({plain_name(name) for name in names}) == len(names)
    assert not any("," in plain_name(name) for name in names)
