import copy
import json
import pickle

import numpy as np
import pytest
import torch
from captum.concept import CAV, Concept
from safetensors import safe_open
from safetensors.torch import save_file
from sklearn.svm import SVC
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode

from captum_concepts.bank.bank import ConceptBank
from captum_concepts.bank.directions import draw_samples
from reference.concept_bank import mean_cav
from untouched import untouched


def planted(n=600, d=6, seed=0):
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
    x, labels, normal = planted()
    bank = ConceptBank.fit(x, labels, method=method, n_pos=200, n_neg=200, C=10.0)
    cosines = (bank.cavs @ torch.tensor(normal)) / bank.norms
    assert cosines[0] > 0.99
    assert cosines[1] < -0.99
    # Distance of the plane from the origin along the normal is 1.
    np.testing.assert_allclose(-bank.intercepts / bank.norms, [1.0, -1.0], atol=0.1)
    assert (bank.test_accuracy > 0.97).all()


@pytest.mark.filterwarnings("ignore:1 of 1 concepts")
def test_mean_difference_by_hand():
    # One image of each kind is held back, wherever the order puts it: copies of the two that are drawn anyway.
    # Means (3, 0) and (0, 1), all drawn (1.5, 0.5): c = (1.5, -0.5). The means score 4.5 and -0.5: b = -2.
    x = [[3.0, 0.0], [3.0, 0.0], [0.0, 1.0], [0.0, 1.0]]
    bank = ConceptBank.fit(torch.tensor(x), [[1], [1], [0], [0]], method="mean", n_pos=2, n_neg=2, min_images=1)
    np.testing.assert_allclose(bank.cavs, [[1.5, -0.5]], atol=1e-6)
    np.testing.assert_allclose(bank.intercepts, [-2.0], atol=1e-6)
    assert bank.train_accuracy.item() == bank.test_accuracy.item() == 1.0


def test_mean_difference_by_hand_with_unequal_numbers():
    # One positive (4), drawn since it is the only one, and three of four negatives (0, 0, 0): mean of all drawn 1,
    # c = 3; means score 12 and 0: b = -6. No positive is left to test on.
    with pytest.warns(UserWarning, match=r"1 of 1 concepts .*'concept 0' \(1 with, 4 without\)"):
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
        drawn = positive[:, j] | negative[:, j]
        svm = SVC(kernel="linear", C=0.3).fit(x[drawn], labels[drawn, j])
        np.testing.assert_allclose(bank.cavs[j], svm.coef_[0], atol=1e-10)
        assert bank.train_accuracy[j].item() == pytest.approx(balanced_accuracy(svm, x[drawn], labels[drawn, j]))
        assert bank.test_accuracy[j].item() == pytest.approx(balanced_accuracy(svm, x[~drawn], labels[~drawn, j]))


