"""The classes a scorer sees, by name and by place."""

from __future__ import annotations

import difflib
from collections.abc import Collection, Sequence
from numbers import Integral
from typing import TypeAlias

import numpy as np
import torch
from torch import Tensor

from captum_concepts.support.checks import check_range, check_shape, to_class_indices
from captum_concepts.support.files import list_some, shorten
from captum_concepts.support.running import to_host

#: Classes of the released scorers, in the order of their one-hot inputs.
RELEASED_LABELS = (
    "shopping_and_dining",
    "workplace",
    "home_or_hotel",
    "transportation",
    "sports_and_leisure",
    "cultural",
    "Baroque",
    "Gothic",
    "Hispanic-Muslim",
    "Renaissance",
    "aeroplane",
    "bicycle",
    "bird",
    "bottle",
    "bus",
    "car",
    "cat",
    "cow",
    "dog",
    "horse",
    "motorbike",
    "person",
    "pottedplant",
    "sheep",
    "train",
    "tvmonitor",
)
#: Other names the released data use; the last three are what is left of a class in the name of a file.
LABEL_ALIASES = {
    "cats": "cat",
    "dogs": "dog",
    "cars": "car",
    "hotel": "home_or_hotel",
    "dining": "shopping_and_dining",
    "leisure": "sports_and_leisure",
}
#: Place of what has no label.
UNLABELLED = -1
#: Names or places of classes, one for each item; None for no labels at all.
Labels: TypeAlias = Tensor | np.ndarray | Collection[str | int | None] | None


def label_place(labels: Sequence[str], name: str) -> int | None:
    """Return the place of a class among those of a scorer; None if it has no such class."""
    names = list(labels)
    return next((names.index(known) for known in (name, LABEL_ALIASES.get(name)) if known in names), None)


def label_indices(labels: Sequence[str], chosen: Labels, n_items: int) -> Tensor:
    """Return the indices of chosen labels, which are names or indices."""
    if isinstance(chosen, str | set | frozenset) or not isinstance(chosen, Tensor | np.ndarray | Collection):
        raise ValueError(f"Expected argument `labels` to hold a label for each of {n_items} items but got {chosen!r}.")
    items = [] if isinstance(chosen, Tensor) else chosen.tolist() if isinstance(chosen, np.ndarray) else list(chosen)
    if any(item is None or isinstance(item, str) for item in items):
        wrong = [
            item for item in items if item is not None and (type(item) is bool or not isinstance(item, str | Integral))
        ]
        if wrong:
            raise ValueError(f"Expected argument `labels` to hold names or whole numbers but got {shorten(wrong[:3])}.")
        indices = {name: label_place(labels, name) for name in items if isinstance(name, str)}
        _check_known(labels, [item for item in items if isinstance(item, str) and indices[item] is None], n_items)
        places = torch.as_tensor([UNLABELLED if item is None else indices.get(item, item) for item in items])
    else:
        places = to_class_indices("labels", chosen)
    check_shape("labels", places, ("N",), (n_items,))
    for extreme in to_host(*torch.aminmax(places)) if n_items else ():
        check_range("labels", int(extreme), UNLABELLED, len(labels) - 1)
    return places


def _check_known(labels: Sequence[str], unknown: Sequence[str], n_items: int) -> None:
    if unknown:
        names = list(dict.fromkeys(unknown))
        near = difflib.get_close_matches(names[0], labels, n=3, cutoff=0.4) or list(labels)
        raise ValueError(
            f"Expected argument `labels` to name labels of the scorer but {len(unknown)} of {n_items} are others: "
            f"{list_some(map(repr, names))}. The nearest of its {len(labels)} to {names[0]!r}: "
            f"{list_some(map(repr, near))}. Give one of them, or -1 (None among names) for no label."
        )
