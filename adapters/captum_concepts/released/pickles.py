"""Read pickles and files of `torch.save` without executing anything: the only place of this package that does.

An interpreter of pickles only pushes tensors, arrays of numbers, texts, numbers, lists, tuples and dicts. Any class or
function that a file names stays a name; an object made by it is an empty `Bag`, which holds the object's attributes.
`torch.load` is not called: the containers of `torch.save` (zip, and the format before torch 1.6) are parsed here, so
that each size is compared with the size of the file before memory is allocated.
"""

from __future__ import annotations

import io
import math
import pickle
import zipfile
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np
import torch
from torch import Tensor

from captum_concepts.support.files import check_plain_file, shorten

#: Bytes of a file, and instructions of a pickle; a module of Inception with 112 concepts has 100 MB and 30,000.
MAX_BYTES = 4 * 2**30
MAX_INSTRUCTIONS = 1_500_000
#: What a tensor, an array or a dict counts: it takes more memory than a number does.
_LARGE = 10
#: How many times its own bytes a file may show as numbers of tensors that share a storage.
_SHARES = 4

#: Protocol 2 and the number that the format before torch 1.6 begins with.
_LEGACY = b"\x80\x02\x8a\nl\xfc\x9cF\xf9 j\xa8P\x19."
_ZIP = b"PK\x03\x04"

_STORAGES = {
    **{"HalfStorage": torch.float16, "BFloat16Storage": torch.bfloat16},
    **{"FloatStorage": torch.float32, "DoubleStorage": torch.float64},
    **{"ByteStorage": torch.uint8, "CharStorage": torch.int8, "ShortStorage": torch.int16},
    **{"IntStorage": torch.int32, "LongStorage": torch.int64, "BoolStorage": torch.bool},
}
_ARRAYS = ("f2", "f4", "f8", "i1", "i2", "i4", "i8", "u1", "b1")
_DAMAGED = "it is damaged or cut short"
_KEYS = (str, int, float, bytes, type(None))


class UnreadableError(ValueError):
    """A file is damaged, or holds what is not read."""


class Bag:
    """Stands in for an object of a class that a file names: it holds attributes, and does nothing."""

    __slots__ = ("called", "state")

    def __init__(self, called: str) -> None:
        self.called = called
        self.state: Mapping[object, object] = MappingProxyType({})

    def build(self, state: object) -> None:
        """Take over the state that a file gives the object."""
        if isinstance(state, dict):
            self.state = state

    def member(self, name: str) -> Any:
        """Return an attribute, or a module, parameter or buffer of a bag that was a module; None if there is none."""
        for group in ("_modules", "_parameters", "_buffers"):
            members = self.state.get(group)
            if isinstance(members, dict) and name in members:
                return members[name]
        return self.state.get(name)

    def members(self) -> set[str]:
        """Return the names of all of them."""
        groups = [self.state, *(self.state.get(group) for group in ("_modules", "_parameters", "_buffers"))]
        return {name for group in groups if isinstance(group, Mapping) for name in group if isinstance(name, str)}

    def tensors(self) -> Iterator[tuple[str, Tensor]]:
        """Yield the parameters and buffers of a bag that was a module, under their names in its state dict."""
        seen, waiting = set(), [("", self)]
        while waiting:
            prefix, bag = waiting.pop()
            if id(bag) in seen:  # the modules of a file may contain each other
                continue
            seen.add(id(bag))
            for group in ("_parameters", "_buffers"):
                members = bag.state.get(group)
                for name, tensor in members.items() if isinstance(members, dict) else ():
                    if isinstance(tensor, Tensor):
                        yield f"{prefix}{name}", tensor
            modules = bag.state.get("_modules")
            for name, part in modules.items() if isinstance(modules, dict) else ():
                if isinstance(part, Bag) and len(prefix) < 1000:
                    waiting.append((f"{prefix}{name}.", part))


class _DType(Bag):
    """A NumPy type of plain numbers."""

    __slots__ = ("code", "order")

    def __init__(self, code: object) -> None:
        super().__init__("numpy.dtype")
        self.code, self.order = code, "<"

    def build(self, state: object) -> None:
        if isinstance(state, tuple) and len(state) > 1 and state[1] in ("<", ">", "|", "="):
            self.order = str(state[1])

    def numpy(self) -> np.dtype[Any]:
        if self.code not in _ARRAYS:
            raise UnreadableError("an array holds other things than plain numbers")
        return np.dtype(self.order.replace("|", "=") + str(self.code))