def test_draw_takes_the_numbers_asked_for_from_the_right_side():
    labels = np.random.default_rng(0).random((200, 7)) < 0.3
    positive, negative = draw_samples(labels, 15, 1000, seed=1)
    assert (positive.sum(axis=0) == 15).all()
    # Of the negatives all are asked for: a fifth is held back.
    left = (~labels & ~negative).sum(axis=0)
    assert (left == (~labels).sum(axis=0) // 5).all()
    assert not (positive & ~labels).any()
    assert not (negative & labels).any()


@pytest.mark.parametrize(("n", "drawn"), [(1, 1), (2, 1), (3, 2), (9, 8), (10, 8), (14, 12), (15, 12), (16, 12)])
def test_a_fifth_of_each_side_at_least_one_is_held_back(n, drawn):
    labels = np.arange(n + 20)[:, None] < n
    positive, negative = draw_samples(labels, 12, 12, seed=0)
    assert positive.sum() == drawn
    assert negative.sum() == 12
    assert draw_samples(labels, 12, 12, seed=0, hold_back=0)[0].sum() == min(n, 12)


@pytest.mark.parametrize("method", ["svm", "mean"])
def test_what_cannot_be_learnt_is_weak_though_all_positives_were_drawn(method):
    # 30 positives among 3,000 images of pure noise, all asked for: accuracy on what was left used to be that of
    # negatives alone.
    rng = np.random.default_rng(0)
    x = rng.normal(size=(3000, 40))
    labels = np.zeros((3000, 2), dtype=int)
    labels[:30, 0] = 1
    labels[:, 1] = x[:, 0] > 0
    with pytest.warns(UserWarning, match="concepts have") as record:
        bank = ConceptBank.fit(x, labels, ["noise", "plane"], method, n_pos=50, n_neg=1000)
    assert bank.weak == ["noise"]
    assert bank.test_accuracy[1] > 0.75
    told = [str(each.message) for each in record]
    assert len(told) == 2
    assert "'noise' (30 with, 2970 without)" in told[0]
    assert "1 of 2 concepts have a balanced accuracy below 0.6" in told[1]
    assert "'noise'" in told[1]
    assert "'plane'" not in told[1]
    assert all(each.filename == __file__ for each in record)


def test_concepts_with_the_same_labels_are_named_in_groups():
    x, labels, _ = planted(200)
    first, other = labels[:, :1], labels[:, 1:]
    names = ["wing", "tail", "flies", "swims", "sings"]
    columns = torch.cat([first, other, first, other, (torch.arange(200) % 3 == 0)[:, None]], 1)
    with pytest.warns(UserWarning, match="concepts have") as record:
        bank = ConceptBank.fit(x, columns, names, n_pos=20, n_neg=20)
    told = [str(each.message) for each in record if "the same" in str(each.message)]
    assert len(told) == 1
    assert "4 of 5 concepts" in told[0]
    assert "'wing' = 'flies', 'tail' = 'swims'." in told[0]
    assert torch.equal(bank.cavs[0], bank.cavs[2])


def test_random_directions_have_length_one_and_split_at_the_mean():
    mean = torch.tensor([3.0, -1.0, 2.0, 0.5], dtype=torch.float64)
    bank = ConceptBank.random(6, 4, seed=3, mean=mean)
    np.testing.assert_allclose(bank.norms, 1.0, atol=1e-12)
    np.testing.assert_allclose(bank.cavs @ mean + bank.intercepts, 0.0, atol=1e-12)
    drawn = np.random.default_rng(3).standard_normal((6, 4))
    np.testing.assert_allclose(bank.cavs, drawn / np.linalg.norm(drawn, axis=1, keepdims=True), atol=1e-12)
    assert bank.settings == {"method": "random", "seed": 3}
    assert not torch.equal(ConceptBank.random(6, 4, seed=4).cavs, ConceptBank.random(6, 4, seed=5).cavs)
    assert ConceptBank.random(2, 3, ["a", "b"]).intercepts.tolist() == [0.0, 0.0]


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ((2, 3, ["a"]), ValueError, "2 concepts but got 1"),
    ],
)
def test_bad_input_of_random(arguments, error, message):
    with pytest.raises(error, match=message):
        ConceptBank.random(*arguments)
    with pytest.raises(ValueError, match=r"`mean` to have shape \(d,\) = \(3,\)"):
        ConceptBank.random(2, 3, mean=torch.ones(4))


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
    x, labels, _ = planted(200)
    kwargs = {"method": method, "n_pos": 20, "n_neg": 20}
    with untouched(x, labels):
        first, same = (ConceptBank.fit(x, labels, seed=4, **kwargs) for _ in range(2))
        other = ConceptBank.fit(x, labels, seed=5, **kwargs)
    assert torch.equal(first.cavs, same.cavs)
    assert not torch.equal(first.cavs, other.cavs)


@pytest.mark.parametrize("method", ["svm", "mean"])
@pytest.mark.parametrize(
    ("given", "kept"), [(torch.float32, torch.float32), (torch.float64, torch.float64), (torch.bfloat16, torch.float32)]
)
def test_dtype_follows_the_features(method, given, kept):
    x, labels, _ = planted(60)
    bank = ConceptBank.fit(x.to(given), labels, method=method, n_pos=10, n_neg=10)
    assert {getattr(bank, name).dtype for name in ("cavs", "intercepts", "test_accuracy")} == {kept}


