"""Model outputs that metrics reuse inside one `with shared_passes():` block."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Hashable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from contextvars import ContextVar
from typing import Any, TypeVar

import numpy as np
import torch
from torch import Tensor, nn

from captum_concepts._support.checks import check_weight

R = TypeVar("R")

#: The block that is open in this thread.
_OPEN: ContextVar[_Block | None] = ContextVar("shared_passes", default=None)


def shared_passes(memory: float = 256.0) -> AbstractContextManager[None]:
    """Let the metrics called inside the block share what a model gives for the same images.

    Inside the block each model sees each image once, for any number of metrics and explanation methods. The caller
    promises that models, hooks, arrays and PyTorch's settings do not change there; open a new block after changing
    one. Outside a block every metric call computes everything anew. `quantus_concepts.evaluate` opens a block itself.

    A result is found by the identity of the model and of the array that was passed as ``x_batch``, and by the rows of
    the batch: calls with the same objects and the same ``batch_size`` share. Nothing is read, hashed or copied to find
    it. Everything is freed when the block ends. A block holds for the thread that opened it; a block inside another one
    shares nothing with it.

    Parameters
    ----------
    memory : float
        How many megabytes to keep, on the model's device. A result that does not fit is computed again.

    Returns
    -------
    AbstractContextManager
        The block, for a ``with`` statement.

    Raises
    ------
    TypeError
        If `memory` is not a number.
    ValueError
        If `memory` is negative or not finite.

    Warns
    -----
    UserWarning
        Once, if parameters, buffers or train flags of a model changed inside the block; its results are dropped. This
        is a help, not a guarantee: other changes, such as a hook's strength, are not noticed.

    Examples
    --------
    ::

        with quantus_concepts.shared_passes():
            results = quantus.evaluate(metrics, xai_methods, model, x_batch, y_batch)
    """
    check_weight("memory", memory)
    return _opened(int(memory * 2**20))


def one_block() -> AbstractContextManager[None]:
    """Open a block unless one is open."""
    return shared_passes() if _OPEN.get() is None else nullcontext()


@contextmanager
def _opened(size: int) -> Iterator[None]:
    token = _OPEN.set(_Block(size))
    try:
        yield
    finally:
        _OPEN.reset(token)


def recall(what: Hashable, model: nn.Module, array: Any, rows: Hashable, make: Callable[[], R]) -> R:
    """Return what `make` returns; inside a block, what it returned for the same model, array and rows."""
    block = _OPEN.get()
    return make() if block is None else block.recall(what, model, array, rows, make)


class _Block:
    """The results kept by one block."""

    def __init__(self, room: int) -> None:
        self.room = room
        self.results: dict[Hashable, tuple[Any, list[int | None]]] = {}
        #: Models and arrays by identity; holding them keeps identities from being used again.
        self.held: dict[int, Any] = {}
        self.states: dict[int, list[tuple[Any, Any]]] = {}
        self.warned = False

    def recall(self, what: Hashable, model: nn.Module, array: Any, rows: Hashable, make: Callable[[], R]) -> R:
        self._drop_if_changed(model)
        key = what, id(model), id(array), rows
        if key in self.results:
            result, versions = self.results[key]
            # A model may write to its own output, for instance by an in-place ReLU behind the features.
            if versions == _versions(result):
                return result
        result = make()
        size = _size(result)
        if size is not None and size <= self.room:
            self.room -= 0 if key in self.results else size
            self.held |= {id(model): model, id(array): array}
            self.results[key] = result, _versions(result)
            self.states.setdefault(id(model), _state(model))
        return result

    def _drop_if_changed(self, model: nn.Module) -> None:
        if id(model) not in self.states or _same(self.states[id(model)], _state(model)):
            return
        del self.states[id(model)]
        for key in [key for key in self.results if key[1] == id(model)]:  # type: ignore[index]
            result, _ = self.results.pop(key)
            self.room += _size(result) or 0
        if not self.warned:
            self.warned = True
            warnings.warn(
                f"{type(model).__name__} changed inside a `shared_passes` block (parameters, buffers or train flags): "
                "what it gave before is computed again. Open a new block after changing a model.",
                UserWarning,
                stacklevel=2,
            )


def _state(model: nn.Module) -> list[tuple[Any, Any]]:
    """Return each parameter and buffer with its version, and each module with its train flag."""
    tensors = [(tensor, _version(tensor)) for tensor in (*model.parameters(), *model.buffers())]
    return [*tensors, *((module, module.training) for module in model.modules())]


def _same(first: list[tuple[Any, Any]], second: list[tuple[Any, Any]]) -> bool:
    pairs = zip(first, second, strict=False)
    return len(first) == len(second) and all(a is c and b == d for (a, b), (c, d) in pairs)


def _version(tensor: Tensor) -> int | None:
    # Inference tensors have no version counter.
    return None if tensor.is_inference() else tensor._version


def _arrays(result: Any) -> list[Any]:
    return list(result) if isinstance(result, tuple) else [result]


def _versions(result: Any) -> list[int | None]:
    return [_version(part) if isinstance(part, Tensor) else None for part in _arrays(result)]


def _size(result: Any) -> int | None:
    """Return the bytes that keeping a result keeps in memory; None if it holds anything but arrays."""
    total = 0
    for part in _arrays(result):
        if isinstance(part, np.ndarray):
            total += part.nbytes if part.base is None else max(part.nbytes, getattr(part.base, "nbytes", 0))
        elif type(part) is Tensor and part.layout is torch.strided:
            # A view keeps all of its storage.
            total += part.untyped_storage().nbytes()
        else:
            return None
    return total
