"""CLM as a Quantus metric: maps with masks or points, and images with a concept model."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn

from quantus_concepts import CLM
from tiny_models import SharingConceptModel

IMAGES = np.zeros((3, 3, 12, 12), dtype=np.float32)
CONCEPTS = np.array([0, 1, 2])


@pytest.fixture
def predictor() -> nn.Module:
    return nn.Sequential(nn.Flatten(), nn.Linear(3 * 144, 3))


def falling_maps() -> np.ndarray:
    """Maps whose values fall row by row: the largest 12 n pixels are the first n rows."""
    return np.repeat(np.arange(144, 0, -1, dtype=float).reshape(1, 1, 12, 12), 3, axis=0)


def pixel_masks(*rows: int | None) -> np.ndarray:
    masks = np.zeros((len(rows), 1, 12, 12))
    for mask, row in zip(masks, rows, strict=True):
        if row is not None:
            mask[0, row, 5] = 1
    return masks


class TestMaps:
    """Explanations of a concept predictor."""

    # alpha = 1 is the first row, 3 the first three. 29 pixels are larger than the second mask's; 2.4 / 12 of
    # the 144 is 28.8.
    @pytest.mark.parametrize(("alpha", "expected"), [(1, [1, 0, np.nan]), (3, [1, 1, np.nan]), (2.4, [1, 0, np.nan])])
    def test_marked_pixel_in_the_region(self, predictor: nn.Module, alpha: float, expected: list[float]) -> None:
        scores = CLM(alpha=alpha)(predictor, IMAGES, CONCEPTS, falling_maps(), s_batch=pixel_masks(0, 2, None))
        np.testing.assert_array_equal(scores, expected)

    def test_bound_masks_are_the_same_and_go_before(self, predictor: nn.Module) -> None:
        metric = CLM(alpha=3, masks=pixel_masks(0, 2, None))
        everywhere = np.ones((3, 1, 12, 12))
        np.testing.assert_array_equal(
            metric(predictor, IMAGES, CONCEPTS, falling_maps(), s_batch=everywhere), [1, 1, np.nan]
        )

    def test_of_several_marked_pixels_the_best_counts(self, predictor: nn.Module) -> None:
        masks = pixel_masks(11, 11, 11)
        masks[1, 0, 0, 0] = 1
        assert CLM(alpha=1)(predictor, IMAGES, CONCEPTS, falling_maps(), s_batch=masks) == [0, 1, 0]

    def test_points_of_the_explained_concept(self, predictor: nn.Module) -> None:
        points = np.array([[[5.0, 0.2], [5.0, 11.0]]] * 3)
        metric = CLM(alpha=1, points=points, part_of_concept=[0, 1, -1])
        np.testing.assert_array_equal(metric(predictor, IMAGES, CONCEPTS, falling_maps()), [1, 0, np.nan])

    def test_threshold_takes_the_place_of_alpha(self, predictor: nn.Module) -> None:
        scores = CLM(threshold=100)(predictor, IMAGES, CONCEPTS, falling_maps(), s_batch=pixel_masks(3, 4, None))
        # row 3 holds 108 ... 97, at column 5: 103; row 4 at column 5: 91
        np.testing.assert_array_equal(scores, [1, 0, np.nan])

    @pytest.mark.parametrize("alpha", [0.5, 1, 7])
    def test_a_constant_map_scores_its_share(self, predictor: nn.Module, alpha: float) -> None:
        scores = CLM(alpha=alpha)(
            predictor, IMAGES, CONCEPTS, np.full((3, 1, 12, 12), 0.37), s_batch=pixel_masks(0, 5, 11)
        )
        np.testing.assert_allclose(scores, alpha / 12, rtol=1e-12)

    def test_channels_are_summed_and_small_maps_upsampled(self, predictor: nn.Module) -> None:
        channels = falling_maps() * np.array([2.0, -0.5, -0.5]).reshape(1, 3, 1, 1)
        assert CLM()(predictor, IMAGES, CONCEPTS, channels, s_batch=pixel_masks(0, 0, 11)) == [1, 1, 0]
        small = np.repeat(np.array([[4.0, 4], [1, 1]])[None], 3, axis=0)
        assert CLM(alpha=6)(predictor, IMAGES, CONCEPTS, small, s_batch=pixel_masks(0, 5, 6)) == [1, 1, 0]

    def test_a_map_that_is_not_finite_is_undefined_and_said(self, predictor: nn.Module) -> None:
        maps = falling_maps()
        maps[1, 0, 3, 3] = np.nan
        with pytest.warns(UserWarning, match="1 of 3 samples"):
            scores = CLM()(predictor, IMAGES, CONCEPTS, maps, s_batch=pixel_masks(0, 0, 0))
        np.testing.assert_array_equal(scores, [1, np.nan, 1])

    def test_maps_that_are_zero_everywhere_are_undefined_and_said(self, predictor: nn.Module) -> None:
        with pytest.warns(UserWarning, match="zero everywhere"):
            scores = CLM()(predictor, IMAGES, CONCEPTS, np.zeros((3, 1, 12, 12)), s_batch=pixel_masks(0, 0, 0))
        assert np.isnan(scores).all()

    def test_a_map_of_another_shape_is_undefined_and_said(self, predictor: nn.Module) -> None:
        with pytest.warns(UserWarning, match=r"shape \(7,\), expected a map"):
            scores = CLM()(predictor, IMAGES, CONCEPTS, np.ones((3, 7)), s_batch=pixel_masks(0, 0, 0))
        assert np.isnan(scores).all()


class TestImages:
    """Images with a concept model: ranking, parts, averaging."""

    def test_against_a_loop_over_images_and_concepts(self) -> None:
        rng = np.random.default_rng(3)
        model = SharingConceptModel(dtype=torch.float64)
        images = rng.normal(size=(8, 3, 12, 12))
        points = rng.uniform(0, 12, (8, 3, 2, 2))
        points[rng.uniform(size=(8, 3, 2)) < 0.4] = np.nan
        parts = np.array([0, -1, 2, 1, 0])
        x = torch.as_tensor(images)
        with torch.no_grad():
            values = model.concept_predictor(x)
            classes = model(x).argmax(1).numpy()
            maps = nn.functional.interpolate(model.concept_maps(x), size=(12, 12), mode="bilinear").numpy()
        contribution = (model.head[0].weight[classes] * values).detach().numpy()
        expected = []
        for i in range(8):
            ranked = [j for j in np.argsort(-contribution[i], kind="stable") if parts[j] >= 0][:3]
            hits = []
            for j in ranked:
                places = [p for p in points[i, parts[j]] if np.isfinite(p).all()]
                pixels = [tuple(np.clip(np.floor(p + 0.5).astype(int), 0, 11)) for p in places]
                best = [float((maps[i, j] > maps[i, j, y, x]).sum() < 36) for x, y in pixels]
                if best:
                    hits.append(max(best))
            expected.append(np.mean(hits) if hits else np.nan)
        metric = CLM(alpha=3, points=points, part_of_concept=parts, top_l=3)
        np.testing.assert_allclose(metric(model, images, classes), expected, atol=1e-12)
        assert np.isnan(expected).sum() == metric.undefined

    def test_concepts_without_a_part_do_not_take_a_place(self) -> None:
        rng = np.random.default_rng(0)
        model = SharingConceptModel()
        images = rng.normal(size=(4, 3, 12, 12)).astype(np.float32)
        points = rng.uniform(0, 12, (4, 1, 2))
        # only concept 3 has a part: it counts wherever it is ranked
        metric = CLM(alpha=12, points=points, part_of_concept=[-1, -1, -1, 0, -1])
        assert metric(model, images, np.zeros(4, int)) == [1, 1, 1, 1]
