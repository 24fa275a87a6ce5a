from __future__ import annotations

import numpy as np
import torch

from quantus_concepts.functional import idr, iir, mcs, perturbation
from reference import attribution as reference
from refusals import refusals

NAN = np.nan
FIRST = torch.tensor([0.5, 0.2, 0.0, 0.0, NAN, 0.4], dtype=torch.float64)
SECOND = torch.tensor([0.25, 0.2, 0.1, 0.0, 0.3, NAN], dtype=torch.float64)


def test_model_contrast_by_hand():
    np.testing.assert_allclose(mcs(FIRST, SECOND), [0.25, 0, -0.1, 0, NAN, NAN])


def test_input_dependence_by_hand():
    # lower without the feature, equal, higher without it, both zero
    np.testing.assert_array_equal(idr(FIRST, SECOND), [0, 0, 1, 0, NAN, NAN])
    np.testing.assert_array_equal(idr(SECOND, FIRST), [1, 0, 0, 0, NAN, NAN])


def test_perturbation_and_input_independence_by_hand():
    np.testing.assert_allclose(perturbation(FIRST, SECOND), [0.5, 0, NAN, NAN, NAN, NAN])
    np.testing.assert_array_equal(iir(FIRST, SECOND), [0, 1, NAN, NAN, NAN, NAN])
    # smaller than the threshold, not as small as
    np.testing.assert_array_equal(iir(FIRST, SECOND, 0.5), [0, 1, NAN, NAN, NAN, NAN])
    np.testing.assert_array_equal(iir(FIRST, SECOND, 0.51), [1, 1, NAN, NAN, NAN, NAN])


def test_agree_with_the_reference():
    generator = torch.Generator().manual_seed(0)
    first = torch.rand(200, generator=generator)
    second = first * (1 + 0.3 * torch.randn(200, generator=generator))
    first[:5] = 0
    second[3:8] = 0
    first[8], second[9] = torch.nan, torch.nan
    a, b = first.double().numpy(), second.double().numpy()
    np.testing.assert_allclose(mcs(first, second), reference.mcs(a, b), atol=1e-6)
    np.testing.assert_array_equal(idr(first, second), reference.idr(a, b))
    np.testing.assert_allclose(perturbation(first, second), reference.perturbation(a, b), rtol=1e-6, atol=1e-6)
    for threshold in (0.05, 0.1, 0.4):
        np.testing.assert_array_equal(iir(first, second, threshold), reference.iir(a, b, threshold))
    assert 0.2 < iir(first, second).nanmean() < 0.8


test_refused = refusals(
    (lambda: mcs(torch.ones(2), torch.ones(3)), r"`g_second` .*\(N,\) = \(2,\) but got \(3,\)"),
    (lambda: idr(torch.ones(2), torch.ones(3)), "`g_without`"),
    (lambda: iir(torch.ones(2), torch.ones(3)), "`g_patched`"),
    (lambda: iir(torch.ones(2), torch.ones(2), threshold=0), r"`threshold` to lie in \(0, inf\] but got 0"),
)
