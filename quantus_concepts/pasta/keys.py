"""Keys of embeddings: hashes of all that settles them."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from torch import Tensor

from quantus_concepts.pasta.encoder import Encoder
from quantus_concepts.pasta.fingerprints import FileHashes

#: Raised whenever the same settings give another picture or text.
VERSION = 2


class KeyMaker:
    """Makes keys for one encoder."""

    def __init__(self, encoder: Encoder, folder: Path) -> None:
        self.encoder = encoder
        self.hashes = FileHashes(folder / "files")

    def of_maps(self, images: Tensor, maps: Tensor, settings: Mapping[str, Any]) -> list[str]:
        """Return a key for each map on its image."""
        start = self._start("map", {**settings, "image": tuple(images.shape[1:]), "map": tuple(maps.shape[1:])})
        parts = [value.detach().float().cpu().contiguous().numpy() for value in (images, maps)]
        keys = []
        for rows in zip(*parts, strict=True):
            digest = start.copy()
            for row in rows:
                digest.update(np.ascontiguousarray(row))
            keys.append(digest.hexdigest())
        return keys

    def of_drawings(self, levels: Tensor) -> list[str]:
        """Return a key for each picture (N, 3, H, W) of 8 bits."""
        start = self._start("drawing", {"picture": tuple(levels.shape[1:])})
        keys = []
        for picture in levels.cpu().contiguous().numpy():
            digest = start.copy()
            digest.update(picture)
            keys.append(digest.hexdigest())
        return keys

    def of_texts(self, texts: Sequence[str]) -> list[str]:
        """Return a key for each text."""
        start = self._start("text", {})
        keys = []
        for text in texts:
            digest = start.copy()
            digest.update(text.encode())
            keys.append(digest.hexdigest())
        return keys

    def _start(self, kind: str, settings: Mapping[str, Any]) -> Any:
        # Asked each time: the weights of a user's model may have changed.
        remembering = getattr(self.encoder, "fingerprint_with", None)
        encoder = self.encoder.fingerprint if remembering is None else remembering(self.hashes)
        content = {"version": VERSION, "kind": kind, "encoder": encoder, "settings": settings}
        return hashlib.sha256(json.dumps(content, sort_keys=True).encode() + b"\0")
