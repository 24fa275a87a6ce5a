"""Banks as values: what is chosen, renamed, joined and copied, and what comes back from files."""

import pickle

import numpy as np
import pytest
import torch
from safetensors import safe_open
from safetensors.torch import save_file

from captum_concepts import ConceptBank


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
    ("arguments", "error", "message"),
    [
        ({"cavs": np.eye(2, dtype=bool)}, TypeError, "`cavs` to hold numbers .* Is it a mask"),
        ({"cavs": np.ones(2)}, ValueError, r"`cavs` to have shape \(L, d\) but got \(2,\)"),
        ({"cavs": np.ones((2, 0))}, ValueError, "`cavs` to hold at least one number"),
        ({"cavs": [[np.nan, 1.0]]}, ValueError, "`cavs` to be finite"),
        ({"intercepts": [0.0, np.inf]}, ValueError, "`intercepts` to be finite"),
        ({"intercepts": [0.0]}, ValueError, r"`intercepts` to have shape \(L,\) = \(2,\) but got \(1,\)"),
        ({"test_accuracy": [0.5, 1.5]}, ValueError, r"`test_accuracy` to lie in \[0, 1\]"),
        ({"names": ["a", "a"]}, ValueError, "`names` to hold different names"),
        ({"names": {"a", "b"}}, TypeError, "a set, which has no order"),
    ],
)
def test_bad_banks_are_refused(arguments, error, message):
    with pytest.raises(error, match=message):
        ConceptBank(**{"cavs": np.eye(2)} | arguments)


@pytest.mark.parametrize("chosen", [["beak", "red wing"], np.array([2, 0]), torch.tensor([2, 0]), ["beak", 0]])
def test_select_keeps_the_order_given(bank, chosen):
    part = bank.select(chosen)
    assert part.names == ["beak", "red wing"]
    assert part.cavs.tolist() == [[1.0, 0.0], [3.0, 4.0]]
    assert part.intercepts.tolist() == [0.0, 0.5]
    assert part.train_accuracy.tolist() == [0.5, 1.0]
    assert part.settings == bank.settings
    assert (
        bank.select(torch.tensor([1, 0, 1]) > 0).names == bank.select([True, False, True]).names == ["red wing", "beak"]
    )
    assert bank.select("b*").names == bank.select(2).names == ["beak"]


@pytest.mark.parametrize(
    ("chosen", "message"),
    [
        (["red wings"], r"'red wings'\. The nearest are \['red wing'"),
        ([3], r"`concepts` to lie in \[0, 2\] but got 3"),
        ([True, False], r"shape \(L,\) = \(3,\)"),
        ([], "selects none"),
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
    assert bank.rename({"beak": "red wing", "red wing": "beak"}).names == ["beak", "long tail", "red wing"]
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
        ([], ValueError, "at least one bank"),
        ([ConceptBank(np.eye(2)), ConceptBank(np.eye(3))], ValueError, r"of one width, .* but got \[2, 3\]"),
        ([ConceptBank(np.eye(2))] * 2, ValueError, r"different names but \['concept 0', 'concept 1'\] occur"),
    ],
)
def test_bad_input_of_join(banks, error, message):
    with pytest.raises(error, match=message):
        ConceptBank.join(banks)


def test_cleaned_drops_what_is_hardly_recognised_and_says_so():
    bank = ConceptBank(np.eye(4), names=list("abcd"), test_accuracy=[0.59, 0.6, np.nan, 0.5], settings={"seed": 1})
    with pytest.warns(UserWarning, match=r"2 of 4 concepts .* below 0.6 .* left out: 'a' \(0.59\), 'd' \(0.50\)\."):
        cleaned = bank.cleaned()
    assert cleaned.names == ["b", "c"]
    assert cleaned.settings == {"seed": 1, "cleaned": 0.6}
    assert cleaned.cleaned().names == cleaned.names
    with pytest.raises(ValueError, match=r"`minimum` to leave at least one concept but got 0.6, .* is 0.59"):
        bank.select(["a", "d"]).cleaned()


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


