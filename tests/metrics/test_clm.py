"""CLM as a Quantus metric: maps with masks or points, and images with a concept model."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
import torch
from torch import nn

from quantus_concepts import CLM
from quantus_concepts.functional import point_hits
from tiny_models import SharingConceptModel

IMAGES = np.zeros((3, 3, 12, 12), dtype=np.float32)
CONCEPTS = np.array([0, 1, 2])


@pytest.fixture
def predictor():
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
    def test_marked_pixel_in_the_region(self, predictor, alpha, expected):
        scores = CLM(alpha=alpha)(predictor, IMAGES, CONCEPTS, falling_maps(), s_batch=pixel_masks(0, 2, None))
        np.testing.assert_array_equal(scores, expected)

    def test_points_of_the_explained_concept(self, predictor):
        points = np.array([[[5.0, 0.2], [5.0, 11.0]]] * 3)
        metric = CLM(alpha=1, points=points, part_of_concept=[0, 1, -1])
        np.testing.assert_array_equal(metric(predictor, IMAGES, CONCEPTS, falling_maps()), [1, 0, np.nan])
        assert metric.records[-1].chance == pytest.approx(12 / 144)
        assert [*metric.records[-1].reasons] == ["the explained concept has no part"]

    def test_threshold_takes_the_place_of_alpha(self, predictor):
        scores = CLM(threshold=100)(predictor, IMAGES, CONCEPTS, falling_maps(), s_batch=pixel_masks(3, 4, None))
        # row 3 holds 108 ... 97, at column 5: 103; row 4 at column 5: 91
        np.testing.assert_array_equal(scores, [1, 0, np.nan])

    def test_channels_are_summed_and_small_maps_upsampled(self, predictor):
        channels = falling_maps() * np.array([2.0, -0.5, -0.5]).reshape(1, 3, 1, 1)
        assert CLM()(predictor, IMAGES, CONCEPTS, channels, s_batch=pixel_masks(0, 0, 11)) == [1, 1, 0]
        # As many channels as pixels to a side: they come first.
        twelve = np.concatenate([np.zeros((3, 11, 12, 12)), falling_maps()], axis=1)
        assert CLM()(predictor, IMAGES, CONCEPTS, twelve, s_batch=pixel_masks(0, 0, 11)) == [1, 1, 0]
        small = np.repeat(np.array([[4.0, 4], [1, 1]])[None], 3, axis=0)
        assert CLM(alpha=6)(predictor, IMAGES, CONCEPTS, small, s_batch=pixel_masks(0, 5, 6)) == [1, 1, 0]

    def test_a_map_larger_than_the_image_is_averaged_down(self, predictor):
        large = falling_maps().repeat(3, 2).repeat(2, 3)
        large[:, 0, 2, 10] += 0.5  # one sixth of the change on the pixel (5, 0)
        masks = pixel_masks(0, 5, 6)
        metric = CLM(alpha=6)
        assert metric(predictor, IMAGES, CONCEPTS, large, s_batch=masks) == [1, 1, 0]
        assert metric(predictor, IMAGES, CONCEPTS, np.ones((3, 30, 5)), s_batch=masks) == [0.5, 0.5, 0.5]

    def test_share_of_the_region(self, predictor):
        masks = np.zeros((3, 12, 12))
        masks[0, :2, :6] = masks[1, 5, 3] = 1

        def scored(n, **settings):
            metric = CLM(mask_hit="share", masks=masks[:n], disable_warnings=True, **settings)
            return metric(predictor, IMAGES[:n], CONCEPTS[:n], falling_maps()[:n]), metric.records[-1]

        # 12 of the 36 pixels of the region; none
        scores, record = scored(3, alpha=3)
        np.testing.assert_allclose(scores, [1 / 3, 0, np.nan], atol=1e-12)
        assert record.reasons == {"nothing is marked": 1}
        assert record.chance == pytest.approx((12 + 1) / 144 / 2)
        # the five values 140 to 144, all marked
        np.testing.assert_array_equal(scored(3, threshold=140)[0], [1, 0, np.nan])
        assert scored(2, threshold=145)[1].reasons == {"no pixel of the map reaches `threshold`": 2}


class TestWhatIsKnown:
    """Chance, clusters and the reasons of NaN."""

    def test_chance_of_one_and_of_two_places(self, predictor):
        masks = pixel_masks(0, 2, None)
        metric = CLM(alpha=3, disable_warnings=True)
        metric(predictor, IMAGES, CONCEPTS, falling_maps(), s_batch=masks)
        assert metric.records[-1].chance == 0.25
        assert metric.records[-1].reasons == {"nothing is marked": 1}
        assert metric.records[-1].clusters is None
        masks[1, 0, 9, 9] = 1
        metric(predictor, IMAGES, CONCEPTS, falling_maps(), s_batch=masks)
        assert metric.records[-1].chance == pytest.approx((0.25 + 1 - 0.75**2) / 2)

    def test_on_images(self):
        rng = np.random.default_rng(1)
        model, images = SharingConceptModel(), rng.normal(size=(5, 3, 12, 12)).astype(np.float32)
        points = rng.uniform(0, 11, (5, 1, 2))
        points[3] = np.nan
        images[4] = 0  # finite, and one more class than the others
        metric = CLM(alpha=3, points=points, part_of_concept=[0, 0, 0, 0, 0], top_l=2)
        classes = np.array([0, 1, 0, 1, 2])
        with pytest.warns(UserWarning, match=r"no part of the first 2 concepts is visible \(1 of 5 samples\)"):
            metric(model, images, classes)
        record = metric.records[-1]
        assert record.chance == 0.25
        assert record.clusters is not None
        np.testing.assert_array_equal(record.clusters, classes)
        assert record.reasons == {"no part of the first 2 concepts is visible": 1}


class TestWrongPlaces:
    """Masks that are none, and places that are not in the image."""

    @pytest.mark.parametrize(
        ("place", "message"),
        [
            ((5.0, 30.0), r"first at sample 1, part 0, place 0 with \(x, y\) = \(5, 30\)\. Give"),
            ((3.0, 15.0), r"It would be inside as \(y, x\): swap the two"),
        ],
    )
    def test_points_outside_the_image(self, place, message):
        points = np.full((2, 1, 2), 4.0)
        points[1, 0] = place
        metric = CLM(points=points, part_of_concept=[0] * 5)
        with pytest.raises(ValueError, match="`points` to lie in the images.*" + message):
            metric(SharingConceptModel(), np.zeros((2, 3, 12, 20), dtype=np.float32), np.zeros(2, int))

    @pytest.mark.parametrize(("mark", "n", "warns"), [(-1, 1, True), (0, 2, True), (0, 1, False), (np.nan, 9, False)])
    def test_marks_of_what_is_not_visible_are_warned_of(self, mark, n, warns, predictor):
        points = np.full((9, 1, 2), 4.0)
        points[:n] = mark
        metric = CLM(points=points, part_of_concept=[0] * 3, disable_warnings=True)
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            metric(predictor, np.tile(IMAGES, (3, 1, 1, 1)), np.zeros(9, int), np.tile(falling_maps(), (3, 1, 1, 1)))
        said = [str(each.message) for each in caught if "`points`" in str(each.message)]
        assert len(said) == warns
        assert all("put NaN in their place" in text for text in said)

    def test_half_a_pixel_beyond_the_border_is_on_it(self, predictor):
        points = np.array([[[-1.0, -1.0]], [[12.0, -0.6]], [[12.0, 12.0]]])
        metric = CLM(points=points, part_of_concept=[0, 0, 0])
        assert metric(predictor, IMAGES, CONCEPTS, falling_maps()) == [1, 1, 0]

    def test_classes_where_concepts_are_wanted(self, predictor):
        metric = CLM(points=np.zeros((3, 1, 2)), part_of_concept=[0, 0, 0])
        with pytest.raises(ValueError, match=r"but got 7.*Sequential, is no concept model.*PostHocCBM\.fit makes one"):
            metric(predictor, IMAGES, np.array([0, 7, 1]), falling_maps())


class TestImages:
    """Images with a concept model: ranking, parts, averaging."""

    def test_autocast_changes_the_backbone_only(self):
        rng = np.random.default_rng(0)
        model, images = SharingConceptModel(), rng.normal(size=(12, 3, 12, 12)).astype(np.float32)
        points, classes = rng.uniform(0, 11, (12, 3, 2)), rng.integers(0, 4, 12)
        with torch.no_grad():
            with torch.autocast("cpu", dtype=torch.bfloat16):
                features = model.features(torch.as_tensor(images)).float()
            importance = model.values_from_features(features) * model.head[0].weight[torch.as_tensor(classes)]
            first = torch.tensor([0, 1, 3, 4])[importance[:, [0, 1, 3, 4]].argmax(1)]
            maps = model.maps_from_features(features, first[:, None])[:, 0]
        parts = np.array([0, 1, -1, 2, 0])
        places = torch.as_tensor(points[np.arange(12), parts[first]])[:, None]
        expected = point_hits(maps, places, (12, 12), (3,))[:, 0]
        metric = CLM(alpha=3, points=points, part_of_concept=parts, importance="contribution")
        with torch.autocast("cpu", dtype=torch.bfloat16):
            scores = metric(model, images, classes)
        np.testing.assert_allclose(scores, expected, atol=1e-6)
