"""Results kept on disk: tensors and tables in a folder, each in a file named after its key."""

from __future__ import annotations

import json
import time
import warnings
from collections.abc import Mapping
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from safetensors import SafetensorError
from safetensors.torch import load, save_file
from torch import Tensor

from captum_concepts._support.files import check_plain_file, clear_abandoned, reason_of, write_atomically
from captum_concepts._support.fingerprints import file_state, fingerprint_of, hash_file

if TYPE_CHECKING:
    import pandas as pd

#: Seconds within which a file may change again without its time telling.
_GRAIN = 2.0


class DiskCache:
    """A folder of safetensors files, each under its key, with a fingerprint of key and tensors in its metadata."""

    # A file is written under a temporary name and renamed when it is complete, so that another process, and one after
    # a kill at any moment, reads all of it or nothing. What is missing or damaged is computed again by the caller:
    # nothing but time is lost. Two processes that write one entry write the same.

    def __init__(self, folder: Path, argument: str = "folder") -> None:
        if folder.exists() and not folder.is_dir():
            raise ValueError(f"Expected argument `{argument}` to be a folder but {folder} is a file. Name another.")
        self.folder = folder
        self._warned: set[str] = set()
        self._cleared: set[Path] = set()

    def path(self, key: str) -> Path:
        """Return where an entry is."""
        return self.folder / f"{key}.safetensors"

    def get(self, key: str) -> dict[str, Tensor] | None:
        """Return the tensors of an entry; None where it is missing or damaged."""
        path = self.path(key)
        try:
            check_plain_file(path, "File")
            content = path.read_bytes()
            header = json.loads(content[8 : 8 + int.from_bytes(content[:8], "little")])["__metadata__"]
            about, tensors = json.loads(header["entry"]), load(content)
            named = {name: tensors[name] for name in about["names"]}
            if about["fingerprint"] != fingerprint_of(key, named):
                raise ValueError("its content is not what was written")
        except (FileNotFoundError, NotADirectoryError):
            return None
        except (OSError, SafetensorError, ValueError, KeyError, TypeError) as error:
            self._warn("read", f"{path} cannot be used ({_reason(error)}): what it held is computed again.")
            return None
        return named

    def put(self, key: str, tensors: Mapping[str, Tensor]) -> None:
        """Write an entry; a warning where that fails, on a full disk for instance."""
        path = self.path(key)
        # Copies: safetensors takes neither shared nor non-contiguous memory.
        plain = {name: tensor.detach().cpu().contiguous().clone() for name, tensor in tensors.items()}
        # One field: safetensors writes several in any order, and equal entries are to be equal files.
        about = {"entry": json.dumps({"names": [*plain], "fingerprint": fingerprint_of(key, plain)})}
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            if path.parent not in self._cleared:
                clear_abandoned(path.parent)
                self._cleared.add(path.parent)
            with write_atomically(path) as temporary:
                save_file(plain, temporary, about)
        except (OSError, SafetensorError) as error:
            self._warn("write", f"{path} cannot be written ({_reason(error)}): the run goes on without it.")

    def remove(self, key: str) -> None:
        """Remove an entry, if there is one."""
        self.path(key).unlink(missing_ok=True)

    def _warn(self, kind: str, text: str) -> None:
        """Warn once of each kind: a folder that is damaged, or full, may be so in thousands of entries."""
        if kind not in self._warned:
            self._warned.add(kind)
            warnings.warn(text, UserWarning, stacklevel=4)


def _reason(error: Exception) -> str:
    return getattr(error, "strerror", None) or reason_of(error)


def bytes_tensor(content: bytes) -> Tensor:
    """Return bytes as a tensor of uint8."""
    return torch.from_numpy(np.frombuffer(content, dtype=np.uint8).copy())


def tensor_bytes(tensor: Tensor) -> bytes:
    """Return the bytes that `bytes_tensor` took."""
    return tensor.numpy().tobytes()


def frame_tensors(frame: pd.DataFrame) -> dict[str, Tensor]:
    """Return a table as tensors; TypeError unless its columns hold numbers, booleans, texts, None or bytes."""
    columns: dict[str, Any] = {}
    content: list[bytes] = []
    for name, column in frame.items():
        cells = column.tolist()
        if isinstance(column.dtype, np.dtype) and column.dtype != object:
            columns[str(name)] = {"numbers": column.dtype.str}
            content.append(column.to_numpy().tobytes())
        elif cells and all(isinstance(cell, bytes) for cell in cells):
            columns[str(name)] = {"lengths": [len(cell) for cell in cells]}
            content.append(b"".join(cells))
        else:
            columns[str(name)] = {"type": str(column.dtype)}
            content.append(json.dumps(cells, default=_write_na).encode())
    parts = [json.dumps(columns).encode(), *content]
    tensors = {f"column {place}" if place else "columns": bytes_tensor(part) for place, part in enumerate(parts)}
    restored = frame_of(tensors)
    # Texts of another process may be stored in another way: in Arrow, or as Python's.
    plain = {name: column.reset_index(drop=True).astype(restored[name].dtype) for name, column in frame.items()}
    if differing := [name for name, column in plain.items() if not restored[name].equals(column)]:
        raise TypeError(f"Expected columns of numbers, booleans, texts, None or bytes but got {differing[0]!r}")
    return tensors


def frame_of(tensors: Mapping[str, Tensor]) -> pd.DataFrame:
    """Return the table that `frame_tensors` took apart, to the bit; its index counts the rows."""
    import pandas as pd

    frame_columns = {}
    columns: dict[str, Any] = json.loads(tensor_bytes(tensors["columns"]))
    for place, (name, about) in enumerate(columns.items(), start=1):
        content = tensor_bytes(tensors[f"column {place}"])
        if "numbers" in about:
            frame_columns[name] = pd.Series(np.frombuffer(content, dtype=about["numbers"]).copy())
        elif "lengths" in about:
            ends = np.cumsum([0, *about["lengths"]]).tolist()
            frame_columns[name] = pd.Series([content[start:end] for start, end in pairwise(ends)], dtype=object)
        else:
            frame_columns[name] = pd.Series(json.loads(content), dtype=about["type"])
    return pd.DataFrame(frame_columns)


def _write_na(cell: Any) -> None:
    """Write pandas' NA as null; nothing else that JSON cannot hold."""
    import pandas as pd

    if cell is not pd.NA:
        raise TypeError(f"Expected cells that JSON can hold but got {type(cell).__name__}")


class FileHashes:
    """Hashes of files, remembered in a folder so that gigabytes are read only once."""

    # What is remembered is found by path, size, inode, and the times of the last change of content and of
    # properties; a file that was replaced differs in one of them, even where its time was set back. A file that
    # changed within the last seconds is not remembered: a second change might not show.

    def __init__(self, folder: Path) -> None:
        self._cache = DiskCache(folder)

    def of(self, path: Path) -> str:
        """Return the SHA-256 of a file's content."""
        resolved = path.resolve()
        before = file_state(resolved)
        key = fingerprint_of(str(resolved), before)[:32]
        if (entry := self._cache.get(key)) is not None:
            return tensor_bytes(entry["sha256"]).decode()
        content = hash_file(resolved)
        changed = max(before[2], before[3]) / 1e9
        if before == file_state(resolved) and time.time() - changed > _GRAIN:
            self._cache.put(key, {"sha256": bytes_tensor(content.encode())})
        return content
