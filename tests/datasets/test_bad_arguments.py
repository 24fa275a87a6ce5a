"""Bad arguments that no constraint describes, and what holds for every data set."""

from __future__ import annotations

import pickle
from functools import cache
from pathlib import Path

import numpy as np
import pytest
import torch
from torchvision.transforms import v2

from bad_arguments import assert_refused, public_functions, spoilt
from block_sources import Blocks, Plains
from data_files import write_files
from fixtures_cub import write_cub
from good.datasets import BIRDS, GOOD
from one_line import all_say_what_they_are, public_classes
from quantus_concepts import datasets
from quantus_concepts.datasets import apply_transform

NAN, INF = float("nan"), float("inf")
NOWHERE = ("nowhere", "~nosuchuser/x", "file.txt/x", "file.txt")
COLUMNS = {name: ["map"] for name in ("image_ids", "explainer_ids", "labels", "datasets", "modalities")}
VOTES = {"explanations": [1], "votes": np.ones((1, 2, 6)), "name": "mine"} | COLUMNS
IMAGE, POINT, NO_POINT = torch.zeros(3, 4, 4), torch.zeros(1, 1, 2), torch.zeros(0, 1, 2)
#: Arguments for the files of `place`, and of callables without a constraint.
ARGUMENTS = GOOD | {
    "COCOObjects": {"annotations": "coco.json", "images": "photographs", "class_names": ("dog",)},
    "ConceptFolder": {"root": "scenes", "concepts": "concepts.csv", "parts": "parts.csv"},
    "ObjectsOnScenes": GOOD["ObjectsOnScenes"] | {"commonality": 0.5},
    "PastaRatings": {"root": "."},
    "RatedExplanations": VOTES,
    "SimulatedRatings": VOTES | {"expected": np.ones((1, 6))},
    "apply_transform": {"image": IMAGE, "points": POINT, "transform": None},
}


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_files(tmp_path_factory.mktemp("place"))


