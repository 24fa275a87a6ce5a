from __future__ import annotations

import numpy as np
import pytest
import torch

from quantus_concepts.pasta.encoders.overlay import (
    masked_levels,
    overlay_levels,
    overlay_maps,
    resize,
    unit_maps,
    usable_maps,
)
from reference import overlay as reference
from refusals import refusals

NAN = float("nan")


def pictures():
    generator = torch.Generator().manual_seed(0)
    return torch.rand(3, 3, 12, 17, generator=generator), torch.rand(3, 12, 17, generator=generator)


def test_overlay_by_hand():
    images = torch.tensor([[0.0, 1.0], [0.0, 1.0], [0.0, 1.0]]).reshape(1, 3, 1, 2)
    # blue under black, red under white: (0, 0, .5) and (1, .5, .5), the largest value is 1
    blended = overlay_maps(images, torch.tensor([[[0.0, 1.0]]]))
    np.testing.assert_allclose(blended[0, :, 0, 0] * 255, [0, 0, 127], atol=1e-4)
    np.testing.assert_allclose(blended[0, :, 0, 1] * 255, [255, 127, 127], atol=1e-4)
    # without the white pixel .5 is the largest, and becomes 1
    blended = overlay_maps(images[..., :1], torch.zeros(1, 1, 1))
    np.testing.assert_allclose(blended.flatten() * 255, [0, 0, 255], atol=1e-4)


@pytest.mark.parametrize(("weight", "colours"), [(0.0, "bwr"), (0.0, "viridis"), (0.3, "bwr"), (1.0, "bwr")])
def test_overlay_agrees_with_the_reference_and_matplotlib(weight, colours):
    images, maps = pictures()
    # At the very edges between the entries of the colour map, and beside them.
    maps[0] = torch.arange(52, 256).view(12, 17) / 256
    maps[1] = torch.nextafter(maps[0], torch.tensor(0.0))
    levels = overlay_maps(images, maps, weight=weight, colours=colours)
    for i in range(len(images)):
        image, heat = images[i].double().numpy(), maps[i].numpy()
        cut_off = (reference.overlay(image, heat, weight, colours) - levels[i].double().numpy()) * 255
        assert cut_off.min() > -2e-3
        assert cut_off.max() < 1
    assert torch.equal(levels * 255, (levels * 255).round())


def test_whole_numbers_are_not_truncated_to_less():
    # Multiples of 1/255 and a map that changes nothing: every level comes out as it went in.
    levels = torch.arange(256, dtype=torch.float32).reshape(1, 1, 16, 16).expand(1, 3, 16, 16)
    np.testing.assert_array_equal(overlay_levels(levels / 255, torch.zeros(1, 2, 2), weight=1), levels)
    np.testing.assert_array_equal(masked_levels(levels / 255, torch.ones(1, 2, 2)), levels)


def test_masked_by_hand_and_with_smaller_maps():
    images, maps = pictures()
    np.testing.assert_array_equal(masked_levels(images, maps), (images * maps[:, None] * 255).trunc())
    small = maps[:, :4, :5]
    enlarged = torch.nn.functional.interpolate(small[:, None], (12, 17), mode="bilinear")[:, 0]
    assert (overlay_maps(images, small) - overlay_maps(images, enlarged)).abs().max() <= 1 / 255 + 1e-6
    np.testing.assert_allclose(masked_levels(images, small) / 255, images * enlarged[:, None], atol=1 / 255)


def test_scaling_of_maps():
    maps = torch.tensor([[[-2.0, 0.0, 2.0]], [[1.0, 3.0, 2.0]]])
    np.testing.assert_allclose(unit_maps(maps), [[[0, 0.5, 1]], [[0, 1, 0.5]]])
    np.testing.assert_allclose(unit_maps(maps, "shap"), [[[0, 0, 1]], [[1 / 3, 1, 2 / 3]]])
    np.testing.assert_allclose(unit_maps(torch.tensor([[[-1.0, 0.0, 1.0]]]), "lime"), [[[0, 0.49, 0.98]]])
    np.testing.assert_allclose(unit_maps(maps / 9 + 0.4, "none"), maps / 9 + 0.4)
    # numbers whose range is no number
    np.testing.assert_allclose(unit_maps(torch.tensor([[[-3e38, 0.0, 3e38]]])), [[[0, 0.5, 1]]])
    assert unit_maps(torch.tensor([[[0.0, 1e4]]], dtype=torch.float16)).dtype == torch.float32


def test_constant_and_broken_maps():
    maps = torch.stack([torch.full((2, 2), 3.0), torch.zeros(2, 2), torch.eye(2), torch.eye(2), torch.eye(2)])
    maps[3, 0, 0], maps[4, 0, 0] = NAN, torch.inf
    assert usable_maps(maps).tolist() == [False, False, True, False, False]
    assert not unit_maps(maps[:2]).any()
    assert not unit_maps(maps[1:2], "shap").any()
    assert unit_maps(maps[3:4]).isnan().any()


def test_resizing_shrinks_smoothly_and_stays_within_its_values():
    board = (torch.arange(64)[:, None] + torch.arange(64)).remainder(2).float()[None, None]
    np.testing.assert_allclose(resize(board, (8, 8))[..., 1:-1, 1:-1], 0.5, atol=0.01)
    ones = torch.ones(1, 3, 7, 5)
    assert torch.equal(resize(ones, (224, 224)), torch.ones(1, 3, 224, 224))
    assert resize(ones, (7, 5)) is ones


test_refused = refusals(
    (lambda: overlay_maps(torch.zeros(2, 1, 4, 4), torch.zeros(2, 4, 4)), r"`images` .*\(N, 3, H, W\)"),
    (lambda: overlay_maps(torch.zeros(2, 3, 4, 4), torch.full((2, 4, 4), torch.nan)), "`maps` to be finite"),
    (lambda: overlay_maps(torch.zeros(2, 3, 4, 4), torch.zeros(2, 4, 4), colours="bwrr"), "`colours` .*Nearest: .*bwr"),
    (lambda: overlay_maps(torch.zeros(2, 3, 4, 4), torch.zeros(2, 4, 4), weight=1.5), r"`weight` to lie in \[0, 1\]"),
    (lambda: unit_maps(torch.zeros(1, 2, 2) + 1.5, "none"), r"`maps` to lie in \[0, 1\].*normalise='min-max'"),
)
