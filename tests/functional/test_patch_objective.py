from __future__ import annotations

import numpy as np
import pytest
import torch

from quantus_concepts.functional import patch_objective
from reference import attribution as reference
from refusals import refusals

LOGITS = torch.tensor([[1.0, 2.0], [0.0, 0.0]])
PATCHED = torch.tensor([[4.0, 6.0], [0.0, 0.0]])
IMAGES = torch.tensor([[[[0.0, 100.0]]], [[[250.0, 5.0]]]])
DELTA = torch.tensor([[[[-30.0, 40.0]]], [[[10.0, 0.0]]]])


def test_by_hand():
    # 5 - 0.01 * 50 + 0.02 * 30 below zero; 0 - 0.01 * 10 + 0.02 * 5 above 255
    value = patch_objective(PATCHED, LOGITS, IMAGES, DELTA, (0, 255), 0.01, 0.02)
    np.testing.assert_allclose(value, [5.1, 0.0], atol=1e-6)
    # 25 - 0.01 * 2500 + 0.6; 0 - 0.01 * 100 + 0.1
    value = patch_objective(PATCHED, LOGITS, IMAGES, DELTA, (0, 255), 0.01, 0.02, squared=True)
    np.testing.assert_allclose(value, [0.6, -0.9], atol=1e-5)


def test_range_penalty_drives_pixels_back_and_size_drives_the_patch_on():
    delta = DELTA.clone().requires_grad_()
    (outside,) = torch.autograd.grad(patch_objective(LOGITS, LOGITS, IMAGES, delta, (0, 255), 0, 0.5).sum(), delta)
    # descent raises the pixel at -30 and lowers the one at 260
    np.testing.assert_array_equal(outside, [[[[-0.5, 0]]], [[[0.5, 0]]]])
    (size,) = torch.autograd.grad(patch_objective(LOGITS, LOGITS, IMAGES, delta, (0, 255), 1, 0).sum(), delta)
    # descent moves along the patch, by its unit vector
    np.testing.assert_allclose(-size, [[[[-0.6, 0.8]]], [[[1, 0]]]], atol=1e-6)


@pytest.mark.parametrize(("squared", "pixel_range"), [(False, (0.0, 255.0)), (True, (-1.0, 1.0))])
def test_agrees_with_the_reference(squared, pixel_range):
    generator = torch.Generator().manual_seed(0)
    logits, patched = torch.randn(2, 7, 5, generator=generator)
    images, delta = torch.randn(2, 7, 3, 4, 6, generator=generator) * (pixel_range[1] - pixel_range[0])
    objective = patch_objective(patched, logits, images, delta, pixel_range, 0.3, 0.7, squared)
    expected = [
        reference.patch_objective(*(part.double().numpy() for part in parts), pixel_range, 0.3, 0.7, squared)
        for parts in zip(patched, logits, images, delta, strict=True)
    ]
    np.testing.assert_allclose(objective, expected, rtol=1e-5)


test_refused = refusals(
    (
        lambda: patch_objective(LOGITS[:1], LOGITS, IMAGES, DELTA, (0, 1)),
        r"`logits_patched` .*\(2, 2\) but got \(1, 2\)",
    ),
    (lambda: patch_objective(LOGITS, LOGITS, IMAGES, DELTA[:1], (0, 1)), "`delta` to have shape"),
    (lambda: patch_objective(LOGITS, LOGITS, IMAGES, DELTA, (1, 0)), "`pixel_range` to be two finite numbers"),
    (lambda: patch_objective(LOGITS, LOGITS, IMAGES, DELTA, (0, 1), eta1=-1), r"`eta1` to lie in \[0, inf\)"),
)
