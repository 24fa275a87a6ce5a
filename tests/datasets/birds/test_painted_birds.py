"""Painted birds: what is drawn is what is labelled, to the pixel, and the same every time."""

from __future__ import annotations

import itertools
import pickle

import numpy as np
import pytest
import torch
from scipy.stats.contingency import association, crosstab
from torchvision.transforms import v2

from quantus_concepts.datasets.birds.attributes import (
    CATALOGUE,
    COLOURS,
    MAX_CONCEPTS,
    PARTS,
    choose_groups,
    class_table,
)
from quantus_concepts.datasets.birds.painted_birds import PaintedBirds
from untouched import untouched


@pytest.fixture(scope="module")
def birds() -> PaintedBirds:
    return PaintedBirds(100)


@pytest.fixture(scope="module")
def rich_birds() -> PaintedBirds:
    return PaintedBirds(120, n_concepts=MAX_CONCEPTS, deviation=0.3, seed=5)


def test_the_same_arguments_give_the_same_bits_in_any_order_without_global_randomness() -> None:
    with untouched():
        first, second = PaintedBirds(20, image_size=32), PaintedBirds(20, image_size=32)
        forwards = [first[i] for i in range(20)]
    for i in reversed(range(20)):
        np.testing.assert_equal([np.asarray(part) for part in second[i]], [np.asarray(part) for part in forwards[i]])
    assert torch.equal(first.images([7, -1]), torch.stack([forwards[7].image, forwards[19].image]))


def test_a_small_set_is_a_stretch_of_a_large_one() -> None:
    large = PaintedBirds(45, image_size=32)
    # Painted as they are asked for, and at once.
    for first, count in ((0, 20), (20, 25)):
        some, where = PaintedBirds(count, image_size=32, first=first, keep=first > 0), slice(first, first + count)
        assert torch.equal(some.images(), large.images(range(first, first + count)))
        assert torch.equal(some.labels, large.labels[where])
        assert torch.equal(some.concept_labels, large.concept_labels[where])
        assert torch.equal(some.points.nan_to_num(-1), large.points[where].nan_to_num(-1))
        concept = int(some.concept_labels[0].argmin())
        assert torch.equal(some.substitute(0, concept).image, large.substitute(first, concept).image)


def test_splits_share_the_classes_and_differ_in_the_individuals() -> None:
    train, test = PaintedBirds(40, image_size=32), PaintedBirds(40, "test", image_size=32)
    assert torch.equal(train.class_options, test.class_options)
    assert not torch.equal(train.options, test.options)
    assert all(not torch.equal(a, b) for a, b in itertools.product(train.images(range(3)), test.images(range(3))))
    other = PaintedBirds(40, image_size=32, seed=1)
    assert not torch.equal(train.class_options, other.class_options)


@pytest.mark.parametrize("n_concepts", [4, 25, 26, 69, MAX_CONCEPTS])
def test_any_number_of_concepts(n_concepts: int) -> None:
    groups = choose_groups(n_concepts)
    assert sum(len(group.options) for group in groups) == n_concepts
    assert min(len(group.options) for group in groups) >= 2
    for group, full in zip(groups, CATALOGUE, strict=False):
        assert group.options == full.options[: len(group.options)]
    if n_concepts >= 26:
        assert {group.part for group in groups} == {*PARTS, None}


@pytest.mark.parametrize(
    ("n_classes", "n_concepts", "correlation"),
    [(2, 4, 0.0), (2, 69, 0.0), (6, 69, 0.5), (20, 20, 1.0), (20, 69, 1.0), (60, 90, 0.5)],
)
def test_classes_differ_and_every_concept_is_in_some_and_not_in_all(
    n_classes: int, n_concepts: int, correlation: float
) -> None:
    groups = choose_groups(n_concepts)
    table = class_table(groups, n_classes, correlation, 0)
    assert len({tuple(row) for row in table.tolist()}) == n_classes
    for column, group in zip(table.T, groups, strict=True):
        options = set(column.tolist())
        assert options <= set(range(len(group.options)))
        if n_classes >= len(group.options):
            assert len(options) == len(group.options)


