"""What a call owes its user: the model, the arguments and the global generators are as they were."""

from __future__ import annotations

import pickle
import random
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn


def _generators() -> tuple[bytes, ...]:
    # Whole states: what is drawn moves a position, and rarely the array of numbers.
    states = torch.get_rng_state().tolist(), np.random.get_state(), random.getstate()  # noqa: NPY002
    return tuple(pickle.dumps(state) for state in states)


def _hooks(model: nn.Module) -> list[tuple[int, ...]]:
    names = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")
    return [tuple(len(getattr(module, name)) for name in names) for module in model.modules()]


def _model(model: nn.Module) -> list[Any]:
    modules = list(model.modules())
    inplace = [getattr(module, "inplace", None) for module in modules]
    parameters = [(parameter.requires_grad, parameter.grad is None) for parameter in model.parameters()]
    return [_hooks(model), [module.training for module in modules], inplace, parameters]


def _same(first: Tensor, other: Tensor) -> bool:
    return first.shape == other.shape and bool(((first == other) | (first != first) & (other != other)).all())


@contextmanager
def untouched(*things: Any) -> Iterator[None]:
    """Fail if the block changes a model, an array or a tensor given, leaves a hook, or moves a global generator.

    The same holds where the block raises.
    """
    models = [thing for thing in things if isinstance(thing, nn.Module)]
    arrays = [thing for thing in things if isinstance(thing, Tensor | np.ndarray)]
    states = [{name: value.clone() for name, value in model.state_dict().items()} for model in models]
    values = [torch.as_tensor(array).detach().clone() for array in arrays]
    gradients = [isinstance(array, Tensor) and array.requires_grad for array in arrays]
    before, generators = [_model(model) for model in models], _generators()
    try:
        yield
    finally:
        assert _generators() == generators
        for model, state, expected in zip(models, states, before, strict=True):
            assert _model(model) == expected
            for name, value in model.state_dict().items():
                assert _same(value, state[name]), f"{name} was changed"
        for array, value, had in zip(arrays, values, gradients, strict=True):
            assert _same(torch.as_tensor(array).detach(), value), "an array was changed"
            if isinstance(array, Tensor):
                assert array.requires_grad == had
                assert array.grad is None