def test_to_changes_the_type_of_all_tensors(bank):
    moved = bank.to("cpu", torch.float64)
    assert {moved.cavs.dtype, moved.intercepts.dtype, moved.train_accuracy.dtype} == {torch.float64}
    assert bank.dtype == torch.float32
    assert bank.to(dtype=torch.float16).dtype == torch.float16
    with pytest.raises(TypeError, match="`dtype` to be a floating-point type"):
        bank.to(dtype=torch.int64)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_save_and_load(bank, tmp_path, dtype):
    path = tmp_path / "bank.safetensors"
    path.write_text("old")
    bank.to(dtype=dtype).save(path)
    assert same(ConceptBank.load(path), bank.to(dtype=dtype))
    assert same(pickle.loads(pickle.dumps(bank)), bank)
    assert [file.name for file in tmp_path.iterdir()] == ["bank.safetensors"]


def test_failed_save_leaves_the_old_file_and_nothing_else(bank, tmp_path):
    path = tmp_path / "bank.safetensors"
    bank.save(path)
    bank.settings["bad"] = object()
    with pytest.raises(TypeError):
        bank.save(path)
    assert [file.name for file in tmp_path.iterdir()] == ["bank.safetensors"]
    assert ConceptBank.load(path).names == bank.names
    with pytest.raises(FileNotFoundError, match="does not exist"):
        bank.save(tmp_path / "missing" / "bank.safetensors")
    with pytest.raises(IsADirectoryError, match="it is a folder"):
        bank.save(tmp_path)


def test_every_flipped_bit_is_noticed(bank, tmp_path):
    path = tmp_path / "bank.safetensors"
    bank.save(path)
    content = path.read_bytes()
    messages = set()
    for position in range(8, len(content)):
        path.write_bytes(content[:position] + bytes([content[position] ^ 4]) + content[position + 1 :])
        try:
            loaded = ConceptBank.load(path)
        except ValueError as error:
            messages.add(str(error).partition(": ")[2])
            continue
        # The header of safetensors has spaces and an order of its own, which say nothing.
        assert same(loaded, bank)
    assert "its content is not what was written. Copy it again, or fit the bank anew." in messages


def test_files_without_a_checksum_load(bank, tmp_path):
    path = tmp_path / "old.safetensors"
    bank.save(path)
    with safe_open(path, framework="pt") as file:
        header, tensors = file.metadata(), {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    del header["sha256"]
    save_file(tensors, path, header)
    assert same(ConceptBank.load(path), bank)


def save_other_shapes(path):
    tensors = {name: torch.ones(2) for name in ("train_accuracy", "test_accuracy")}
    tensors |= {"cavs": torch.ones(2, 2), "intercepts": torch.ones(3)}
    save_file(tensors, path, {"kind": "captum_concepts.ConceptBank", "names": '["a", "b"]', "settings": "{}"})


@pytest.mark.parametrize(
    ("damage", "error", "message"),
    [
        (lambda path: path.write_bytes(path.read_bytes()[:-9]), ValueError, "not a complete safetensors file"),
        (lambda path: save_file({"weight": torch.ones(2)}, path), ValueError, r"another kind: it holds \['weight'\]"),
        (save_other_shapes, ValueError, "damaged concept bank: .*`intercepts` to have shape"),
        (lambda path: path.unlink(), FileNotFoundError, "no such file"),
    ],
    ids=["cut short", "weights", "shapes", "missing"],
)
def test_load_says_what_is_wrong_with_a_file(bank, tmp_path, damage, error, message):
    path = tmp_path / "bank.safetensors"
    bank.save(path)
    damage(path)
    with pytest.raises(error, match=message):
        ConceptBank.load(path)


def test_p_values_are_kept_in_files_that_have_them(bank, tmp_path):
    with_p_values = ConceptBank(np.eye(2), p_values=[0.2, np.nan])
    for saved, there in ((with_p_values, True), (bank, False)):
        saved.save(tmp_path / "bank.safetensors")
        with safe_open(tmp_path / "bank.safetensors", framework="pt") as file:
            assert ("p_values" in file.keys()) == there  # noqa: SIM118
        np.testing.assert_array_equal(ConceptBank.load(tmp_path / "bank.safetensors").p_values, saved.p_values)
    np.testing.assert_allclose(with_p_values.select([1, 0]).to(dtype=torch.float64).p_values, [np.nan, 0.2])