def test_few_images_give_one_warning_that_counts_the_concepts():
    x, labels, _ = planted(40)
    with pytest.warns(UserWarning, match="2 of 2 concepts have fewer images") as record:
        ConceptBank.fit(x, labels, names=["wing", "tail"], method="mean")
    assert len(record) == 1
    assert "'wing'" in str(record[0].message)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"features": torch.ones(3, 2)}, r"`labels` to have shape \(N, L\) = \(3, \*\) but got \(4, 2\)"),
        ({"names": ["a"]}, "one name for each of 2 concepts but got 1"),
        ({"names": ["a", "a"]}, r"\['a'\] occur more than once"),
        ({"names": "ab"}, "sequence of 2 names"),
        ({"labels": [[0, 1], [0, 0], [0, 1], [0, 0]], "names": ["wing", "tail"]}, r"none of 2 .*'wing' \(0 with, 4"),
        ({"labels": [[1, 1], [0, 1], [0, 1], [0, 1]]}, r"'concept 1' \(4 with, 0 without\)"),
    ],
)
@pytest.mark.parametrize("method", ["svm", "mean"])
def test_bad_input_of_fit(changes, message, method):
    arguments = {
        "features": torch.arange(8.0).reshape(4, 2),
        "labels": [[0, 1], [1, 0], [0, 1], [1, 0]],
        "method": method,
        "n_pos": 2,
        "n_neg": 2,
    } | changes
    with pytest.raises(ValueError, match=message):
        ConceptBank.fit(**arguments)


class CountProducts(TorchDispatchMode):
    """Counts matrix products."""

    count = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        self.count += func.overloadpacket._qualified_op_name in ("aten::mm", "aten::addmm", "aten::bmm")
        return func(*args, **(kwargs or {}))


@pytest.mark.filterwarnings("ignore:.* concepts have a balanced")
def test_mean_needs_no_solver_and_two_products_for_any_number_of_concepts(monkeypatch):
    monkeypatch.setattr("captum_concepts.bank.directions.SVC", None)
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(60, 5, generator=generator)
    counts = []
    for n_concepts in (1, 40):
        labels = torch.rand(60, n_concepts, generator=generator) < 0.5
        with CountProducts() as products:
            ConceptBank.fit(x, labels, method="mean", n_pos=5, n_neg=5)
        counts.append(products.count)
    assert counts == [2, 2]


class TextTower(nn.Module):
    """Embeds a text as its token counts through a linear layer; dropout shows whether it is in eval mode."""

    def __init__(self):
        super().__init__()
        self.drop = nn.Dropout(0.5)
        self.linear = nn.Linear(3, 4)
        self.batches = []

    def encode_text(self, tokens):
        self.batches.append(len(tokens))
        return self.linear(self.drop(tokens.float()))


def tokenise(texts):
    return torch.tensor([[text.count(letter) for letter in "abc"] for text in texts])


def test_from_text_gives_unit_rows_in_batches_and_leaves_the_model():
    model = TextTower()
    model.linear.eval()
    with untouched(model):
        bank = ConceptBank.from_text(model, tokenise, ["ab", "bcc", "a"], batch_size=2)
    expected = model.linear(tokenise(["ab", "bcc", "a"]).float()).detach()
    np.testing.assert_allclose(bank.cavs, expected / expected.norm(dim=1, keepdim=True), atol=1e-6)
    assert model.batches == [2, 1]
    assert bank.names == ["ab", "bcc", "a"]
    assert not bank.cavs.requires_grad


@pytest.mark.parametrize(
    ("model", "prompts", "names", "error", "message"),
    [
        (nn.Linear(2, 2), ["a"], None, TypeError, "encode_text"),
        (TextTower(), ["a", "b"], ["x"], ValueError, "2 concepts but got 1"),
        (TextTower(), ["a", "a"], None, ValueError, "more than once"),
    ],
)
def test_bad_input_of_from_text(model, prompts, names, error, message):
    with pytest.raises(error, match=message):
        ConceptBank.from_text(model, tokenise, prompts, names)


def captum_cav(names, classes, weights, layer="conv", ids=None, **stats):
    concepts = [Concept(i, name, None) for i, name in zip(ids or range(len(names)), names, strict=True)]
    return CAV(concepts, layer, {"weights": torch.tensor(weights), "classes": classes, **stats})


