"""Weights of a network from a file, without executing anything that is in it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from safetensors import safe_open
from torch import Tensor, nn

from captum_concepts.support import files
from captum_concepts.support.pickles import parse_objects

#: Keys under which checkpoints have the weights.
WRAPPERS = ("state_dict", "model_state_dict", "model", "net")


def read_state(path: Path) -> tuple[dict[str, Tensor], dict[str, str]]:
    """Read tensors by name from a file, and the metadata of a safetensors file."""
    header: dict[str, str] = {}
    try:
        if kind := files.non_file_kind(path):
            raise ValueError(f"it is {kind}")
        if path.suffix == ".safetensors":
            with safe_open(path, framework="pt") as file:
                state = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
                header = file.metadata() or {}
        else:
            state = parse_objects(path)
    except Exception as error:  # each kind of wrong file fails in its own way
        raise ValueError(
            f"{path} holds no weights that can be read safely ({files.reason_of(error)}). It may be cut short. "
            "Expected a .safetensors file, or a state dict written by torch.save."
        ) from error
    for name in WRAPPERS:
        if isinstance(state, Mapping) and isinstance(state.get(name), Mapping):
            state = state[name]
    if not isinstance(state, Mapping):
        raise ValueError(f"Expected {path} to hold a state dict (names and tensors) but got {type(state).__name__}.")
    if other := [name for name, value in state.items() if not isinstance(value, Tensor)]:
        raise ValueError(
            f"Expected {path} to hold a state dict (names and tensors) but these are no tensors: "
            f"{files.list_some(other)}. Python objects are never unpickled: save its tensors with safetensors."
        )
    return {str(name).removeprefix("module."): tensor for name, tensor in state.items()}, header


def read_weights(path: Path) -> dict[str, Tensor]:
    """Read tensors by name from a file."""
    if not path.exists():
        raise ValueError(f"Expected argument `--weights` to name a file but there is none at {path}.")
    return read_state(path)[0]


def load_weights(network: nn.Module, path: Path) -> None:
    """Load a file of weights into a network."""
    state = read_weights(path)
    kind = type(network).__name__
    try:
        missing, unexpected = network.load_state_dict(state, strict=False)
    except RuntimeError as error:
        raise ValueError(f"The weights in {path} do not fit {kind}: {files.shorten(error)}") from error
    # Counters of batch norm are left out by some files and matter only in training.
    missing = [name for name in missing if not name.endswith("num_batches_tracked")]
    titles = (("missing:", missing), ("not of this network:", unexpected))
    if problems := [f"{title} {files.list_some(names)}" for title, names in titles if names]:
        raise ValueError(f"The weights in {path} do not fit {kind}: {'; '.join(problems)}.")
