"""Embeddings kept on disk, for any number of processes at once."""

from __future__ import annotations

import hashlib
import re
import time
import warnings
from collections.abc import Iterable, Mapping
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from captum_concepts._support.checks import check_path
from captum_concepts._support.files import clear_abandoned, written
from captum_concepts._support.shown import described

_DIGEST = 16
#: Read of an entry, which has some thousand numbers.
_MAX_BYTES = 1 << 22
# Nothing else may become the name of a file.
_KEY = re.compile("[0-9a-f]{3,}")
#: Seconds after which a file that was never finished is taken to be left by a process that is gone.
_ABANDONED = 3600.0


class EmbeddingCache:
    """Embeddings in a folder, each in a file of its own under the hash of what it is of.

    A file is written under a temporary name and renamed when it is complete, so that another process, and one after
    a kill at any moment, sees either all of it or nothing. Two processes that write one entry write the same. Each
    file has a checksum: a damaged entry counts as missing, is computed again, and is mentioned once.

    Parameters
    ----------
    folder : str or Path
        Made when the first embedding is kept.

    Raises
    ------
    ValueError
        If `folder` is a file.
    """

    def __init__(self, folder: str | Path) -> None:
        self.folder = check_path("cache", folder)
        if self.folder.exists() and not self.folder.is_dir():
            raise ValueError(f"Expected argument `cache` to be a folder but {self.folder} is a file.")
        self._warned: set[str] = set()
        self._prepared = False

    def __repr__(self) -> str:
        return described(self, folder=self.folder)

    def get(self, keys: Iterable[str]) -> dict[str, Tensor]:
        """Look embeddings up.

        Parameters
        ----------
        keys : iterable of str
            Hexadecimal keys of at least 3 digits.

        Returns
        -------
        dict of str to Tensor
            (dim,) float32, on the CPU, of those that are there.
        """
        found = {}
        for key in keys:
            try:
                with self._path(key).open("rb") as file:
                    content = file.read(_MAX_BYTES)
            except FileNotFoundError:
                continue
            except OSError as error:
                self._warn("read", f"{self._path(key)} cannot be read ({error.strerror}).")
                continue
            payload = content[_DIGEST:]
            # The key goes into the checksum, so that an entry under another's name is damaged too.
            if not payload or len(payload) % 4 or content[:_DIGEST] != _checksum(key, payload):
                self._warn("damaged", f"{self._path(key)} is damaged.")
                continue
            found[key] = torch.from_numpy(np.frombuffer(payload, dtype="<f4").astype(np.float32))
        return found

    def put(self, embeddings: Mapping[str, Tensor]) -> None:
        """Keep embeddings.

        Where that fails, on a full disk for instance, a warning says so once; nothing else is lost.

        Parameters
        ----------
        embeddings : mapping of str to Tensor
            (dim,) of each key.
        """
        try:
            self._prepare()
            for key, embedding in embeddings.items():
                self._write(key, embedding.detach().cpu().numpy().astype("<f4").tobytes())
        except OSError as error:
            self._warn("write", f"{self.folder} cannot be written to ({error.strerror}).")

    def _write(self, key: str, payload: bytes) -> None:
        path = self._path(key)
        path.parent.mkdir(exist_ok=True)
        with written(path, beside=self._partial) as partial:
            partial.write_bytes(_checksum(key, payload) + payload)

    @property
    def _partial(self) -> Path:
        return self.folder / "partial"

    def _path(self, key: str) -> Path:
        if not _KEY.fullmatch(key):
            raise ValueError(f"Expected argument `keys` to hold hexadecimal keys of 3 digits or more but got {key!r}.")
        return self.folder / key[:2] / key[2:]

    def _prepare(self) -> None:
        """Make the folder, and clear away what killed processes left in it."""
        if self._prepared:
            return
        self._partial.mkdir(parents=True, exist_ok=True)
        clear_abandoned(self._partial)
        # Of processes on other machines nothing is known but the time.
        for path in self._partial.iterdir():
            try:
                if time.time() - path.stat().st_mtime > _ABANDONED:
                    path.unlink(missing_ok=True)
            except FileNotFoundError:  # another process was faster
                continue
        self._prepared = True

    def _warn(self, kind: str, what: str) -> None:
        if kind not in self._warned:
            self._warned.add(kind)
            warnings.warn(
                f"Cache of embeddings: {what} What is missing is computed again; this is said only once.",
                UserWarning,
                stacklevel=3,
            )


def _checksum(key: str, payload: bytes) -> bytes:
    return hashlib.blake2b(key.encode() + payload, digest_size=_DIGEST).digest()
