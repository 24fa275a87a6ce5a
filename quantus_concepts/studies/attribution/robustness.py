"""Does MCS depend on how large the object is and where it stands? The red bars of the paper's Figure 5."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

from torch import Tensor, nn

from quantus_concepts.datasets import ComposedDataset, ObjectsOnScenes
from quantus_concepts.datasets.scenes.pasting import Pasted
from quantus_concepts.functional import mcs
from quantus_concepts.studies.attribution.collect import ExplainFunc, Subject, collect
from quantus_concepts.studies.attribution.options import Options
from quantus_concepts.studies.attribution.records import OBJECT_MODEL, SCENE_MODEL, only
from quantus_concepts.studies.attribution.results import Record, mean_record


class Change(NamedTuple):
    """How test images are composed otherwise than training images: the longer side of the object, and its place."""

    scale: tuple[float, float] = (3**-0.5, 2**-0.5)
    place: str = "random"


#: Of one thing at a time. Objects are usually .58 to .71 of the scene's side, at random places.
CHANGES: Mapping[str, Change] = MappingProxyType(
    {
        "smaller": Change(scale=(0.35, 0.45)),
        "larger": Change(scale=(0.8, 0.9)),
        "centre": Change(place="centre"),
        "corner": Change(place="corner"),
    }
)


class PlacedObjects(ObjectsOnScenes):
    """`ObjectsOnScenes` with every object in the middle, or in the corner nearest to where it would be."""

    def __init__(self, *args: Any, place: str, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.place = place

    def pasted(self, index: int) -> Pasted | None:
        """Return the object of an image in its place; as `ObjectsOnScenes` places it where that is random."""
        found = super().pasted(index)
        if found is None or self.place == "random":
            return found
        free = [self.image_size - side for side in found.mask.shape]
        if self.place == "centre":
            row, col = (length // 2 for length in free)
        else:
            row, col = (
                length if 2 * at > length else 0 for at, length in zip((found.row, found.col), free, strict=True)
            )
        return found._replace(row=row, col=col)


def robustness_records(
    models: Mapping[str, nn.Module],
    methods: Mapping[str, ExplainFunc],
    changed: Callable[[str], ComposedDataset],
    options: Options,
) -> list[Record]:
    """Return MCS of every method under every change, the models staying as they are."""
    records = []
    for change in CHANGES:
        data = changed(change)
        count = min(options.n_images, len(data))
        labels: dict[str, Tensor] = {OBJECT_MODEL: data.object_labels[:count], SCENE_MODEL: data.scene_labels[:count]}
        subjects = {
            name: Subject(models[model], data.images, labels[name])
            for name, model in ((OBJECT_MODEL, "f_o"), (SCENE_MODEL, "f_s"))
        }
        right = [subject.correct(options.batch_size) for subject in subjects.values()]
        found = collect(
            methods, subjects, data.masks, batch_size=options.batch_size, display_progressbar=options.progress
        )
        records += [
            mean_record(
                only(mcs(each.inside[OBJECT_MODEL], each.inside[SCENE_MODEL]), right[0] & right[1]),
                method=method,
                metric="robustness",
                variant=change,
                seed=options.seed,
            )
            for method, each in found.items()
        ]
    return records
