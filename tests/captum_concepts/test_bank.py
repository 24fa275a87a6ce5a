"""Banks fitted on labelled embeddings, and random ones."""

import numpy as np
import pytest
import torch
from sklearn.svm import SVC
from torch.utils.data import DataLoader, Subset, TensorDataset, WeightedRandomSampler

from captum_concepts.bank.bank import ConceptBank
from captum_concepts.bank.directions import draw_samples
from captum_concepts.bank.learnable import known_labels
from reference.concept_bank import mean_cav
from untouched import untouched


def planted_samples(n=600, d=6, seed=0):
    """Images on either side of the plane 3 x_0 - 4 x_2 = 5, with a gap; concept 1 is the opposite."""
    rng = np.random.default_rng(seed)
    normal = np.zeros(d)
    normal[0], normal[2] = 0.6, -0.8
    x = rng.normal(size=(n, d))
    side = rng.random(n) < 0.5
    x += np.outer(1.0 - x @ normal + np.where(side, 1.0, -1.0) * (0.3 + 2 * rng.random(n)), normal)
    labels = np.stack([side, ~side], axis=1).astype(int)
    return torch.tensor(x), torch.tensor(labels), normal


@pytest.mark.parametrize("method", ["svm", "mean"])
def test_planted_direction_is_recovered_with_sign_and_bias(method):
    x, labels, normal = planted_samples()
    bank = ConceptBank.fit(x, labels, method=method, n_pos=200, n_neg=200, C=10.0)
    cosines = (bank.cavs @ torch.tensor(normal)) / bank.norms
    assert cosines[0] > 0.99
    assert cosines[1] < -0.99
    # Distance of the plane from the origin along the normal is 1.
    np.testing.assert_allclose(-bank.intercepts / bank.norms, [1.0, -1.0], atol=0.1)
    assert (bank.test_accuracy > 0.97).all()


def test_mean_difference_by_hand_with_unequal_numbers():
    # One positive (4), drawn since it is the only one, and three of four negatives (0, 0, 0): mean of all drawn 1,
    # c = 3; means score 12 and 0: b = -6. No positive is left to test on.
    with pytest.warns(UserWarning, match="1 of 1 concepts"):
        bank = ConceptBank.fit(
            [[4.0], [0.0], [0.0], [0.0], [0.0]], [[1], [0], [0], [0], [0]], method="mean", min_images=1
        )
    assert bank.cavs.item() == pytest.approx(3.0)
    assert bank.intercepts.item() == pytest.approx(-6.0)
    assert bank.test_accuracy.isnan().item()
    assert bank.weak == []


def balanced_accuracy(svm, x, y):
    right = svm.predict(x) == y
    return (right[y == 1].mean() + right[y == 0].mean()) / 2


@pytest.mark.filterwarnings("ignore:. of . concepts have a balanced")
def test_mean_agrees_with_reference():
    rng = np.random.default_rng(1)
    x, labels = rng.normal(size=(90, 5)), (rng.random((90, 4)) < 0.4).astype(int)
    bank = ConceptBank.fit(x, labels, method="mean", n_pos=12, n_neg=20, seed=3)
    positive, negative = draw_samples(labels.astype(bool), 12, 20, 3)
    for j in range(4):
        cav, intercept = mean_cav(x, np.flatnonzero(positive[:, j]), np.flatnonzero(negative[:, j]))
        np.testing.assert_allclose(bank.cavs[j], cav, atol=1e-10)
        assert bank.intercepts[j].item() == pytest.approx(intercept, abs=1e-10)


@pytest.mark.filterwarnings("ignore:. of . concepts have a balanced")
def test_svm_agrees_with_scikit_learn_on_the_samples_drawn():
    rng = np.random.default_rng(2)
    x, labels = rng.normal(size=(80, 4)), (rng.random((80, 2)) < 0.5).astype(int)
    bank = ConceptBank.fit(x, labels, n_pos=20, n_neg=10, C=0.3, seed=5)
    positive, negative = draw_samples(labels.astype(bool), 20, 10, 5)
    for j in range(2):
        is_drawn = positive[:, j] | negative[:, j]
        svm = SVC(kernel="linear", C=0.3).fit(x[is_drawn], labels[is_drawn, j])
        np.testing.assert_allclose(bank.cavs[j], svm.coef_[0], atol=1e-10)
        assert bank.train_accuracy[j].item() == pytest.approx(balanced_accuracy(svm, x[is_drawn], labels[is_drawn, j]))
        assert bank.test_accuracy[j].item() == pytest.approx(balanced_accuracy(svm, x[~is_drawn], labels[~is_drawn, j]))