def test_correlation_binds_the_colours_of_a_class() -> None:
    groups = choose_groups(69)
    colours = [g for g, group in enumerate(groups) if group.is_colour]
    shapes = [g for g, group in enumerate(groups) if not group.is_colour]

    def mean_association(correlation: float, columns: list[int]) -> float:
        """Mean Cramér's V of two columns of options."""
        tables = [class_table(groups, 60, correlation, seed) for seed in range(2)]
        pairs = itertools.product(tables, itertools.combinations(columns, 2))
        return float(np.mean([association(crosstab(t[:, a], t[:, b]).count) for t, (a, b) in pairs]))

    # Independent columns of 60 classes and 4 to 5 options have V near sqrt(dof / (60 * 3)) = 0.22 to 0.26.
    assert mean_association(0.0, colours) == pytest.approx(0.24, abs=0.04)
    assert 0.32 < mean_association(0.5, colours) < 0.6
    assert mean_association(1.0, colours) > 0.97
    assert mean_association(1.0, shapes) == pytest.approx(0.23, abs=0.06)


def test_the_share_of_deviating_attributes_is_the_deviation() -> None:
    # 200 x 17 draws: standard error 0.0061; five of them.
    for deviation, tolerance in ((0.0, 0), (0.15, 0.031), (1.0, 0)):
        birds = PaintedBirds(200, image_size=32, deviation=deviation)
        deviates = birds.options != birds.class_options[birds.labels]
        assert abs(deviates.float().mean().item() - deviation) <= tolerance


def test_each_group_has_one_concept_where_its_part_is_seen_and_none_where_not(rich_birds: PaintedBirds) -> None:
    hidden = 0
    for i in range(len(rich_birds)):
        for g, group in enumerate(rich_birds.groups):
            labels = rich_birds.concept_labels[i, rich_birds.group_of_concept == g].tolist()
            expected = [float(o == rich_birds.options[i, g]) for o in range(len(group.options))]
            if group.part is not None and torch.isnan(rich_birds.points[i, PARTS.index(group.part)]).any():
                expected = [0.0] * len(expected)
                hidden += 1
            assert labels == expected
    assert hidden > 50


def test_classes_are_balanced_and_class_concepts_are_label_frequencies(birds: PaintedBirds) -> None:
    assert torch.bincount(birds.labels).tolist() == [5] * 20
    for k in (0, 7, 19):
        members = birds.concept_labels[birds.labels == k]
        assert torch.allclose(birds.class_concepts[k], members.mean(0), atol=1e-6)


def test_masks_are_disjoint_and_a_centre_is_the_mask_pixel_nearest_to_the_mean(birds: PaintedBirds) -> None:
    for i in range(15):
        masks = birds.part_masks(i)
        assert masks.sum(0).max() <= 1
        for mask, centre in zip(masks.numpy(), birds.points[i, :, 0].tolist(), strict=True):
            pixels = np.argwhere(mask)[:, ::-1]
            if not len(pixels):
                assert np.isnan(centre).all()
                continue
            distances = ((pixels - pixels.mean(0)) ** 2).sum(1)
            assert distances[(pixels == centre).all(1)] == pytest.approx(distances.min())


def test_parts_have_the_colour_of_their_label() -> None:
    birds = PaintedBirds(60, image_size=64, n_concepts=MAX_CONCEPTS)
    images = birds.images()
    right: dict[str, list[bool]] = {}
    for i in range(60):
        masks = birds.part_masks(i)
        for g, group in enumerate(birds.groups):
            if not group.is_colour or group.part is None:
                continue
            mask = masks[PARTS.index(group.part)]
            if mask.sum() < 8:
                continue
            # What most pixels look like: each votes for the nearest of the eleven colours that the group has.
            options = torch.tensor([COLOURS[name] for name in group.options]) / 255
            votes = torch.cdist(images[i][:, mask].T, options).argmin(1)
            nearest = int(torch.bincount(votes).argmax())
            right.setdefault(group.name, []).append(nearest == int(birds.options[i, g]))
    accuracy = {name: float(np.mean(hits)) for name, hits in right.items()}
    assert len(accuracy) == 12
    # The eye, a ring, an iris and a pupil of a few pixels, is the hardest.
    assert all(value > (0.75 if name == "has_eye_color" else 0.85) for name, value in accuracy.items()), accuracy


