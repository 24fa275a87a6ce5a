"""Painted scenes: ten textures that colour does not tell apart, and the same bits every time."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from quantus_concepts.datasets.scenes.painted_objects import PaintedObjects
from quantus_concepts.datasets.scenes.painted_scenes import PaintedScenes


@pytest.fixture(scope="module")
def scenes() -> PaintedScenes:
    return PaintedScenes(80)


@pytest.fixture(scope="module")
def pictures(scenes: PaintedScenes) -> np.ndarray:
    return np.stack([scenes[i] for i in range(800)])


def score_on_second_half(features: np.ndarray, labels: np.ndarray) -> float:
    """Accuracy of a logistic regression that was fitted on the first 40 of each class."""
    model = make_pipeline(StandardScaler(), LogisticRegression(max_iter=300))
    return float(model.fit(features[:400], labels[:400]).score(features[400:], labels[400:]))


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


def test_the_same_bits_in_any_order_and_the_beginning_of_a_larger_source() -> None:
    state = np.random.get_state()[1].copy()  # noqa: NPY002
    first, second, larger = PaintedScenes(3), PaintedScenes(3), PaintedScenes(7)
    forwards = [first[i] for i in range(30)]
    for i in reversed(range(30)):
        for other in (second[i], larger[i], first[i - 30]):
            assert np.array_equal(other, forwards[i])
    assert np.array_equal(np.random.get_state()[1], state)  # noqa: NPY002


def test_a_seed_gives_other_scenes() -> None:
    first, second = PaintedScenes(2), PaintedScenes(2, seed=1)
    assert all(first[i].tobytes() != second[i].tobytes() for i in range(20))
    assert len({first[i].tobytes() for i in range(20)}) == 20


def test_nothing_is_kept(scenes: PaintedScenes, pictures: np.ndarray) -> None:
    scenes[5][:] = 0
    assert np.array_equal(scenes[5], pictures[5])


def test_classes_take_turns_and_one_is_a_bamboo_forest(scenes: PaintedScenes) -> None:
    assert len(scenes) == 800
    assert len(set(scenes.class_names)) == 10
    assert "bamboo forest" in scenes.class_names
    assert not set(scenes.class_names) & set(PaintedObjects(1).class_names)
    assert scenes.labels.dtype == np.int64
    assert scenes.labels[:12].tolist() == [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 0, 1]
    assert np.bincount(scenes.labels).tolist() == [80] * 10


@pytest.mark.parametrize("size", [32, 65, 128])
def test_scenes_are_squares_of_the_size_asked_for(size: int) -> None:
    source = PaintedScenes(2, size=size)
    for i in range(20):
        assert source[i].shape == (size, size, 3)
        assert source[i].dtype == np.uint8


def test_every_quarter_of_a_scene_has_texture(pictures: np.ndarray) -> None:
    quarters = pictures.reshape(800, 2, 64, 2, 64, 3).swapaxes(2, 3).reshape(800, 4, -1, 3)
    assert (quarters.std(axis=2).max(axis=-1) > 3).all()


def test_the_mean_colour_does_not_tell_the_class_and_the_texture_of_a_part_does(
    scenes: PaintedScenes, pictures: np.ndarray
) -> None:
    assert score_on_second_half(pictures.mean(axis=(1, 2)), scenes.labels) <= 0.25
    assert score_on_second_half(spectra(pictures), scenes.labels) >= 0.9
    # Half of the picture, as where an object covers the rest.
    assert score_on_second_half(spectra(pictures[:, 64:]), scenes.labels) >= 0.8
    assert score_on_second_half(spectra(pictures[:, :, :64]), scenes.labels) >= 0.8


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"n_per_class": 0}, ValueError, r"`n_per_class` to lie in \[1, 1000000\] but got 0"),
        ({"n_per_class": "60"}, TypeError, r"`n_per_class` to be a whole number but got '60'"),
        ({"size": 31}, ValueError, r"`size` to lie in \[32, 512\] but got 31"),
        ({"size": 64.5}, TypeError, r"`size` to be a whole number but got 64\.5"),
        ({"seed": 2**32}, ValueError, r"`seed` to lie in \[0, 4294967295\] but got 4294967296"),
    ],
)
def test_bad_arguments_are_refused(arguments: dict[str, object], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        PaintedScenes(**arguments)


def test_bad_indices_are_refused() -> None:
    for index in (10, -11):
        with pytest.raises(IndexError, match=f"below the number of items, 10, but got {index}"):
            PaintedScenes(1)[index]
