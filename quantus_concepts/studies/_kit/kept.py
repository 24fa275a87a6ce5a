"""What is expensive, kept on disk: tensors that are finished, and the state of a training that was interrupted."""

from __future__ import annotations

import hashlib
import json
import pickle
import re
import time
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor

from captum_concepts._support.files import clear_abandoned, written

DAMAGE = (SafetensorError, pickle.UnpicklingError, EOFError, OSError, RuntimeError, ValueError, KeyError, TypeError)
STATE = ("step", "network", "optimiser", "schedule")


def fingerprint(settings: Mapping[str, Any]) -> str:
    """Return the SHA-256 of settings."""
    return hashlib.sha256(json.dumps(settings, sort_keys=True).encode()).hexdigest()


class Kept:
    """Files of one result: its tensors, what they depend on, and while it is trained its checkpoint."""

    # Their names hold the result's name and the first eight digits of the fingerprint of its settings. So a result
    # of other settings stands beside it under another name, and nothing is ever overwritten by what differs.
    # ``NAME-12345678.safetensors`` are the tensors; ``.json`` beside it holds the settings and a hash of the
    # tensors and is written last: without it a result is not finished. ``.checkpoint.pt`` is removed when it is.
    # Every file is written under a temporary name and renamed.

    def __init__(self, folder: Path, name: str, settings: Mapping[str, Any], seconds: float = 60.0) -> None:
        if folder.exists() and not folder.is_dir():
            raise ValueError(f"Expected argument `folder` to be a folder but {folder} is a file. Name another.")
        self.folder = folder
        self.name = name
        self.settings = dict(settings)
        self.fingerprint = fingerprint(settings)
        self.seconds = seconds
        stem = f"{re.sub(r'[^A-Za-z0-9_.-]+', '_', name)}-{self.fingerprint[:8]}"
        self.weights = folder / f"{stem}.safetensors"
        self.record = folder / f"{stem}.json"
        self.checkpoint = folder / f"{stem}.checkpoint.pt"
        self._written = time.monotonic()
        clear_abandoned(folder)

    def load(self) -> dict[str, Tensor] | None:
        """Read the tensors, None where they are not finished."""
        if not self.record.is_file():
            return None
        try:
            record = json.loads(self.record.read_text(encoding="utf-8"))
            _check_same(record["fingerprint"], self.fingerprint, "its settings are others")
            _check_same(record["sha256"], _file_hash(self.weights), "the weights are not those that were written")
            return load_file(self.weights)
        except DAMAGE as error:
            self._warn(self.weights, error, "trained again")
            return None

    def save(self, state: Mapping[str, Tensor]) -> None:
        """Write the finished tensors, and remove the checkpoint."""
        # Copies: safetensors takes neither shared nor non-contiguous memory.
        plain = {name: tensor.detach().cpu().contiguous().clone() for name, tensor in state.items()}
        with self._warned_if_full():
            with written(self.weights) as temporary:
                save_file(plain, temporary)
            content = {
                "name": self.name,
                "fingerprint": self.fingerprint,
                "sha256": _file_hash(self.weights),
                "settings": self.settings,
            }
            with written(self.record) as temporary:
                temporary.write_text(json.dumps(content, indent=1), encoding="utf-8")
            self.checkpoint.unlink(missing_ok=True)

    def read(self) -> dict[str, Any] | None:
        """Read the checkpoint."""
        if not self.checkpoint.exists():
            return None
        try:
            state = torch.load(self.checkpoint, map_location="cpu", weights_only=True)
            _check_same(state["fingerprint"], self.fingerprint, "its settings are others")
            return {key: state[key] for key in STATE}
        except DAMAGE as error:
            self._warn(self.checkpoint, error, "trained from the start")
            return None

    def write(self, state: Mapping[str, Any]) -> None:
        """Write the checkpoint in place of the one before."""
        with self._warned_if_full(), written(self.checkpoint) as temporary:
            torch.save({**state, "fingerprint": self.fingerprint}, temporary)
        self._written = time.monotonic()

    def due(self, *, end_of_epoch: bool) -> bool:
        """Tell whether to write a checkpoint now."""
        return end_of_epoch or time.monotonic() - self._written >= self.seconds

    @contextmanager
    def _warned_if_full(self) -> Iterator[None]:
        """Go on where a file cannot be written: nothing is lost but time, if the run is interrupted."""
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            yield
        except (OSError, SafetensorError, RuntimeError) as error:  # what torch raises where a disk is full
            reason = (str(error).splitlines() or [type(error).__name__])[0]
            warnings.warn(
                f"{self.name} cannot be kept in {self.folder} ({reason}): the run goes on without it.",
                UserWarning,
                stacklevel=4,
            )

    def _warn(self, path: Path, error: Exception, consequence: str) -> None:
        reason = (str(error).splitlines() or [type(error).__name__])[0]
        warnings.warn(f"{path} cannot be used ({reason}): {self.name} is {consequence}.", UserWarning, stacklevel=3)


def frame_tensors(frame: pd.DataFrame, said: Mapping[str, Any]) -> dict[str, Tensor]:
    """Return a frame, and what was said of it, as tensors; bytes among what was said too."""
    data = {name: value for name, value in said["facts"].items() if isinstance(value, bytes)}
    plain = {name: value for name, value in said["facts"].items() if name not in data}
    # Python's JSON reads floats back to the bit, NaN too; of pandas' NA it knows nothing.
    columns = {
        name: [str(column.dtype), [None if each is pd.NA else each for each in column.tolist()]]
        for name, column in frame.items()
    }
    text = json.dumps({"columns": columns, "said": {**said, "facts": plain}})
    parts = {"frame": text.encode()} | {f"fact {name}": value for name, value in data.items()}
    return {name: torch.from_numpy(np.frombuffer(value, dtype=np.uint8).copy()) for name, value in parts.items()}


def frame_of(tensors: Mapping[str, Tensor]) -> tuple[pd.DataFrame, dict[str, Any]]:
    """Return what `frame_tensors` took apart."""
    content = json.loads(tensors["frame"].numpy().tobytes())
    frame = pd.DataFrame({name: pd.Series(of, dtype=dtype) for name, (dtype, of) in content["columns"].items()})
    said = content["said"]
    said["facts"] |= {
        name.removeprefix("fact "): tensor.numpy().tobytes() for name, tensor in tensors.items() if name != "frame"
    }
    return frame, said


def _check_same(found: str, wanted: str, problem: str) -> None:
    if found != wanted:
        raise ValueError(problem)


def _file_hash(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