def test_every_concept_can_be_seen() -> None:
    birds = PaintedBirds(60, image_size=64, n_concepts=MAX_CONCEPTS, n_classes=6, keep=True)
    images = birds.images()
    for concept, name in enumerate(birds.concept_names):
        group, part = int(birds.group_of_concept[concept]), int(birds.part_of_concept[concept])
        lacking = [
            i
            for i in range(60)
            if birds.concept_labels[i, concept] == 0
            and (part < 0 or birds.concept_labels[i, birds.group_of_concept == group].sum() == 1)
        ][:3]
        changes = [(images[i] - birds.substitute(i, concept).image).abs().amax(0) for i in lacking]
        assert np.median([int((change > 0.15).sum()) for change in changes]) >= 4, name


def test_a_substitution_changes_the_pixels_of_its_part_and_the_labels_of_its_group(
    rich_birds: PaintedBirds,
) -> None:
    rng = np.random.default_rng(0)
    for i in range(20):
        concept = int(rng.integers(len(rich_birds.concept_names)))
        part, group = int(rich_birds.part_of_concept[concept]), rich_birds.group_of_concept[concept]
        before, after = rich_birds[i], rich_birds.substitute(i, rich_birds.concept_names[concept])
        assert after.label == before.label
        elsewhere = rich_birds.group_of_concept != group
        on_part = rich_birds.part_of_concept == part
        masks = rich_birds.part_masks(i, concept)
        if part < 0:
            assert after.concepts[concept] == 1
            assert after.concepts[~elsewhere].sum() == 1
            continue
        touched = rich_birds.part_masks(i, touched=True)[part] | rich_birds.part_masks(i, concept, touched=True)[part]
        assert not (masks[part] & ~touched).any()
        assert not ((before.image != after.image).any(0) & ~touched).any()
        assert torch.equal(after.concepts[~on_part], before.concepts[~on_part])
        if before.concepts[on_part].any() and masks[part].any():
            assert torch.equal(after.concepts[elsewhere], before.concepts[elsewhere])
        assert after.concepts[~elsewhere].sum() == after.concepts[concept] == float(masks[part].any())
        for mask, (x, y) in zip(masks, after.points[:, 0].tolist(), strict=True):
            assert mask[int(y), int(x)] if mask.any() else np.isnan([x, y]).all()


def test_points_follow_a_transform(birds: PaintedBirds) -> None:
    flipped = PaintedBirds(20, transform=v2.RandomHorizontalFlip(p=1.0))
    for i in range(6):
        assert torch.equal(flipped[i].image, birds[i].image.flip(-1))
        expected = birds.points[i] * torch.tensor([-1.0, 1.0]) + torch.tensor([95.0, 0.0])
        assert torch.allclose(flipped[i].points, expected, equal_nan=True)
    after = birds.substitute(0, "has_size::large").image
    assert torch.equal(flipped.substitute(0, "has_size::large").image, after.flip(-1))


@pytest.mark.parametrize("changes", [{"n_images": 1}, {"split": "val"}, {"image_size": (32, 64)}, {"n_concepts": 105}])
def test_settings_out_of_range_are_refused(changes):
    with pytest.raises(ValueError, match=f"`{next(iter(changes))}`"):
        PaintedBirds(**{"n_images": 2, "image_size": 32, "n_classes": 2, "n_concepts": 4} | changes)


def test_concepts_that_cannot_tell_the_classes_apart_are_refused():
    with pytest.raises(ValueError, match=r"at most 8, half .* but got 20"):
        PaintedBirds(n_concepts=8)


def test_images_and_concepts_that_there_are_not():
    birds = PaintedBirds(2, image_size=32, n_classes=2, n_concepts=4)
    for call in (lambda: birds.images([0, 2]), lambda: birds.substitute(2, 0)):
        with pytest.raises(IndexError, match="`index` to be below the number of images, 2"):
            call()
    for concept in ("red", 4, -1):
        for call in (birds.substitute, birds.part_masks):
            with pytest.raises(ValueError, match="`concept`"):
                call(0, concept)


def test_a_selection_of_concepts_has_the_images_and_their_parts() -> None:
    birds = PaintedBirds(2, image_size=32, n_classes=2, n_concepts=4)
    some = birds.select([3, 1])
    assert torch.equal(some.images([1]), birds.images([1]))
    assert torch.equal(some.select([0]).part_masks(1, touched=True), birds.part_masks(1, touched=True))
    # A concept's number would be another's.
    with pytest.raises(TypeError, match="concept"):
        some.part_masks(1, concept=0)
    for name in ("load_mask", "substitute"):
        assert not hasattr(some, name)
    assert pickle.loads(pickle.dumps(some)).concept_names == some.concept_names
