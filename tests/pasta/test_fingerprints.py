import numpy as np
import pytest
import torch
from torch import nn

from captum_concepts._support.fingerprints import fingerprint_of


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