class Numbers(Bag):
    """A NumPy array or scalar, as `array`."""

    __slots__ = ("array",)

    def __init__(self) -> None:
        super().__init__("numpy.ndarray")
        self.array = np.empty(0)

    def build(self, state: object) -> None:  # noqa: D102
        if isinstance(state, tuple) and len(state) == 5:
            _, shape, kind, fortran, raw = state
            self.fill(raw, kind, shape, "F" if fortran else "C")

    def fill(self, raw: object, kind: object, shape: Any, order: object) -> Numbers:
        """Take the numbers from bytes."""
        if not isinstance(kind, _DType) or not isinstance(raw, bytes):
            raise UnreadableError("an array holds other things than plain numbers")
        self.array = np.frombuffer(raw, kind.numpy()).reshape(shape, order="F" if order == "F" else "C")
        return self


class _Name:
    """A class or function that a file names. It is never looked up."""

    __slots__ = ("module", "name")

    def __init__(self, module: str, name: str) -> None:
        self.module, self.name = module, name


class _Reader(pickle._Unpickler):  # type: ignore[misc, name-defined]  # not in the stubs
    """The unpickler that is written in Python, with every instruction replaced that could call what a file names.

    The one written in C allocates as many objects as a file claims that it has: a gigabyte for nine bytes.
    """

    #: Counts down; what is left of the bytes and numbers that the file can account for.
    instructions = MAX_INSTRUCTIONS

    def __init__(self, file: Any, n_bytes: int, fetch: Callable[[str, torch.dtype, int], Tensor] | None = None) -> None:
        super().__init__(file, encoding="utf-8")
        self._bytes, self._numbers, self._fetch = n_bytes, _SHARES * n_bytes, fetch
        self.storages: dict[str, Tensor] = {}

    def find_class(self, module: str, name: str) -> Any:
        return _Name(module, name)

    def spend(self, n_bytes: int) -> None:
        """Raise if a file asks for more memory than it has bytes."""
        self._bytes -= n_bytes
        if n_bytes < 0 or self._bytes < 0:
            raise UnreadableError("it claims more numbers than it has")

    def make(self, kind: object, args: object) -> object:
        """Return what a class or function of a file makes: what is known here, or an empty bag."""
        if not isinstance(args, tuple):
            raise UnreadableError(_DAMAGED)
        if not isinstance(kind, _Name):
            return Bag("an unknown class")
        self.instructions -= _LARGE
        known = _KNOWN.get((kind.module, kind.name))
        return known(self, *args) if known else Bag(f"{kind.module}.{kind.name}")

    def persistent_load(self, pid: Any) -> Any:
        if isinstance(pid, tuple) and len(pid) == 4 and pid[0] == "module":
            return pid[1]  # the format before torch 1.6 keeps the source of each class, which is not compared here
        if self._fetch is None or not isinstance(pid, tuple) or len(pid) < 5 or pid[0] != "storage":
            raise UnreadableError(_DAMAGED)
        kind, key, count = pid[1], str(pid[2]) if isinstance(pid[2], str | int) else "", pid[4]
        dtype = _STORAGES.get(kind.name) if isinstance(kind, _Name) else None
        if dtype is None or type(count) is not int or any(part is not None for part in pid[5:]):
            raise UnreadableError("it holds tensors of a type that is not read")
        if key not in self.storages:
            self.spend(count * dtype.itemsize)
            self.storages[key] = self._fetch(key, dtype, count)
        storage = self.storages[key]
        if storage.dtype != dtype or len(storage) != count:
            raise UnreadableError(_DAMAGED)
        return storage

    def tensor(self, storage: object, offset: Any, size: Any, stride: Any, *_: object) -> Tensor:
        """Return a tensor of a storage, which has to lie in it, each number once."""
        if not isinstance(storage, Tensor) or not isinstance(size, tuple) or not isinstance(stride, tuple):
            raise UnreadableError(_DAMAGED)
        whole = all(type(number) is int and number >= 0 for number in (offset, *size, *stride))
        if not whole or len(size) != len(stride) or len(size) > 8 or len(_flat(storage)) < math.prod(size):
            raise UnreadableError("a tensor claims more numbers than it has")
        self._numbers -= math.prod(size)
        last = offset + sum((n - 1) * step for n, step in zip(size, stride, strict=True))
        if self._numbers < 0 or (math.prod(size) and last >= len(_flat(storage))):
            raise UnreadableError("a tensor claims more numbers than it has")
        return torch.as_strided(storage, size, stride, offset)

    def encode(self, text: object, *_: object) -> bytes:
        """Return bytes that protocol 2 writes as a text."""
        raw = text.encode("latin1") if isinstance(text, str) else b""
        self.spend(len(raw))
        return raw

    # Instructions. Each takes what it needs from the stack, and changes only lists and dicts that a file began.

    def _reduce(self) -> None:
        args = self.stack.pop()
        self.stack[-1] = self.make(self.stack[-1], args)

    def _new_with_keywords(self) -> None:
        self.stack.pop()
        self._reduce()

    def _obj(self) -> None:
        kind, *args = self.pop_mark()
        self.append(self.make(kind, tuple(args)))

    def _inst(self) -> None:
        kind = _Name(*(self.readline()[:-1].decode("ascii") for _ in range(2)))
        args = tuple(self.pop_mark())  # first: it brings back the stack that is appended to
        self.append(self.make(kind, args))

    def _build(self) -> None:
        state = self.stack.pop()
        if isinstance(self.stack[-1], Bag):
            self.stack[-1].build(state)

    def _extend(self, items: list[object]) -> None:
        if isinstance(self.stack[-1], list):
            self.stack[-1].extend(items)

    def _update(self, items: list[object]) -> None:
        # Keys of other types are never needed; the hash of tuples nested in each other takes for ever.
        if isinstance(self.stack[-1], dict):
            pairs = zip(items[::2], items[1::2], strict=True)
            self.stack[-1].update((key, value) for key, value in pairs if isinstance(key, _KEYS))

    def _dict(self) -> None:
        items = self.pop_mark()
        self.append({})
        self._update(items)

    def _set(self) -> None:
        self.append(Bag("set"))

    def _frozenset(self) -> None:
        self.pop_mark()
        self._set()

    def _refuse(self) -> None:
        raise UnreadableError("it is damaged, or of a kind that is not read")


