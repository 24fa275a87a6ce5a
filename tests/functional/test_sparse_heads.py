"""Sparse heads and completeness: by hand, against scikit-learn, and with concepts that do and do not say the class."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from sklearn.linear_model import LogisticRegression

from quantus_concepts.functional import completeness, sparse_head_path
from quantus_concepts.functional.bottleneck import sparse_heads
from quantus_concepts.functional.bottleneck.sparse_heads import AVERAGED, elastic_net_path
from reference.bottleneck import elastic_net_objective
from refusals import refusals


def blobs(n: int = 240, n_concepts: int = 10, n_classes: int = 4) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(0)
    classes = torch.arange(n) % n_classes
    centres = torch.randn(n_classes, n_concepts, generator=generator)
    return centres[classes] + torch.randn(n, n_concepts, generator=generator), classes


def test_by_hand() -> None:
    # Three of eight concepts are the classes: one weight a class is enough. In half of the test images two classes have
    # changed places.
    classes = torch.arange(60) % 3
    values = torch.nn.functional.one_hot(classes, 8).double()
    heads = sparse_head_path(
        values, classes, [1, 8], values, torch.where(torch.arange(60) < 30, (4 - classes) % 3, classes)
    )
    assert heads.accuracy.tolist() == pytest.approx([2 / 3, 2 / 3])
    assert heads.nec.tolist() == [1, 1]  # no more weights are of use
    assert math.isnan(heads.anec_5)


def test_weights_are_those_of_an_elastic_net(monkeypatch: pytest.MonkeyPatch) -> None:
    values, classes = blobs()
    monkeypatch.setattr(sparse_heads, "_CONVERGED", 0.0)
    values = (values - values.mean(0)) / values.std(0, correction=0)
    path = elastic_net_path(values, classes, 4, 5, 2000, 10**9)
    truth = np.eye(4)[classes]
    largest = np.abs((truth - truth.mean(0)).T @ values.numpy()).max() / len(values) / 0.99
    for place in (1, 2, 3):
        penalty = largest * 10 ** (-3 * place / 4)
        model = LogisticRegression(l1_ratio=0.99, solver="saga", C=1 / (penalty * len(values)), max_iter=5000, tol=1e-7)
        model = model.set_params(**({"penalty": "elasticnet"} if "penalty" in model.get_params() else {}))
        model.fit(values, classes)
        weights, biases = (part.double().numpy() for part in path[place])
        np.testing.assert_allclose(weights, model.coef_, atol=0.02)
        ours, theirs = (
            elastic_net_objective(values.double().numpy(), classes.numpy(), *parts, penalty, 0.99)
            for parts in ((weights, biases), (model.coef_, model.intercept_))
        )
        assert ours <= theirs + 1e-4


def standardised(n: int, n_concepts: int, n_classes: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Return values with few images for each class, and the classes."""
    generator = torch.Generator().manual_seed(0)
    classes = torch.randint(n_classes, (n,), generator=generator)
    values = 0.6 * torch.randn(n_classes, n_concepts, generator=generator)[classes]
    values += torch.randn(n, n_concepts, generator=generator)
    return (values - values.mean(0)) / values.std(0, correction=0), classes


def test_sizes_are_those_of_the_minimum(monkeypatch: pytest.MonkeyPatch) -> None:
    values, classes = standardised(300, 30, 12)

    def sizes() -> np.ndarray:
        path = elastic_net_path(values, classes, 12, 25, 3000, 10**9)
        return np.array([int((weights.abs() > 0).sum()) / 12 for weights, _ in path])

    ours = sizes()
    monkeypatch.setattr(sparse_heads, "_CONVERGED", 1e-7)
    exact = sizes()
    # With 40 steps for each penalty the last one had a quarter more.
    np.testing.assert_allclose(ours, exact, atol=0.1 + 0.06 * exact.max())
    assert ours[:15] == pytest.approx(exact[:15], abs=0.4)


