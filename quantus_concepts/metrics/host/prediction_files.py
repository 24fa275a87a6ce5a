"""The tensors and the file of `ConceptPredictions`: numbers and names, a linear head, random banks; nothing runs."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import torch
from safetensors.torch import save_file
from torch import Tensor

from captum_concepts.bank.files import check_kind_of_file, read_tensors
from captum_concepts.fingerprints import tensors_hash
from captum_concepts.models.chain import linear_part, make_linear
from captum_concepts.models.plain_layers import check_finites
from captum_concepts.models.random_banks import stack_banks, unstack_banks
from captum_concepts.support.checks import check_path, check_shape
from captum_concepts.support.files import check_target, parse_json, reason_of, write_atomically
from quantus_concepts.metrics.host.looks import Looked

R = TypeVar("R")

KIND, WHAT, WRITER = "quantus_concepts.ConceptPredictions", "file of concept predictions", "ConceptPredictions.save"
FACTS = "facts"
#: Columns of the rows, and what else has tensors under names of its own.
COLUMNS = ("classes", "predicted", "values", "embedding")
GROUPS = ("truth", "of_head", "tables")


def pack(rows: Any) -> dict[str, Tensor]:
    """Return rows as tensors by name, the facts about them as bytes of JSON."""
    if rows.given is not None:
        raise ValueError("Expected rows of a concept model but these are of explanations, which no file holds.")
    tensors = {name: value for name in COLUMNS if (value := getattr(rows, name)) is not None}
    for group in GROUPS:
        tensors |= {f"{group}/{name}": torch.as_tensor(value) for name, value in getattr(rows, group).items()}
    head = None if rows.head is None else linear_part(rows.head)
    if head is not None:
        tensors |= {"head/weight": head.weight, "head/bias": head.bias}
    tensors |= {f"banks/{name}": value for name, value in (stack_banks(rows.banks) if rows.banks else {}).items()}
    looks = []
    for number, (name, look) in enumerate(rows.looks.items()):
        tensors |= {f"look {number}/{column}": value for column, value in look.columns.items()}
        tensors |= {} if look.places is None else {f"places/{number}": look.places}
        looks.append([name, dict(look.about)])
    facts = {"about": dict(rows.about), "threshold": rows.threshold, "looks": looks}
    # Each its own memory, which safetensors asks for.
    tensors = {name: value.detach().contiguous().clone() for name, value in tensors.items()}
    return tensors | {FACTS: torch.tensor(list(json.dumps(facts).encode()), dtype=torch.uint8)}


def unpack(kind: Callable[..., R], tensors: Mapping[str, Tensor]) -> R:
    """Return the rows of tensors, or raise where they do not belong together."""
    facts: Any = parse_json(bytes(tensors[FACTS].tolist()))
    rows = {name: tensors[name] for name in COLUMNS if name in tensors}
    n = len(rows["classes"])
    groups = {group: _under(group, tensors) for group in GROUPS}
    looks = {}
    for number, (name, about) in enumerate(facts["looks"]):
        places, columns = tensors.get(f"places/{number}"), _under(f"look {number}", tensors)
        _check_rows(columns, n if places is None else len(places))
        if places is not None and len(places) and not 0 <= int(places.min()) <= int(places.max()) < n:
            raise ValueError("a look has places of images that are not there")
        looks[str(name)] = Looked(columns, {key: _tuples(value) for key, value in about.items()}, places)
    _check_rows(rows | groups["truth"] | groups["of_head"], n)
    check_shape("values", rows["values"], ("N", "L"), (n, None))
    for name in ("classes", "predicted"):
        if name in rows and rows[name].dtype not in (torch.int64, torch.int32):
            raise ValueError(f"its {name} are {rows[name].dtype}")
    head, stacked, n_concepts = _under("head", tensors), _under("banks", tensors), rows["values"].shape[1]
    if head:
        check_shape("head", head["weight"], ("K", "L"), (None, n_concepts))
        check_shape("head", head["bias"], ("K",), (len(head["weight"]),))
    width = rows["embedding"].shape[1] if "embedding" in rows else 0
    check_finites(stacked)
    about = facts["about"]
    if not isinstance(about, dict) or about["bank_values"] not in ("margin", "raw"):
        raise ValueError("the facts about its model cannot be read")
    n_classes = len(head["weight"]) if head else int(about["n_classes"])
    for name in ("classes", "predicted"):
        if name in rows and n and not 0 <= int(rows[name].min()) <= int(rows[name].max()) < n_classes:
            raise ValueError(f"its {name} are none of {n_classes}")
    threshold = facts["threshold"]
    return kind(
        **rows,
        truth=groups["truth"],
        of_head=groups["of_head"],
        tables={name: value if name == "level" else np.asarray(value) for name, value in groups["tables"].items()},
        looks=looks,
        head=make_linear(head["weight"], head["bias"], head["weight"].dtype).eval() if head else None,
        banks=unstack_banks(stacked, n_concepts, width) if stacked else (),
        about=about,
        threshold=None if threshold is None else float(threshold),
    )


def write(path: str | Path, rows: Any) -> None:
    """Write a file that appears under its name only when it is complete."""
    target, tensors = check_target(check_path("path", path), WHAT), rows.tensors()
    with write_atomically(target) as temporary:
        save_file(tensors, temporary, {"kind": KIND, "sha256": tensors_hash(KIND, sorted(tensors.items()))})


def read(kind: Callable[..., R], path: str | Path) -> R:
    """Read a file that `write` has written; nothing in it is executed."""
    source = check_path("path", path)
    tensors, header = read_tensors(source, "cpu", WHAT, WRITER)
    check_kind_of_file(source, header.get("kind") == KIND and FACTS in tensors, tensors, WHAT, WRITER)
    try:
        if header.get("sha256") != tensors_hash(KIND, sorted(tensors.items())):
            raise ValueError("its content is not what was written. Copy it again")
        return unpack(kind, tensors)
    except (AttributeError, IndexError, KeyError, RecursionError, RuntimeError, TypeError, ValueError) as error:
        raise ValueError(f"{source} is a damaged {WHAT}: {reason_of(error)}.") from error


def _under(group: str, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    prefix = f"{group}/"
    return {name.removeprefix(prefix): value for name, value in tensors.items() if name.startswith(prefix)}


def _check_rows(columns: Mapping[str, Tensor], n: int) -> None:
    for name, column in columns.items():
        if not column.ndim or len(column) != n:
            raise ValueError(f"{name} has {tuple(column.shape)} for {n} images")


def _tuples(value: Any) -> Any:
    return tuple(map(_tuples, value)) if isinstance(value, list) else value
