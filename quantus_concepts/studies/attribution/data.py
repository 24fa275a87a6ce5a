"""Images of the attribution study: objects on scenes, in the order in which they are trained on."""

from __future__ import annotations

import copy
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple, Self

import numpy as np
from torch import Tensor

from captum_concepts._support.checks import check_choice
from quantus_concepts.datasets import (
    BAMFolder,
    ComposedDataset,
    CutoutFolder,
    MixedScenes,
    ObjectsOnScenes,
    ObjectSource,
    PaintedObjects,
    PaintedScenes,
    SceneFolder,
    SceneSource,
)
from quantus_concepts.datasets.scenes.bam_folder import SETTINGS
from quantus_concepts.datasets.scenes.coco_objects import RELEASE_OBJECTS
from quantus_concepts.datasets.scenes.composed import Box
from quantus_concepts.datasets.scenes.sources import Pasted
from quantus_concepts.studies._models.options import PAINTED
from quantus_concepts.studies.attribution.options import BAM, COCO, AttributionOptions


class Interleaved(ComposedDataset):
    """The same images in an order in which classes take turns."""

    # An image of every pair of object and scene comes before the second one of any pair, and pairs come diagonally:
    # with ten classes of each, the first ten images show ten objects on ten scenes. Folders are sorted by class, so
    # that without this the first images would show one object.

    def __init__(self, data: ComposedDataset) -> None:
        self.data = data
        self.object_names, self.scene_names = data.object_names, data.scene_names
        self.split, self.image_size = data.split, data.image_size
        self.view, self.transform = data.view, data.transform
        self.order = _order(data.object_labels, data.scene_labels, len(data.scene_names))
        self.object_labels, self.scene_labels = data.object_labels[self.order], data.scene_labels[self.order]

    def with_view(self, view: str) -> Self:
        """Return the same images in the same order in another view, see `ComposedDataset`."""
        other = copy.copy(self)
        other.data, other.view = self.data.with_view(view), view
        return other

    def _image(self, index: int) -> np.ndarray:
        return self.data._image(self.order[index])

    def _mask_and_box(self, index: int) -> tuple[np.ndarray, Box]:
        return self.data._mask_and_box(self.order[index])

    def _parts(self, index: int) -> tuple[np.ndarray, np.ndarray, Box]:
        return self.data._parts(self.order[index])


def _order(object_labels: Tensor, scene_labels: Tensor, n_scenes: int) -> list[int]:
    counts: Counter[tuple[int, int]] = Counter()
    keys = []
    for pair in zip(object_labels.tolist(), scene_labels.tolist(), strict=True):
        keys.append((counts[pair], (pair[1] - pair[0]) % n_scenes, pair[0]))
        counts[pair] += 1
    return sorted(range(len(keys)), key=keys.__getitem__)


class Change(NamedTuple):
    """How test images are composed otherwise than training images: the longer side of the object, and its place."""

    scale: tuple[float, float] = (3**-0.5, 2**-0.5)
    place: str = "random"


