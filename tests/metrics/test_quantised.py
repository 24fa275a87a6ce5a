"""Models with quantised layers, and with weights that are tensor subclasses, in every metric."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_map

from metric_inputs import explained_inputs, metric_arguments, metric_makers, predicted, region, variant_makers
from quantus_concepts import CEM, shared_passes
from tiny_models import N_CONCEPTS, SharingConceptModel

N, SIZE = 8, 12


class Int8Weight(Tensor):
    """Integers and a scale that behave as the numbers they stand for, as the weights of torchao do."""

    integers: Tensor
    scale: float

    @staticmethod
    def __new__(cls, weight: Tensor) -> Int8Weight:
        return Tensor._make_wrapper_subclass(cls, weight.shape, dtype=weight.dtype, device=weight.device)

    def __init__(self, weight: Tensor) -> None:
        self.scale = float(weight.abs().max()) / 127
        self.integers = (weight / self.scale).round().to(torch.int8)

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func is torch.ops.aten.detach.default:
            return args[0]

        def plain(value: Any) -> Any:
            return value.integers * value.scale if isinstance(value, Int8Weight) else value

        return func(*tree_map(plain, args), **tree_map(plain, kwargs or {}))


class MixesChannels(nn.Module):
    """A linear layer over the channels, which is what quantisation is for."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(6, 6)
        nn.init.orthogonal_(self.linear.weight, generator=torch.Generator().manual_seed(0))
        nn.init.zeros_(self.linear.bias)

    def forward(self, features: Tensor) -> Tensor:
        return self.linear(features.permute(0, 2, 3, 1)).permute(0, 3, 1, 2)


def make(kind: str, *, head: bool = False) -> SharingConceptModel:
    model = SharingConceptModel()
    model.features.append(MixesChannels())
    model.eval()
    if kind == "quantised":
        dynamic = pytest.importorskip("torch.ao.quantization").quantize_dynamic
        if head:
            model.head = dynamic(model.head, {nn.Linear})
        else:
            model.features[3] = dynamic(model.features[3], {nn.Linear})
    elif kind == "subclass":
        linear = model.head[0] if head else model.features[3].linear
        linear.weight = nn.Parameter(Int8Weight(linear.weight.detach()), requires_grad=False)
    return model


def explain(model: nn.Module, inputs: np.ndarray, targets: np.ndarray, **kwargs: Any) -> np.ndarray:
    """Explain without gradients, which quantised layers do not have: a map of an image, or each value."""
    with torch.no_grad():
        power = 1 + np.abs(model(torch.as_tensor(inputs)).numpy()[:, :1]) / 10
    if inputs.ndim == 2:
        return np.abs(inputs) ** power
    return np.abs(inputs).sum(1, keepdims=True) ** power[..., None, None]


def score(model: SharingConceptModel) -> dict[str, list[float]]:
    rng = np.random.default_rng(7)
    images = rng.normal(size=(N, 3, SIZE, SIZE)).astype(np.float32)
    makers = metric_makers(metric_arguments(images, rng) | {"importance": "value"}) | variant_makers(images)
    classes = predicted(model, images)
    return {
        name: metric(*explained_inputs(metric, model, images), classes, s_batch=region(N, SIZE), explain_func=explain)
        for name, metric in ((name, make()) for name, make in makers.items())
    }


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("head", [False, True], ids=["backbone", "head"])
@pytest.mark.parametrize("kind", ["quantised", "subclass"])
def test_every_metric_scores_inside_and_outside_a_block(kind: str, head: bool) -> None:
    model = make(kind, head=head)
    alone = score(model)
    with shared_passes():
        np.testing.assert_equal([score(model), score(model)], [alone, alone])
    plain = score(make("plain"))
    for name, scores in alone.items():
        assert np.isfinite(scores).any(), name
        # Eight bits are nearly what they stand for.
        assert np.nanmean(np.abs(np.subtract(scores, plain[name]))) < 0.15, name


@pytest.mark.filterwarnings("ignore")
def test_a_head_without_a_gradient_has_importance_by_value_only() -> None:
    model = make("quantised", head=True)
    images = np.zeros((N, 3, SIZE, SIZE), np.float32)
    with pytest.raises(ValueError, match=r"gradient of the model's head.*Pass importance='value'"):
        CEM(np.ones((N, N_CONCEPTS)))(model, images, np.zeros(N, int))
