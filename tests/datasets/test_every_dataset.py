"""What holds for every data set: workers of a loader read the same, and objects say what they are."""

from __future__ import annotations

import pickle
from functools import cache
from pathlib import Path

import numpy as np
import pytest
import torch

from block_sources import Blocks, Plains
from data_files import write_files
from fixtures_cub import write_cub
from one_line import all_say_what_they_are, public_classes
from quantus_concepts import datasets

BIRDS = datasets.PaintedBirds(2, image_size=32, n_classes=2, n_concepts=4)
COLUMNS = {name: ["map"] for name in ("image_ids", "explainer_ids", "labels", "datasets", "modalities")}
VOTES = {"explanations": [1], "votes": np.ones((1, 2, 6)), "name": "mine"} | COLUMNS
#: Arguments for the files of `place`.
ARGUMENTS = {
    "BAMFolder": {"root": "bam"},
    "COCOObjects": {"annotations": "coco.json", "images": "photographs", "class_names": ("dog",)},
    "ConceptFolder": {"root": "scenes", "concepts": "concepts.csv", "parts": "parts.csv"},
    "CutoutFolder": {"root": "cutouts"},
    "MixedScenes": {"scenes": Plains(), "others": Plains(), "seed": 1},
    "ObjectsOnScenes": {"objects": Blocks(), "scenes": Plains(), "image_size": 16, "commonality": 0.5},
    "PaintedBirds": {"n_images": 2, "n_classes": 2, "n_concepts": 4, "image_size": 32},
    "PaintedObjects": {"n_per_class": 1},
    "PaintedScenes": {"n_per_class": 1},
    "PaintedSubstitutions": {"birds": BIRDS},
    "PastaRatings": {"root": "."},
    "RatedExplanations": VOTES,
    "SUB": {"root": "sub"},
    "SceneFolder": {"root": "scenes"},
    "SimulatedRaters": {"n_raters": 2},
    "SimulatedRatings": VOTES | {"expected": np.ones((1, 6))},
    "simulated_ratings": {"n_images": 2, "n_per_image": 1, "image_size": 32, "n_classes": 2, "n_concepts": 26},
}


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_files(tmp_path_factory.mktemp("place"))


@pytest.fixture(autouse=True)
def _inside(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(place)


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
        for index in (len(data), -len(data) - 1):
            with pytest.raises(IndexError, match="`index` to be below the number of"):
                data[index]


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