def _flat(storage: Tensor) -> Tensor:
    """Return a storage, or raise: its numbers in one row."""
    if storage.ndim != 1:
        raise UnreadableError(_DAMAGED)
    return storage


def _counted(load: Callable[[Any], None]) -> Callable[[Any], None]:
    """Limit how many instructions are run: each may make an object of a hundred bytes."""

    def run(reader: Any) -> None:
        reader.instructions -= 1
        if reader.instructions < 0:
            raise UnreadableError("it has more instructions than any model")
        load(reader)

    return run


_INSTRUCTIONS: dict[bytes, Callable[[Any], None]] = {
    **dict.fromkeys((pickle.REDUCE, pickle.NEWOBJ), _Reader._reduce),
    **{pickle.NEWOBJ_EX: _Reader._new_with_keywords, pickle.OBJ: _Reader._obj, pickle.INST: _Reader._inst},
    **{pickle.BUILD: _Reader._build, pickle.DICT: _Reader._dict},
    pickle.APPEND: lambda reader: reader._extend([reader.stack.pop()]),
    pickle.APPENDS: lambda reader: reader._extend(reader.pop_mark()),
    pickle.SETITEM: lambda reader: reader._update([reader.stack.pop(), reader.stack.pop()][::-1]),
    pickle.SETITEMS: lambda reader: reader._update(reader.pop_mark()),
    **{pickle.EMPTY_SET: _Reader._set, pickle.FROZENSET: _Reader._frozenset, pickle.ADDITEMS: lambda r: r.pop_mark()},
    # They allocate what a file claims, or hand out objects of this process.
    **dict.fromkeys((pickle.BYTEARRAY8, pickle.NEXT_BUFFER, pickle.READONLY_BUFFER), _Reader._refuse),
    **dict.fromkeys((pickle.EXT1, pickle.EXT2, pickle.EXT4), _Reader._refuse),
}
_Reader.dispatch = {
    code: _counted(load)
    for code, load in (_Reader.dispatch | {code[0]: load for code, load in _INSTRUCTIONS.items()}).items()
}

#: The only names that become something, and what: functions of this file, which get the reader before the arguments.
_KNOWN: dict[tuple[str, str], Callable[..., object]] = {
    ("torch._utils", "_rebuild_tensor_v2"): _Reader.tensor,
    ("torch._utils", "_rebuild_tensor"): _Reader.tensor,
    ("torch._utils", "_rebuild_parameter"): lambda _reader, data, *_: data,
    ("torch.nn.parameter", "Parameter"): lambda _reader, data=None, *_: data,
    # Its arguments, which would be copied, are not written by Python 3.
    ("collections", "OrderedDict"): lambda _reader, *_: {},
    ("numpy", "dtype"): lambda _reader, code, *_: _DType(code),
    ("_codecs", "encode"): _Reader.encode,
}
for _module in ("numpy.core", "numpy._core"):
    _KNOWN[f"{_module}.multiarray", "_reconstruct"] = lambda _reader, *_: Numbers()
    _KNOWN[f"{_module}.multiarray", "scalar"] = lambda _reader, kind, raw=b"", *_: Numbers().fill(raw, kind, (), "C")
    _KNOWN[f"{_module}.numeric", "_frombuffer"] = lambda _reader, raw, kind, shape, order="C": Numbers().fill(
        raw, kind, shape, order
    )


