import os
import time

import numpy as np
import pytest
import torch
from torch import nn

from captum_concepts._support import disk_cache
from captum_concepts._support.disk_cache import FileHashes
from captum_concepts._support.fingerprints import fingerprint_of, hash_file


@pytest.fixture
def read_paths(monkeypatch):
    """The files whose content was read."""
    paths = []
    real = disk_cache.hash_file
    monkeypatch.setattr(disk_cache, "hash_file", lambda path: paths.append(path) or real(path))
    return paths


def old_file(path, content=b"weights", age=100.0):
    path.write_bytes(content)
    os.utime(path, (time.time() - age,) * 2)
    return path


def settled(monkeypatch):
    """Let the time of a change of properties, which cannot be set, be long ago."""
    monkeypatch.setattr(disk_cache, "_GRAIN", -1.0)


def test_a_file_is_read_once_by_any_number_of_processes(tmp_path, read_paths, monkeypatch):
    settled(monkeypatch)
    path = old_file(tmp_path / "a")
    first = FileHashes(tmp_path / "notes").of(path)
    assert first == hash_file(path)
    assert FileHashes(tmp_path / "notes").of(path) == first
    assert len(read_paths) == 1


def test_a_replaced_file_never_has_the_old_hash(tmp_path, monkeypatch):
    settled(monkeypatch)
    hashes = FileHashes(tmp_path / "notes")
    path = old_file(tmp_path / "a")
    state = path.stat()
    first = hashes.of(path)
    # of the same size, with its time set back, in place and by renaming
    path.write_bytes(b"WEIGHTS")
    os.utime(path, ns=(state.st_atime_ns, state.st_mtime_ns))
    second = hashes.of(path)
    other = old_file(tmp_path / "b", b"wEIGHTs")
    os.utime(other, ns=(state.st_atime_ns, state.st_mtime_ns))
    other.replace(path)
    third = hashes.of(path)
    assert len({first, second, third}) == 3


def test_a_file_that_may_still_change_is_not_remembered(tmp_path, read_paths):
    path = tmp_path / "a"
    path.write_bytes(b"weights")
    hashes = FileHashes(tmp_path / "notes")
    assert hashes.of(path) == hashes.of(path)
    assert len(read_paths) == 2
    assert not (tmp_path / "notes").exists()


def test_a_damaged_note_is_written_anew(tmp_path, read_paths, monkeypatch):
    settled(monkeypatch)
    path, hashes = old_file(tmp_path / "a"), FileHashes(tmp_path / "notes")
    expected = hashes.of(path)
    (note,) = (tmp_path / "notes").iterdir()
    for broken in (b"", b"[]", b"{", note.read_bytes()[:-1]):
        note.write_bytes(broken)
        with pytest.warns(UserWarning, match="cannot be used"):
            assert FileHashes(tmp_path / "notes").of(path) == expected
    assert len(read_paths) == 5
    assert hashes.of(path) == expected
    assert len(read_paths) == 5


def test_modules_by_structure_and_weights():
    def network(bias=True, factor=1.0):
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(0)
            return nn.Sequential(nn.Linear(4, 4, bias=bias), nn.ReLU() if factor == 1 else nn.Tanh())

    first = network()
    assert fingerprint_of(first) == fingerprint_of(network())
    assert fingerprint_of(first) == fingerprint_of(first.eval())
    assert len({fingerprint_of(module) for module in (first, network(bias=False), network(factor=2.0))}) == 3
    before = fingerprint_of(first)
    with torch.no_grad():
        first[0].weight[1, 2] += 1e-3
    assert fingerprint_of(first) != before
    before = fingerprint_of(first)
    first[0].weight = nn.Parameter(torch.zeros(4, 4))
    assert fingerprint_of(first) != before
    before = fingerprint_of(first)
    first[0].weight.data.add_(1)  # which no version counter shows
    assert fingerprint_of(first) != before
    before = fingerprint_of(first.double())
    assert before != fingerprint_of(first.float())


def test_no_two_values_share_a_fingerprint(tmp_path):
    (tmp_path / "a").write_bytes(b"1")
    values = [
        *(None, True, 1, 1.0, "1", b"1", tmp_path / "a", [1], [[1]], {"a": 1}, {"a": [1]}, [1, 1]),
        *(np.ones(1), np.ones(1, np.float32), np.ones((1, 1)), np.array(["1"], object)),
        *(torch.ones(1), torch.ones(1, 1), torch.ones(1).bfloat16()),
    ]
    assert len({fingerprint_of(value) for value in values}) == len(values)
    assert fingerprint_of({"a": 1, "b": (2,)}) == fingerprint_of({"b": [2], "a": 1})
    assert fingerprint_of("a", "b") != fingerprint_of("ab")
    with pytest.raises(TypeError):
        fingerprint_of({"a": object()})


def quantised_linear(seed: int) -> nn.Module:
    layer = nn.Linear(6, 6)
    with torch.no_grad():
        layer.weight.copy_(torch.randn(6, 6, generator=torch.Generator().manual_seed(seed)))
        layer.bias.zero_()
    return torch.ao.quantization.quantize_dynamic(nn.Sequential(layer), {nn.Linear})


@pytest.mark.filterwarnings("ignore")
def test_quantised_weights_count() -> None:
    assert fingerprint_of(quantised_linear(0)) == fingerprint_of(quantised_linear(0))
    assert fingerprint_of(quantised_linear(0)) != fingerprint_of(quantised_linear(1))
    # The same integers, another scale.
    first, second = (torch.quantize_per_tensor(torch.ones(2) * scale, scale, 0, torch.qint8) for scale in (0.5, 1.0))
    assert torch.equal(first.int_repr(), second.int_repr())
    assert fingerprint_of(first) != fingerprint_of(second)


def test_sparse_tensors_and_extra_state_count() -> None:
    class WithState(nn.Module):
        def __init__(self, state: int) -> None:
            super().__init__()
            self.state = state

        def get_extra_state(self) -> dict[str, int]:
            return {"state": self.state}

    assert fingerprint_of(torch.eye(2).to_sparse()) != fingerprint_of(torch.ones(2, 2).to_sparse())
    assert fingerprint_of(WithState(1)) != fingerprint_of(WithState(2))