def test_from_captum_follows_the_classes_and_not_the_order_of_rows():
    cavs = [
        captum_cav(["striped", "random"], [1, 0], [[1.0, 2.0], [-1.0, -2.0]], accs=torch.tensor(0.75)),
        captum_cav(["dotted", "random"], np.array([0, 1]), [[3.0, 4.0], [-3.0, -4.0]]),
    ]
    bank = ConceptBank.from_captum(cavs)
    assert bank.names == ["striped", "dotted"]
    assert bank.cavs.tolist() == [[-1.0, -2.0], [3.0, 4.0]]
    assert bank.intercepts.tolist() == [0.0, 0.0]
    assert bank.test_accuracy.isnan().all()
    named = ConceptBank.from_captum(cavs, names=["x", "y"], concept="random")
    assert named.cavs.tolist() == [[1.0, 2.0], [-3.0, -4.0]]


def test_to_captum_and_back():
    bank = ConceptBank([[1.0, -2.0], [0.5, 3.0]], names=["striped", "<furry>"])
    cavs = bank.to_captum("layer4")
    assert [cav.layer for cav in cavs] == ["layer4", "layer4"]
    found = ConceptBank.from_captum(cavs)
    assert torch.equal(found.cavs, bank.cavs)
    assert found.names == bank.names
    # The second row is that of the images without the concept.
    assert torch.equal(ConceptBank.from_captum(cavs, concept=1).cavs, -bank.cavs)
    # What Captum's own TCAV looks up.
    weights, classes = cavs[1].stats["weights"], cavs[1].stats["classes"]
    assert weights[classes.index(cavs[1].concepts[0].id)].tolist() == [0.5, 3.0]


def test_from_captum_takes_the_mapping_of_tcav_and_one_of_its_layers():
    cavs = {
        "0-1": {layer: captum_cav(["a", "r"], [0, 1], [[w], [-w]], layer) for layer, w in (("x", 1.0), ("y", 2.0))},
        "2-1": {layer: captum_cav(["b", "r"], [2, 1], [[w], [-w]], layer, [2, 1]) for layer, w in (("x", 3.0),)},
    }
    assert ConceptBank.from_captum(cavs, layer="x").cavs.tolist() == [[1.0], [3.0]]
    with pytest.raises(ValueError, match=r"`layer` to choose one of \['x', 'y'\]"):
        ConceptBank.from_captum(cavs)
    with pytest.raises(ValueError, match=r"`layer` to be one of .* but got 'z'"):
        ConceptBank.from_captum(cavs, layer="z")


def test_from_captum_points_as_captums_own_classifier():
    from captum.concept._utils.classifier import DefaultClassifier
    from torch.utils.data import DataLoader, TensorDataset

    x, labels, normal = planted(120, seed=3)
    with pytest.warns(UserWarning, match="default classifier"):
        classifier = DefaultClassifier()
    # Concept 7 is the one planted, concept 3 its absence.
    classes = torch.where(labels[:, 0] == 1, 7, 3)
    stats = classifier.train_and_eval(DataLoader(TensorDataset(x.float(), classes), batch_size=40))
    cav = CAV(
        [Concept(7, "planted", None), Concept(3, "absent", None)],
        "layer",
        {"weights": classifier.weights(), "classes": classifier.classes(), **stats},
    )
    bank = ConceptBank.from_captum(cav)
    assert (bank.cavs[0].double() @ torch.tensor(normal)) / bank.norms[0] > 0.9
    # Why `accs` is not taken over: every sample is put into the first class.
    assert stats["accs"] < 0.9


@pytest.mark.parametrize(
    ("cavs", "kwargs", "error", "message"),
    [
        ([], {}, ValueError, "at least one CAV"),
        ([None], {}, TypeError, "compute_cavs"),
        ([torch.ones(2)], {}, TypeError, "got Tensor"),
        (CAV([Concept(0, "a", None)], "x"), {}, ValueError, "has no weights"),
        (captum_cav(["a"], [5], [[1.0]]), {}, ValueError, r"row for 'a' \(id 0\)"),
        (captum_cav(["a"], [0], [[1.0]]), {"concept": 1}, ValueError, r"`concept` to lie in 0..0"),
        (captum_cav(["a"], [0], [[1.0]]), {"concept": "b"}, ValueError, r"name one of \['a'\]"),
        (
            [captum_cav(["a"], [0], [[1.0]]), captum_cav(["b"], [0], [[1.0, 2.0]])],
            {},
            ValueError,
            r"one width d but got \[1, 2\]",
        ),
    ],
)
def test_bad_input_of_from_captum(cavs, kwargs, error, message):
    with pytest.raises(error, match=message):
        ConceptBank.from_captum(cavs, **kwargs)