@pytest.mark.parametrize(("n", "n_drawn"), [(1, 1), (2, 1), (3, 2), (9, 8), (10, 8), (14, 12), (15, 12), (16, 12)])
def test_a_fifth_of_each_side_at_least_one_is_held_back(n, n_drawn):
    labels = np.arange(n + 20)[:, None] < n
    positive, negative = draw_samples(labels, 12, 12, seed=0)
    assert positive.sum() == n_drawn
    assert negative.sum() == 12
    assert draw_samples(labels, 12, 12, seed=0, hold_back=0)[0].sum() == min(n, 12)


def test_what_cannot_be_learnt_is_weak_though_all_positives_were_drawn():
    # 30 positives among 3,000 images of pure noise, all asked for: accuracy on what was left used to be that of
    # negatives alone.
    rng = np.random.default_rng(0)
    x = rng.normal(size=(3000, 40))
    labels = np.zeros((3000, 2), dtype=int)
    labels[:30, 0] = 1
    labels[:, 1] = x[:, 0] > 0
    with pytest.warns(UserWarning, match="1 of 2 concepts have a balanced accuracy below 0.6.*'noise'"):
        bank = ConceptBank.fit(x, labels, ["noise", "plane"], "mean", n_pos=50, n_neg=1000)
    assert bank.weak == ["noise"]
    assert bank.test_accuracy[1] > 0.75


def test_random_directions_have_length_one_and_split_at_the_mean():
    mean = torch.tensor([3.0, -1.0, 2.0, 0.5], dtype=torch.float64)
    bank = ConceptBank.random(6, 4, seed=3, mean=mean)
    np.testing.assert_allclose(bank.norms, 1.0, atol=1e-12)
    np.testing.assert_allclose(bank.cavs @ mean + bank.intercepts, 0.0, atol=1e-12)
    directions = np.random.default_rng(3).standard_normal((6, 4))
    np.testing.assert_allclose(bank.cavs, directions / np.linalg.norm(directions, axis=1, keepdims=True), atol=1e-12)
    assert bank.settings == {"method": "random", "seed": 3}


def test_draw_is_fair_and_does_not_depend_on_other_concepts():
    labels = np.zeros((10, 2), dtype=bool)
    labels[:5, 0] = labels[3:, 1] = True
    counts = sum(draw_samples(labels, 1, 1, seed)[0][:5, 0].astype(int) for seed in range(2000))
    # 400 expected each; 6 deviations of sqrt(2000 * 0.2 * 0.8) = 17.9.
    assert np.abs(counts - 400).max() < 107
    both, alone = draw_samples(labels, 2, 2, 9)[0], draw_samples(labels[:, 1:], 2, 2, 9)[0]
    np.testing.assert_array_equal(both[:, 1:], alone)


@pytest.mark.parametrize("method", ["svm", "mean"])
def test_seed_decides_and_the_global_generators_are_left_alone(method):
    x, labels, _ = planted_samples(200)
    kwargs = {"method": method, "n_pos": 20, "n_neg": 20}
    with untouched(x, labels):
        first, same = (ConceptBank.fit(x, labels, seed=4, **kwargs) for _ in range(2))
        other = ConceptBank.fit(x, labels, seed=5, **kwargs)
    assert torch.equal(first.cavs, same.cavs)
    assert not torch.equal(first.cavs, other.cavs)
    assert first.cavs.dtype == torch.float64
    assert ConceptBank.fit(x.to(torch.bfloat16), labels, **kwargs).cavs.dtype == torch.float32


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"labels": [[0, 1], [0, 0], [0, 1], [0, 0]], "names": ["wing", "tail"]}, r"none of 2 .*'wing' \(0 with, 4"),
        ({"labels": [[0, 1], [1, 0]]}, r"`labels` to have shape \(N, L\) = \(4, \*\) but got \(2, 2\)"),
        ({"labels": [[0, 1], [1, 0], [0, 2], [1, 0]]}, "`labels` to hold only 0 and 1 but got 2"),
        ({"features": torch.full((4, 2), torch.nan)}, "`features` to be finite"),
        ({"method": "svn"}, "`method` to be one of .* Did you mean 'svm'"),
    ],
)
def test_bad_input_of_fit(changes, message):
    arguments = {
        "features": torch.arange(8.0).reshape(4, 2),
        "labels": [[0, 1], [1, 0], [0, 1], [1, 0]],
        "n_pos": 2,
        "n_neg": 2,
    } | changes
    with pytest.raises(ValueError, match=message):
        ConceptBank.fit(**arguments)


