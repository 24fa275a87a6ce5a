"""From `--data` and its companions to images of objects on scenes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from captum_concepts._support.checks import check_choice
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
from quantus_concepts.datasets.scenes.bam_layout import SETTINGS
from quantus_concepts.studies.attribution.interleaving import Interleaved
from quantus_concepts.studies.attribution.options import BAM, COCO, PAINTED, SMALL, AttributionOptions
from quantus_concepts.studies.attribution.placed_objects import CHANGES, PlacedObjects

#: Sizes that scenes can be painted in.
SMALLEST_SCENE, LARGEST_SCENE = 32, 512
#: Cut-outs and scenes of each class; as many as make memorising them useless.
N_PAINTED = 120
#: Share of another scene in the scenes of the relative contrast, and what sets the seeds of the two apart.
MIXED, OTHER_SCENES = (0.2, 0.4), 1_000_003
#: What the common feature of the embedded data is, as the paper's is a dog in the bamboo forest.
PAINTED_OBJECT, PAINTED_SCENE = "bird", "bamboo forest"
#: Of images, for the small network and for others.
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
    for name, wanted, known in (
        ("--common-object", options.common_object, test.object_names),
        ("--target-scene", options.target_scene, test.scene_names),
    ):
        if wanted is not None:
            check_choice(name, wanted, known)
    data.settings |= {
        "images": f"{test.image_size} px",
        "object classes": ", ".join(test.object_names),
        "scene classes": ", ".join(test.scene_names),
        "training images": str(len(data.train)),
        "test images": str(len(test)),
    }
    return data


def _bam(options: AttributionOptions) -> AttributionData:
    if options.root is None:
        raise ValueError("Expected argument `--root` beside `--data bam` but it is missing.")
    train, test = (BAMFolder(options.root, split=split, image_size=_size(options)) for split in ("train", "test"))
    # What would be missed only after the training.
    for data, view in ((train, "0s"), (test, "0s"), (test, "og")):
        data.with_view(view)
    released = not (options.root / SETTINGS).exists()
    name = "BAM, the paper's release" if released else f"composed images of {options.root.name}"
    return AttributionData(Interleaved(train), Interleaved(test), paper=released, settings={"data": name})


def _size(options: AttributionOptions) -> int:
    return options.image_size or (SMALL_SIZE if options.backbone == SMALL else LARGE_SIZE)


def _composed(options: AttributionOptions) -> AttributionData:
    objects, scenes, description = _sources(options)
    painted = options.data == PAINTED
    # Painted scenes are told without fail, so that no model would ever need the common object.
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
        paper=options.data == COCO,
        settings={"data": description} | _relative_settings(options),
    )


def _sources(options: AttributionOptions) -> tuple[ObjectSource, SceneSource, str]:
    if options.data == PAINTED:
        objects: ObjectSource = PaintedObjects(N_PAINTED, seed=options.seed)
        return objects, _painted_scenes(options, options.seed), "painted objects on painted scenes"
    if options.objects is None or options.scenes is None:
        raise ValueError("Expected arguments `--objects` and `--scenes` but one is missing.")
    scenes: SceneSource = SceneFolder(options.scenes)
    if options.data == COCO:
        if options.annotations is None:
            raise ValueError("Expected argument `--annotations` beside `--data coco-miniplaces` but it is missing.")
        try:
            objects = COCOObjects(options.annotations, options.objects)
        except ImportError as error:  # told in one line, as other bad input
            raise ValueError(str(error)) from error
        return objects, scenes, "COCO objects on MiniPlaces scenes"
    return CutoutFolder(options.objects), scenes, f"cut-outs of {options.objects.name} on {options.scenes.name}"


def _painted_scenes(options: AttributionOptions, seed: int) -> PaintedScenes:
    # Painted at the size of the images: nothing is gained by shrinking larger ones.
    return PaintedScenes(N_PAINTED, size=min(max(_size(options), SMALLEST_SCENE), LARGEST_SCENE), seed=seed)


def _relative_settings(options: AttributionOptions) -> dict[str, str]:
    if options.data != PAINTED or not options.relative:
        return {}
    low, high = (f"{100 * share:.0f}" for share in MIXED)
    return {"scenes of the relative contrast": f"each has {low} to {high} % of a scene of another class in it"}
