"""The explainers of concept values that people rated: the libraries' own numbers, references, optimum and chance."""

from __future__ import annotations

import copy
import inspect

import numpy as np
import pytest
import torch
from captum.attr import KernelShap, Lime
from sklearn.discriminant_analysis import QuadraticDiscriminantAnalysis
from torch import nn

from captum_concepts import CONCEPT_METHODS, BottleneckCBM, build_method, fit_logistic, fit_qda
from captum_concepts.attributions.concept_methods import ConceptRISE, SmallestChange
from captum_concepts.models.heads import QuadraticHead
from reference.qda import log_posteriors, smallest_change
from refusals import refusals
from untouched import untouched


def values_and_labels(k: int = 3, n: int = 300, n_concepts: int = 4, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Concepts of very different scale, correlated, with a covariance of its own in each class."""
    rng = np.random.default_rng(seed)
    labels = np.concatenate([np.repeat(np.arange(k), 20), rng.integers(0, k, n - 20 * k)])
    mixing = rng.normal(size=(k, n_concepts, n_concepts))
    values = np.einsum("nl,nlm->nm", rng.normal(size=(n, n_concepts)), mixing[labels])
    values += rng.normal(size=(k, n_concepts))[labels]
    return values * [1.0, 50.0, 0.003, 3.0, 1.0, 1.0][:n_concepts] + 7.0, labels


VALUES, LABELS = values_and_labels()
LOGISTIC, QDA = fit_logistic(VALUES, LABELS), fit_qda(VALUES, LABELS)
HEADS = {name: QDA if name == "CLIP-QDA-sample" else LOGISTIC for name in CONCEPT_METHODS}
ROWS, TARGETS = VALUES[:6], np.array([2, 0, 1, 1, 0, 2])


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_quadratic_head_gives_the_log_posteriors_of_scikit_learn(dtype: torch.dtype) -> None:
    values, labels = values_and_labels(n_concepts=6)
    values = torch.tensor(values, dtype=dtype)
    scaled = (values.double().numpy() - values.double().numpy().mean(0)) / values.double().numpy().std(0)
    head = fit_qda(values, labels)
    result = head(values)
    assert result.dtype == dtype
    np.testing.assert_allclose(result, log_posteriors(values, labels, values), rtol=1e-5, atol=1e-5)
    assert not (result.argmax(1).numpy() == labels).all()
    if "solver" not in inspect.signature(QuadraticDiscriminantAnalysis).parameters:
        pytest.skip("This version of scikit-learn divides covariances by N - 1.")
    model = QuadraticDiscriminantAnalysis(tol=1e-10).fit(scaled, labels)
    np.testing.assert_allclose(result, model.predict_log_proba(scaled), rtol=1e-5, atol=1e-5)
    regular = QuadraticDiscriminantAnalysis(reg_param=0.3).fit(scaled, labels).predict_log_proba(scaled)
    np.testing.assert_allclose(fit_qda(values, labels, reg_param=0.3)(values), regular, rtol=1e-5, atol=1e-5)


def test_what_a_quadratic_head_knows_and_a_linear_one_does_not() -> None:
    rng = np.random.default_rng(0)
    labels = np.repeat([0, 1], 2000)
    # One mean, two deviations: the best rule is wrong in 16.7 % (variances 1 and 25).
    values = rng.normal(size=(4000, 1)) * np.where(labels == 0, 1.0, 5.0)[:, None]
    train, test = slice(None, None, 2), slice(1, None, 2)

    def accuracy(head: nn.Module) -> float:
        return float((head(torch.tensor(values[test])).argmax(1).numpy() == labels[test]).mean())

    # |x| < 1.83: 0.933 of the narrow class and 0.286 of the wide one.
    assert accuracy(fit_qda(values[train], labels[train])) == pytest.approx((0.933 + 1 - 0.286) / 2, abs=0.02)
    assert accuracy(fit_logistic(values[train], labels[train])) == pytest.approx(0.5, abs=0.05)
    # Of labels that say nothing it knows how frequent they are.
    shuffled = fit_qda(values[train], rng.permutation(labels[train]))(torch.tensor(values[test])).exp()
    assert float((shuffled - 0.5).abs().mean()) < 0.05


def test_smallest_change_by_hand() -> None:
    # Means 0 and 4, variance 2 in both: from 2 on it is the other class. The second value is alike in both.
    values = np.array([[-1, -1], [1, 1], [-1, 1], [1, -1], [3, -1], [5, 1], [3, 1], [5, -1]], dtype=float)
    explain = build_method("CLIP-QDA-sample")
    head = fit_qda(values, [0] * 4 + [1] * 4)
    rows = np.array([[0.0, 0.3], [2.5, -0.4], [2.5, 0.0]])
    expected = [[2, np.nan], [-0.5, np.nan], [-0.5, np.nan]]
    np.testing.assert_allclose(explain(head, rows, np.array([0, 1, 0])), expected, atol=1e-9)
    # Without a target what is decided is explained.
    np.testing.assert_allclose(explain(head, rows), expected, atol=1e-9)


@pytest.mark.parametrize(
    ("means", "scalings", "offsets"),
    [
        # Twice as likely everywhere, but for rounding: the other would win at ten million.
        ([0.0, 0.0], [1.0, 1.0 - 1e-15], [np.log(2), 0.0]),
        # At 1 both are alike, and on either side of it the same one wins.
        ([0.0, 1.0], [0.0, 1.0], [0.0, 0.0]),
    ],
)
def test_nothing_changes_where_classes_only_touch_or_differ_by_rounding(
    means: list[float], scalings: list[float], offsets: list[float]
) -> None:
    shapes = ((means, (2, 1)), (scalings, (2, 1, 1)), (offsets, (2,)))
    head = QuadraticHead(*(torch.tensor(values, dtype=torch.float64).reshape(shape) for values, shape in shapes))
    assert SmallestChange(head).attribute(torch.zeros(1, 1).double(), 0).isnan().all()


@pytest.mark.parametrize("target", [0, 1, 2, None])
def test_smallest_change_is_what_a_search_finds(target: int | None) -> None:
    values, labels = values_and_labels(n_concepts=3)
    values = (values - values.mean(0)) / values.std(0)
    head, rows = fit_qda(values, labels), values[::43]

    def decide(row: np.ndarray) -> int:
        return int(head(torch.tensor(row[None])).argmax())

    changes = SmallestChange(head).attribute(torch.tensor(rows), target).numpy()
    chosen = [decide(row) if target is None else target for row in rows]
    expected = np.array(
        [[smallest_change(decide, row, j, k, 8.0, 800) for j in range(3)] for row, k in zip(rows, chosen, strict=True)]
    )
    near = np.abs(changes) < 7.9
    np.testing.assert_allclose(changes[near], expected[near], atol=1e-6)
    assert np.isnan(expected[~near]).all()
    assert near.mean() > 0.3


def test_lime_and_shap_are_the_librarys_own() -> None:
    values, targets = torch.tensor(ROWS), torch.tensor(TARGETS)
    baseline = VALUES.mean(0)
    for name, method in (("LIME-CBM", Lime), ("SHAP-CBM", KernelShap)):
        settings = {"baselines": torch.tensor(baseline)[None], "n_samples": 50, "perturbations_per_eval": 10}
        expected = []
        for row, k in zip(values, targets, strict=True):
            torch.manual_seed(3)
            expected.append(method(LOGISTIC).attribute(row[None], target=int(k), **settings))
        explain = build_method(name, n_samples=50, baseline=baseline, batch_size=10, seed=3)
        np.testing.assert_allclose(explain(LOGISTIC, ROWS, TARGETS), torch.cat(expected), atol=1e-6)
        assert float(torch.cat(expected).abs().max()) > 0.1


def test_shap_and_weights_agree_on_a_linear_head() -> None:
    contributions = build_method("CLIP-linear-sample")(LOGISTIC, ROWS, TARGETS)
    np.testing.assert_allclose(contributions, LOGISTIC.weight.detach().numpy()[TARGETS] * ROWS, rtol=1e-12)
    # Shapley values of what is linear are weight times the distance from the baseline.
    shap = build_method("SHAP-CBM", baseline=VALUES.mean(0))(LOGISTIC, ROWS, TARGETS)
    away = LOGISTIC.weight.detach().numpy()[TARGETS] * (ROWS - VALUES.mean(0))
    np.testing.assert_allclose(shap, away, atol=1e-3)


def test_rise_is_the_mean_over_the_masks_that_keep_a_value() -> None:
    n_masks, baseline = 200, VALUES.mean(0)
    result = build_method("RISE-CBM", n_samples=n_masks, baseline=baseline, seed=5)(LOGISTIC, ROWS, TARGETS)
    masks = (torch.rand(n_masks, 4, generator=torch.Generator().manual_seed(5)) < 0.5).numpy()
    for row, target, found in zip(ROWS, TARGETS, result, strict=True):
        total, kept = np.zeros(4), np.zeros(4)
        for mask in masks:
            seen = torch.tensor(np.where(mask, row, baseline))
            probability = float(LOGISTIC(seen[None]).softmax(1)[0, target].detach())
            total += probability * mask
            kept += mask
        np.testing.assert_allclose(found, total / kept, atol=1e-9)


def test_a_thousand_masks_by_default() -> None:
    usual, thousand, fewer = (build_method("RISE-CBM", n_samples=n)(LOGISTIC, ROWS, TARGETS) for n in (None, 1000, 999))
    np.testing.assert_array_equal(usual, thousand)
    assert not np.array_equal(usual, fewer)


def test_rise_of_one_concept_and_of_none() -> None:
    head = nn.Linear(3, 2).double()
    nn.init.zeros_(head.weight)
    nn.init.zeros_(head.bias)
    explain = build_method("RISE-CBM", n_samples=2000)
    # A class that no concept changes, from every one the same.
    np.testing.assert_allclose(explain(head, np.ones((1, 3)), np.array([1])), 0.5)
    with torch.no_grad():
        head.weight[1, 2] = 2.0
    seen, hidden = (float(torch.tensor(logit).sigmoid()) for logit in (2.0, 0.0))
    half = (seen + hidden) / 2
    np.testing.assert_allclose(explain(head, np.ones((1, 3)), np.array([1])), [[half, half, seen]], atol=0.02)
    alone = ConceptRISE(head, seed=0).attribute(torch.ones(1, 3).double(), 1, n_masks=1, p=0.01)
    assert alone.isnan().all()


@pytest.mark.parametrize("name", CONCEPT_METHODS)
def test_what_a_call_owes(name: str) -> None:
    head, explain = HEADS[name], build_method(name, n_samples=60)
    with untouched(head, ROWS, TARGETS):
        result = explain(head, ROWS, TARGETS)
    assert result.shape == ROWS.shape
    np.testing.assert_array_equal(explain(head, ROWS, TARGETS), result)
    single = copy.deepcopy(head).float() if name != "CLIP-QDA-sample" else head
    np.testing.assert_allclose(explain(single, ROWS.astype(np.float32), TARGETS), result, rtol=1e-2, atol=1e-2)
    np.testing.assert_allclose(explain(head, ROWS[2:4], TARGETS[2:4]), result[2:4], rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("name", CONCEPT_METHODS)
def test_the_head_of_a_concept_model(name: str) -> None:
    network = nn.Sequential(nn.Flatten(), nn.Linear(12, 4)).double()
    cbm = BottleneckCBM(network, nn.Identity(), HEADS[name], activation=None).eval()
    images = torch.rand(3, 3, 2, 2).double()
    with torch.no_grad():
        values, decided = cbm.concept_predictor(images), cbm(images).argmax(1)
    explained = build_method(name, n_samples=40)(cbm.head, values, decided)
    assert explained.shape == (3, 4)


FEW = {"values": VALUES[:6], "labels": [0, 0, 0, 0, 0, 1]}
ONES = np.ones((300, 1))
IMAGE_NETWORK = nn.Sequential(nn.Flatten(), nn.Linear(12, 3))
test_refused = refusals(
    (lambda: fit_qda(VALUES, LABELS[:-1]), "`labels`"),
    (lambda: fit_qda(VALUES, LABELS * 0), "`labels` .* at least two classes"),
    (
        lambda: fit_qda(VALUES, LABELS * 2),
        "`labels` to have more than L = 4 rows of each class, .* but got 0 of class 1",
    ),
    (lambda: fit_qda(**FEW), "`labels` to have more than L = 4 rows of each class, .* but got 1 of class 1"),
    (lambda: fit_qda(VALUES[:8], [0, 1] * 4), "`labels` to have more than L = 4 rows of each class, .* 4 of class 0"),
    (lambda: fit_qda(VALUES * np.nan, LABELS), "`values`"),
    (lambda: fit_qda(VALUES, LABELS, reg_param=1.5), "`reg_param`"),
    (
        lambda: fit_qda(np.hstack([VALUES, VALUES[:, :1]]), LABELS),
        "`values` to have no concept that follows from others",
    ),
    (lambda: fit_qda(np.hstack([VALUES, ONES]), LABELS), "`values` to have no concept that follows from others"),
    (lambda: build_method("CLIP-QDA-sample")(LOGISTIC, ROWS, TARGETS), "`forward_func` to be a head of `fit_qda`"),
    (lambda: build_method("CLIP-linear-sample")(QDA, ROWS, TARGETS), "`head` to be linear, as of `fit_logistic`"),
    (lambda: build_method("RISE-CBM")(LOGISTIC, ROWS), "`target` to name one of the 3 outputs"),
    (lambda: build_method("RISE-CBM")(LOGISTIC, ROWS, TARGETS + 1), "`target` to hold indices"),
    (lambda: build_method("CLIP-QDA-sample")(QDA, ROWS, TARGETS + 1), "`target` to hold indices"),
    (lambda: build_method("RISE-CBM")(LOGISTIC, ROWS[None], TARGETS[:1]), "`inputs` to have shape"),
    (lambda: build_method("LIME-CBM")(IMAGE_NETWORK, np.ones((1, 3, 2, 2)), TARGETS[:1]), "`inputs` to have shape"),
    (lambda: build_method("SHAP-CBM")(IMAGE_NETWORK, np.ones((1, 3, 2, 2)), TARGETS[:1]), "`inputs` to have shape"),
    (
        lambda: build_method("LIME-CBM", baseline=np.zeros(5))(LOGISTIC, ROWS, TARGETS),
        r"`baseline` to have shape \(L,\)",
    ),
    (lambda: ConceptRISE(LOGISTIC).attribute(torch.tensor(ROWS), 0, p=0.0), "`p`"),
    (lambda: build_method("rise-cbm"), "`name` to be one of"),
)


def test_a_concept_that_does_not_change_is_let_in_by_regularisation() -> None:
    head = fit_qda(np.hstack([VALUES, ONES]), LABELS, reg_param=0.01)
    assert head(torch.tensor(np.hstack([VALUES, ONES]))).isfinite().all()
