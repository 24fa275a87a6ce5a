"""Read pickles and files of `torch.save` without executing anything: the only place of this package that does.

An interpreter of pickles only pushes tensors, texts, numbers, lists, tuples and dicts. A class or function that a file
names stays a name; an object made by it is a `Bag`, which holds the object's attributes, and of which `to_array` makes
an array where it was one of NumPy.
`torch.load` is not called: the containers of `torch.save` (zip, and the format before torch 1.6) are parsed here, so
that each size is compared with the size of the file before memory is allocated.
"""

from __future__ import annotations

import io
import math
import pickle
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from captum_concepts.support.files import check_plain_file, shorten

#: Bytes of a file, and instructions of a pickle; a module of Inception with 112 concepts has 100 MB and 30,000, and the
#: largest CLIP of open_clip 10 GB.
MAX_BYTES = 16 * 2**30
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
    **{"ComplexFloatStorage": torch.complex64, "ComplexDoubleStorage": torch.complex128},
    **{"ByteStorage": torch.uint8, "CharStorage": torch.int8, "ShortStorage": torch.int16},
    **{"IntStorage": torch.int32, "LongStorage": torch.int64, "BoolStorage": torch.bool},
}
_ARRAYS = ("f2", "f4", "f8", "i1", "i2", "i4", "i8", "u1", "b1")
_DAMAGED, _CLAIMS = "it is damaged or cut short", "it claims more numbers than it has"
_OTHER_TYPE = "it holds tensors of a type that is not read"
_KEYS = (str, int, float, bytes, type(None))


class UnreadableError(ValueError):
    """A file is damaged, or holds what is not read."""


class Bag:
    """Stands in for an object of a class that a file names: it holds attributes, and does nothing."""

    __slots__ = ("args", "called", "state")

    def __init__(self, called: str, args: tuple[Any, ...] = ()) -> None:
        self.called, self.args = called, args
        self.state: Any = None

    def _groups(self) -> list[dict[Any, Any]]:
        """Return modules, parameters and buffers of a bag that was a module, and its other attributes."""
        own = self.state if isinstance(self.state, dict) else {}
        return [
            group for name in ("_modules", "_parameters", "_buffers") if isinstance(group := own.get(name), dict)
        ] + [own]

    def member(self, name: str) -> Any:
        """Return an attribute, module, parameter or buffer; None if there is none."""
        return next((group[name] for group in self._groups() if name in group), None)

    def members(self) -> set[str]:
        """Return the names of all of them."""
        return {name for group in self._groups() for name in group if isinstance(name, str)}

    def tensors(self) -> Iterator[tuple[str, Tensor]]:
        """Yield the parameters and buffers of a bag that was a module, under their names in its state dict."""
        seen, waiting = set(), [("", self)]
        while waiting:
            prefix, bag = waiting.pop()
            if id(bag) in seen or len(prefix) > 1000:  # the modules of a file may contain each other
                continue
            seen.add(id(bag))
            for name, part in (item for group in bag._groups()[:-1] for item in group.items()):
                if isinstance(part, Tensor):
                    yield f"{prefix}{name}", part
                elif isinstance(part, Bag):
                    waiting.append((f"{prefix}{name}.", part))


def to_array(value: object) -> np.ndarray[Any, Any] | None:
    """Return the numbers of a bag that was a NumPy array or scalar; None for anything else."""
    if not isinstance(value, Bag):
        return None
    shape: Any
    match value.called.rpartition(".")[2], value.args, value.state:
        case "_reconstruct", _, (_, shape, Bag() as kind, fortran, bytes() as raw):
            order: Any = "F" if fortran else "C"
        case "_frombuffer", (bytes() as raw, Bag() as kind, shape, ("C" | "F") as order), _:
            pass
        case "scalar", (Bag() as kind, bytes() as raw), _:
            shape, order = (), "C"
        case _:
            return None
    code, ends = (*kind.args, None)[0], kind.state[1] if isinstance(kind.state, tuple) and len(kind.state) > 1 else "<"
    if code not in _ARRAYS or ends not in ("<", ">", "|", "="):
        return None
    try:
        return np.frombuffer(raw, f"{ends}{code}").reshape(shape, order=order)
    except (OverflowError, TypeError, ValueError):
        return None


