"""Images of the attribution study: objects on scenes, in the order in which they are trained on."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any

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
from quantus_concepts.studies.attribution.settings import Attribution

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


def common_classes(settings: Attribution, objects: list[str], scenes: list[str]) -> tuple[int, int]:
    """Return the class of the common object, and that of the scene that always has it; by default the paper's."""
    return (
        find_class("--common-object", settings.common_object, objects, PAPER_OBJECT),
        find_class("--target-scene", settings.target_scene, scenes, PAPER_SCENE),
    )


def load_data(settings: Attribution) -> AttributionData:
    """Open or compose the images."""
    if settings.data == "bam":
        return read_bam(settings)
    if settings.data == "painted":
        common, target = settings.common_object or PAINTED_OBJECT, settings.target_scene or PAINTED_SCENE
        settings = replace(settings, common_object=common, target_scene=target)
        return compose_data(*painted_sources(settings.size, settings.seed), settings)
    scenes = SceneFolder(settings.scenes or "")
    coco = settings.data == "coco-miniplaces"
    objects = coco_objects(settings) if coco else CutoutFolder(settings.objects or "")
    return compose_data(objects, scenes, scenes, settings)


def read_bam(settings: Attribution) -> AttributionData:
    """Read images in the layout of the BAM release."""
    train, test = (BAMFolder(settings.root or "", split=split, image_size=settings.size) for split in ("train", "test"))
    # Views that are needed only after the training: raise now.
    for data, view in ((train, "0s"), (test, "0s"), (test, "og")):
        data.with_view(view)
    common = common_classes(settings, test.object_names, test.scene_names)
    return AttributionData(Interleaved(train), Interleaved(test), *common)


def compose_data(
    objects: ObjectSource, scenes: SceneSource, relative_scenes: SceneSource, settings: Attribution
) -> AttributionData:
    """Compose images of cut-outs and scenes."""
    counts = {"train": settings.n_train, "test": settings.n_test}
    shared: dict[str, Any] = {
        "test_share": settings.test_share,
        "image_size": settings.size,
        "seed": settings.seed,
    }
    common, target = common_classes(settings, objects.class_names, scenes.class_names)

    def compose(split: str) -> ObjectsOnScenes:
        return ObjectsOnScenes(objects, scenes, split=split, n_per_pair=counts[split], **shared)

    def with_common_object(commonality: float, split: str) -> ObjectsOnScenes:
        return ObjectsOnScenes(
            objects,
            relative_scenes,
            split=split,
            n_per_pair=counts[split],
            commonality=commonality,
            common_object=common,
            target_scene=target,
            **shared,
        )

    def changed(change: str) -> ComposedDataset:
        placed = PlacedObjects(objects, scenes, split="test", n_per_pair=settings.n_test, **CHANGES[change], **shared)
        return Interleaved(placed)

    return AttributionData(compose("train"), Interleaved(compose("test")), common, target, with_common_object, changed)


def painted_sources(image_size: int, seed: int) -> tuple[ObjectSource, SceneSource, SceneSource]:
    """Return painted objects and scenes, and the scenes of the relative contrast."""
    # Painted at the size of the images: nothing is gained by shrinking larger ones.
    size = min(max(image_size, SMALLEST_SCENE), LARGEST_SCENE)
    scenes, others = (PaintedScenes(N_PAINTED, size=size, seed=number) for number in (seed, seed + OTHER_SCENES))
    # Painted scenes are recognised without fail, so that no model would ever need the common object.
    return PaintedObjects(N_PAINTED, seed=seed), scenes, MixedScenes(scenes, others, MIXED)


def coco_objects(settings: Attribution) -> COCOObjects:
    """Open the objects of COCO, by default the classes of the paper's release."""
    names = list(RELEASE_OBJECTS)
    if settings.object_classes is not None:
        names = [name.strip() for name in settings.object_classes.split(",")]
    try:
        return COCOObjects(
            settings.annotations or "", settings.objects or "", names, min_photographs=settings.min_photographs
        )
    except (ValueError, ImportError) as error:
        message = str(error)
        for argument, option in (("class_names", "object-classes"), ("min_photographs", "min-photographs")):
            message = message.replace(f"`{argument}`", f"`--{option}`")
        raise ValueError(message) from error
