"""Files of concept banks and of concept models: tensors in safetensors, facts in JSON; nothing in them is executed.

A bank is a model without a head: both have a kind, a version, facts and a checksum.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeVar

from huggingface_hub.constants import CONFIG_NAME, SAFETENSORS_SINGLE_FILE
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor, contiguous_format

from captum_concepts.fingerprints import tensors_hash
from captum_concepts.support import files

T = TypeVar("T")

TENSORS = ("cavs", "intercepts", "train_accuracy", "test_accuracy")
#: Written only if known.
P_VALUES = "p_values"
ALL_TENSORS = (*TENSORS, P_VALUES)
BANK = "ConceptBank"
KINDS = (BANK, "PostHocCBM", "ResidualCBM", "BottleneckCBM")
_VERSION, _PACKAGE = "1", "captum_concepts."
#: What reads the files of other projects, and how these are called.
RELEASED = "`captum_concepts.load_released` reads models that Label-free CBM, post-hoc CBM and others have written"
RELEASED_SUFFIXES = (".pt", ".pth", ".ckpt", ".pkl")


def pack(
    kind: str, facts: Mapping[str, object], tensors: Mapping[str, Tensor]
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the header of a file, and its tensors on the CPU; raise for facts that JSON cannot hold."""
    try:
        text = json.dumps(facts)
    except TypeError as error:
        raise TypeError(f"Expected argument `settings` of the bank to hold what JSON can but: {error}.") from error
    # Each its own memory, which safetensors asks for.
    here = {name: tensor.detach().cpu().clone(memory_format=contiguous_format) for name, tensor in tensors.items()}
    header = {"kind": _PACKAGE + kind, "version": _VERSION, "model": json.loads(text), "sha256": checksum(text, here)}
    return header, here


def write_file(path: Path, what: str, header: Mapping[str, Any], tensors: dict[str, Tensor]) -> None:
    """Write what `pack` returns as one file, which appears under its name when it is complete."""
    target = files.check_target(path, f"a {what}")
    texts = {key: value if isinstance(value, str) else json.dumps(value) for key, value in header.items()}
    with files.write_atomically(target) as temporary:
        save_file(tensors, temporary, texts)


def write_folder(folder: Path, header: Mapping[str, Any], tensors: dict[str, Tensor]) -> None:
    """Write what `pack` returns as two files, under the names that the hub knows."""
    with files.write_atomically(folder / SAFETENSORS_SINGLE_FILE) as temporary:
        save_file(tensors, temporary, {"format": "pt"})
    with files.write_atomically(folder / CONFIG_NAME) as temporary:
        temporary.write_text(json.dumps(header, indent=2), encoding="utf-8")


def read_file(
    source: Path,
    what: str,
    kind: str,
    build: Callable[[dict[str, Any], dict[str, Tensor]], T],
    device: str = "cpu",
) -> T:
    """Read the file or folder of a kind, and return what `build` makes of its facts and tensors, or raise."""
    writer, folder = f"{kind}.save", source.is_dir()
    if folder and not (source / CONFIG_NAME).is_file():
        raise FileNotFoundError(f"There is no {what} in {source}: it holds no {CONFIG_NAME}. {RELEASED}.")
    path = source / SAFETENSORS_SINGLE_FILE if folder else source
    tensors, header = read_tensors(path, device, what, writer)
    facts: Any = files.read_json(source / CONFIG_NAME, what.capitalize()) if folder else header
    actual = str(facts.get("kind")).removeprefix(_PACKAGE) if isinstance(facts, dict) else ""
    check_kind_of_file(source, actual in KINDS, tensors, what, writer)
    if actual != kind:
        raise ValueError(f"{source} holds a {actual} and not a {kind}. Read it with `{actual}.load`.")
    # Banks of 0.1 and 0.2 had names and settings by themselves, and no version.
    is_old = kind == BANK and "names" in facts
    if not is_old and facts.get("version") != _VERSION:
        raise ValueError(
            f"{source} is a {what} of version {files.quote(facts.get('version'))} but this is read: {_VERSION}. "
            "Update quantus-concepts, or write the file with the version you have."
        )
    try:
        if is_old:
            model, expected = _read_old_bank(facts, tensors)
        else:
            model = facts["model"] if folder else files.parse_json(facts["model"])
            expected = checksum(json.dumps(model), tensors)
        # Those of 0.1 had no checksum.
        if facts.get("sha256", expected if is_old else None) != expected:
            raise ValueError("its content is not what was written. Copy it again")
        return build(model, tensors)
    except (AttributeError, KeyError, RecursionError, TypeError, ValueError) as error:
        raise ValueError(f"{source} is a damaged {what}: {files.reason_of(error)}.") from error


def _read_old_bank(header: Mapping[str, str], tensors: Mapping[str, Tensor]) -> tuple[dict[str, Any], str]:
    """Return the facts and the checksum of a bank of 0.1 or 0.2."""
    text = "".join(f"{key}={header[key]};" for key in ("names", "settings"))
    in_order = [(name, tensors[name]) for name in ALL_TENSORS if name in tensors]
    return {key: files.parse_json(header[key]) for key in ("names", "settings")}, tensors_hash(text, in_order)


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
            f"{source} is not a complete safetensors file ({files.shorten(error)}). It may be cut short or of another "
            f"format; a {what} is written with `{writer}`.{released}"
        ) from error


def check_kind_of_file(source: Path, fits: bool, tensors: dict[str, Tensor], what: str, writer: str) -> None:
    """Raise where a safetensors file holds something else."""
    if not fits:
        raise ValueError(
            f"{source} is a safetensors file of another kind: it holds {files.shorten(sorted(tensors)[:5])} instead of "
            f"a {what}. Pass a file written by `{writer}`."
        )


def checksum(text: str, tensors: Mapping[str, Tensor]) -> str:
    """Return the SHA-256 of facts and of all tensors."""
    return tensors_hash(text, sorted(tensors.items()))