class _Name:
    """A class or function that a file names. It is never looked up."""

    __slots__ = ("module", "name")

    def __init__(self, module: str, name: str) -> None:
        self.module, self.name = module, name


class _Reader(pickle._Unpickler):
    """The unpickler that is written in Python, with every instruction replaced that could call what a file names.

    The one written in C allocates as many objects as a file claims that it has: a gigabyte for nine bytes.
    """

    #: How many are left, as `_bytes` that may be allocated and `_numbers` that tensors may show.
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
            raise UnreadableError(_CLAIMS)

    def make(self, kind: object, args: object) -> object:
        """Return what a class or function of a file makes: what is known here, or an empty bag."""
        if not isinstance(args, tuple):
            raise UnreadableError(_DAMAGED)
        if not isinstance(kind, _Name):
            return Bag("an unknown class")
        self.instructions -= _LARGE
        known = _KNOWN.get((kind.module, kind.name))
        return known(self, *args) if known else Bag(f"{kind.module}.{kind.name}", args)

    def persistent_load(self, pid: Any) -> Any:
        match pid:
            case "module", kind, _, _:
                return kind  # the format before torch 1.6 keeps the source of each class, which is not compared here
            case "storage", _Name() as kind, str() as key, _, int() as count, *view if self._fetch and view in (
                [],
                [None],
            ):
                pass
            case _:
                raise UnreadableError(_DAMAGED)
        if (dtype := _STORAGES.get(kind.name)) is None:
            raise UnreadableError(_OTHER_TYPE)
        if key not in self.storages:
            self.spend(count * dtype.itemsize)
            self.storages[key] = self._fetch(key, dtype, count)
        if self.storages[key].dtype != dtype or len(self.storages[key]) != count:
            raise UnreadableError(_DAMAGED)
        return self.storages[key]

    def tensor(self, storage: object, offset: Any, size: Any, stride: Any, *more: object) -> Tensor:
        """Return a tensor of a storage, which has to lie in it."""
        # After `requires_grad` and hooks: whether the numbers are to be negated or conjugated.
        if any(more[2:]):
            raise UnreadableError(_OTHER_TYPE)
        if not isinstance(size, tuple) or not isinstance(stride, tuple):
            raise UnreadableError(_DAMAGED)
        numbers = (offset, *size, *stride)
        if not isinstance(storage, Tensor) or storage.ndim != 1 or not all(type(number) is int for number in numbers):
            raise UnreadableError(_DAMAGED)
        last = offset + sum((n - 1) * step for n, step in zip(size, stride, strict=True))
        self._numbers -= (count := math.prod(size))
        if min(numbers) < 0 or len(size) > 8 or self._numbers < 0 or (count and last >= len(storage)):
            raise UnreadableError(_CLAIMS)
        return torch.as_strided(storage, size, stride, offset)

    def encode(self, text: str, *_: object) -> bytes:
        """Return bytes that protocol 2 writes as a text."""
        self.spend(len(text))
        return text.encode("latin1")


#: The only names that become something, and what: the functions get the reader before the arguments.
_KNOWN: dict[tuple[str, str], Callable[..., object]] = {
    ("torch._utils", "_rebuild_tensor_v2"): _Reader.tensor,
    ("torch._utils", "_rebuild_tensor"): _Reader.tensor,
    ("torch._utils", "_rebuild_parameter"): lambda _reader, data, *_: data,
    ("torch.nn.parameter", "Parameter"): lambda _reader, data, *_: data,
    # Its arguments, which would be copied, are not written by Python 3.
    ("collections", "OrderedDict"): lambda _reader, *_: {},
    ("_codecs", "encode"): _Reader.encode,
}

# Instructions take what they need from the stack, and change only lists and dicts that the file began, and bags.


def _reduce(reader: Any) -> None:
    args = reader.stack.pop()
    reader.stack[-1] = reader.make(reader.stack[-1], args)


def _new_with_keywords(reader: Any) -> None:
    reader.stack.pop()
    _reduce(reader)


