"""The saliency sheets of a run: which images, which maps, what is written beside them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from quantus_concepts.datasets import ComposedDataset
from quantus_concepts.studies.attribution.collect import Attributed, Subject
from quantus_concepts.studies.attribution.records import (
    BARE_MODEL,
    BARE_MODEL_PATCHED,
    OBJECT_MODEL,
    SCENE_MODEL,
    SCENE_MODEL_BARE,
)
from quantus_concepts.studies.picture_grids import PictureGrid, PictureRow

#: A subject, and the label of its line from the data and the row's number.
Line = tuple[str, Callable[[ComposedDataset, int], str]]


class Layout(NamedTuple):
    """What a sheet shows of each image."""

    name: str
    lines: tuple[Line, ...]
    caption: str


def _object(data: ComposedDataset, row: int) -> str:
    return data.object_names[int(data.object_labels[row])]


def _scene(data: ComposedDataset, row: int) -> str:
    return data.scene_names[int(data.scene_labels[row])]


#: Of f_o and f_s on the same images, as the paper's Figure 4.
CONTRAST = Layout(
    "mcs",
    (
        (OBJECT_MODEL, lambda data, row: f"f_o: {_object(data, row)}"),
        (SCENE_MODEL, lambda data, row: f"f_s: {_scene(data, row)}"),
    ),
    "The same image explained for the model of objects (f_o) and the model of scenes (f_s): importance inside the "
    "outline should be high above and low below.",
)
#: Of f_s with the object and without it, as the paper's Figure 8a.
DEPENDENCE = Layout(
    "idr",
    (
        (SCENE_MODEL, lambda data, row: f"{_scene(data, row)}, with object"),
        (SCENE_MODEL_BARE, lambda data, row: "without object"),
    ),
    "The model of scenes (f_s) with an object, which it does not use, and without it: importance inside the outline "
    "should be lower above than below.",
)
#: Of f_0 without and with a patch it does not see, as the paper's Figure 8b.
INDEPENDENCE = Layout(
    "iir",
    (
        (BARE_MODEL, _scene),
        (BARE_MODEL_PATCHED, lambda data, row: "with patch"),
    ),
    "A model of bare scenes (f_0) without and with a patch that leaves its logits as they were: importance inside the "
    "outline should stay as it is.",
)


def rows_to_show(chosen: Tensor, objects: Tensor, scenes: Tensor, count: int) -> list[int]:
    """Return the first images that enter a metric, of different objects and scenes while there are any."""
    rows = torch.nonzero(chosen).flatten().tolist() or list(range(len(chosen)))
    different: list[int] = []
    for row in rows:
        if all(objects[row] != objects[other] and scenes[row] != scenes[other] for other in different):
            different.append(row)
    rest = [row for row in rows if row not in different]
    return sorted([*different, *rest][:count])


def lay_out(
    layout: Layout,
    attributed: Mapping[str, Attributed],
    subjects: Mapping[str, Subject],
    rows: Sequence[int],
    data: ComposedDataset,
) -> PictureGrid:
    """Lay out maps: for each image one line for each subject, a column for each method that did not fail."""
    shown = {method: found for method, found in attributed.items() if not found.failure}
    regions = data.masks(list(rows))[:, 0].numpy()
    laid_out = []
    for place, row in enumerate(rows):
        for subject_name, label in layout.lines:
            image = subjects[subject_name].batch([row])[0].permute(1, 2, 0).clamp(0, 1)
            laid_out.append(
                PictureRow(
                    label=label(data, row),
                    image=image.numpy(),
                    maps=[found.maps[subject_name][place] for found in shown.values()],
                    mask=regions[place],
                    values=[float(found.inside[subject_name][row]) for found in shown.values()],
                )
            )
    return PictureGrid(name=layout.name, columns=list(shown), rows=laid_out, caption=layout.caption)
