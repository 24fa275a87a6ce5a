"""Images of the attribution study: objects on scenes, in the order in which they are trained on."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any, TypedDict

from quantus_concepts.datasets import (
    BAMFolder,
    COCOObjects,
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
from quantus_concepts.datasets.scenes.arranged import Interleaved, PlacedObjects
from quantus_concepts.datasets.scenes.coco_objects import RELEASE_OBJECTS
from quantus_concepts.datasets.scenes.objects_on_scenes import PAPER_OBJECT, PAPER_SCENE, find_class

#: How test images are composed otherwise than training images. Each changes one thing: objects are usually .58 to .71
#: of the scene's side, at random places.
CHANGES: Mapping[str, Mapping[str, Any]] = MappingProxyType(
    {
        "smaller": {"scale": (0.35, 0.45), "place": "random"},
        "larger": {"scale": (0.8, 0.9), "place": "random"},
        "centre": {"place": "centre"},
        "corner": {"place": "corner"},
    }
)
#: Sizes that scenes can be painted in.
SMALLEST_SCENE, LARGEST_SCENE = 32, 512
#: Cut-outs and scenes of each class; as many as make memorising them useless.
N_PAINTED = 120
#: Share of another scene in the scenes of the relative contrast, and what sets the seeds of the two apart.
MIXED, OTHER_SCENES = (0.2, 0.4), 1_000_003
#: The common feature of the embedded data; the paper's is a dog in the bamboo forest.
PAINTED_OBJECT, PAINTED_SCENE = "bird", "bamboo forest"


@dataclass(frozen=True)
class AttributionData:
    """Training and test images, and the classes of the common object and of the scene that always has it.

    `with_common_object` composes images of a split with the common object in a share of the scenes, `changed` test
    images with objects of another size or place; None for images that were composed before.
    """

    train: ComposedDataset
    test: ComposedDataset
    common_object: int
    target_scene: int
    with_common_object: Callable[[float, str], ObjectsOnScenes] | None = None
    changed: Callable[[str], ComposedDataset] | None = None


class CocoSettings(TypedDict):
    """Which classes of COCO are taken."""

    object_classes: str | None
    min_photographs: int | None


class CommonFeature(TypedDict):
    """The common object, and the scene that always has it; None for the paper's."""

    common_object: str | None
    target_scene: str | None


class ComposedImages(TypedDict):
    """How many images of each pair are composed, and the share of cut-outs and scenes that only tests see."""

    n_train: int
    n_test: int
    test_share: float


def load_data(
    kind: str,
    image_size: int,
    seed: int,
    files: Mapping[str, Path | None],
    coco: CocoSettings,
    common: CommonFeature,
    composed: ComposedImages,
) -> AttributionData:
    """Open or compose the images of a kind of data; `files` are those that the kind needs."""
    paths = {name: path for name, path in files.items() if path is not None}
    if kind == "bam":
        return read_bam(paths["root"], image_size, **common)
    if kind == "painted":
        chosen = CommonFeature(
            common_object=common["common_object"] or PAINTED_OBJECT,
            target_scene=common["target_scene"] or PAINTED_SCENE,
        )
        return compose_data(*painted_sources(image_size, seed), chosen, composed, image_size=image_size, seed=seed)
    scenes = SceneFolder(paths["scenes"])
    objects = (
        coco_objects(paths["annotations"], paths["objects"], **coco)
        if kind == "coco-miniplaces"
        else CutoutFolder(paths["objects"])
    )
    return compose_data(objects, scenes, scenes, common, composed, image_size=image_size, seed=seed)


def read_bam(root: Path, image_size: int, common_object: str | None, target_scene: str | None) -> AttributionData:
    """Read images in the layout of the BAM release."""
    train, test = (BAMFolder(root, split=split, image_size=image_size) for split in ("train", "test"))
    # Views that are needed only after the training: raise now.
    for data, view in ((train, "0s"), (test, "0s"), (test, "og")):
        data.with_view(view)
    common = _common(common_object, target_scene, test.object_names, test.scene_names)
    return AttributionData(Interleaved(train), Interleaved(test), *common)


def compose_data(
    objects: ObjectSource,
    scenes: SceneSource,
    relative_scenes: SceneSource,
    feature: CommonFeature,
    composed: ComposedImages,
    *,
    image_size: int,
    seed: int,
) -> AttributionData:
    """Compose images of cut-outs and scenes."""
    counts = {"train": composed["n_train"], "test": composed["n_test"]}
    settings: dict[str, Any] = {"test_share": composed["test_share"], "image_size": image_size, "seed": seed}
    common, target = _common(**feature, objects=objects.class_names, scenes=scenes.class_names)

    def compose(split: str) -> ObjectsOnScenes:
        return ObjectsOnScenes(objects, scenes, split=split, n_per_pair=counts[split], **settings)

    def with_common_object(commonality: float, split: str) -> ObjectsOnScenes:
        return ObjectsOnScenes(
            objects,
            relative_scenes,
            split=split,
            n_per_pair=counts[split],
            commonality=commonality,
            common_object=common,
            target_scene=target,
            **settings,
        )

    def changed(change: str) -> ComposedDataset:
        return Interleaved(
            PlacedObjects(objects, scenes, split="test", n_per_pair=composed["n_test"], **CHANGES[change], **settings)
        )

    return AttributionData(compose("train"), Interleaved(compose("test")), common, target, with_common_object, changed)


def painted_sources(image_size: int, seed: int) -> tuple[ObjectSource, SceneSource, SceneSource]:
    """Return painted objects and scenes, and the scenes of the relative contrast."""
    # Painted at the size of the images: nothing is gained by shrinking larger ones.
    size = min(max(image_size, SMALLEST_SCENE), LARGEST_SCENE)
    scenes, others = (PaintedScenes(N_PAINTED, size=size, seed=number) for number in (seed, seed + OTHER_SCENES))
    # Painted scenes are recognised without fail, so that no model would ever need the common object.
    return PaintedObjects(N_PAINTED, seed=seed), scenes, MixedScenes(scenes, others, MIXED)


def coco_objects(
    annotations: Path, images: Path, object_classes: str | None, min_photographs: int | None
) -> COCOObjects:
    """Open the objects of COCO, by default the classes of the paper's release."""
    names = RELEASE_OBJECTS if object_classes is None else [name.strip() for name in object_classes.split(",")]
    try:
        return COCOObjects(annotations, images, list(names), min_photographs=min_photographs)
    except (ValueError, ImportError) as error:
        message = str(error)
        for argument, option in (("class_names", "object-classes"), ("min_photographs", "min-photographs")):
            message = message.replace(f"`{argument}`", f"`--{option}`")
        raise ValueError(message) from error


def _common(
    common_object: str | None, target_scene: str | None, objects: list[str], scenes: list[str]
) -> tuple[int, int]:
    return (
        find_class("--common-object", common_object, objects, PAPER_OBJECT),
        find_class("--target-scene", target_scene, scenes, PAPER_SCENE),
    )
