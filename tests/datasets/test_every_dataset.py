"""What holds for every data set: workers of a loader read the same."""

from __future__ import annotations

import pickle
from pathlib import Path

import numpy as np
import pytest

from block_sources import Blocks, Plains
from data_files import write_files
from quantus_concepts import datasets

#: Arguments for the files of `place`.
ARGUMENTS = {
    "BAMFolder": {"root": "bam"},
    "COCOObjects": {"annotations": "coco.json", "images": "photographs", "class_names": ("dog",)},
    "ConceptCSV": {"table": "table.csv", "images": "scenes"},
    "ConceptFolder": {"root": "scenes", "concepts": "concepts.csv", "parts": "parts.csv"},
    "CutoutFolder": {"root": "cutouts"},
    "MixedScenes": {"scenes": Plains(), "others": Plains(), "seed": 1},
    "ObjectsOnScenes": {"objects": Blocks(), "scenes": Plains(), "image_size": 16, "commonality": 0.5},
    "PaintedBirds": {"n_images": 2, "n_classes": 2, "n_concepts": 4, "image_size": 32},
    "PaintedObjects": {"n_per_class": 1},
    "PaintedScenes": {"n_per_class": 1},
    "PaintedSubstitutions": {"birds": datasets.PaintedBirds(2, image_size=32, n_classes=2, n_concepts=4)},
    "PastaRatings": {"root": "."},
    "SUB": {"root": "sub"},
    "SceneFolder": {"root": "scenes"},
    "simulated_ratings": {"n_images": 2, "n_per_image": 1, "image_size": 32, "n_classes": 2, "n_concepts": 26},
}


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_files(tmp_path_factory.mktemp("place"))


def as_arrays(sample):
    fields = vars(sample).values() if hasattr(sample, "modality") else sample
    return [np.asarray(field) for field in fields]


@pytest.mark.filterwarnings("ignore:The images of sub are licensed")
@pytest.mark.parametrize("name", ARGUMENTS)
def test_a_worker_of_a_loader_reads_the_same_samples_and_none_past_the_end(place, monkeypatch, name):
    monkeypatch.chdir(place)
    data = getattr(datasets, name)(**ARGUMENTS[name])
    for dataset in [data, data.select([0])] if name == "PastaRatings" else [data]:
        sent = pickle.loads(pickle.dumps(dataset))
        items, unpickled = (getattr(some, "explanations", some) for some in (dataset, sent))
        assert len(unpickled) == len(items)
        np.testing.assert_equal(as_arrays(unpickled[0]), as_arrays(items[0]))
        for printed in (sent, items[0]):
            assert type(printed).__name__ in repr(printed) or isinstance(printed, np.ndarray)
        # What was read before goes along or does not: it is the same.
        np.testing.assert_equal(as_arrays(pickle.loads(pickle.dumps(items))[0]), as_arrays(items[0]))
    if items is dataset:
        for index in (len(data), -len(data) - 1):
            with pytest.raises(IndexError, match="`index` to be below the number of"):
                data[index]
