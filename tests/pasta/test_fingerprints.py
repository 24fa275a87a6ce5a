import numpy as np
import torch
from torch import nn

from captum_concepts.fingerprints import fingerprint_of


def test_modules_by_structure_and_weights():
    def network(bias=True, last=nn.ReLU):
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(0)
            return nn.Sequential(nn.Linear(4, 4, bias=bias), last())

    first = network()
    assert fingerprint_of(first) == fingerprint_of(network()) == fingerprint_of(first.eval())
    seen = {fingerprint_of(module) for module in (first, network(bias=False), network(last=nn.Tanh))}
    first[0].weight.data[1, 2] += 1e-3  # which no version counter shows
    seen.add(fingerprint_of(first))
    seen.add(fingerprint_of(first.double()))
    assert len(seen) == 5


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
