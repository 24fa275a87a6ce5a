"""Tasks for helpers, which import them from here."""

from __future__ import annotations

import os
import time
import warnings
from pathlib import Path

import torch


def met(folder: Path, asked_by: int, does: str = "") -> tuple[int, int]:
    """Return process and threads once two processes are here; a helper then does something else."""
    (folder / str(os.getpid())).touch()
    end = time.monotonic() + 120
    while len(list(folder.iterdir())) < 2 and time.monotonic() < end:
        time.sleep(0.005)
    if os.getpid() != asked_by:
        if does == "die":
            os._exit(1)
        if does == "raise":
            raise ArithmeticError("of a helper")
        if does == "warn":
            warnings.warn("of a helper", stacklevel=1)
    return os.getpid(), torch.get_num_threads()
