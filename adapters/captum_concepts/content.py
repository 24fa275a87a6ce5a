"""What arrays and modules hold, told by digests: two of the same digest hold the same."""

from __future__ import annotations

import marshal
import weakref
from collections import OrderedDict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
import torch
import xxhash
from torch import Tensor, nn

PLAIN = (bool, int, float, complex, str, bytes, type(None), torch.dtype, torch.device, torch.Size)
#: Types that need no description: two of their values are told apart by what `marshal` writes.
_WRITTEN = frozenset((bool, int, float, str, bytes, type(None)))
_CONTAINERS = frozenset((list, tuple))
_MAPPINGS = frozenset((dict, OrderedDict))
#: Types whose numbers NumPy reads where they lie.
_IN_NUMPY = frozenset((torch.float32, torch.float64, torch.float16, torch.int64, torch.int32, torch.uint8, torch.bool))
#: What `nn.Module` keeps for itself; what is of interest of it is read in other ways.
KEPT_BY_TORCH = frozenset(vars(nn.Module())) - {"training", "_forward_hooks", "_forward_pre_hooks"}
#: How deep the attributes of a module are followed.
DEPTH = 2
#: Bytes for which a second thread is worth starting.
_MUCH = 4 * 2**20

# Of the digest on an accelerator: words of 32 bits times coefficients of 64 drawn at random, summed modulo 2^64, have
# equal sums for other words once in 2^32 rows.
_ROW = 4096
_COEFFICIENTS = torch.from_numpy(np.random.default_rng(0x5EED).integers(-(2**63), 2**63, _ROW, dtype=np.int64))


def digest_of(values: np.ndarray | Tensor) -> bytes:
    """Return a digest of an array's numbers, shape and type."""
    found = xxhash.xxh3_128()
    _update(found, [values if isinstance(values, Tensor) else np.asarray(values)])
    return found.digest()


def row_digests(values: np.ndarray) -> np.ndarray:
    """Return a digest (N, 16) of uint8 of each row of an array (N, ...)."""
    head = repr((values.shape[1:], values.dtype.str)).encode()
    rows = list(np.ascontiguousarray(values).reshape(len(values), -1))
    digests = b"".join(xxhash.xxh3_128_digest(head + each) for each in _digests(rows))
    return np.frombuffer(digests, dtype=np.uint8).reshape(len(values), 16)


@dataclass(frozen=True)
class Fingerprint:
    """What a module's answers depend on: numbers of its parameters and buffers, and attributes of its parts."""

    weights: bytes
    settings: dict[tuple[str, str], Any]
    #: Objects that settings name by their identity.
    named: tuple[weakref.ref[Any], ...]

    def digest(self) -> bytes:
        """Return a digest of all of it."""
        return self.weights + xxhash.xxh3_128_digest(_written(self.settings))

    def still_named(self) -> bool:
        """Whether the objects that settings name are there yet, so that no other one can have got their identity."""
        return all(reference() is not None for reference in self.named)


def fingerprint(
    module: nn.Module, unread: Collection[tuple[str, str]] = (), *, with_weights: bool = True
) -> Fingerprint:
    """Read what a module holds now; `unread` are settings, by part and attribute, that are not looked at."""
    reader = _Reader()
    settings: dict[tuple[str, str], Any] = {}
    tensors: list[Tensor] = []
    kinds: dict[type, Any] = {}
    for path, part in _parts(module, "", []):
        kind = type(part)
        if kind not in kinds:
            kinds[kind] = reader.identify(kind)
        settings[path, ""] = kinds[kind]
        for name, value in part.__dict__.items():
            if name not in KEPT_BY_TORCH and (path, name) not in unread:
                settings[path, name] = value if type(value) in _WRITTEN else reader.describe(value)
        tensors += [each for each in part._parameters.values() if each is not None]
        tensors += [each for each in part._buffers.values() if each is not None]
    distinct = {id(tensor): tensor for tensor in tensors}
    # Which parts have the same tensors belongs to the architecture.
    order = {key: index for index, key in enumerate(distinct)}
    settings["", "tensors"] = tuple(order[id(tensor)] for tensor in tensors)
    found = xxhash.xxh3_128()
    if with_weights:
        _update(found, distinct.values())
    return Fingerprint(found.digest(), settings, tuple(reader.named))


def changed_settings(before: Fingerprint, after: Fingerprint) -> set[tuple[str, str]]:
    """Return the names of settings in which two fingerprints differ."""
    names = before.settings.keys() | after.settings.keys()
    # Written, True is not 1, and NaN is equal to itself.
    one, other = ({name: _written(value) for name, value in each.settings.items()} for each in (before, after))
    return {name for name in names if one.get(name) != other.get(name)}


def _written(description: Any) -> bytes:
    # Later versions tell apart what is one object and what is two equal ones.
    return marshal.dumps(description, 2)


def _parts(module: nn.Module, path: str, found: list[tuple[str, nn.Module]]) -> list[tuple[str, nn.Module]]:
    # As `named_modules(remove_duplicate=False)`, whose nested generators take several times as long.
    found.append((path, module))
    for name, part in module._modules.items():
        if part is not None:
            _parts(part, f"{path}.{name}" if path else name, found)
    return found


