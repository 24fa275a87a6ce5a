"""Weights of a network from a file, without executing anything that is in it."""

from __future__ import annotations

import pickle
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor, nn

#: Names under which checkpoints keep the weights beside other things.
WRAPPERS = ("state_dict", "model_state_dict", "model", "net")
SHOWN = 4


def read_weights(path: Path) -> dict[str, Tensor]:
    """Read tensors by name from a file."""
    if not path.is_file():
        raise ValueError(f"Expected argument `--weights` to name a file but there is none at {path}.")
    try:
        content: Any = (
            load_file(path)
            if path.suffix == ".safetensors"
            else torch.load(path, map_location="cpu", weights_only=True)
        )
    except (SafetensorError, pickle.UnpicklingError, EOFError, RuntimeError, ValueError, KeyError) as error:
        reason = (str(error).splitlines() or [type(error).__name__])[0]
        raise ValueError(
            f"{path} holds no weights that can be read safely ({reason}). Expected a .safetensors file, or a "
            "state dict written by torch.save (read with weights_only=True)."
        ) from error
    for name in WRAPPERS:
        if isinstance(content, Mapping) and isinstance(content.get(name), Mapping):
            content = content[name]
    if not isinstance(content, Mapping) or not all(isinstance(value, Tensor) for value in content.values()):
        raise ValueError(f"Expected {path} to hold a state dict (names and tensors) but got {type(content).__name__}.")
    return {str(name).removeprefix("module."): tensor for name, tensor in content.items()}


def load_weights(network: nn.Module, path: Path) -> None:
    """Load a file of weights into a network."""
    found = read_weights(path)
    wanted = network.state_dict()
    # Counters of batch norm are left out by some files and matter only in training.
    missing = [name for name in wanted if name not in found and not name.endswith("num_batches_tracked")]
    unexpected = [name for name in found if name not in wanted]
    differ = [
        f"{name} {tuple(found[name].shape)} for {tuple(wanted[name].shape)}"
        for name in wanted
        if name in found and found[name].shape != wanted[name].shape
    ]
    problems = [
        f"{title} {_listed(names)}"
        for title, names in (("missing:", missing), ("not of this network:", unexpected), ("other shape:", differ))
        if names
    ]
    if problems:
        raise ValueError(f"The weights in {path} do not fit {type(network).__name__}: {'; '.join(problems)}.")
    network.load_state_dict(found, strict=False)


def _listed(names: list[str]) -> str:
    more = f" and {len(names) - SHOWN} more" if len(names) > SHOWN else ""
    return ", ".join(names[:SHOWN]) + more
