"""The global generators, which Captum draws from, put back as they were."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator

import numpy as np
import torch

# One thread at a time: two that seed the same generators draw each other's numbers, and put back each other's states.
_one_seed = threading.RLock()


@contextlib.contextmanager
def kept_generators(device: torch.device) -> Iterator[None]:
    """Put PyTorch's generators of the CPU and of a device back as they were."""
    on_device = device.type != "cpu"
    with torch.random.fork_rng([device] if on_device else [], device_type=device.type if on_device else "cuda"):
        yield


@contextlib.contextmanager
def kept_numpy_state() -> Iterator[None]:
    """Put NumPy's global generator back as it was, whatever a library draws from it inside."""
    state = np.random.get_state()  # noqa: NPY002
    try:
        yield
    finally:
        np.random.set_state(state)  # noqa: NPY002


@contextlib.contextmanager
def seeded_generators(device: torch.device, seed: int | None) -> Iterator[None]:
    """Seed the generators of PyTorch and NumPy, and put them back as they were."""
    if seed is None:
        seed = int(np.random.SeedSequence().generate_state(1)[0])
    module = getattr(torch, device.type, None)
    # GradientShap draws from NumPy's global generator.
    with _one_seed, kept_generators(device), kept_numpy_state():
        # Not torch.manual_seed: that would seed the other devices too.
        torch.default_generator.manual_seed(seed)
        if device.type != "cpu" and module is not None:
            with module.device(device) if hasattr(module, "device") else contextlib.nullcontext():
                module.manual_seed(seed)
        np.random.seed(seed % 2**32)  # noqa: NPY002
        yield
