from __future__ import annotations

import numpy as np
import pytest
import torch

from quantus_concepts.functional import ClassMeans, cgim, cgim_reasons, interval
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
@pytest.mark.parametrize("shape", [(1, 1), (20, 3), (13, 40)])
def test_agrees_with_the_reference(per, shape):
    generator = torch.Generator().manual_seed(sum(shape))
    importance, truth = torch.randn(shape, generator=generator), torch.rand(shape, generator=generator)
    if shape[0] > 2:
        importance[1, 0] = NAN
        importance[:, 2] = 0
        importance[1, 2] = NAN
        truth[0] = 0
    np.testing.assert_allclose(cgim(importance, truth, per), reference.cgim(importance, truth, per), atol=1e-6)


@pytest.mark.parametrize("per", ["concept", "class"])
def test_best_worst_and_bounds_at_any_scale(per):
    truth = torch.rand(10, 6, generator=torch.Generator().manual_seed(0))
    for scale in (7, 1e-30, 1e30):
        np.testing.assert_allclose(cgim(truth * scale, truth, per), 1, atol=1e-6)
        np.testing.assert_allclose(cgim(-scale * truth, truth, per), -1, atol=1e-6)
    # Rounding alone would give 1.0000001 for some rows.
    assert (cgim(truth, truth, per) <= 1).all()


def test_class_means_by_hand():
    means = ClassMeans(3, 2)
    means.update(torch.tensor([[1.0, 2.0], [3.0, 6.0]]), torch.tensor([2, 2]))
    # A sample that does not count is ignored, even if it is NaN.
    means.update(torch.tensor([[NAN, NAN], [5.0, 1.0]]), torch.tensor([2, 0]), mask=torch.tensor([False, True]))
    np.testing.assert_array_equal(means.compute(), [[5, 1], [NAN, NAN], [2, 4]])
    assert means.counts.tolist() == [1, 0, 2]
    assert ClassMeans(1, 1).compute().isnan().all()


def test_class_means_agree_with_the_reference():
    generator = torch.Generator().manual_seed(0)
    values = torch.randn(60, 4, generator=generator)
    classes = torch.randint(0, 5, (60,), generator=generator)
    mask = (torch.rand(60, generator=generator) < 0.6) & (classes != 3)
    means = ClassMeans(5, 4)
    for i in range(0, 60, 7):
        rows = slice(i, i + 7)
        means.update(values[rows], classes[rows], mask[rows])
    np.testing.assert_allclose(means.compute(), reference.class_means(values, classes, 5, mask), atol=1e-12)


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
@pytest.mark.parametrize(("shape", "offset"), [((2, 7), 0.0), ((20, 3), 0.0), ((13, 40), 100.0)])
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


def test_correlation_of_an_oracle_and_of_permuted_classes():
    generator = torch.Generator().manual_seed(0)
    truth = torch.rand(25, 8, generator=generator)
    for per in ("concept", "class"):
        np.testing.assert_allclose(cgim(3 * truth - 2, truth, per, centred=True), 1, atol=1e-6)
        np.testing.assert_allclose(cgim(1 - truth, truth, per, centred=True), -1, atol=1e-6)
    importance = truth + 0.2 * torch.randn(25, 8, generator=generator)
    assert cgim(importance, truth, centred=True).mean() > 0.7
    permuted = torch.stack(
        [cgim(importance[torch.randperm(25, generator=generator)], truth, centred=True).mean() for _ in range(400)]
    )
    low, high = interval(permuted, (-1, 1))
    assert low <= 0 <= high
    assert high - low < 0.03


def test_a_refused_update_adds_nothing():
    means = ClassMeans(4, 3)
    for values, classes, mask in (
        (torch.ones(2, 3), [-1, 0], None),
        (torch.ones(2, 3), [0, 4], None),
        (torch.ones(2, 2), [0, 1], None),
        (torch.ones(2, 3), [0, 1], [0.5, 1]),
    ):
        with pytest.raises(ValueError, match=r"`(classes|values|mask)`"):
            means.update(values, classes, mask)
    assert means.counts.tolist() == [0, 0, 0, 0]
    assert means.compute().isnan().all()


test_refused = refusals(
    (lambda: cgim(torch.ones(2, 3), torch.ones(3, 2)), r"`class_concepts` .* \(2, 3\) but got \(3, 2\)"),
    (lambda: cgim(torch.ones(2, 3), torch.ones(2, 3) * 50), "`class_concepts` to lie in .*Divide percentages"),
    (lambda: cgim(torch.ones(2, 3), torch.ones(2, 3), per="concepts"), "`per` to be one of"),
    (lambda: ClassMeans(0, 3), "`n_classes` to be at least 1"),
    (lambda: ClassMeans(2, 3).merge(ClassMeans(2, 2)), r"`other` .* \(2, 3\) but got \(2, 2\)"),
)
