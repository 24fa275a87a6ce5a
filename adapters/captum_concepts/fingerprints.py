"""Fingerprints of settings, arrays, modules and files: equal content has equal fingerprints."""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from captum_concepts.support.files import check_plain_file

PROBE_TEXT = "Red wings, 2 long legs; a beak."


def fingerprint_of(*values: object) -> str:
    """Return the SHA-256 of values: what JSON can hold, bytes, arrays, tensors, modules, paths of files; nested."""
    digest = hashlib.sha256()
    for value in values:
        for part in _parts(value):
            digest.update(part)
    return digest.hexdigest()


def _parts(value: Any) -> Iterator[Any]:
    """Yield the bytes of a value, each part after its kind and size, so that other values give other bytes."""
    if isinstance(value, nn.Module):
        yield f"module {type(value).__module__}.{type(value).__qualname__} {_text_without_addresses(value)};".encode()
        yield from _parts(value.state_dict())
    elif isinstance(value, Tensor):
        plain = value.detach().cpu()
        # Quantised tensors of the same integers may have another scale.
        plain = (plain.dequantize() if plain.is_quantized else plain.to_dense()).contiguous()
        yield f"tensor {value.dtype} {tuple(plain.shape)};".encode()
        yield plain.reshape(-1).view(torch.uint8).numpy().data
    elif isinstance(value, np.ndarray):
        yield f"array {value.dtype} {value.shape};".encode()
        yield repr(value.tolist()).encode() if value.dtype == object else np.ascontiguousarray(value).tobytes()
    elif isinstance(value, bytes):
        yield f"bytes {len(value)};".encode()
        yield value
    elif isinstance(value, Path):
        yield f"file {hash_file(value)};".encode()
    elif isinstance(value, Mapping):
        yield f"mapping {len(value)};".encode()
        for name in sorted(value, key=str):
            yield f"{json.dumps(str(name))}:".encode()
            yield from _parts(value[name])
    elif isinstance(value, list | tuple | range):
        yield f"list {len(value)};".encode()
        for item in value:
            yield from _parts(item)
    elif isinstance(value, torch.dtype):
        yield f"{value};".encode()
    else:
        yield f"{json.dumps(value)};".encode()


def tensors_hash(text: str, tensors: Iterable[tuple[str, Tensor]]) -> str:
    """Return the SHA-256 of a text and of named tensors, as files of banks and models hold it."""
    digest = hashlib.sha256(text.encode())
    for name, tensor in tensors:
        there = tensor.detach().cpu().contiguous()
        digest.update(f"{name}:{there.dtype}{tuple(there.shape)};".encode())
        digest.update(there.flatten().view(torch.uint8).numpy().data)
    return digest.hexdigest()


def _text_without_addresses(value: Any) -> str:
    """Return the text of a value without addresses in memory, which some functions have in their names."""
    return re.sub(r" at 0x[0-9a-f]+", "", repr(value))


def hash_file(path: Path) -> str:
    """Return the SHA-256 of a file's content."""
    check_plain_file(path, "File")
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


#: Files whose content is hashed: code and weights.
_CONTENT = (".py", ".safetensors", ".pt", ".pth", ".bin", ".ckpt")


def hash_folder(folder: Path, without: Path | None = None) -> str:
    """Return the SHA-256 of the names, sizes and times of the files in a folder, at any depth, in links too.

    Code and weights count with their content; hidden files, and the folder `without`, do not count. A folder to which
    several links lead is read once. What cannot be read raises OSError.
    """
    digest = hashlib.sha256()
    skipped = None if without is None else without.resolve()
    first_names: dict[Path, str] = {}

    def add(place: Path, name: str) -> None:
        real = place.resolve()
        if real == skipped:
            return
        if real in first_names:
            digest.update(f"{json.dumps(name)} is {json.dumps(first_names[real])};".encode())
            return
        first_names[real] = name
        for entry in sorted(os.scandir(place), key=lambda entry: entry.name):
            if entry.name.startswith((".", "__pycache__")):
                continue
            path, inside = Path(entry.path), f"{name}/{entry.name}"
            if entry.is_dir():
                add(path, inside)
            elif entry.name.endswith(_CONTENT) and path.is_file():
                digest.update(f"{json.dumps(inside)} {hash_file(path)};".encode())
            elif path.exists():
                status = entry.stat()
                digest.update(f"{json.dumps(inside)} {status.st_size} {status.st_mtime_ns};".encode())

    add(folder, "")
    return digest.hexdigest()


def tokenizer_hash(tokenizer: Callable[[list[str]], object]) -> str:
    """Return the fingerprint of a tokenizer: its kind, and the tokens of a sentence."""
    tokens = tokenizer([PROBE_TEXT])
    tokens = tokens if isinstance(tokens, Tensor) else getattr(tokens, "input_ids", tokens)
    return fingerprint_of(type(tokenizer).__qualname__, torch.as_tensor(tokens))
