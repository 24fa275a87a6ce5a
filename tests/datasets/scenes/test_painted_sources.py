"""Painted objects and scenes: ten shapes and ten textures that colour does not tell apart; the same bits every time."""

from __future__ import annotations

import numpy as np
import pytest
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
    """Accuracy of a logistic regression that was fitted on the first 40 of each class."""
    model, labels = make_pipeline(StandardScaler(), LogisticRegression(max_iter=300)), np.arange(800) % 10
    return float(model.fit(features[:400], labels[:400]).score(features[400:], labels[400:]))


@both
def test_the_same_bits_in_any_order_and_the_beginning_of_a_larger_source(kind: type[Source]) -> None:
    state = np.random.get_state()[1].copy()  # noqa: NPY002
    first, second, larger = kind(3), kind(3), kind(7)
    forwards = [first[i] for i in range(30)]
    for i in reversed(range(30)):
        assert all(same(other, forwards[i]) for other in (second[i], larger[i], first[i - 30]))
    assert np.array_equal(np.random.get_state()[1], state)  # noqa: NPY002


@both
def test_another_seed_paints_other_pictures_and_none_is_cached(kind: type[Source]) -> None:
    first, second = kind(2), kind(2, seed=1)
    assert all(arrays(first[i])[0].tobytes() != arrays(second[i])[0].tobytes() for i in range(20))
    assert len({arrays(first[i])[-1].tobytes() for i in range(20)}) == 20
    for array in arrays(first[5]):
        array[:] = 0
    assert same(first[5], kind(2)[5])


@both
def test_classes_take_turns(kind: type[Source]) -> None:
    source = kind(80)
    assert len(source) == 800
    assert len(set(source.class_names)) == 10
    assert source.labels.dtype == np.int64
    assert source.labels.tolist() == list(range(10)) * 80
    if isinstance(source, PaintedObjects):
        assert len(set(source.groups.tolist())) == 800


# --- objects ---------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def cutouts() -> list[Cutout]:
    objects = PaintedObjects(80)
    return [objects[i] for i in range(800)]


@pytest.mark.parametrize("size", [24, 41])
def test_masks_are_tight_and_of_the_requested_size(size: int) -> None:
    source = PaintedObjects(6, size=size)
    for i in range(60):
        pixels, mask = source[i]
        assert (pixels.dtype, mask.dtype) == (np.uint8, bool)
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


# --- scenes ----------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def pictures() -> np.ndarray:
    scenes = PaintedScenes(80)
    return np.stack([scenes[i] for i in range(800)])


def spectra(pictures: np.ndarray) -> np.ndarray:
    """Shares of the amplitude in rings and directions of the Fourier transform, blind to colour and contrast."""
    grey = pictures.mean(axis=-1)
    amplitude = np.abs(np.fft.fft2(grey - grey.mean(axis=(1, 2), keepdims=True)))
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
    assert score_on_second_half(spectra(pictures[:, 64:])) >= 0.8
    assert score_on_second_half(spectra(pictures[:, :, :64])) >= 0.8


@pytest.mark.parametrize("changes", [{"n_per_class": 0}, {"size": 20}])
@pytest.mark.parametrize("kind", [PaintedObjects, PaintedScenes])
def test_settings_out_of_range_are_refused(kind: type[Source], changes: dict[str, int]) -> None:
    with pytest.raises(ValueError, match=f"`{next(iter(changes))}`"):
        kind(**changes)
