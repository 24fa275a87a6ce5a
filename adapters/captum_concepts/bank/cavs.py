"""Concept directions as Captum keeps them: `captum.concept.CAV`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from captum.concept import CAV, Concept
from torch import Tensor

from captum_concepts._support.checks import check_whole


def read_cavs(cavs: Any, concept: int | str, layer: str | None) -> tuple[str, list[str], Tensor]:
    """Return the layer of CAVs, and names (L) and rows (L, d) of one direction of each."""
    cav_list = _flatten(cavs)
    for cav in cav_list:
        if not isinstance(cav, CAV):
            raise TypeError(
                f"Expected argument `cavs` to hold captum.concept.CAV objects but got {type(cav).__name__}. "
                f"Where it is None, Captum has not trained that experiment: call `TCAV.compute_cavs` first."
            )
    layers = sorted({cav.layer for cav in cav_list})
    if layer is not None:
        if layer not in layers:
            raise ValueError(f"Expected argument `layer` to be one of {layers}, those of `cavs`, but got {layer!r}.")
        cav_list = [cav for cav in cav_list if cav.layer == layer]
    if not cav_list:
        of_layer = "" if layer is None else f" of layer {layer!r}"
        raise ValueError(
            f"Expected argument `cavs` to hold at least one CAV{of_layer} but it holds none; its layers are {layers}."
        )
    if layer is None and len(layers) > 1:
        raise ValueError(f"Expected argument `layer` to choose one of {layers}: directions of several do not mix.")
    names, directions = zip(*(_direction(cav, concept) for cav in cav_list), strict=True)
    widths = sorted({len(direction) for direction in directions})
    if len(widths) > 1:
        raise ValueError(f"Expected argument `cavs` to hold directions of one width d but got {widths}.")
    return cav_list[0].layer, list(names), torch.stack(directions)


def _flatten(cavs: Any) -> list[Any]:
    if isinstance(cavs, CAV):
        return [cavs]
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