def _obj(reader: Any) -> None:
    kind, *args = reader.pop_mark()
    reader.append(reader.make(kind, tuple(args)))


def _inst(reader: Any) -> None:
    names = [reader.readline()[:-1].decode("ascii") for _ in range(2)]
    args = tuple(reader.pop_mark())  # first: it brings back the stack that is appended to
    reader.append(reader.make(_Name(*names), args))


def _build(reader: Any) -> None:
    state = reader.stack.pop()
    if isinstance(reader.stack[-1], Bag):
        reader.stack[-1].state = state


def _extend(reader: Any, items: list[object]) -> None:
    if isinstance(reader.stack[-1], list):
        reader.stack[-1].extend(items)


def _update(reader: Any, items: list[object]) -> None:
    # Keys of other types are never needed; the hash of tuples nested in each other takes for ever.
    if isinstance(reader.stack[-1], dict):
        pairs = zip(items[::2], items[1::2], strict=True)
        reader.stack[-1].update((key, value) for key, value in pairs if isinstance(key, _KEYS))


def _dict(reader: Any) -> None:
    items = reader.pop_mark()
    reader.append({})
    _update(reader, items)


def _frozenset(reader: Any) -> None:
    reader.pop_mark()
    reader.append(Bag("set"))


def _refuse(_reader: Any) -> None:
    raise UnreadableError("it is damaged, or of a kind that is not read")


def _counted(load: Callable[[Any], None]) -> Callable[[Any], None]:
    """Limit how many instructions are run: each may make an object of a hundred bytes."""

    def run(reader: Any) -> None:
        reader.instructions -= 1
        if reader.instructions < 0:
            raise UnreadableError("it has more instructions than any model")
        load(reader)

    return run


_INSTRUCTIONS: dict[bytes, Callable[[Any], None]] = {
    **{pickle.REDUCE: _reduce, pickle.NEWOBJ: _reduce, pickle.NEWOBJ_EX: _new_with_keywords},
    **{pickle.OBJ: _obj, pickle.INST: _inst, pickle.BUILD: _build, pickle.DICT: _dict},
    pickle.APPEND: lambda reader: _extend(reader, [reader.stack.pop()]),
    pickle.APPENDS: lambda reader: _extend(reader, reader.pop_mark()),
    pickle.SETITEM: lambda reader: _update(reader, [reader.stack.pop(), reader.stack.pop()][::-1]),
    pickle.SETITEMS: lambda reader: _update(reader, reader.pop_mark()),
    pickle.EMPTY_SET: lambda reader: reader.append(Bag("set")),
    **{pickle.FROZENSET: _frozenset, pickle.ADDITEMS: lambda reader: reader.pop_mark()},
    # They allocate what a file claims, or hand out objects of this process.
    **dict.fromkeys((pickle.BYTEARRAY8, pickle.NEXT_BUFFER, pickle.READONLY_BUFFER), _refuse),
    **dict.fromkeys((pickle.EXT1, pickle.EXT2, pickle.EXT4), _refuse),
}
_Reader.dispatch = {
    code: _counted(load)
    for code, load in {**_Reader.dispatch, **{code[0]: load for code, load in _INSTRUCTIONS.items()}}.items()
}


class _Clipped:
    """A file that reads no more than it has: Python allocates as many bytes as are requested."""

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
        return parse_objects(path)
    except (UnreadableError, OSError) as error:
        raise ValueError(f"{path} cannot be read: {shorten(error)}. Nothing in it was executed.") from error


def parse_objects(path: Path) -> Any:
    """Return what a file holds, as `read_objects`; the UnreadableError is the reason alone."""
    try:
        with path.open("rb") as file:
            return _read(file, path.stat().st_size)
    except (UnreadableError, OSError):
        raise
    except Exception as error:  # a damaged file fails anywhere
        raise UnreadableError(_DAMAGED) from error


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
            if record.file_size != record.compress_size:
                raise UnreadableError("it is compressed, which torch.save does not do")
            if record.file_size > size or expected not in (None, record.file_size):
                raise UnreadableError(_CLAIMS)
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