@pytest.fixture(autouse=True)
def _inside(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(place)


@pytest.mark.parametrize(
    ("name", "bad"),
    {
        "PaintedBirds": {"n_images": (1,)},
        "PaintedSubstitutions": {"concepts": ("red", ["red"], [99], [-1], [0.5], 99, [])},
        "SUB": {"root": ("", *NOWHERE, "a\0b", "x" * 300, None, 3, "folder")},
        "write_sub": {
            "samples": (None, "images", 3, [], [(3, "a::b", "Jay")], [(IMAGE, "a::c", "Jay")]),
            "attribute_names": (["a::b", "a::b"],),
            "bird_names": (["Jay", "Jay"],),
        },
        "CutoutFolder": {"root": NOWHERE},
        "SceneFolder": {"root": NOWHERE},
        "CUB200": {"root": (*NOWHERE, "folder")},
        "ConceptFolder": {
            "root": NOWHERE,
            "image_size": (0, -1, 1.5, "8", NAN, (8,), (8, 8, 8), (8, 0), (8, "8"), True),
            "part_of_concept": ("", *NOWHERE[:-1], "a\0b", "folder", 3, ["red"], {"rde": "red"}),
        },
        "COCOObjects": {
            "annotations": (*NOWHERE[:-1], "folder"),
            "images": NOWHERE,
            "class_names": ("dog", (), ("dog", "dog"), ("dgo",), None, 3, (3,)),
        },
        "BAMFolder": {"root": (*NOWHERE, "folder")},
        "ObjectsOnScenes": {
            "objects": (None, "cutouts", Plains()),
            "scenes": (None, "scenes", Blocks()),
            "common_object": (-1, 99, "", "dgo", 1.5, NAN),
            "target_scene": (-1, 4, "", "dgo", 1.5, NAN),
            "scale": ((0, 1), (NAN, 1), (0.5,), (0.5, 0.4), (0.5, 1.2), (0.5, INF), 0.5, None, "ab", ("a", "b")),
        },
        "MixedScenes": {
            "scenes": (None, "scenes", Blocks()),
            "others": (None, "scenes", Blocks()),
            "share": ((0.2,), 0.2, None, (NAN, 0.2), (0.3, 0.2), (0.1, 0.5), ("a", "b"), (-0.1, 0.2)),
        },
        "write_bam": {
            "objects": (None, "painted", Plains()),
            "scenes": (None, "painted", Blocks()),
            "image_size": (15,),
        },
        "PastaRatings": {
            "root": (*NOWHERE, "folder"),
            "datasets": ((), "cats", ("pets", "cats"), 3),
            "annotations": ("nowhere.json",),
            "concept_explainers": (3,),
            "counterfactual_explainers": (3,),
        },
        "RatedExplanations": {
            "votes": (None, "many", np.ones((1, 6)), np.ones((2, 2, 6)), np.full((1, 2, 6), 0.5)),
            **dict.fromkeys(COLUMNS, (np.ones(2), np.ones((1, 1)), 3, None)),
        },
        "SimulatedRatings": {"expected": (np.ones((2, 6)), None, [["a"] * 6])},
        "leak_free_split": {
            "image_ids": (None, "abc", [["a"]]),
            "explainer_ids": (None, "abc", [["a"]], list("ab")),
        },
        "default_transform": {
            "image_size": (0, -1, 1.5, "8", NAN, None, (8,), (8, 8, 8), (8, 0), (8, "8"), True),
            "mean": ((), (NAN,) * 3, (INF,) * 3, ("a",) * 3, 0.5, [[0.5]]),
            "std": ((), (NAN,) * 3, (0, 1, 1), (-1, 1, 1), (INF,) * 3, ("a",) * 3, 0.5),
        },
        "apply_transform": {
            "image": (torch.zeros(4, 4), IMAGE[None], IMAGE.numpy(), None, "image"),
            "points": (POINT[0], torch.zeros(1, 1, 3), POINT.numpy(), None, "points"),
            "transform": (3, lambda image: image, v2.Lambda(lambda image: image[..., :1])),
        },
    }.items(),
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_bad_arguments_are_refused_by_name(name, bad):
    assert_refused(spoilt(getattr(datasets, name), ARGUMENTS[name], **bad))


def test_bad_calls_are_refused_by_name():
    composed = datasets.ObjectsOnScenes(**GOOD["ObjectsOnScenes"])
    folder = {"root": "scenes", "concepts": "concepts.csv", "part_of_concept": {"red": "red"}}
    assert_refused(
        {
            "birds past the end": (lambda: BIRDS.images([0, 2]), "`index`"),
            "birds of no list": (lambda: BIRDS.images(3), "`indices`"),
            "substitute past the end": (lambda: BIRDS.substitute(2, 0), "`index`"),
            "substitute no concept": (lambda: BIRDS.substitute(0, "red"), "`concept`"),
            "substitute concept 99": (lambda: BIRDS.substitute(0, 99), "`concept`"),
            "substitute nothing": (lambda: BIRDS.substitute(0, None), "`concept`"),
            "masks past the end": (lambda: BIRDS.part_masks(2), "`index`"),
            "masks of concept -1": (lambda: BIRDS.part_masks(0, -1), "`concept`"),
            "masks of half a concept": (lambda: BIRDS.part_masks(0, 0.5), "`concept`"),
            "composed images past the end": (lambda: composed.images([999]), "`indices`"),
            "composed images before the start": (lambda: composed.images([0, -999]), "`indices`"),
            "composed masks of halves": (lambda: composed.masks([0.5]), "`indices`"),
            "composed boxes of bools": (lambda: composed.boxes([True]), "`indices`"),
            "composed images of one number": (lambda: composed.images(3), "`indices`"),
            "composed images of words": (lambda: composed.images(["first"]), "`indices`"),
            "composed scene past the end": (lambda: composed.scene(999), "`index`"),
            "composed object past the end": (lambda: composed.pasted(999), "`index`"),
            "parts without points": (lambda: datasets.ConceptFolder(**folder), "`parts`"),
            "no points and a word": (lambda: apply_transform(IMAGE, NO_POINT, lambda image: "image"), "`transform`"),
            "mean and std of two lengths": (
                lambda: datasets.default_transform(4, mean=[0.1], std=[1.0, 1.0]),
                "`mean` and `std`",
            ),
            "no points and a number": (lambda: apply_transform(IMAGE, NO_POINT, 3), "`transform`"),
        }
    )


@cache
def data_of(name: str):
    """Make a data set of the files of `place`."""
    return getattr(datasets, name)(**ARGUMENTS[name])


def as_arrays(sample):
    fields = vars(sample).values() if hasattr(sample, "modality") else sample
    return [np.asarray(field) for field in fields]


@pytest.mark.filterwarnings("ignore:The images of sub are licensed")
@pytest.mark.parametrize(
    "name",
    [
        *("PaintedBirds", "PaintedObjects", "PaintedScenes", "ConceptFolder", "COCOObjects", "BAMFolder"),
        *("PaintedSubstitutions", "SUB", "ObjectsOnScenes", "MixedScenes", "CutoutFolder", "SceneFolder"),
        *("PastaRatings", "simulated_ratings"),
    ],
)
def test_a_worker_of_a_loader_reads_the_same_samples_and_none_past_the_end(name):
    data = data_of(name)
    for dataset in [data, data.select([0])] if name == "PastaRatings" else [data]:
        sent = pickle.loads(pickle.dumps(dataset))
        items, unpickled = (getattr(some, "explanations", some) for some in (dataset, sent))
        assert len(unpickled) == len(items)
        np.testing.assert_equal(as_arrays(unpickled[0]), as_arrays(items[0]))
        # What was read before goes along or does not: it is the same.
        np.testing.assert_equal(as_arrays(pickle.loads(pickle.dumps(items))[0]), as_arrays(items[0]))
    if items is dataset:
        bad = {"past the end": len(data), "before the start": -len(data) - 1, "a half": 0.5, "a text": "first"}
        assert_refused({what: (lambda index=index: data[index], "`index`") for what, index in bad.items()})


def test_everything_public_has_constraints_or_cases():
    unconstrained = {name for name, function in public_functions(datasets) if not hasattr(function, "constraints")}
    # Records: nothing of them is checked before a data set is made of it.
    bare = {"ExplanationFile", "Split", "find_explanations"}
    assert {name for name in unconstrained if "." not in name} - ARGUMENTS.keys() == bare


@pytest.mark.filterwarnings("ignore:The images of sub are licensed")
def test_objects_say_what_they_are(tmp_path: Path) -> None:
    arguments = ARGUMENTS | {"CUB200": {"root": write_cub(tmp_path)}}
    kinds = public_classes(datasets)
    examples = {name: kind(**arguments[name]) for name, kind in kinds.items() if name in arguments}
    wide = torch.arange(300.0)
    records = {
        "ComposedSample": datasets.ComposedSample(wide, 0, 0, wide, wide),
        "ConceptSample": datasets.ConceptSample(wide, 0, wide, wide),
        "Cutout": datasets.Cutout(wide.numpy(), wide.numpy()),
        "SUBSample": datasets.SUBSample(wide, 0),
        "Split": datasets.leak_free_split([str(n) for n in range(50)], [str(n % 10) for n in range(50)]),
        "SubstitutionSample": datasets.PaintedSubstitutions(BIRDS)[0],
    }
    interfaces = frozenset({"ExplanationFile", "ComposedDataset", "ConceptDataset", "ObjectSource", "SceneSource"})
    all_say_what_they_are(datasets, examples | records, interfaces)
    assert repr(datasets.ConceptFolder("scenes", "concepts.csv", image_size=8)) == (
        "ConceptFolder(2 images, 2 classes, 1 concepts, image_size=8, root='scenes')"
    )
    assert repr(examples["SceneFolder"]) == "SceneFolder(2 scenes, 2 classes, root='scenes')"
    assert repr(examples["BAMFolder"]).endswith("view='os', split='test', root='bam')")
