"""Painted objects and scenes: ten shapes and ten textures that colour does not tell apart; the same bits every time."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.fft
from PIL import Image
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from quantus_concepts.datasets.scenes.painted_objects import PaintedObjects
from quantus_concepts.datasets.scenes.painted_scenes import PaintedScenes
from quantus_concepts.datasets.scenes.sources import Cutout

GREY = 128
Source = PaintedObjects | PaintedScenes
both = pytest.mark.parametrize("kind", [PaintedObjects, PaintedScenes])


def arrays(item: Cutout | np.ndarray) -> tuple[np.ndarray, ...]:
    """Pixels, and the mask of an object."""
    return item if isinstance(item, Cutout) else (item,)


def same(first: Cutout | np.ndarray, second: Cutout | np.ndarray) -> bool:
    return all(np.array_equal(a, b) for a, b in zip(arrays(first), arrays(second), strict=True))


def score_on_second_half(features: np.ndarray) -> float:
    """Accuracy of a logistic regression that was fitted on the first half of each class."""
    model, half = make_pipeline(StandardScaler(), LogisticRegression(max_iter=300)), len(features) // 2
    labels = np.arange(len(features)) % 10
    return float(model.fit(features[:half], labels[:half]).score(features[half:], labels[half:]))


@both
def test_the_same_bits_in_any_order_and_the_beginning_of_a_larger_source(kind: type[Source]) -> None:
    state = np.random.get_state()[1].copy()  # noqa: NPY002
    first, second, larger, other = kind(2), kind(2), kind(3), kind(2, seed=1)
    assert first.labels.tolist() == list(range(10)) * 2
    forwards = [first[i] for i in range(20)]
    for i in reversed(range(20)):
        assert all(same(again, forwards[i]) for again in (second[i], larger[i], first[i - 20]))
        assert not same(other[i], forwards[i])
    assert len({arrays(item)[-1].tobytes() for item in forwards}) == 20
    assert np.array_equal(np.random.get_state()[1], state)  # noqa: NPY002


@pytest.fixture(scope="module")
def cutouts() -> list[Cutout]:
    objects = PaintedObjects(40)
    return [objects[i] for i in range(400)]


@pytest.mark.parametrize("size", [24, 41])
def test_masks_are_tight_and_of_the_requested_size(size: int) -> None:
    source = PaintedObjects(3, size=size)
    for i in range(30):
        pixels, mask = source[i]
        assert pixels.shape == (*mask.shape, 3)
        assert size - 2 <= max(mask.shape) <= size
        assert all(side.any() for side in (mask[0], mask[-1], mask[:, 0], mask[:, -1]))
        assert 0.3 < mask.mean() < 0.95


def test_an_object_stands_out_from_grey(cutouts: list[Cutout]) -> None:
    for pixels, mask in cutouts[::3]:
        inside = np.pad(mask, 1)
        inner = inside[2:, 1:-1] & inside[:-2, 1:-1] & inside[1:-1, 2:] & inside[1:-1, :-2]
        distance = np.abs(pixels.astype(int) - GREY).max(axis=-1)
        # The rim is light all around, and next to nothing inside is grey.
        assert (pixels[mask & ~inner].min(axis=-1) > 150).all()
        assert (distance[mask] < 30).mean() < 0.1


def test_the_mean_colour_does_not_tell_the_class_and_the_shape_does(cutouts: list[Cutout]) -> None:
    colours = np.array([pixels[mask].mean(axis=0) for pixels, mask in cutouts])
    grey = [Image.fromarray(mask.astype(np.uint8)).convert("F") for _, mask in cutouts]
    shapes = np.array([np.asarray(image.resize((12, 12), Image.Resampling.BOX)).ravel() for image in grey])
    assert score_on_second_half(colours) <= 0.25
    assert score_on_second_half(shapes) >= 0.9


@pytest.fixture(scope="module")
def pictures() -> np.ndarray:
    scenes = PaintedScenes(40)
    return np.stack([scenes[i] for i in range(400)])


def spectra(pictures: np.ndarray) -> np.ndarray:
    """Shares of the amplitude in rings and directions of the Fourier transform, blind to colour and contrast."""
    grey = pictures.mean(axis=-1, dtype=np.float32)
    amplitude = np.abs(scipy.fft.fft2(grey - grey.mean(axis=(1, 2), keepdims=True)))
    v, u = np.meshgrid(np.fft.fftfreq(grey.shape[1]), np.fft.fftfreq(grey.shape[2]), indexing="ij")
    ring = np.clip(np.log2(np.hypot(u, v) * 128 + 1e-9).astype(int), 0, 6)
    sector = ((np.arctan2(v, u) % np.pi) / np.pi * 8 + 0.5).astype(int) % 8
    cell = ring * 8 + sector
    sums = np.stack([amplitude[:, cell == k].sum(axis=1) for k in range(56)], axis=1)
    return np.log(sums / sums.sum(axis=1, keepdims=True) + 1e-6)


def test_the_mean_colour_does_not_tell_the_class_and_the_texture_of_a_part_does(pictures: np.ndarray) -> None:
    assert score_on_second_half(pictures.mean(axis=(1, 2))) <= 0.25
    assert score_on_second_half(spectra(pictures)) >= 0.9
    # Half of the picture, as where an object covers the rest.
    assert score_on_second_half(spectra(pictures[:, :, :64])) >= 0.8


@pytest.mark.parametrize("changes", [{"n_per_class": 0}, {"size": 20}])
@both
def test_settings_out_of_range_are_refused(kind: type[Source], changes: dict[str, int]) -> None:
    with pytest.raises(ValueError, match=f"`{next(iter(changes))}`"):
        kind(**changes)