NAMES = ["red wing", "blue wing", "never", "always", "long tail"]


def samples(n=60, seed=0):
    rng = np.random.default_rng(seed)
    labels = (rng.random((n, 5)) < 0.5).astype(np.float32)
    labels[:, 2:4] = 0, 1
    labels[0, 3] = 0
    features = rng.normal(size=(n, 6)).astype(np.float32)
    features[:, :5] += 2 * labels
    return torch.from_numpy(features), torch.from_numpy(labels)


@pytest.mark.parametrize("method", ["svm", "mean"])
def test_concepts_on_too_few_images_are_left_out_and_the_others_are_as_without_them(method):
    features, labels = samples()
    positions = [0, 1, 4]
    with pytest.warns(UserWarning, match=r"^2 of 5 concepts are left out.*'never' \(0 with, 60 without\), 'always'"):
        bank = ConceptBank.fit(features, labels, NAMES, method)
    alone = ConceptBank.fit(features, labels[:, positions], [NAMES[j] for j in positions], method)
    assert bank.names == alone.names == [NAMES[j] for j in positions]
    assert bank.settings == alone.settings | {"left_out": ["never", "always"]}
    assert torch.equal(bank.cavs, alone.cavs)
    assert ConceptBank.fit(features, labels, NAMES, min_images=1).names == [
        "red wing",
        "blue wing",
        "always",
        "long tail",
    ]
    # Without names concepts keep the numbers that the labels give them.
    assert ConceptBank.fit(features, labels).names == ["concept 0", "concept 1", "concept 4"]


def test_concepts_are_chosen_by_name_pattern_and_number():
    features, labels = samples()
    assert ConceptBank.fit(features, labels, NAMES, concepts="*wing").names == ["red wing", "blue wing"]
    bank = ConceptBank.fit(features, labels, NAMES, concepts=["long tail", 0])
    assert bank.names == ["long tail", "red wing"]
    assert torch.equal(bank.cavs, ConceptBank.fit(features, labels[:, [4, 0]]).cavs)
    with pytest.raises(ValueError, match=r"`concepts` .* none is 'red wign'. The nearest are \['red wing'"):
        ConceptBank.fit(features, labels, NAMES, concepts="red wign")


def test_labels_of_a_subset_are_its_own_and_those_of_a_part_of_the_images_are_not_known():
    features, labels = samples()
    tensors = TensorDataset(features, labels[:, 0], labels)
    assert torch.equal(known_labels(DataLoader(tensors))[0], labels)
    assert torch.equal(known_labels(DataLoader(Subset(tensors, [7, 3])))[0], labels[[7, 3]])
    weighted = WeightedRandomSampler(torch.ones(60), 20)
    assert known_labels(DataLoader(tensors, sampler=weighted)) == (None, None)


def test_a_solver_that_does_not_converge_ends_with_a_warning(monkeypatch):
    monkeypatch.setattr("captum_concepts.bank.directions._MOST_STEPS", 20)
    features = 700 * torch.randn(120, 8, generator=torch.Generator().manual_seed(0))
    labels = torch.stack([torch.arange(120) % 2, (features[:, 0] > 0).long()], 1)
    with pytest.warns(UserWarning, match=r"SVMs of \d of 2 concepts did not converge; embeddings reach .*normalised"):
        assert ConceptBank.fit(features, labels).cavs.isfinite().all()
