"""Embeddings on disk."""

from __future__ import annotations

import re
import warnings
from collections.abc import Iterable, Mapping
from pathlib import Path

from safetensors import SafetensorError
from safetensors.torch import load, save
from torch import Tensor

from captum_concepts.support.checks import check_path
from captum_concepts.support.files import clear_abandoned, read_bytes, reason_of, write_atomically
from captum_concepts.texts import describe

# Nothing else may become the name of a file.
_KEY = re.compile("[0-9a-f]{3,}")
_EMBEDDING = "embedding"
#: Largest file that is read, that of an embedding of a million numbers.
_MAX_BYTES = 2**22 + 2**12


class EmbeddingCache:
    """Embeddings in a folder, each in a safetensors file of its own under the fingerprint of what it is of.

    A file is written under a temporary name and renamed when it is complete, so that another process, and one after
    a kill at any moment, reads either all of it or nothing. Two processes that write one entry write the same. What
    cannot be read counts as missing and is computed again; the first one raises a warning.

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
            raise ValueError(f"Expected argument `cache` to be a folder but {self.folder} is a file. Name another.")
        self._warned: set[str] = set()
        self._cleared: set[Path] = set()

    def __repr__(self) -> str:
        return describe(self, folder=self.folder)

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
        embeddings = {key: self._read(self._place(key)) for key in keys}
        return {key: embedding for key, embedding in embeddings.items() if embedding is not None}

    def put(self, embeddings: Mapping[str, Tensor]) -> None:
        """Keep embeddings.

        If that fails, on a full disk for instance, there is one warning; nothing else is lost.

        Parameters
        ----------
        embeddings : mapping of str to Tensor
            (dim,) of each key.
        """
        for key, embedding in embeddings.items():
            path = self._place(key)
            try:
                path.parent.mkdir(parents=True, exist_ok=True)
                if path.parent not in self._cleared:
                    clear_abandoned(path.parent)
                    self._cleared.add(path.parent)
                with write_atomically(path) as temporary:
                    # A copy: a row shares the memory of its batch.
                    temporary.write_bytes(save({_EMBEDDING: embedding.detach().cpu().float().clone()}))
            except OSError as error:
                self._warn("write", f"{path} cannot be written ({_reason(error)}): the run goes on without it.")

    def _place(self, key: str) -> Path:
        """Return where an embedding is; no folder gets too many files."""
        if not _KEY.fullmatch(key):
            raise ValueError(f"Expected argument `keys` to hold hexadecimal keys of 3 digits or more but got {key!r}.")
        return self.folder / key[:2] / f"{key[2:]}.safetensors"

    def _read(self, path: Path) -> Tensor | None:
        """Return an embedding; None where it is missing or cannot be read."""
        try:
            return load(read_bytes(path, "File", _MAX_BYTES))[_EMBEDDING]
        except (FileNotFoundError, NotADirectoryError):
            return None
        except (OSError, SafetensorError, ValueError, KeyError) as error:
            self._warn("read", f"{path} cannot be used ({_reason(error)}): what it held is computed again.")
            return None

    def _warn(self, kind: str, text: str) -> None:
        """Warn once of each kind: a folder that is damaged, or full, may be so in thousands of entries."""
        if kind not in self._warned:
            self._warned.add(kind)
            warnings.warn(text, UserWarning, stacklevel=4)


def _reason(error: Exception) -> str:
    return getattr(error, "strerror", None) or reason_of(error)
