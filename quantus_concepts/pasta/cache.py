"""Embeddings on disk, and an encoder that looks them up there by what they are computed from."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from captum_concepts._support.checks import check_path, check_shape
from captum_concepts._support.disk_cache import DiskCache, FileHashes
from captum_concepts._support.fingerprints import fingerprint_of
from captum_concepts._support.shown import describe
from quantus_concepts.pasta.encoders.encoder import Encoder

# Nothing else may become the name of a file.
_KEY = re.compile("[0-9a-f]{3,}")
_EMBEDDING = "embedding"
#: Part of every key; raised whenever the same settings give another picture or text.
VERSION = 2


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


class CachedEncoder:
    """An encoder with its cache; the key of an embedding is the fingerprint of all that determines it."""

    def __init__(self, encoder: Encoder, cache: EmbeddingCache | None, batch_size: int) -> None:
        self.encoder = encoder
        self.cache = cache
        self.batch_size = batch_size
        self._hashes = None if cache is None else FileHashes(cache.folder / "files")

    def of_maps(
        self,
        images: Tensor | Sequence[Tensor],
        maps: Tensor | Sequence[Tensor],
        settings: Callable[[int], Mapping[str, Any]],
        encode: Callable[[Sequence[int]], Tensor],
        device: torch.device | None = None,
    ) -> Tensor:
        """Return embeddings of maps on their images, each shown in its own way."""
        keys = None
        if self.cache is not None:
            kinds = [
                {**settings(place), "image": tuple(image.shape), "map": tuple(heat.shape)}
                for place, (image, heat) in enumerate(zip(images, maps, strict=True))
            ]
            keys = self._keys("map", kinds, zip(_arrays(images), _arrays(maps), strict=True))
        return self._look_up(len(images), keys, encode, device)

    def of_drawings(self, levels: Tensor) -> Tensor:
        """Return embeddings of pictures (N, 3, H, W) of 8 bits."""
        kinds = [{"picture": tuple(levels.shape[1:])}] * len(levels)
        keys = self._keys("drawing", kinds, zip(_arrays(levels), strict=True))
        return self._look_up(len(levels), keys, lambda rows: self.encode_levels(levels[list(rows)]), levels.device)

    def of_texts(self, texts: Sequence[str]) -> Tensor:
        """Return embeddings of texts, each text encoded once."""
        places = {text: place for place, text in enumerate(dict.fromkeys(texts))}
        distinct = list(places)
        keys = self._keys("text", [{}] * len(distinct), ([text.encode()] for text in distinct))
        embeddings = self._look_up(
            len(distinct), keys, lambda rows: self.encoder.encode_texts([distinct[row] for row in rows])
        )
        return embeddings[[places[text] for text in texts]]

    def encode_levels(self, levels: Tensor) -> Tensor:
        """Encode pictures (n, 3, H, W) of 8 bits."""
        # Not every encoder takes them without the way over floats.
        quick: Callable[[Tensor], Tensor] | None = getattr(self.encoder, "encode_levels", None)
        return self.encoder.encode_images(levels.float() / 255) if quick is None else quick(levels)

    def _look_up(
        self,
        n: int,
        keys: Sequence[str] | None,
        encode: Callable[[Sequence[int]], Tensor],
        device: torch.device | None = None,
    ) -> Tensor:
        """Return embeddings from the cache, and encode those that are not there."""
        if n == 0:
            return torch.empty(0, self.encoder.dim, device=device)
        if keys is None or self.cache is None:
            embeddings = torch.cat([self._check_dim(encode(rows)) for rows in self._batches(range(n))])
            return embeddings if device is None else embeddings.to(device)
        embeddings_by_key = self.cache.get(dict.fromkeys(keys))
        missing = {key: row for row, key in reversed(list(enumerate(keys))) if key not in embeddings_by_key}
        for rows in self._batches(sorted(missing.values())):
            computed = self._check_dim(encode(rows)).cpu()
            fresh = {keys[row]: embedding for row, embedding in zip(rows, computed, strict=True)}
            self.cache.put(fresh)
            embeddings_by_key.update(fresh)
        return torch.stack([embeddings_by_key[key] for key in keys]).to(device)

    def _keys(
        self, kind: str, settings: Sequence[Mapping[str, Any]], contents: Iterable[Iterable[Any]]
    ) -> list[str] | None:
        """Return a key for each item: of the encoder, of how the item is shown, and of what is in it."""
        if self._hashes is None:
            return None
        # Asked each time: the weights of a user's model may have changed.
        remembering = getattr(self.encoder, "fingerprint_with", None)
        encoder = self.encoder.fingerprint if remembering is None else remembering(self._hashes)
        keys = []
        for how, parts in zip(settings, contents, strict=True):
            head = {"version": VERSION, "kind": kind, "encoder": encoder, "settings": how}
            keys.append(fingerprint_of(head, *parts))
        return keys

    def _check_dim(self, embeddings: Tensor) -> Tensor:
        dim = self.encoder.dim
        if embeddings.ndim != 2 or embeddings.shape[1] != dim:
            check_shape("encoder", embeddings, ("N", "dim"), (None, dim))
        return embeddings

    def _batches(self, items: Sequence[int]) -> list[Sequence[int]]:
        return [items[start : start + self.batch_size] for start in range(0, len(items), self.batch_size)]


def _place(key: str) -> str:
    """Return a key by which no folder gets too many files."""
    if not _KEY.fullmatch(key):
        raise ValueError(f"Expected argument `keys` to hold hexadecimal keys of 3 digits or more but got {key!r}.")
    return f"{key[:2]}/{key[2:]}"


def _arrays(values: Tensor | Sequence[Tensor]) -> Iterator[np.ndarray]:
    """Go through arrays whose bytes are hashed, floats as float32; those of one tensor leave its device together."""
    for tensor in values.detach().cpu() if isinstance(values, Tensor) else values:
        tensor = tensor.detach().cpu()
        yield np.ascontiguousarray((tensor.float() if tensor.is_floating_point() else tensor).numpy())
