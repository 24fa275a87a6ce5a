"""The saliency sheets: which images, which maps, what is written beside them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np
import torch
from torch import Tensor

from quantus_concepts.datasets import ComposedDataset
from quantus_concepts.metrics import RegionAttributions, Subject
from quantus_concepts.studies.picture_grids import PictureGrid, PictureRow

#: Images of a sheet.
N_SHOWN = 3
#: By metric: the label of each subject's line, for the class of the object and of the scene, and the caption.
LAYOUTS: dict[str, tuple[tuple[str, str], str]] = {
    # As the paper's Figure 4.
    "MCS": (
        ("f_o: {object}", "f_s: {scene}"),
        "The same image explained for the model of objects (f_o) and the model of scenes (f_s): importance inside the "
        "outline should be high above and low below.",
    ),
    # As the paper's Figure 8a.
    "IDR": (
        ("{scene}, with object", "without object"),
        "The model of scenes (f_s) with an object, which it does not use, and without it: importance inside the "
        "outline should be lower above than below.",
    ),
    # As the paper's Figure 8b.
    "IIR": (
        ("{scene}", "with patch"),
        "A model of bare scenes (f_0) without and with a patch that leaves its logits as they were: importance inside "
        "the outline should stay as it is.",
    ),
}
COMMONALITY = (
    "One image under models trained with the object in a share k of the scenes: from left to right the object should "
    "matter less (as the paper's Figure 6)."
)


def shown_rows(chosen: Tensor, objects: Tensor, scenes: Tensor, count: int = N_SHOWN) -> list[int]:
    """Return the first images that enter a metric, of different objects and scenes while there are any."""
    rows = torch.nonzero(chosen).flatten().tolist() or list(range(len(chosen)))
    different: list[int] = []
    for row in rows:
        if all(objects[row] != objects[other] and scenes[row] != scenes[other] for other in different):
            different.append(row)
    rest = [row for row in rows if row not in different]
    return sorted([*different, *rest][:count])


def saliency_sheets(
    pairs: Mapping[str, tuple[Subject, Subject]],
    found: Mapping[str, RegionAttributions],
    shown: Mapping[str, Sequence[int]],
    enters: Mapping[str, Tensor],
    data: ComposedDataset,
) -> dict[str, PictureGrid]:
    """Lay out maps: for each image a line for each subject, a column for each method that did not fail."""
    sheets = {}
    for metric, pair in pairs.items():
        labels, caption = LAYOUTS[metric]
        rows = list(shown[metric])
        regions = data.masks(rows)[:, 0].numpy()
        lines = []
        for place, row in enumerate(rows):
            named = {
                "object": data.object_names[int(data.object_labels[row])],
                "scene": data.scene_names[int(data.scene_labels[row])],
            }
            lines += [
                _line(label.format(**named), subject, row, found, place, regions[place])
                for label, subject in zip(labels, pair, strict=True)
            ]
        if not enters[metric][rows].any():
            caption += f" None of these images enters {metric}: there were no better ones to show."
        sheets[metric.lower()] = PictureGrid(metric.lower(), _columns(found), lines, caption)
    return sheets


def commonality_sheet(
    subjects: Mapping[float, Subject],
    found: Mapping[str, RegionAttributions],
    row: int,
    masks: Callable[[list[int]], Tensor],
) -> PictureGrid:
    """Lay out the maps of one image: a line for each method that did not fail, a column for each commonality."""
    image, region = _picture(next(iter(subjects.values())), row), masks([row])[0, 0].numpy()
    lines = [
        PictureRow(
            method,
            image,
            [found[method].maps[subject][0] for subject in subjects.values()],
            region,
            [float(found[method].inside[subject][row]) for subject in subjects.values()],
        )
        for method in _columns(found)
    ]
    return PictureGrid("relative", [f"k = {k:g}" for k in subjects], lines, COMMONALITY)


def _line(
    label: str, subject: Subject, row: int, found: Mapping[str, RegionAttributions], place: int, region: np.ndarray
) -> PictureRow:
    columns = _columns(found)
    return PictureRow(
        label,
        _picture(subject, row),
        [found[name].maps[subject][place] for name in columns],
        region,
        [float(found[name].inside[subject][row]) for name in columns],
    )


def _picture(subject: Subject, row: int) -> np.ndarray:
    return subject.batch([row])[0].permute(1, 2, 0).clamp(0, 1).numpy()


def _columns(found: Mapping[str, RegionAttributions]) -> list[str]:
    return [name for name, each in found.items() if not each.failure]