@pytest.fixture
def bank():
    return ConceptBank(
        [[3.0, 4.0], [0.0, 2.0], [1.0, 0.0]],
        [0.5, -1.0, 0.0],
        ["red wing", "long tail", "beak"],
        train_accuracy=[1.0, 0.75, 0.5],
        settings={"method": "svm", "C": 0.1, "seed": 7},
    )


def test_array_is_copied_and_named():
    array = np.eye(2)
    bank = ConceptBank(array)
    array[:] = 7
    assert bank.cavs.tolist() == [[1.0, 0.0], [0.0, 1.0]]
    assert bank.names == ["concept 0", "concept 1"]
    assert bank.intercepts.tolist() == [0.0, 0.0]
    assert ConceptBank([[3, 4]]).norms.tolist() == [5.0]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (([[1.0]], None, ["a", "b"]), "1 concepts but got 2"),
        ((np.ma.masked_array([[1.0, 2.0]], [[True, False]]),), "`cavs` to be an array without a mask.*filled"),
        (([[1.0]], np.ma.masked_array([1.0], [True])), "`intercepts` to be an array without a mask"),
        ((np.array([[1 + 2j]]),), "`cavs` to be real but got torch.complex128"),
        ((torch.ones(2, 3, device="meta"),), "a tensor with values but got one on the meta device"),
    ],
)
def test_bad_input_of_the_constructor(arguments, message):
    with pytest.raises((TypeError, ValueError), match=message):
        ConceptBank(*arguments)


def test_masked_features_and_labels_are_refused():
    x, labels, _ = planted(40)
    for masked in ((np.ma.masked_array(x), labels), (x, np.ma.masked_array(labels))):
        with pytest.raises(TypeError, match=r"without a mask but got a numpy\.ma\.MaskedArray"):
            ConceptBank.fit(*masked)


@pytest.mark.parametrize("chosen", [["beak", "red wing"], [2, 0], np.array([2, 0]), torch.tensor([2, 0]), ["beak", 0]])
def test_select_keeps_the_order_given(bank, chosen):
    part = bank.select(chosen)
    assert part.names == ["beak", "red wing"]
    assert part.cavs.tolist() == [[1.0, 0.0], [3.0, 4.0]]
    assert part.intercepts.tolist() == [0.0, 0.5]
    assert part.train_accuracy.tolist() == [0.5, 1.0]
    assert part.settings == bank.settings


@pytest.mark.parametrize("mask", [[True, False, True], np.array([1, 0, 1], dtype=bool), torch.tensor([1, 0, 1]) > 0])
def test_select_takes_a_mask(bank, mask):
    assert bank.select(mask).names == ["red wing", "beak"]
    assert bank.select("beak").names == bank.select(2).names == ["beak"]


@pytest.mark.parametrize(
    ("chosen", "message"),
    [
        (["red wings"], r"'red wings'\. The nearest of the 3 are \['red wing'"),
        ([3], r"indices in 0..2 but got 3"),
        ([-1], "but got -1"),
        ([0.5], "names, indices, or one bool"),
        ([True, False], r"shape \(L,\) = \(3,\)"),
        ([], "selects none"),
        ([False, False, False], "selects none"),
        ([0, 0], "more than once"),
    ],
)
def test_bad_input_of_select(bank, chosen, message):
    with pytest.raises(ValueError, match=message):
        bank.select(chosen)


def test_rename(bank):
    assert bank.rename({"beak": "bill"}).names == ["red wing", "long tail", "bill"]
    assert bank.names[2] == "beak"
    with pytest.raises(ValueError, match=r"'beek'\. The nearest of the 3 are \['beak'"):
        bank.rename({"beek": "bill"})
    with pytest.raises(ValueError, match="more than once"):
        bank.rename({"beak": "red wing"})


