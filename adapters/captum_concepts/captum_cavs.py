"""Reading the concept activation vectors that Captum has trained."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from captum.concept import CAV
from torch import Tensor

from captum_concepts.checks import check_whole


def read_cavs(cavs: Any, concept: int | str, layer: str | None) -> tuple[str, list[str], Tensor]:
    """Return the layer of CAVs, and names (L) and rows (L, d) of one direction of each."""
    found = _flatten(cavs)
    for cav in found:
        if not isinstance(cav, CAV):
            raise TypeError(
                f"Expected argument `cavs` to hold captum.concept.CAV objects but got {type(cav).__name__}. "
                f"Where it is None, Captum has not trained that experiment: call `TCAV.compute_cavs` first."
            )
    layers = sorted({cav.layer for cav in found})
    if layer is not None:
        if layer not in layers:
            raise ValueError(f"Expected argument `layer` to be one of {layers}, those of `cavs`, but got {layer!r}.")
        found = [cav for cav in found if cav.layer == layer]
    if not found:
        wanted = "" if layer is None else f" of layer {layer!r}"
        raise ValueError(
            f"Expected argument `cavs` to hold at least one CAV{wanted} but it holds none; its layers are {layers}."
        )
    if layer is None and len(layers) > 1:
        raise ValueError(f"Expected argument `layer` to choose one of {layers}: directions of several do not mix.")
    names, directions = zip(*(_direction(cav, concept) for cav in found), strict=True)
    widths = sorted({len(each) for each in directions})
    if len(widths) > 1:
        raise ValueError(f"Expected argument `cavs` to hold directions of one width d but got {widths}.")
    return found[0].layer, list(names), torch.stack(directions)


def _flatten(cavs: Any) -> list[Any]:
    if isinstance(cavs, CAV):
        return [cavs]
    if isinstance(cavs, Mapping):
        return [cav for value in cavs.values() for cav in _flatten(value)]
    return list(cavs) if isinstance(cavs, list | tuple) else [cavs]


def _direction(cav: CAV, concept: int | str) -> tuple[str, Tensor]:
    names = [each.name for each in cav.concepts]
    if isinstance(concept, str):
        if concept not in names:
            raise ValueError(f"Expected argument `concept` to name one of {names} but got {concept!r}.")
        position = names.index(concept)
    else:
        position = check_whole("concept", concept, 0)
        if position >= len(names):
            raise ValueError(f"Expected argument `concept` to lie in 0..{len(names) - 1} but got {concept}.")
    stats = cav.stats or {}
    if stats.get("weights") is None or stats.get("classes") is None:
        raise ValueError(
            f"Expected argument `cavs` to hold trained CAVs but that of {names} at layer {cav.layer!r} has "
            f"no weights. Call `TCAV.compute_cavs` first."
        )
    # Rows follow the classes of the classifier, not the order of the concepts (TCAV reorders them likewise).
    classes = [int(each) for each in stats["classes"]]
    chosen = cav.concepts[position]
    if chosen.id not in classes:
        raise ValueError(
            f"Expected argument `cavs` to have a row for {chosen.name!r} (id {chosen.id}) but its classes "
            f"are {classes}."
        )
    weights = torch.as_tensor(stats["weights"])[classes.index(chosen.id)]
    return chosen.name, weights.detach().flatten()
