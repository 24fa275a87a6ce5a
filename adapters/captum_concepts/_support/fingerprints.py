"""Identities of what settles an embedding: files of weights, models, tokenizers, preprocessing."""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from captum_concepts._support.files import check_plain_file, read_json, written

PROBE_TEXT = "Red wings, 2 long legs; a beak."
#: Seconds within which a file may change again without its time telling.
_GRAIN = 2.0
_CHUNK = 1 << 22


def hash_file(path: Path) -> str:
    """Return the SHA-256 of a file's content."""
    check_plain_file(path, "File")
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def folder_hash(folder: Path) -> str:
    """Return the SHA-256 of the names and contents of the files in a folder."""
    digest = hashlib.sha256()
    for path in sorted(path for path in folder.iterdir() if path.is_file()):
        digest.update(f"{path.name}\0{hash_file(path)}\0".encode())
    return digest.hexdigest()


def file_state(path: Path) -> list[int]:
    """Return what changes with a file's content: size, inode, and the times of its last changes; -1 without a file."""
    try:
        found = path.stat()
    except OSError:
        return [-1, -1, -1, -1]
    return [found.st_size, found.st_ino, found.st_mtime_ns, found.st_ctime_ns]


class FileHashes:
    """Hashes of files, remembered in a folder so that gigabytes are read only once."""

    # What is remembered is found by path, size, inode, and the times of the last change of content and of
    # properties; a file that was replaced differs in one of them, even where its time was set back. A file that
    # changed within the last seconds is not remembered: a second change might not show.

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def of(self, path: Path) -> str:
        """Return the SHA-256 of a file's content."""
        resolved = path.resolve()
        before = file_state(resolved)
        note = self.folder / f"{hashlib.sha256(str(resolved).encode()).hexdigest()[:32]}.json"
        try:
            known = read_json(note, "Note")
            if known["state"] == before and len(known["sha256"]) == 64:
                return str(known["sha256"])
        except (OSError, ValueError, KeyError, TypeError):
            pass
        content = hash_file(resolved)
        changed = max(before[2], before[3]) / 1e9
        if before == file_state(resolved) and time.time() - changed > _GRAIN:
            self._remember(note, {"state": before, "sha256": content})
        return content

    def _remember(self, note: Path, what: dict[str, Any]) -> None:
        # It is only slower without.
        with suppress(OSError):
            self.folder.mkdir(parents=True, exist_ok=True)
            with written(note) as partial:
                partial.write_text(json.dumps(what))


def tokenizer_hash(tokenizer: Callable[[list[str]], Any]) -> str:
    """Return an identity of a tokenizer: its kind, and what it makes of a sentence."""
    digest = hashlib.sha256(type(tokenizer).__qualname__.encode())
    tokens = tokenizer([PROBE_TEXT])
    tokens = tokens if isinstance(tokens, Tensor) else getattr(tokens, "input_ids", tokens)
    digest.update(repr(torch.as_tensor(tokens).tolist()).encode())
    return digest.hexdigest()


def module_hash(module: nn.Module) -> str:
    """Return an identity of a module: its structure and the content of its weights."""
    tensors = {name: tensor for name, tensor in module.state_dict(keep_vars=True).items() if isinstance(tensor, Tensor)}
    digest = hashlib.sha256(f"{type(module).__module__}.{type(module).__qualname__}\0{module!r}".encode())
    for name, tensor in tensors.items():
        digest.update(f"\0{name} {tensor.dtype} {tuple(tensor.shape)}\0".encode())
        raw = tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy()
        for start in range(0, len(raw), _CHUNK):
            digest.update(raw[start : start + _CHUNK].tobytes())
    return digest.hexdigest()