def test_join_keeps_rows_accuracies_and_settings():
    first = ConceptBank([[1.0, 0.0]], [0.5], ["red"], test_accuracy=[0.9], p_values=[0.01], settings={"seed": 1})
    second = ConceptBank(np.eye(2), names=["blue", "long"], settings={"seed": 2})
    bank = ConceptBank.join([first, second])
    assert bank.names == ["red", "blue", "long"]
    assert bank.cavs.tolist() == [[1.0, 0.0], [1.0, 0.0], [0.0, 1.0]]
    assert bank.intercepts.tolist() == [0.5, 0.0, 0.0]
    np.testing.assert_allclose(bank.test_accuracy, [0.9, np.nan, np.nan])
    np.testing.assert_allclose(bank.p_values, [0.01, np.nan, np.nan])
    assert bank.settings == {"method": "joined", "banks": [{"seed": 1}, {"seed": 2}]}
    assert ConceptBank.join([bank.select([0]), bank.select([2])]).settings == bank.settings
    assert ConceptBank.join([first, first], names=["a", "b"]).names == ["a", "b"]


@pytest.mark.parametrize(
    ("banks", "error", "message"),
    [
        ([ConceptBank(np.eye(2)), ConceptBank(np.eye(3))], ValueError, r"of one width, .* but got \[2, 3\]"),
        ([ConceptBank(np.eye(2))] * 2, ValueError, r"different names but 'concept 0', 'concept 1' occur .*rename"),
    ],
)
def test_bad_input_of_join(banks, error, message):
    with pytest.raises(error, match=f"`banks` .*{message}"):
        ConceptBank.join(banks)


def test_cleaned_drops_what_is_hardly_recognised_and_says_so():
    bank = ConceptBank(np.eye(4), names=list("abcd"), test_accuracy=[0.59, 0.6, np.nan, 0.5], settings={"seed": 1})
    with pytest.warns(UserWarning, match=r"2 of 4 concepts .* below 0.6 .* left out: 'a' \(0.59\), 'd' \(0.50\)\."):
        kept = bank.cleaned()
    assert kept.names == ["b", "c"]
    assert kept.settings == {"seed": 1, "cleaned": 0.6}
    assert kept.cleaned().names == kept.names
    with pytest.raises(ValueError, match=r"`minimum` to leave at least one concept but got 0.6, .* is 0.59"):
        bank.select(["a", "d"]).cleaned()


def test_p_values_are_kept_in_files_that_have_them(bank, tmp_path):
    known = ConceptBank(np.eye(2), p_values=[0.2, np.nan])
    for each, there in ((known, True), (bank, False)):
        each.save(tmp_path / "bank.safetensors")
        with safe_open(tmp_path / "bank.safetensors", framework="pt") as file:
            assert ("p_values" in file.keys()) == there  # noqa: SIM118
        np.testing.assert_array_equal(ConceptBank.load(tmp_path / "bank.safetensors").p_values, each.p_values)
    np.testing.assert_allclose(known.select([1, 0]).to(dtype=torch.float64).p_values, [np.nan, 0.2])


def test_repr_names_what_matters(bank):
    assert repr(bank) == (
        "ConceptBank(3 concepts x 2 dimensions, method='svm', mean train accuracy 0.750, "
        "names: 'red wing', 'long tail', 'beak')"
    )
    assert repr(ConceptBank(np.ones((4, 1)))).endswith("'concept 2', ...)")


def same(first, second):
    return (
        first.names == second.names
        and first.settings == second.settings
        and all(
            torch.equal(getattr(first, name).nan_to_num(-1), getattr(second, name).nan_to_num(-1))
            for name in ("cavs", "intercepts", "train_accuracy", "test_accuracy")
        )
    )


@pytest.mark.parametrize("copied", [copy.deepcopy, lambda bank: pickle.loads(pickle.dumps(bank))])
def test_bank_can_be_copied(bank, copied):
    assert same(copied(bank), bank)


def test_to_changes_the_type_of_all_tensors(bank):
    moved = bank.to("cpu", torch.float64)
    assert {moved.cavs.dtype, moved.intercepts.dtype, moved.train_accuracy.dtype} == {torch.float64}
    assert bank.dtype == torch.float32
    assert bank.to(dtype=torch.float16).dtype == torch.float16


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_save_and_load(bank, tmp_path, dtype):
    path = tmp_path / "bank.safetensors"
    path.write_text("old")
    bank.to(dtype=dtype).save(path)
    assert same(ConceptBank.load(path), bank.to(dtype=dtype))
    assert [each.name for each in tmp_path.iterdir()] == ["bank.safetensors"]