class _Reader:
    """Describes attributes so that equal ones have equal descriptions."""

    def __init__(self) -> None:
        self.named: list[weakref.ref[Any]] = []
        # An object that many parts have, such as a configuration, is read once.
        self._read: dict[tuple[int, int], Any] = {}

    def describe(self, value: Any, depth: int = DEPTH) -> Any:
        # Most attributes are of these types, and every call of a metric reads all of a model's.
        if type(value) in _WRITTEN:
            return value
        if type(value) in _CONTAINERS and depth and _WRITTEN.issuperset(map(type, value)):
            return type(value).__name__, tuple(value)
        if type(value) in _MAPPINGS and depth and not value:
            return type(value).__name__, ()
        if isinstance(value, PLAIN):
            return type(value).__name__, repr(value)
        if isinstance(value, Tensor | np.ndarray):
            return "array", digest_of(value)
        if depth and isinstance(value, list | tuple):
            return type(value).__name__, tuple(self.describe(each, depth - 1) for each in value)
        if depth and isinstance(value, set | frozenset):
            return type(value).__name__, tuple(sorted(repr(self.describe(each, depth - 1)) for each in value))
        if depth and isinstance(value, Mapping):
            items = value.items()
            return type(value).__name__, tuple((repr(key), self.describe(each, depth - 1)) for key, each in items)
        inside = getattr(value, "__dict__", None)
        if depth and isinstance(inside, dict) and not isinstance(value, type | nn.Module) and not callable(value):
            if (id(value), depth) not in self._read:
                fields = tuple((name, self.describe(each, depth - 1)) for name, each in inside.items())
                self._read[id(value), depth] = self.identify(type(value)), fields
            return self._read[id(value), depth]
        return self.identify(value)

    def identify(self, value: Any) -> tuple[str, int]:
        # A bound method is another object each time it is asked for.
        owner, function = getattr(value, "__self__", None), getattr(value, "__func__", None)
        if owner is not None and function is not None:
            return self.identify(function)[0], hash((self.identify(owner), self.identify(function)))
        with suppress(TypeError):
            self.named.append(weakref.ref(value))
        return type(value).__name__, id(value)


def _update(found: xxhash.xxh3_128, arrays: Iterable[np.ndarray | Tensor]) -> None:
    """Put the numbers of arrays into a digest; of those of one accelerator in one transfer."""
    elsewhere: dict[torch.device, list[Tensor]] = {}
    here: list[np.ndarray] = []
    for array in arrays:
        if isinstance(array, Tensor):
            plain = array.layout is torch.strided and array.dtype in _IN_NUMPY
            if plain and array.device.type == "cpu" and array.is_contiguous():
                found.update(_head(array.shape, None, array.dtype, array.device))
                here.append(array.detach().numpy())
                continue
            flat, layout = _flat(array.detach())
            found.update(_head(array.shape, layout, array.dtype, array.device))
            if array.device.type != "cpu":
                elsewhere.setdefault(array.device, []).append(flat)
                continue
            whole = flat.view(torch.uint8).numpy()
        else:
            found.update(repr((array.shape, array.dtype.str)).encode())
            # Objects are told by what they say of themselves.
            whole = np.frombuffer(repr(array.tolist()).encode(), np.uint8) if array.dtype.hasobject else array
        here.append(np.ascontiguousarray(whole))
    found.update(b"".join(_digests(here)))
    for device, flats in elsewhere.items():
        coefficients = _COEFFICIENTS.to(device)
        found.update(torch.cat([_sums(each, coefficients) for each in _chunks(flats)]).cpu().numpy().data)


@lru_cache(maxsize=4096)
def _head(shape: torch.Size, layout: Any, dtype: torch.dtype, device: torch.device) -> bytes:
    """Return what is told of a tensor beside its numbers."""
    return repr((tuple(shape), layout, dtype, device)).encode()


def _digests(arrays: Sequence[np.ndarray]) -> list[bytes]:
    """Return a digest of the bytes of each array; read by as many threads as PyTorch has where that is worth it."""
    found = [b""] * len(arrays)
    sizes = [array.nbytes for array in arrays]
    n_threads = torch.get_num_threads() if sum(sizes) >= _MUCH else 1
    # The largest first; each thread takes the next one there is.
    order = iter(sorted(range(len(arrays)), key=sizes.__getitem__, reverse=True))

    def read() -> None:
        for index in order:
            found[index] = xxhash.xxh3_128_digest(arrays[index].data)

    if n_threads == 1:
        read()
    else:
        with ThreadPoolExecutor(n_threads - 1) as pool:
            others = [pool.submit(read) for _ in range(n_threads - 1)]
            read()
        for other in others:
            other.result()
    return found


def _flat(tensor: Tensor) -> tuple[Tensor, Any]:
    """Return the numbers of a tensor in one row, in the order in which they lie in memory where they are dense."""
    if tensor.layout is not torch.strided or tensor.is_quantized:
        return tensor.to_dense().reshape(-1) if not tensor.is_quantized else tensor.int_repr().reshape(-1), "packed"
    if tensor.is_contiguous():
        return tensor.reshape(-1), None
    order = sorted(range(tensor.dim()), key=tensor.stride, reverse=True)
    turned = tensor.permute(order)
    return turned.reshape(-1), (tuple(order) if turned.is_contiguous() else None)


def _chunks(flats: Sequence[Tensor]) -> Iterator[Tensor]:
    """Yield the bytes of tensors, small ones together: what is launched for each costs more than reading it."""
    waiting: list[Tensor] = []
    size = 0
    for flat in flats:
        waiting.append(flat.view(torch.uint8))
        size += waiting[-1].numel()
        if size >= _MUCH:
            yield torch.cat(waiting)
            waiting, size = [], 0
    if waiting:
        yield torch.cat(waiting)


def _sums(raw: Tensor, coefficients: Tensor) -> Tensor:
    """Return sums (R,) of the rows of words of bytes, on their device."""
    padded = nn.functional.pad(raw, (0, -raw.numel() % (4 * _ROW)))
    words = padded.view(torch.int32).view(-1, _ROW).to(torch.int64)
    return (words * coefficients).sum(1)
