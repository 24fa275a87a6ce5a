"""Embeddings on disk."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from pathlib import Path

from torch import Tensor

from captum_concepts._support.checks import check_path
from captum_concepts._support.disk_cache import DiskCache
from captum_concepts._support.shown import describe

# Nothing else may become the name of a file.
_KEY = re.compile("[0-9a-f]{3,}")
_EMBEDDING = "embedding"


class EmbeddingCache:
    """Embeddings in a folder, each in a file of its own under the fingerprint of what it is of.

    A file is written under a temporary name and renamed when it is complete, so that another process, and one after
    a kill at any moment, reads either all of it or nothing. Two processes that write one entry write the same. Each
    file has a checksum: a damaged entry counts as missing and is computed again; the first one raises a warning.

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
        self._cache = DiskCache(self.folder, "cache")

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
        entries = {key: self._cache.get(_place(key)) for key in keys}
        return {key: tensors[_EMBEDDING] for key, tensors in entries.items() if tensors is not None}

    def put(self, embeddings: Mapping[str, Tensor]) -> None:
        """Keep embeddings.

        If that fails, on a full disk for instance, there is one warning; nothing else is lost.

        Parameters
        ----------
        embeddings : mapping of str to Tensor
            (dim,) of each key.
        """
        for key, embedding in embeddings.items():
            self._cache.put(_place(key), {_EMBEDDING: embedding.float()})


def _place(key: str) -> str:
    """Return a key by which no folder gets too many files."""
    if not _KEY.fullmatch(key):
        raise ValueError(f"Expected argument `keys` to hold hexadecimal keys of 3 digits or more but got {key!r}.")
    return f"{key[:2]}/{key[2:]}"