def test_failed_save_leaves_the_old_file_and_nothing_else(bank, tmp_path):
    path = tmp_path / "bank.safetensors"
    bank.save(path)
    bank.settings["bad"] = object()
    with pytest.raises(TypeError):
        bank.save(path)
    assert [each.name for each in tmp_path.iterdir()] == ["bank.safetensors"]
    assert ConceptBank.load(path).names == bank.names


def test_save_says_where_it_cannot_write(bank, tmp_path):
    with pytest.raises(FileNotFoundError, match="does not exist"):
        bank.save(tmp_path / "missing" / "bank.safetensors")
    with pytest.raises(IsADirectoryError, match="it is a folder"):
        bank.save(tmp_path)


def test_every_flipped_bit_is_noticed(bank, tmp_path):
    path = tmp_path / "bank.safetensors"
    bank.save(path)
    whole = path.read_bytes()
    told = set()
    for position in range(8, len(whole)):
        path.write_bytes(whole[:position] + bytes([whole[position] ^ 4]) + whole[position + 1 :])
        try:
            loaded = ConceptBank.load(path)
        except ValueError as error:
            told.add(str(error).partition(": ")[2])
            continue
        # The header of safetensors has spaces and an order of its own, which say nothing.
        assert same(loaded, bank)
    assert "its content is not what was written. Copy it again, or fit the bank anew." in told


def test_files_without_a_checksum_load(bank, tmp_path):
    path = tmp_path / "old.safetensors"
    tensors = {name: getattr(bank, name) for name in ("cavs", "intercepts", "train_accuracy", "test_accuracy")}
    header = {"kind": "captum_concepts.ConceptBank", "names": json.dumps(bank.names)}
    save_file(tensors, path, header | {"settings": json.dumps(bank.settings)})
    assert same(ConceptBank.load(path), bank)


def damaged(bank, path, kind):
    bank.save(path)
    if kind == "truncated":
        path.write_bytes(path.read_bytes()[:-9])
    elif kind == "empty":
        path.write_bytes(b"")
    elif kind == "text":
        path.write_text("name,x,y\n" * 20)
    elif kind == "other":
        save_file({"weight": torch.ones(2)}, path)
    elif kind == "names":
        path.write_bytes(path.read_bytes().replace(b"beak", b"bea\x22"))
    elif kind == "shapes":
        tensors = {"cavs": torch.ones(2, 2), "intercepts": torch.ones(3)}
        tensors |= {"train_accuracy": torch.ones(2), "test_accuracy": torch.ones(2)}
        header = {"kind": "captum_concepts.ConceptBank", "names": '["a", "b"]', "settings": "{}"}
        save_file(tensors, path, header)
    elif kind == "missing":
        path.unlink()


@pytest.mark.parametrize(
    ("kind", "error", "message"),
    [
        ("truncated", ValueError, "not a complete safetensors file"),
        ("empty", ValueError, "not a complete safetensors file"),
        ("text", ValueError, "not a complete safetensors file"),
        ("other", ValueError, r"of another kind: it holds \['weight'\]"),
        ("names", ValueError, "not a complete safetensors file|damaged"),
        ("shapes", ValueError, "damaged concept bank: .*`intercepts` to have shape"),
        ("missing", FileNotFoundError, "no such file"),
    ],
)
def test_load_says_what_is_wrong_with_a_file(bank, tmp_path, kind, error, message):
    path = tmp_path / "bank.safetensors"
    damaged(bank, path, kind)
    with pytest.raises(error, match=message):
        ConceptBank.load(path)


def test_a_solver_that_does_not_converge_ends_and_is_told(monkeypatch):
    monkeypatch.setattr("captum_concepts.bank.directions._MOST_STEPS", 20)
    features = 700 * torch.randn(120, 8, generator=torch.Generator().manual_seed(0))
    labels = torch.stack([torch.arange(120) % 2, (features[:, 0] > 0).long()], 1)
    with pytest.warns(UserWarning, match=r"SVMs of \d of 2 concepts did not converge; embeddings reach .*normalised"):
        bank = ConceptBank.fit(features, labels)
    assert bank.cavs.isfinite().all()


def test_an_image_on_the_boundary_shows_the_concept():
    bank = ConceptBank.fit(
        [[0.0], [2.0], [-1.0], [-1.0]], [[1], [1], [0], [0]], method="mean", n_pos=2, n_neg=2, hold_back=0, min_images=1
    )
    assert bank.train_accuracy.item() == 1
