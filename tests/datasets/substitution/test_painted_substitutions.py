"""Painted birds with one attribute replaced: two labels of one group change, and nothing else in the picture."""

from __future__ import annotations

import pytest
import torch

from quantus_concepts.datasets import PaintedBirds, PaintedSubstitutions


@pytest.fixture(scope="module")
def birds() -> PaintedBirds:
    return PaintedBirds(24, "test", image_size=32, n_classes=4, n_concepts=40, deviation=0.3)


@pytest.fixture(scope="module")
def pairs(birds: PaintedBirds) -> PaintedSubstitutions:
    return PaintedSubstitutions(birds, per_bird=2)


def test_exactly_two_labels_of_one_group_change(pairs: PaintedSubstitutions) -> None:
    assert 40 < len(pairs) <= 48
    change = pairs.concept_labels - pairs.concept_labels_before
    for row, (added, removed, group) in enumerate(zip(pairs.added, pairs.removed, pairs.group, strict=True)):
        expected = torch.zeros(40)
        expected[added], expected[removed] = 1, -1
        assert torch.equal(change[row], expected)
        assert pairs.group_of_concept[added] == pairs.group_of_concept[removed] == group
        assert pairs.concept_names[added].startswith(f"{pairs.group_names[group]}::")


def test_samples_are_the_bird_before_and_with_the_concept(birds: PaintedBirds, pairs: PaintedSubstitutions) -> None:
    for row in (0, 7, len(pairs) - 1):
        bird, added = int(pairs.bird[row]), int(pairs.added[row])
        sample, before, after = pairs[row], birds[bird], birds.substitute(bird, added)
        assert torch.equal(sample.image, after.image)
        assert torch.equal(sample.before, before.image)
        assert sample.label == before.label == pairs.labels[row]
        # The labels that are kept are those that the new picture is given.
        assert torch.equal(sample.concepts, pairs.concept_labels[row])
        assert torch.equal(sample.concepts, after.concepts)
        assert torch.equal(pairs.concept_labels_before[row], before.concepts)


def test_what_is_taken_out_is_the_class_s_own_and_what_is_put_in_is_not(pairs: PaintedSubstitutions) -> None:
    assert (pairs.class_concepts.sum(1) == len(pairs.group_names)).all()
    assert (pairs.class_concepts[pairs.labels, pairs.removed] == 1).all()
    assert (pairs.class_concepts[pairs.labels, pairs.added] == 0).all()


def test_substitutions_of_a_bird_differ_and_pairs_are_class_and_concept(pairs: PaintedSubstitutions) -> None:
    substitutions = list(zip(pairs.bird.tolist(), pairs.added.tolist(), strict=True))
    assert len(set(substitutions)) == len(substitutions)
    recipes = list(zip(pairs.labels.tolist(), pairs.added.tolist(), strict=True))
    assert len(set(recipes)) == int(pairs.pairs.max()) + 1
    assert len(set(zip(recipes, pairs.pairs.tolist(), strict=True))) == len(set(recipes))


def test_the_same_arguments_give_the_same_and_more_birds_the_same_first_ones(birds: PaintedBirds) -> None:
    first, again, other = (PaintedSubstitutions(birds, seed=seed) for seed in (3, 3, 4))
    assert torch.equal(first.added, again.added)
    assert not torch.equal(first.added, other.added)
    few_birds = PaintedBirds(12, "test", image_size=32, n_classes=4, n_concepts=40, deviation=0.3)
    fewer = PaintedSubstitutions(few_birds, seed=3)
    assert torch.equal(fewer.added, first.added[: len(fewer)])


@pytest.mark.parametrize("changes", [{"per_bird": 0}, {"concepts": ["red"]}, {"concepts": []}, {"birds": None}])
def test_refused(birds: PaintedBirds, changes: dict[str, object]) -> None:
    (name,) = changes
    if name == "birds":
        # Every bird is another one than its class in all groups: nothing of the class's own can be taken out.
        changes = {"birds": PaintedBirds(4, image_size=32, n_classes=2, n_concepts=4, deviation=1.0)}
    with pytest.raises(ValueError, match=f"`{name}`"):
        PaintedSubstitutions(**{"birds": birds} | changes)


def test_birds_with_some_of_their_concepts_are_refused(birds: PaintedBirds) -> None:
    with pytest.raises(TypeError, match=r"`birds` to be PaintedBirds with all concepts \(`concepts` says which"):
        PaintedSubstitutions(birds.select(birds.concept_names[:12]))  # type: ignore[arg-type]
