"""Running a user's model without leaving a trace: on its device, in eval mode and back, one thread at a time."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from itertools import chain
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np
import torch
from torch import Tensor, nn


def first_floating(module: nn.Module) -> Tensor | None:
    """Return the parameter or buffer that tells device and type of a module; None without any."""
    tensors = chain(module.parameters(), module.buffers())
    return next((tensor for tensor in tensors if tensor.is_floating_point()), None)


def to_model(model: nn.Module, array: Any) -> Tensor:
    """Put an array on a model's device, in its precision; without parameters, on the CPU in float32."""
    reference = first_floating(model)
    if reference is None:
        return torch.as_tensor(np.asarray(array), dtype=torch.float32)
    return torch.as_tensor(array).to(device=reference.device, dtype=reference.dtype)


def tensor_output(output: Any, source: str = "the model") -> Tensor:
    """Return the tensor a model gives: itself, its `.logits`, or the first tensor of a tuple, list or mapping."""
    # A tuple or list of maps (N, d, h, w) alone, as timm's ``features_only=True`` gives it, is a pyramid, whose
    # last and deepest maps are returned.
    if isinstance(output, Tensor):
        return output
    logits = getattr(output, "logits", None)
    if isinstance(logits, Tensor):
        return logits
    if isinstance(output, Mapping):
        values = [output["logits"], *output.values()] if "logits" in output else list(output.values())
    else:
        values = list(output) if isinstance(output, tuple | list) else []
    if not isinstance(output, Mapping) and all(isinstance(value, Tensor) and value.ndim == 4 for value in values):
        values.reverse()
    found = next((value for value in values if isinstance(value, Tensor)), None)
    if found is None:
        raise TypeError(
            f"Expected {source} to return a tensor, an object with `.logits`, or a tuple, list or mapping that holds "
            f"a tensor, but got {type(output).__name__}. Wrap it in a module whose forward returns the logits."
        )
    return found


_flags_lock = threading.Lock()
# How many evaluations hold a module in eval mode, and the mode it had before the first of them.
_flags: WeakKeyDictionary[nn.Module, tuple[int, bool]] = WeakKeyDictionary()


@contextmanager
def evaluation_mode(*modules: Any) -> Iterator[None]:
    """Put modules into eval mode, and every part back into its own mode when the last thread has left."""
    every = (part for each in modules if isinstance(each, nn.Module) for part in each.modules())
    parts = list(dict.fromkeys(part for part in every if hasattr(part, "training")))
    with _flags_lock:
        for part in parts:
            count, training = _flags.get(part, (0, part.training))
            _flags[part] = count + 1, training
            part.training = False
    try:
        yield
    finally:
        with _flags_lock:
            for part in parts:
                count, training = _flags.pop(part)
                if count > 1:
                    _flags[part] = count - 1, training
                else:
                    part.training = training


_turn = threading.Condition()
# Which thread holds a part of a model (by its id), and how often.
_held: dict[int, tuple[int, int]] = {}


@contextmanager
def alone_with(*models: Any) -> Iterator[None]:
    """Keep other threads away from models while hooks are on them; a thread may enter again for the same models."""
    # Captum's hooks fire in whatever thread runs the layer, so that a pass of another thread would be recorded.
    # Held around single passes and explanations, never around a whole evaluation: two threads that each hold a
    # model and want the other's would wait for ever.
    parts = {id(part) for model in models if isinstance(model, nn.Module) for part in model.modules()}
    me = threading.get_ident()
    with _turn:
        _turn.wait_for(lambda: all(_held.get(part, (me, 0))[0] == me for part in parts))
        for part in parts:
            _held[part] = me, _held.get(part, (me, 0))[1] + 1
    try:
        yield
    finally:
        with _turn:
            for part in parts:
                count = _held.pop(part)[1]
                if count > 1:
                    _held[part] = me, count - 1
            _turn.notify_all()
