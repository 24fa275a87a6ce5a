"""What the metrics of one evaluation share: results of a model on arrays, found again by what these hold."""

from __future__ import annotations

import itertools
import threading
from collections import deque
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar
from weakref import WeakKeyDictionary

import numpy as np
import torch
from torch import Tensor, nn

from captum_concepts.checks import check_finite
from captum_concepts.content import Fingerprint, changed_settings, digest_of, fingerprint
from captum_concepts.running import device_of

R = TypeVar("R")

#: Of how many arrays it is remembered that they are finite.
N_FINITE = 64

_numbers = itertools.count()


@dataclass(eq=False)
class Turn:
    """One call of a metric: models do not change while it lasts, and what it used is not dropped for it."""

    number: int = field(default_factory=lambda: next(_numbers))
    #: By model: what it held when the call first asked, and the digest of that.
    read: dict[nn.Module, tuple[Fingerprint, bytes]] = field(default_factory=dict)
    #: The models that were looked at before and after a result of a kind was made.
    watched: set[tuple[nn.Module, Hashable]] = field(default_factory=set)


@dataclass(eq=False)
class _Entry:
    """One result: its size, when it was last used, and what the model held."""

    result: Any
    size: int
    turn: int
    model: Fingerprint


@dataclass(eq=False)
class _OfModel:
    """The results of one model, and the settings of it that its own passes change, such as counters."""

    entries: dict[Hashable, _Entry] = field(default_factory=dict)
    counters: set[tuple[str, str]] = field(default_factory=set)


class SharedResults:
    """Results by model, bounded in memory; they go when the model goes."""

    # A result is found again where the model's weights, buffers and attributes, its hooks, the arrays and torch's
    # settings are what they were, all of it read anew in each call. What does not fit beside the results of the same
    # call is not kept: dropping those for it would drop each one just before the next metric asks for it.

    def __init__(self) -> None:
        self._of: WeakKeyDictionary[nn.Module, _OfModel] = WeakKeyDictionary()
        self._finite: deque[bytes] = deque(maxlen=N_FINITE)
        self._lock = threading.RLock()

    def check_finite_once(self, name: str, values: np.ndarray, content: np.ndarray) -> None:
        """Raise if an array holds NaN or infinity; one of this content is looked through once."""
        digest = digest_of(content)
        if digest not in self._finite:
            check_finite(name, values)
            self._finite.append(digest)

    def recall(
        self,
        what: Hashable,
        model: nn.Module,
        arrays: Sequence[np.ndarray | Tensor | bytes],
        make: Callable[[], R],
        turn: Turn,
        limit: int,
    ) -> R:
        """Return what was made of a model and arrays (or digests of such) before, else make it and keep it."""
        contents = tuple(each if isinstance(each, bytes) else digest_of(each) for each in arrays)
        with self._lock:
            kept = self._of.setdefault(model, _OfModel())
        held, state = self._read(model, kept, turn)
        key = what, contents, arithmetic(model)
        with self._lock:
            entry = kept.entries.get((key, state))
            if entry is not None and entry.model.still_named():
                entry.turn = turn.number
                return entry.result
        result = make()
        if (model, what) not in turn.watched:
            turn.watched.add((model, what))
            # A counter of passes, say: it would make every pass look like one of another model.
            counters = changed_settings(held, fingerprint(model, kept.counters, with_weights=False))
            if counters:
                kept.counters |= counters
                turn.read.pop(model, None)
        size = size_of(result)
        if size is not None:
            held, state = self._read(model, kept, turn)
            self._keep(kept, (key, state), _Entry(result, size, turn.number, held), limit)
        return result

    def _read(self, model: nn.Module, kept: _OfModel, turn: Turn) -> tuple[Fingerprint, bytes]:
        if model not in turn.read:
            found = fingerprint(model, kept.counters)
            turn.read[model] = found, found.digest()
        return turn.read[model]

    def _keep(self, kept: _OfModel, key: Hashable, entry: _Entry, limit: int) -> None:
        with self._lock:
            every = [(each.turn, of, name) for of in self._of.values() for name, each in of.entries.items()]
            room = limit - sum(of.entries[name].size for _, of, name in every)
            older = sorted((each for each in every if each[0] < entry.turn), key=lambda each: each[0])
            if entry.size > room + sum(of.entries[name].size for _, of, name in older):
                return
            for _, of, name in older:
                if room >= entry.size:
                    break
                room += of.entries.pop(name).size
            kept.entries[key] = entry

    @property
    def size(self) -> int:
        """Bytes that are kept."""
        with self._lock:
            return sum(entry.size for of in self._of.values() for entry in of.entries.values())


def size_of(result: Any) -> int | None:
    """Return the bytes of the arrays in a result; None where it holds something else, whose size nobody knows."""
    if isinstance(result, Tensor):
        # A view keeps all that it is a view of.
        return max(result.nbytes, result.untyped_storage().nbytes()) if result.layout is torch.strided else None
    if isinstance(result, np.ndarray):
        return None if result.dtype.hasobject else max(result.nbytes, getattr(result.base, "nbytes", 0))
    if isinstance(result, Mapping):
        return size_of(tuple(result.values()))
    if isinstance(result, tuple | list):
        sizes = [size_of(each) for each in result]
        return None if None in sizes else sum(size for size in sizes if size is not None)
    return 0 if isinstance(result, bool | int | float | str | None) else None


def arithmetic(model: nn.Module) -> tuple[Hashable, ...]:
    """Return the settings of torch that decide how a model's numbers come out."""
    device = device_of(model)
    known = torch.amp.is_autocast_available(device.type)
    cast = (torch.is_autocast_enabled(device.type), torch.get_autocast_dtype(device.type)) if known else ()
    return (
        *cast,
        torch.get_num_threads(),
        torch.get_default_dtype(),
        torch.get_float32_matmul_precision(),
        torch.are_deterministic_algorithms_enabled(),
        torch.backends.mkldnn.enabled,
        torch.backends.cudnn.enabled,
        torch.backends.cudnn.benchmark,
        torch.backends.cudnn.deterministic,
        torch.backends.cudnn.allow_tf32,
    )


#: Of this process.
SHARED = SharedResults()
