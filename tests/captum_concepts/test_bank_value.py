"""Banks as values: what is chosen, renamed, joined and copied, and what comes back from files."""

import base64
import pickle
import zlib

import numpy as np
import pytest
import torch
from safetensors.torch import save_file

from captum_concepts import ConceptBank


@pytest.fixture
def bank():
    return ConceptBank(
        [[3.0, 4.0], [0.0, 2.0], [1.0, 0.0]],
        [0.5, -1.0, 0.0],
        ["red wing", "long tail", "beak"],
        train_accuracy=[1.0, 0.75, 0.5],
        p_values=[0.2, np.nan, 0.1],
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
        ({"cavs": np.ones(2)}, ValueError, r"`cavs` to have shape \(L, d\) but got \(2,\)"),
        ({"cavs": [[np.nan, 1.0]]}, ValueError, "`cavs` to be finite"),
        ({"intercepts": [0.0]}, ValueError, r"`intercepts` to have shape \(L,\) = \(2,\) but got \(1,\)"),
        ({"names": ["a", "a"]}, ValueError, "`names` to hold different names"),
        ({"names": {"a", "b"}}, TypeError, "a set, which has no order"),
        ({"cavs": np.eye(2, dtype=bool)}, TypeError, "`cavs` to hold numbers .* Is it a mask"),
        ({"cavs": np.ones((2, 0))}, ValueError, "`cavs` to hold at least one number"),
        (
            {"cavs": [[0.0, 0.0], [1.0, 0.0]], "names": ["a", "b"]},
            ValueError,
            r"no vector of length 0, .* \['a'\] \(1 in all\)",
        ),
        ({"test_accuracy": [0.5, 1.5]}, ValueError, r"`test_accuracy` to lie in \[0, 1\]"),
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
    np.testing.assert_allclose(part.p_values, [0.1, 0.2])
    assert part.settings == bank.settings
    assert bank.select([True, False, True]).names == ["red wing", "beak"]
    assert bank.select("b*").names == bank.select(2).names == ["beak"]
    for wrong, message in (
        (["red wings"], r"nearest are \['red wing'"),
        ([3], "`concepts`"),
        ([], "`concepts` to select at least one"),
        ([0, 0], "more than once"),
    ):
        with pytest.raises(ValueError, match=message):
            bank.select(wrong)


def test_rename(bank):
    assert bank.rename({"beak": "bill"}).names == ["red wing", "long tail", "bill"]
    assert bank.names[2] == "beak"
    assert bank.rename({"beak": "red wing", "red wing": "beak"}).names == ["beak", "long tail", "red wing"]
    with pytest.raises(ValueError, match="more than once"):
        bank.rename({"beak": "red wing"})
    with pytest.raises(ValueError, match=r"'beek'\. The nearest of the 3 are \['beak'"):
        bank.rename({"beek": "bill"})


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
    with pytest.raises(ValueError, match=r"of one width, .* but got \[2, 3\]"):
        ConceptBank.join([first, ConceptBank(np.eye(3))])
    with pytest.raises(ValueError, match="different names"):
        ConceptBank.join([first, first])
    with pytest.raises(ValueError, match="`banks` to hold at least one"):
        ConceptBank.join([])


def test_cleaned_drops_what_is_hardly_recognised_and_says_so():
    bank = ConceptBank(np.eye(4), names=list("abcd"), test_accuracy=[0.59, 0.6, np.nan, 0.5], settings={"seed": 1})
    with pytest.warns(UserWarning, match=r"2 of 4 concepts .* below 0.6 .* left out: 'a' \(0.59\), 'd' \(0.50\)\."):
        cleaned = bank.cleaned()
    assert cleaned.names == ["b", "c"]
    assert cleaned.settings == {"seed": 1, "cleaned": 0.6}
    assert cleaned.cleaned().names == cleaned.names
    with pytest.raises(ValueError, match=r"`minimum` to leave at least one concept but got 0.6, .* is 0.59"):
        bank.select(["a", "d"]).cleaned()


def same(first, second):
    return (
        first.names == second.names
        and first.settings == second.settings
        and all(
            torch.equal(getattr(first, name).nan_to_num(-1), getattr(second, name).nan_to_num(-1))
            for name in ("cavs", "intercepts", "train_accuracy", "test_accuracy", "p_values")
        )
    )


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_save_and_load(bank, tmp_path, dtype):
    path = tmp_path / "bank.safetensors"
    path.write_text("old")
    bank.to(dtype=dtype).save(path)
    assert same(ConceptBank.load(path), bank.to(dtype=dtype))
    assert same(pickle.loads(pickle.dumps(bank)), bank)
    with pytest.raises(TypeError, match="`dtype` to be a floating-point type"):
        bank.to(dtype=torch.int64)
    assert [file.name for file in tmp_path.iterdir()] == ["bank.safetensors"]


def test_every_flipped_bit_is_noticed(bank, tmp_path):
    path = tmp_path / "bank.safetensors"
    bank.save(path)
    content = path.read_bytes()
    for position in range(8, len(content), 7):
        path.write_bytes(content[:position] + bytes([content[position] ^ 4]) + content[position + 1 :])
        try:
            loaded = ConceptBank.load(path)
        except ValueError:
            continue
        # The header of safetensors has spaces and an order of its own, which say nothing.
        assert same(loaded, bank)


#: A file that 0.2 has written, zlib in base 85.
OF_VERSION_2 = (
    "c-ozkO=`n15QRlg613_<1X-4qpG9LD=p`a!#`;N2YRA}eN(iR8S$nif_M(eIARQQ_5$`>|0X;vVv937JE8{?egFMIUE3Tn39bV&|#I4b@kFwrNO"
    "lA`ATPb@=tr!n&O)GJR2|kv!_Id@4>#JOyYGoSN&9~F#73!lGbq8RH@G=35XhmtlVjjgw!6R)8rmad?VGCX?mn-0f=F009kSG-!RR{q*vLKk^Dr6b"
    "wJXL_aO6=(mCoS>XBX;L%V%>(B&XWNT#FL%7u$gw3#(2|P%qF5R?HFMh!Q=iXYkjuY?kI^w=B;JzOgrv#C*ZF=5`^*KZ}Ky|_vSG-<0NLm?M&x#P^"
    "xc1T^@>v8R2w{XrZkCm%%CF%WN2Cp%6+_gl_5dYfv~he*W_Pg3$NpZ{PfTy7>Vx8?|T"
)


def write_first(path, names='["red wing", "grösser"]', **tensors):
    """Write a bank as 0.1 did, whose files had no checksum and no p-values."""
    header = {"kind": "captum_concepts.ConceptBank", "names": names, "settings": '{"method": "svm", "C": 0.5}'}
    known = {"cavs": torch.tensor([[3.0, 4.0], [0.0, 2.0]]), "intercepts": torch.tensor([0.5, -1.0])}
    known |= {"train_accuracy": torch.tensor([1.0, 0.75]), "test_accuracy": torch.full((2,), torch.nan)}
    save_file(known | tensors, path, header)


def test_files_of_earlier_versions_are_read(tmp_path):
    path = tmp_path / "bank.safetensors"
    content = zlib.decompress(base64.b85decode(OF_VERSION_2))
    path.write_bytes(content)
    expected = ConceptBank(
        [[3.0, 4.0], [0.0, 2.0]],
        [0.5, -1.0],
        ["red wing", "größer"],
        train_accuracy=[1.0, 0.75],
        p_values=[0.25, np.nan],
        settings={"method": "svm", "C": 0.5},
    )
    assert same(ConceptBank.load(path), expected)
    path.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
    with pytest.raises(ValueError, match="damaged concept bank: its content is not what was written"):
        ConceptBank.load(path)
    write_first(path)
    loaded = ConceptBank.load(path)
    expected.p_values = torch.full((2,), torch.nan)
    assert same(loaded, expected.rename({"größer": "grösser"}))
    # Written anew, they are files as of today.
    loaded.save(path)
    assert same(ConceptBank.load(path), loaded)


@pytest.mark.parametrize(
    ("names", "rows", "message"),
    [('["a", "b"]', 3, "`intercepts` to have shape"), ('"ab"', 2, "`names`"), ("[", 2, "Expecting value")],
)
def test_files_that_do_not_fit_together_are_damaged(tmp_path, names, rows, message):
    write_first(tmp_path / "bank", names, intercepts=torch.ones(rows))
    with pytest.raises(ValueError, match=f"damaged concept bank: .*{message}"):
        ConceptBank.load(tmp_path / "bank")


def test_a_failed_save_leaves_the_old_file_and_nothing_else(bank, tmp_path):
    path = tmp_path / "bank.safetensors"
    bank.save(path)
    bank.settings["bad"] = object()
    with pytest.raises(TypeError, match="`settings` of the bank to hold what JSON can"):
        bank.save(path)
    assert [file.name for file in tmp_path.iterdir()] == ["bank.safetensors"]
    assert ConceptBank.load(path).names == bank.names
    del bank.settings["bad"]
    with pytest.raises(FileNotFoundError, match="does not exist"):
        bank.save(tmp_path / "missing" / "bank.safetensors")
    with pytest.raises(IsADirectoryError, match="it is a folder"):
        bank.save(tmp_path)
