from __future__ import annotations

import numpy as np
import pytest
import torch
from scipy import stats
from torch.utils._python_dispatch import TorchDispatchMode

from quantus_concepts.functional import cgim, cgim_interval, cgim_reasons
from quantus_concepts.functional.concepts.cgim import class_sums
from reference import cgim as reference
from reference.comparisons import centred_cgim
from refusals import refusals

NAN = float("nan")


def test_by_hand():
    importance = torch.tensor([[3.0, 0.0, -1.0], [4.0, 0.0, 1.0]])
    truth = torch.tensor([[0.0, 0.5, 1.0], [1.0, 0.5, 0.0]])
    # Concepts: (3, 4).(0, 1) / 5; zero importance; (-1, 1).(1, 0) / sqrt 2.
    np.testing.assert_allclose(cgim(importance, truth), [0.8, NAN, -(2**-0.5)], atol=1e-7)
    # Classes: (3, 0, -1).(0, .5, 1) / (sqrt 10 sqrt 1.25) and (4, 0, 1).(1, .5, 0) / (sqrt 17 sqrt 1.25).
    np.testing.assert_allclose(cgim(importance, truth, per="class"), [-1 / 12.5**0.5, 4 / 21.25**0.5], atol=1e-7)


@pytest.mark.parametrize("per", ["concept", "class"])
@pytest.mark.parametrize("centred", [True, False])
def test_the_interval_is_that_of_leaving_out_each_class(per, centred):
    rng = np.random.default_rng(0)
    for run, (n_classes, n_concepts) in enumerate([(3, 2), (5, 4), (12, 9), (30, 7)] * 3):
        own, truth = rng.normal(size=(n_classes, n_concepts)), (rng.random((n_classes, n_concepts)) < 0.4).astype(float)
        if run > 3:
            # One class has all of a concept, on either side; and one concept does not vary.
            truth[:, 0], own[:, 1] = np.arange(n_classes) == 1, 3.0 * (np.arange(n_classes) == 0)
        if run > 7:
            own, own[:, -1], truth[2] = own / 1000 + 5, 0.7, 1.0
        left_out = [
            float(cgim(np.delete(own, deleted, 0), np.delete(truth, deleted, 0), per, centred).nanmean())
            for deleted in range(n_classes)
        ]
        value = float(cgim(own, truth, per, centred).nanmean())
        variance = (n_classes - 1) * np.var(left_out)
        found = cgim_interval(own, truth, per, centred)
        if np.isnan(variance) or np.isnan(value):
            assert np.isnan(found).all()
        else:
            half = stats.t.ppf(0.975, n_classes - 1) * np.sqrt(variance)
            assert found == pytest.approx((max(-1, value - half), min(1, value + half)), abs=1e-9)


def test_the_interval_of_many_classes_does_not_take_their_square():
    n_classes, n_concepts, made = 200, 6, 0
    own, truth = torch.randn(n_classes, n_concepts, dtype=torch.float64), torch.rand(n_classes, n_concepts)

    class Counting(TorchDispatchMode):
        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            nonlocal made
            result = func(*args, **(kwargs or {}))
            made += result.numel() if isinstance(result, torch.Tensor) else 0
            return result

    with Counting():
        cgim_interval(own, truth)
    assert made < 100 * n_classes * n_concepts


def test_a_class_with_one_nan_is_undefined():
    importance = torch.tensor([[3.0, 1.0], [7.0, NAN], [4.0, 0.0]])
    truth = torch.tensor([[0.0, 1.0], [1.0, 1.0], [1.0, 0.0]])
    np.testing.assert_allclose(cgim(importance, truth), [0.8, 1.0], atol=1e-7)
    np.testing.assert_allclose(cgim(importance, truth, "class"), [1 / 10**0.5, NAN, 1.0], atol=1e-7)


def test_zero_on_either_side_is_undefined():
    assert cgim(torch.zeros(2, 1), torch.ones(2, 1)).isnan().all()
    assert cgim(torch.ones(2, 1), torch.zeros(2, 1)).isnan().all()
    # Zero over the classes that remain.
    assert cgim(torch.tensor([[NAN], [1.0]]), torch.tensor([[1.0], [0.0]])).isnan().all()


@pytest.mark.parametrize("per", ["concept", "class"])
@pytest.mark.parametrize("shape", [(1, 1), (2, 7), (20, 3), (13, 40)])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_agrees_with_the_reference(per, shape, dtype):
    generator = torch.Generator().manual_seed(sum(shape))
    importance = torch.randn(shape, generator=generator, dtype=dtype)
    truth = torch.rand(shape, generator=generator, dtype=dtype)
    if shape[0] > 2:
        importance[1] = NAN
        importance[:, 2] = 0
        importance[1, 2] = NAN
        truth[0] = 0
    scores = cgim(importance, truth, per)
    assert scores.dtype == dtype
    np.testing.assert_allclose(scores, reference.cgim(importance, truth, per), atol=1e-6)


def test_best_worst_and_bounds():
    truth = torch.rand(10, 6, generator=torch.Generator().manual_seed(0))
    for per in ("concept", "class"):
        np.testing.assert_allclose(cgim(truth * 7, truth, per), 1, atol=1e-6)
        np.testing.assert_allclose(cgim(-truth, truth, per), -1, atol=1e-6)
        # Rounding alone would give 1.0000001 for some rows.
        assert (cgim(truth, truth, per) <= 1).all()
    present = (truth > 0.5).float()
    np.testing.assert_array_equal(cgim(1 - present, present), 0)


