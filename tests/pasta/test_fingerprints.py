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