#: Each changes one thing. Objects are usually .58 to .71 of the scene's side, at random places.
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
        pasted = super().pasted(index)
        if pasted is None or self.place == "random":
            return pasted
        free = [self.image_size - side for side in pasted.mask.shape]
        if self.place == "centre":
            row, col = (length // 2 for length in free)
        else:
            row, col = (
                length if 2 * at > length else 0 for at, length in zip((pasted.row, pasted.col), free, strict=True)
            )
        return pasted._replace(row=row, col=col)


#: Sizes that scenes can be painted in.
SMALLEST_SCENE, LARGEST_SCENE = 32, 512
#: Cut-outs and scenes of each class; as many as make memorising them useless.
N_PAINTED = 120
#: Share of another scene in the scenes of the relative contrast, and what sets the seeds of the two apart.
MIXED, OTHER_SCENES = (0.2, 0.4), 1_000_003
#: The common feature of the embedded data; the paper's is a dog in the bamboo forest.
PAINTED_OBJECT, PAINTED_SCENE = "bird", "bamboo forest"
#: Pixels of images, for the small network and for others.
SMALL_SIZE, LARGE_SIZE = 64, 224


@dataclass
class AttributionData:
    """Training and test images."""

    train: ComposedDataset
    test: ComposedDataset
    at_commonality: Callable[[float, str], ObjectsOnScenes] | None = None
    changed: Callable[[str], ComposedDataset] | None = None
    paper: bool = False
    settings: dict[str, str] = field(default_factory=dict)

    def with_common_object(self, commonality: float, split: str) -> ObjectsOnScenes:
        """Return images with the common object in a share of the scenes."""
        if self.at_commonality is None:
            raise ValueError("The relative contrast needs images composed with a common feature.")
        return self.at_commonality(commonality, split)


def load_data(options: AttributionOptions) -> AttributionData:
    """Load or compose the images."""
    data = _bam(options) if options.data == BAM else _composed(options)
    test = data.test
    for name, choice, names in (
        ("--common-object", options.common_object, test.object_names),
        ("--target-scene", options.target_scene, test.scene_names),
    ):
        if choice is not None:
            check_choice(name, choice, names)
    data.settings |= {
        "images": f"{test.image_size} px",
        "object classes": ", ".join(test.object_names),
        "scene classes": ", ".join(test.scene_names),
        "training images": str(len(data.train)),
        "test images": str(len(test)),
    }
    return data


def _bam(options: AttributionOptions) -> AttributionData:
    root = options.root or Path()
    train, test = (BAMFolder(root, split=split, image_size=_size(options)) for split in ("train", "test"))
    # Views that are needed only after the training: raise now.
    for data, view in ((train, "0s"), (test, "0s"), (test, "og")):
        data.with_view(view)
    released = not (root / SETTINGS).exists()
    name = "BAM, the paper's release" if released else f"composed images of {root.name}"
    return AttributionData(Interleaved(train), Interleaved(test), paper=released, settings={"data": name})


def _size(options: AttributionOptions) -> int:
    return options.image_size or (SMALL_SIZE if options.trains else LARGE_SIZE)


def _composed(options: AttributionOptions) -> AttributionData:
    objects, scenes, description = _sources(options)
    painted = options.data == PAINTED
    # Painted scenes are recognised without fail, so that no model would ever need the common object.
    hard = MixedScenes(scenes, _painted_scenes(options, options.seed + OTHER_SCENES), MIXED) if painted else scenes

    def compose(split: str, n_per_pair: int, commonality: float | None = None) -> ObjectsOnScenes:
        common = options.common_object or (PAINTED_OBJECT if painted else None)
        target = options.target_scene or (PAINTED_SCENE if painted else None)
        return ObjectsOnScenes(
            objects,
            scenes if commonality is None else hard,
            split=split,
            n_per_pair=n_per_pair,
            image_size=_size(options),
            commonality=commonality,
            common_object=None if commonality is None else common,
            target_scene=None if commonality is None else target,
            test_share=options.test_share,
            seed=options.seed,
        )

    def changed(change: str) -> ComposedDataset:
        return Interleaved(
            PlacedObjects(
                objects,
                scenes,
                split="test",
                n_per_pair=options.n_test,
                image_size=_size(options),
                test_share=options.test_share,
                seed=options.seed,
                **CHANGES[change]._asdict(),
            )
        )

    counts = {"train": options.n_train, "test": options.n_test}
    return AttributionData(
        compose("train", options.n_train),
        Interleaved(compose("test", options.n_test)),
        lambda commonality, split: compose(split, counts[split], commonality),
        changed,
        paper=options.data == COCO and objects.class_names == list(RELEASE_OBJECTS),
        settings={"data": description} | _relative_settings(options),
    )


def _sources(options: AttributionOptions) -> tuple[ObjectSource, SceneSource, str]:
    if options.data == PAINTED:
        objects: ObjectSource = PaintedObjects(N_PAINTED, seed=options.seed)
        return objects, _painted_scenes(options, options.seed), "painted objects on painted scenes"
    objects_in, scenes_in = options.objects or Path(), options.scenes or Path()
    scenes: SceneSource = SceneFolder(scenes_in)
    if options.data == COCO:
        objects = options.coco_objects(options.annotations or Path(), objects_in)
        return objects, scenes, f"COCO objects on {scenes_in.name}"
    return CutoutFolder(objects_in), scenes, f"cut-outs of {objects_in.name} on {scenes_in.name}"


def _painted_scenes(options: AttributionOptions, seed: int) -> PaintedScenes:
    # Painted at the size of the images: nothing is gained by shrinking larger ones.
    return PaintedScenes(N_PAINTED, size=min(max(_size(options), SMALLEST_SCENE), LARGEST_SCENE), seed=seed)


def _relative_settings(options: AttributionOptions) -> dict[str, str]:
    if options.data != PAINTED or not options.relative:
        return {}
    low, high = (f"{100 * share:.0f}" for share in MIXED)
    return {"scenes of the relative contrast": f"each has {low} to {high} % of a scene of another class in it"}
