"""The file of a concept bank: safetensors, with names and settings as metadata."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from captum_concepts.fingerprints import tensors_hash
from captum_concepts.support.files import check_target, parse_json, shorten, write_atomically

TENSORS = ("cavs", "intercepts", "train_accuracy", "test_accuracy")
#: Written only if known, so that the files of other banks stay as in earlier versions.
P_VALUES = "p_values"
ALL_TENSORS = (*TENSORS, P_VALUES)
_KIND = "captum_concepts.ConceptBank"
#: What reads the files of other projects, and how these are called.
RELEASED = "`captum_concepts.load_released` reads models that Label-free CBM, post-hoc CBM and others have written"
RELEASED_SUFFIXES = (".pt", ".pth", ".ckpt", ".pkl")


class BankContents(NamedTuple):
    """What a bank holds, as fits and files give it: tensors by name, names of the concepts, settings."""

    tensors: dict[str, Tensor]
    names: Sequence[str] | None
    settings: dict[str, Any]


def write_bank(path: Path, contents: BankContents) -> None:
    """Write a file that appears under its name only when it is complete."""
    target = check_target(path, "a concept bank")
    tensors = dict(contents.tensors)
    if tensors[P_VALUES].isnan().all():
        del tensors[P_VALUES]
    header = {"kind": _KIND, "names": json.dumps(contents.names), "settings": settings_json(contents.settings)}
    header["sha256"] = _checksum(header, tensors)
    with write_atomically(target) as temporary:
        save_file({name: tensor.cpu().contiguous() for name, tensor in tensors.items()}, temporary, header)


def settings_json(value: object) -> str:
    """Return the settings of a bank, or what contains them, as JSON, or raise."""
    try:
        return json.dumps(value)
    except TypeError as error:
        raise TypeError(f"Expected argument `settings` of the bank to hold what JSON can but: {error}.") from error


def read_bank(source: Path, device: str) -> BankContents:
    """Read a file that `write_bank` has written; nothing in it is executed."""
    tensors, header = read_tensors(source, device, "concept bank", "ConceptBank.save")
    fits = header.get("kind") == _KIND and {*TENSORS} <= tensors.keys()
    check_kind_of_file(source, fits, tensors, "concept bank", "ConceptBank.save")
    tensors = {name: tensors[name] for name in ALL_TENSORS if name in tensors}
    # Files of the first version have none.
    if header.get("sha256", expected := _checksum(header, tensors)) != expected:
        raise ValueError(
            f"{source} is a damaged concept bank: its content is not what was written. Copy it again, or fit the bank "
            "anew."
        )
    try:
        names, settings = parse_json(header["names"]), parse_json(header["settings"])
        if not (isinstance(names, list) and isinstance(settings, dict) and all(isinstance(n, str) for n in names)):
            raise ValueError("they are no list of names, and settings by name")
    except (KeyError, ValueError) as error:
        raise ValueError(
            f"{source} is a damaged concept bank: its metadata cannot be read ({shorten(error)})."
        ) from error
    return BankContents(tensors, names, settings)


def read_tensors(source: Path, device: str, what: str, writer: str) -> tuple[dict[str, Tensor], dict[str, str]]:
    """Read tensors and metadata of a safetensors file; the errors name what it should be, and what writes that."""
    if not source.is_file():
        raise FileNotFoundError(f"There is no {what} at {source}: no such file.")
    try:
        with safe_open(source, framework="pt", device=device) as file:
            # Copies: as long as tensors lie in the file, Windows cannot replace it.
            return {name: file.get_tensor(name).clone() for name in file.keys()}, file.metadata() or {}  # noqa: SIM118
    except SafetensorError as error:
        released = f" {RELEASED}." if source.suffix in RELEASED_SUFFIXES else ""
        raise ValueError(
            f"{source} is not a complete safetensors file ({shorten(error)}). It may be cut short or of another "
            f"format; a {what} is written with `{writer}`.{released}"
        ) from error


def check_kind_of_file(source: Path, fits: bool, tensors: dict[str, Tensor], what: str, writer: str) -> None:
    """Raise where a safetensors file holds something else."""
    if not fits:
        raise ValueError(
            f"{source} is a safetensors file of another kind: it holds {shorten(sorted(tensors)[:5])} instead of a "
            f"{what}. Pass a file written by `{writer}`."
        )


def _checksum(header: dict[str, str], tensors: dict[str, Tensor]) -> str:
    """Return the SHA-256 of names, settings and all tensors."""
    return tensors_hash("".join(f"{key}={header.get(key)};" for key in ("names", "settings")), tensors.items())
