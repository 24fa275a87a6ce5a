"""What the options of all benchmarks share: their names on the command line, and the device."""

from __future__ import annotations

import torch

AUTO = "auto"


def option_name(field: str) -> str:
    """Return the option of a field: ``n_train`` is ``--n-train``."""
    return "--" + field.replace("_", "-")


def torch_device(name: str) -> torch.device:
    """Return the device that `--device` names."""
    if name == AUTO:
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        device = torch.device(name)
        torch.empty(1, device=device).item()
    except (RuntimeError, AssertionError, NotImplementedError) as error:
        usable = [AUTO, "cpu", *(f"cuda:{index}" for index in range(torch.cuda.device_count()))]
        usable += ["mps"] if torch.backends.mps.is_available() else []
        raise ValueError(
            f"Expected argument `--device` to be one of {usable}, the devices of this machine, but got {name!r}."
        ) from error
    return device
