"""Bring inputs, outputs and targets into the form that Captum needs."""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any

import numpy as np
from torch import Tensor, nn

from captum_concepts.support.checks import to_class_indices
from captum_concepts.support.running import tensor_output

#: Which output is explained: one for all samples or one for each, also one-hot (N, K) or by the names of concepts.
Targets = int | str | Tensor | np.ndarray | Sequence[float] | Sequence[str] | Sequence[Sequence[int]] | None


@contextmanager
def tensor_outputs(model: object) -> Iterator[None]:
    """Let a module return the tensor that `tensor_output` finds."""

    def unwrap_output(_module: nn.Module, _inputs: Any, output: Any) -> Tensor | None:
        # Methods that only look at a layer need no output.
        with suppress(TypeError):
            return tensor_output(output)
        return None

    handle = model.register_forward_hook(unwrap_output) if isinstance(model, nn.Module) else None
    try:
        yield
    finally:
        if handle is not None:
            handle.remove()


def input_tensors(inputs: Tensor | tuple[Tensor, ...]) -> tuple[Tensor, ...]:
    """Return the inputs of an attribution as a tuple of tensors, at least one, or raise."""
    tensors = inputs if isinstance(inputs, tuple) else (inputs,)
    if not tensors or not all(isinstance(tensor, Tensor) and tensor.ndim for tensor in tensors):
        kinds = [type(tensor).__name__ for tensor in tensors]
        raise TypeError(f"Expected argument `inputs` to be a tensor, or a tuple of tensors, but got {kinds}.")
    return tensors


def extra_arguments(arguments: object) -> tuple[object, ...]:
    """Return Captum's `additional_forward_args` as a tuple."""
    if arguments is None:
        return ()
    return arguments if isinstance(arguments, tuple) else (arguments,)


def find_targets(target: Targets, names: Sequence[str]) -> Targets:
    """Return a target with indices in place of the names of concepts."""
    targets = target if isinstance(target, list | tuple) else [target]
    if not any(isinstance(name, str) for name in targets):
        return target
    for name in targets:
        if name not in names:
            near = difflib.get_close_matches(str(name), names, n=3, cutoff=0.4) or list(names[:3])
            hint = f"The nearest are {near}." if near else "They have no names here: give a ConceptBank as `cavs`."
            raise ValueError(
                f"Expected argument `target` to be the index or the name of a concept but got {name!r}. {hint}"
            )
    indices = [names.index(name) for name in targets]
    return indices if targets is target else indices[0]


def as_targets(target: Targets, n: int, name: str = "target", *, n_outputs: int | None = None) -> Tensor:
    """Return indices of outputs (1,) for all samples, or (n,), or raise.

    One element of a tensor or an array counts for all samples, a list has one for each. Whole numbers in floating
    point are indices too, and so are (n, 1) and one-hot rows (n, K).
    """
    # On the CPU: one transfer, before the checks.
    moved = target.cpu() if isinstance(target, Tensor) else target
    values = to_class_indices(name, moved)
    shared = values.ndim == 0 or (values.numel() == 1 and not isinstance(target, list | tuple))
    if not shared and values.shape != (n,):
        raise ValueError(
            f"Expected argument `{name}` to be one index, or to have shape (N,) = ({n},), one for each input, but got "
            f"shape {tuple(values.shape)}."
        )
    values = values.reshape(-1)
    check_targets(values, n_outputs, name)
    return values


def check_targets(targets: Tensor, n_outputs: int | None, name: str = "target") -> None:
    """Raise where a target (N,) is no index of an output; Torch would take -1 for the last one."""
    outside = targets < 0 if n_outputs is None else (targets < 0) | (targets >= n_outputs)
    if outside.any():
        place = int(outside.nonzero()[0])
        end = "" if n_outputs is None else f" to {n_outputs - 1}, since there are {n_outputs}"
        raise ValueError(
            f"Expected argument `{name}` to hold indices of outputs from 0{end}, but got {int(targets[place])} at "
            f"{place}."
        )