@pytest.mark.parametrize("scale", [1e-30, 1e30])
def test_scale_invariance_where_squares_leave_float32(scale):
    generator = torch.Generator().manual_seed(0)
    importance, truth = torch.randn(5, 4, generator=generator), torch.rand(5, 4, generator=generator)
    for per in ("concept", "class"):
        np.testing.assert_allclose(cgim(importance * scale, truth, per), cgim(importance, truth, per), atol=1e-6)


def test_class_sums_by_hand():
    values, classes = torch.tensor([[1.0, 2.0], [3.0, 6.0], [NAN, NAN], [5.0, 1.0]]), torch.tensor([2, 2, 2, 0])
    # A sample that does not count is ignored, even if it is NaN.
    sums, counts = class_sums(values, classes, torch.tensor([True, True, False, True]), 3)
    assert sums.tolist() == [[5, 1], [0, 0], [4, 8]]
    assert counts.tolist() == [1, 0, 2]


def test_correlation_by_hand():
    importance = torch.tensor([[3.0, 0.5, 7.0], [4.0, 0.5, 8.0], [8.0, 0.5, 7.0]])
    truth = torch.tensor([[0.0, 0.5, 0.3], [0.5, 0.1, 0.3], [1.0, 0.0, 0.3]])
    # (-2, -1, 3).(-.5, 0, .5) / (sqrt 14 sqrt .5); importance, then truth, that does not vary.
    expected = [2.5 / 7**0.5, NAN, NAN]
    np.testing.assert_allclose(cgim(importance, truth, centred=True), expected, atol=1e-6)
    assert cgim_reasons(importance, truth, centred=True) == ["", "importance does not vary", "truth does not vary"]
    assert cgim_reasons(importance, truth) == [""] * 3
    # Classes: (1, 0, -1).(-.25, .25, 0) / (sqrt 2 sqrt .125) of the first, without its mean.
    importance, truth = torch.tensor([[3.0, 2.0, 1.0], [NAN, 1, 1]]), torch.tensor([[0.0, 0.5, 0.25], [1.0, 0.0, 0.0]])
    np.testing.assert_allclose(cgim(importance, truth, "class", True), [-0.5, NAN], atol=1e-6)
    assert cgim_reasons(importance, truth, "class", True) == ["", "no correctly predicted sample"]
    assert cgim_reasons(torch.full((2, 2), NAN), truth[:, :2]) == ["no correctly predicted sample"] * 2
    assert cgim_reasons(torch.zeros(2, 2), truth[:, :2]) == ["importance is zero throughout"] * 2
    assert cgim_reasons(torch.ones(2, 2), torch.zeros(2, 2), "class") == ["truth is zero throughout"] * 2


@pytest.mark.parametrize("per", ["concept", "class"])
@pytest.mark.parametrize("shape", [(2, 7), (20, 3), (13, 40)])
@pytest.mark.parametrize("offset", [0.0, 100.0])
def test_correlation_agrees_with_the_reference(per, shape, offset):
    generator = torch.Generator().manual_seed(sum(shape))
    importance = torch.randn(shape, generator=generator, dtype=torch.float64) + offset
    truth = torch.rand(shape, generator=generator, dtype=torch.float64)
    if shape[0] > 2:
        importance[1] = NAN
        importance[:, 2] = 0.1  # a third of which is no float
        importance[1, 2] = NAN
    scores = cgim(importance, truth, per, centred=True)
    # The reference divides by a length of rounding errors where the importance does not vary.
    constant = [per == "concept" and shape[0] > 2 and j == 2 for j in range(len(scores))]
    expected = np.where(constant, NAN, centred_cgim(importance, truth, per))
    np.testing.assert_allclose(scores, expected, atol=1e-6)
    assert [bool(reason) for reason in cgim_reasons(importance, truth, per, True)] == scores.isnan().tolist()


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_a_constant_matrix_has_its_cosine_and_no_correlation(dtype):
    truth = torch.rand(25, 8, generator=torch.Generator().manual_seed(0), dtype=dtype)
    for constant in (1.0, 0.1, 1e-20):
        same = torch.full_like(truth, constant)
        cosine = truth.sum(0) / truth.norm(dim=0) / 5
        torch.testing.assert_close(cgim(same, truth), cosine)
        assert cosine.min() > 0.7
        assert cgim(same, truth, centred=True).isnan().all()
        assert cgim(same, truth, "class", centred=True).isnan().all()


test_refused = refusals(
    (lambda: cgim(torch.ones(2, 3), torch.ones(3, 2)), r"`class_concepts` .* \(2, 3\) but got \(3, 2\)"),
    (lambda: cgim(torch.ones(2, 3), torch.ones(2, 3) * 50), "`class_concepts` to lie in .*Divide percentages"),
    (lambda: cgim(torch.ones(2, 3), torch.full((2, 3), torch.nan)), "`class_concepts` to be finite"),
    (lambda: cgim(torch.ones(2, 3), torch.ones(2, 3), per="concepts"), "`per` to be one of .*mean 'concept'"),
    (lambda: cgim_reasons(torch.ones(2, 3), torch.ones(2, 3), per="image"), "`per` to be one of"),
    (lambda: cgim_reasons(torch.ones(2, 3), torch.ones(2, 2)), r"`class_concepts` to have shape \(K, L\)"),
    error=(TypeError, ValueError),
)
