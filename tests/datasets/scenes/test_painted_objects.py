"""Painted objects: ten shapes that colour does not tell apart, and the same bits every time."""

from __future__ import annotations

import numpy as np
import pytest
from PIL import Image
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from quantus_concepts.datasets.scenes.painted_objects import PaintedObjects
from quantus_concepts.datasets.scenes.sources import Cutout

GREY = 128


@pytest.fixture(scope="module")
def objects() -> PaintedObjects:
    return PaintedObjects(80)


@pytest.fixture(scope="module")
def cutouts(objects: PaintedObjects) -> list[Cutout]:
    return [objects[i] for i in range(800)]


def score_on_second_half(features: np.ndarray, labels: np.ndarray) -> float:
    """Accuracy of a logistic regression that was fitted on the first 40 of each class."""
    model = make_pipeline(StandardScaler(), LogisticRegression(max_iter=300))
    return float(model.fit(features[:400], labels[:400]).score(features[400:], labels[400:]))


def test_the_same_bits_in_any_order_and_the_beginning_of_a_larger_source() -> None:
    state = np.random.get_state()[1].copy()  # noqa: NPY002
    first, second, larger = PaintedObjects(3), PaintedObjects(3), PaintedObjects(7)
    forwards = [first[i] for i in range(30)]
    for i in reversed(range(30)):
        for other in (second[i], larger[i], first[i - 30]):
            assert np.array_equal(other.pixels, forwards[i].pixels)
            assert np.array_equal(other.mask, forwards[i].mask)
    assert np.array_equal(np.random.get_state()[1], state)  # noqa: NPY002


def test_a_seed_gives_other_objects() -> None:
    first, second = PaintedObjects(2), PaintedObjects(2, seed=1)
    assert all(first[i].pixels.tobytes() != second[i].pixels.tobytes() for i in range(20))
    assert len({first[i].mask.tobytes() for i in range(20)}) == 20


def test_nothing_is_kept(objects: PaintedObjects) -> None:
    cutout = objects[5]
    kept = cutout.pixels.copy()
    cutout.pixels[:] = 0
    cutout.mask[:] = False
    assert np.array_equal(objects[5].pixels, kept)
    assert objects[5].mask.any()


def test_classes_take_turns_and_one_is_a_bird(objects: PaintedObjects) -> None:
    assert len(objects) == 800
    assert len(set(objects.class_names)) == 10
    assert "bird" in objects.class_names
    assert objects.labels.dtype == objects.groups.dtype == np.int64
    assert objects.labels[:12].tolist() == [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 0, 1]
    assert np.bincount(objects.labels).tolist() == [80] * 10
    assert len(set(objects.groups.tolist())) == 800


@pytest.mark.parametrize("size", [24, 41, 96])
def test_masks_are_tight_and_of_the_size_asked_for(size: int) -> None:
    source = PaintedObjects(6, size=size)
    for i in range(60):
        pixels, mask = source[i]
        assert pixels.dtype == np.uint8
        assert mask.dtype == bool
        assert pixels.shape == (*mask.shape, 3)
        assert size - 2 <= max(mask.shape) <= size
        assert mask[0].any()
        assert mask[-1].any()
        assert mask[:, 0].any()
        assert mask[:, -1].any()
        assert 0.3 < mask.mean() < 0.95


def test_an_object_stands_out_from_grey(cutouts: list[Cutout]) -> None:
    for pixels, mask in cutouts:
        inside = np.pad(mask, 1)
        inner = inside[2:, 1:-1] & inside[:-2, 1:-1] & inside[1:-1, 2:] & inside[1:-1, :-2]
        distance = np.abs(pixels.astype(int) - GREY).max(axis=-1)
        # The rim is light all around, and next to nothing inside is grey.
        assert (pixels[mask & ~inner].min(axis=-1) > 150).all()
        assert (distance[mask] < 30).mean() < 0.1


def test_the_mean_colour_does_not_tell_the_class_and_the_shape_does(
    objects: PaintedObjects, cutouts: list[Cutout]
) -> None:
    colours = np.array([pixels[mask].mean(axis=0) for pixels, mask in cutouts])
    shapes = np.array(
        [
            np.asarray(Image.fromarray(mask.astype(np.uint8)).convert("F").resize((12, 12), Image.Resampling.BOX))
            for _, mask in cutouts
        ]
    )
    assert score_on_second_half(colours, objects.labels) <= 0.25
    assert score_on_second_half(shapes.reshape(800, -1), objects.labels) >= 0.9


def test_objects_face_both_ways(objects: PaintedObjects, cutouts: list[Cutout]) -> None:
    keys = [mask for (_, mask), label in zip(cutouts, objects.labels, strict=True) if label == 7]
    assert objects.class_names[7] == "key"
    # The bow, at one end, is higher than the bit.
    heavy_left = np.mean([mask[:, : mask.shape[1] // 2].sum() > mask[:, mask.shape[1] // 2 :].sum() for mask in keys])
    assert 0.25 < heavy_left < 0.75


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"n_per_class": 0}, ValueError, r"`n_per_class` to lie in \[1, 1000000\] but got 0"),
        ({"n_per_class": 2.0}, TypeError, r"`n_per_class` to be a whole number but got 2\.0"),
        ({"n_per_class": True}, TypeError, r"`n_per_class` to be a whole number but got True"),
        ({"size": 23}, ValueError, r"`size` to lie in \[24, 512\] but got 23"),
        ({"size": (96, 96)}, TypeError, r"`size` to be a whole number"),
        ({"seed": -1}, ValueError, r"`seed` to lie in \[0, 4294967295\] but got -1"),
    ],
)
def test_bad_arguments_are_refused(arguments: dict[str, object], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        PaintedObjects(**arguments)


def test_bad_indices_are_refused() -> None:
    for index in (10, -11):
        with pytest.raises(IndexError, match=f"below the number of items, 10, but got {index}"):
            PaintedObjects(1)[index]
