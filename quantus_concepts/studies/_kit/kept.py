"""One result of a run in the cache on disk, and the checkpoint of a training that was interrupted."""

from __future__ import annotations

import io
import pickle
import re
import time
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from captum_concepts._support.disk_cache import DiskCache, bytes_tensor, tensor_bytes
from captum_concepts._support.files import reason_of
from captum_concepts._support.fingerprints import fingerprint_of


class Kept:
    """The tensors of one result, found by its name and a fingerprint of what they depend on, and its checkpoint."""

    def __init__(self, folder: Path, name: str, settings: Mapping[str, Any], seconds: float = 60.0) -> None:
        self.name = name
        self.key = f"{re.sub(r'[^A-Za-z0-9_.-]+', '_', name)}-{fingerprint_of(settings)[:16]}"
        self.seconds = seconds
        self._cache = DiskCache(folder)
        self._checkpoint = f"{self.key}.checkpoint"
        self._written = time.monotonic()

    def load(self) -> dict[str, Tensor] | None:
        """Read the tensors, None where they are not finished."""
        return self._cache.get(self.key)

    def save(self, state: Mapping[str, Tensor]) -> None:
        """Write the finished tensors, and remove the checkpoint."""
        self._cache.put(self.key, state)
        self._cache.remove(self._checkpoint)

    def read(self) -> dict[str, Any] | None:
        """Read the checkpoint."""
        if (found := self._cache.get(self._checkpoint)) is None:
            return None
        try:
            file = io.BytesIO(tensor_bytes(found["state"]))
            state: dict[str, Any] = torch.load(file, map_location="cpu", weights_only=True)
        except (pickle.UnpicklingError, EOFError, RuntimeError, ValueError, KeyError) as error:
            path = self._cache.path(self._checkpoint)
            warnings.warn(
                f"{path} cannot be used ({reason_of(error)}): {self.name} is trained from the start.",
                UserWarning,
                stacklevel=2,
            )
            return None
        return state

    def write(self, state: Mapping[str, Any]) -> None:
        """Write the checkpoint in place of the one before."""
        file = io.BytesIO()
        torch.save(dict(state), file)
        self._cache.put(self._checkpoint, {"state": bytes_tensor(file.getvalue())})
        self._written = time.monotonic()

    def due(self, *, end_of_epoch: bool) -> bool:
        """Return whether to write a checkpoint now."""
        return end_of_epoch or time.monotonic() - self._written >= self.seconds
