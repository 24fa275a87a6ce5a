"""Concept directions as Captum keeps them: `captum.concept.CAV`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

import torch
from captum.concept import CAV, Concept
from torch import Tensor

from captum_concepts.support.checks import check_whole

#: As users hold them, and as `TCAV.cavs` does: experiment to layer to CAV.
Cavs: TypeAlias = CAV | Sequence[CAV] | Mapping[str, CAV | Mapping[str, CAV]]


def read_cavs(cavs: Cavs, concept: int | str, layer: str | None) -> dict[str, Any]:
    """Return the bank of one direction of each CAV."""
    cav_list = _flatten(cavs)
    for cav in cav_list:
        if not isinstance(cav, CAV):
            raise TypeError(
                f"Expected argument `cavs` to hold captum.concept.CAV objects but got {type(cav).__name__}. "
                f"Where it is None, Captum has not trained that experiment: call `TCAV.compute_cavs` first."
            )
    layers = sorted({cav.layer for cav in cav_list})
    chosen = layers[0] if layer is None and len(layers) == 1 else layer
    if chosen not in layers:
        raise ValueError(
            f"Expected argument `cavs` to hold at least one CAV, and argument `layer` to choose one of {layers}, since "
            f"directions of several layers do not mix, but got {layer!r}."
        )
    cav_list = [cav for cav in cav_list if cav.layer == chosen]
    names, directions = zip(*(_direction(cav, concept) for cav in cav_list), strict=True)
    widths = sorted({len(direction) for direction in directions})
    if len(widths) > 1:
        raise ValueError(f"Expected argument `cavs` to hold directions of one width d but got {widths}.")
    settings = {"method": "captum", "layer": chosen}
    return {"cavs": torch.stack(directions), "names": list(names), "settings": settings}


def _flatten(cavs: Cavs) -> list[CAV]:
    if isinstance(cavs, Mapping):
        return [cav for value in cavs.values() for cav in _flatten(value)]
    return list(cavs) if isinstance(cavs, list | tuple) else [cavs]


def _direction(cav: CAV, concept: int | str) -> tuple[str, Tensor]:
    names = [member.name for member in cav.concepts]
    if isinstance(concept, str):
        if concept not in names:
            raise ValueError(f"Expected argument `concept` to name one of {names} but got {concept!r}.")
        position = names.index(concept)
    else:
        position = check_whole("concept", concept, 0, len(names) - 1)
    stats = cav.stats or {}
    if stats.get("weights") is None or stats.get("classes") is None:
        raise ValueError(
            f"Expected argument `cavs` to hold trained CAVs but that of {names} at layer {cav.layer!r} has "
            f"no weights. Call `TCAV.compute_cavs` first."
        )
    # Rows follow the classes of the classifier, not the order of the concepts (TCAV reorders them likewise).
    classes = [int(label) for label in stats["classes"]]
    chosen = cav.concepts[position]
    if chosen.id not in classes:
        raise ValueError(
            f"Expected argument `cavs` to have a row for {chosen.name!r} (id {chosen.id}) but its classes "
            f"are {classes}."
        )
    weights = torch.as_tensor(stats["weights"])[classes.index(chosen.id)]
    return chosen.name, weights.detach().flatten()


def write_cavs(rows: Tensor, names: Sequence[str], layer: str) -> list[CAV]:
    """Return rows (L, d) as CAVs, each of an experiment of the concept and of its opposite."""
    cavs = []
    for j, (name, row) in enumerate(zip(names, rows, strict=True)):
        concepts = [Concept(2 * j, name, None), Concept(2 * j + 1, f"not {name}", None)]
        stats = {"weights": torch.stack([row, -row]), "classes": [concept.id for concept in concepts], "accs": None}
        cavs.append(CAV(concepts, layer, stats))
    return cavs