class _Clipped:
    """A file that reads no more than it has: Python allocates what it is asked for."""

    def __init__(self, file: io.BufferedReader, size: int) -> None:
        self._file, self._size, self.readline = file, size, file.readline

    def read(self, count: int) -> bytes:
        return self._file.read(max(0, min(count, self._size - self._file.tell())))


def read_objects(path: Path) -> Any:
    """Return what a pickle or a file of `torch.save` holds: tensors, numbers, texts, containers, and bags.

    Nothing in the file is executed. A ValueError names the file and the reason why it cannot be read.
    """
    if not path.exists():
        raise FileNotFoundError(f"There is no file {path}.")
    check_plain_file(path, "File")
    try:
        with path.open("rb") as file:
            return _read(file, path.stat().st_size)
    except (Exception, MemoryError) as error:
        reason = shorten(error) if isinstance(error, UnreadableError | OSError) else _DAMAGED
        raise ValueError(f"{path} cannot be read: {reason}. Nothing in it was executed.") from error


def _read(file: io.BufferedReader, size: int) -> Any:
    if size > MAX_BYTES:
        raise UnreadableError(f"it has {size / 2**30:.0f} GB, more than the {MAX_BYTES >> 30} GB that are read")
    start = file.read(len(_LEGACY))
    file.seek(0)
    if start.startswith(_ZIP):
        return _read_zip(file, size)
    if start == _LEGACY:
        return _read_legacy(file, size)
    if start[:1] == pickle.PROTO:
        return _Reader(_Clipped(file, size), size).load()
    raise UnreadableError("it is neither a pickle nor a file of torch.save")


def _read_zip(file: io.BufferedReader, size: int) -> Any:
    with zipfile.ZipFile(file) as archive:
        records = {record.filename: record for record in archive.infolist()}
        if any(name.endswith("/constants.pkl") or "/code/" in name for name in records):
            raise UnreadableError("it is a TorchScript program, which would run")
        programs = [name for name in records if name.endswith("/data.pkl")]
        if len(programs) != 1 or len(records) < len(archive.infolist()):
            raise UnreadableError("it is a zip archive of another kind")
        root = programs[0].removesuffix("data.pkl")

        def content(name: str, expected: int | None = None) -> bytes:
            record = records[f"{root}{name}"]
            # torch.save compresses nothing; a few bytes of zip could be gigabytes.
            if record.compress_type != zipfile.ZIP_STORED or record.file_size != record.compress_size:
                raise UnreadableError("it is compressed, which torch.save does not do")
            if record.file_size > size or expected not in (None, record.file_size):
                raise UnreadableError("it claims more numbers than it has")
            return archive.read(record)

        if f"{root}byteorder" in records and content("byteorder") != b"little":
            raise UnreadableError("it was written on a machine with another order of bytes")

        def fetch(key: str, dtype: torch.dtype, count: int) -> Tensor:
            raw = bytearray(content(f"data/{key}", count * dtype.itemsize))
            return torch.frombuffer(raw, dtype=dtype) if raw else torch.empty(0, dtype=dtype)

        return _Reader(io.BytesIO(content("data.pkl")), size, fetch).load()


def _read_legacy(file: io.BufferedReader, size: int) -> Any:
    clipped = _Clipped(file, size)
    _, _, system = (_Reader(clipped, size).load() for _ in range(3))
    if isinstance(system, dict) and system.get("little_endian") is False:
        raise UnreadableError("it was written on a machine with another order of bytes")
    # The storages come last, in the order of their keys.
    reader = _Reader(clipped, size, lambda _key, dtype, count: torch.empty(count, dtype=dtype))
    found, keys = reader.load(), _Reader(clipped, size).load()
    if not isinstance(keys, list) or not all(isinstance(key, str) for key in keys) or {*keys} != {*reader.storages}:
        raise UnreadableError(_DAMAGED)
    for key in keys:
        storage = reader.storages[key]
        raw = storage.view(torch.uint8).numpy()
        if int.from_bytes(file.read(8), "little") != len(storage) or file.readinto(raw.data) != len(raw):
            raise UnreadableError(_DAMAGED)
    return found