def test_a_size_is_read_where_the_path_reaches_it_and_scales_are_those_of_the_fit() -> None:
    values, classes = standardised(300, 30, 12)
    values = 3 * values + 1
    heads = sparse_head_path(values, classes, [4])
    torch.testing.assert_close(heads.centre, values.mean(0))
    torch.testing.assert_close(heads.scale, values.std(0, correction=0))
    path = elastic_net_path((values - heads.centre) / heads.scale, classes, 12, 40, 1000, 10**9)
    counts = [int((weights != 0).sum()) for weights, _ in path]
    # A size that a penalty has exactly is that penalty's, with all its weights.
    place = next(at for at, count in enumerate(counts) if count and count % 12 == 0)
    exact = sparse_head_path(values, classes, [counts[place] // 12, 20])
    torch.testing.assert_close(exact.weights[0], path[place][0], atol=1e-4, rtol=1e-4)
    torch.testing.assert_close(exact.biases[0], path[place][1], atol=1e-4, rtol=1e-4)
    # One between two penalties is that of the next, without its smallest weights.
    place = next(at for at, count in enumerate(counts) if count >= 48)
    torch.testing.assert_close(heads.biases[0], path[place][1], atol=1e-4, rtol=1e-4)
    assert heads.nec.tolist() == [4]


def test_classes_are_those_that_occur() -> None:
    values, classes = blobs()
    heads = sparse_head_path(values, classes, [1, 3], values, classes)
    names = torch.tensor([2, 3, 50, 199])
    other = sparse_head_path(values, names[classes], [1, 3], values, names[classes])
    assert other.accuracy.tolist() == heads.accuracy.tolist()
    assert other.nec.tolist() == heads.nec.tolist() == [1, 3]
    assert other.classes.tolist() == names.tolist()
    assert torch.equal(other.weights, heads.weights)
    assert {*other.predict(values).flatten().tolist()} == {*names.tolist()}
    # A test set may lack some of them.
    assert sparse_head_path(values, names[classes], [1], values[:1], names[classes[:1]]).accuracy.shape == (1,)


def test_sizes_are_kept_and_more_weights_know_more() -> None:
    values, classes = blobs(900, n_concepts=40)
    values += 2 * torch.randn(values.shape, generator=torch.Generator().manual_seed(1))
    heads = sparse_head_path(values[:600], classes[:600], AVERAGED, values[600:], classes[600:])
    assert heads.nec.tolist() == list(AVERAGED)
    assert ((heads.weights != 0).sum((1, 2)) == torch.tensor(AVERAGED) * 4).all()
    assert heads.anec_5 == heads.accuracy[0]
    assert heads.anec_avg == pytest.approx(heads.accuracy.mean().item())
    assert 0.7 < heads.anec_5 < heads.accuracy[2]


def test_scale_of_values_and_constant_ones_do_not_matter() -> None:
    values, classes = blobs()
    heads = sparse_head_path(values, classes, [2, 5])
    other = sparse_head_path(torch.cat([values * 100 - 7, torch.ones(240, 1)], 1), classes, [2, 5])
    torch.testing.assert_close(other.weights[:, :, :10], heads.weights, atol=1e-3, rtol=1e-3)
    assert (other.weights[:, :, 10] == 0).all()


def test_completeness_by_hand() -> None:
    classes = [0, 0, 0, 1, 1, 2, 2, 2, 2, 2]  # the commonest is half
    network = [0, 0, 0, 1, 1, 2, 2, 2, 2, 0]  # .9
    model = [0, 0, 0, 0, 0, 2, 2, 2, 0, 0]  # .6
    assert completeness(model, network, classes) == pytest.approx(0.1 / 0.4)
    assert completeness(network, network, classes) == 1
    assert completeness([2] * 10, network, classes) == 0
    assert completeness(classes, network, classes) > 1
    assert math.isnan(completeness(model, [2] * 10, classes))
    # A network that is worse than that has nothing that could be kept.
    assert math.isnan(completeness(model, [0] * 10, classes))
    assert completeness([1] * 10, network, classes) == pytest.approx(-0.3 / 0.4)


VALUES, CLASSES = blobs(20)
test_refused = refusals(
    (lambda: sparse_head_path(VALUES, CLASSES[:5]), "`classes` to have shape"),
    (lambda: sparse_head_path(VALUES * math.nan, CLASSES), "`values` to be finite"),
    (lambda: sparse_head_path(VALUES, CLASSES, [0]), "`sizes`"),
    (lambda: sparse_head_path(VALUES, CLASSES, [2], VALUES[:, :3], CLASSES), "`test_values` to have shape"),
    (
        lambda: sparse_head_path(VALUES, CLASSES, [2], VALUES, CLASSES + 1),
        r"`test_classes` .*5 of 20 .* such as 4.*0 to 3",
    ),
    (
        lambda: sparse_head_path(VALUES, CLASSES, [2], VALUES, CLASSES - 2),
        "`test_classes` .*10 of 20 that are none, such",
    ),
    (lambda: sparse_head_path(VALUES, CLASSES - 1, [2]), "`classes` to lie in"),
    (lambda: completeness([0, 1], [0], [0, 1]), "`network_predicted` to have shape"),
)
