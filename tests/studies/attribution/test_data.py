"""Images of the attribution study, and objects of other sizes and places."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch

from block_sources import Blocks, Plains
from fixtures_attribution import OBJECTS, SCENES, write_coco, write_folders
from quantus_concepts.datasets import CutoutFolder, SceneFolder, write_bam
from quantus_concepts.datasets.scenes.arranged import Interleaved, PlacedObjects
from quantus_concepts.studies._kit.folder import RunFolder
from quantus_concepts.studies.attribution.data import CHANGES, AttributionData, load_data
from quantus_concepts.studies.attribution.settings import Attribution
from quantus_concepts.studies.attribution.study import Scoring, score_change


@pytest.fixture(scope="module")
def files(tmp_path_factory) -> Path:
    root = write_folders(tmp_path_factory.mktemp("files"))
    write_bam(
        CutoutFolder(root / "cutouts"),
        SceneFolder(root / "scenes"),
        root / "bam",
        n_per_pair=8,
        image_size=32,
        test_share=0.25,
    )
    return root


def load(kind: str, size: int = 64, seed: int = 0, n: tuple[int, int] = (3, 2), **given: object) -> AttributionData:
    share = 0.25 if kind != "painted" else 0.1
    how = {"image_size": size, "seed": seed, "n_train": n[0], "n_test": n[1], "test_share": share}
    return load_data(Attribution(data=kind, **how, **given))


def load_folders(files: Path, **changes: object) -> AttributionData:
    return load("folders", objects=files / "cutouts", scenes=files / "scenes", **changes)


def test_painted():
    data = load("painted", n=(1, 1))
    assert (len(data.train), len(data.test)) == (100, 100)
    assert data.train.images([0]).shape == (1, 3, 64, 64)
    composed = data.with_common_object(0.3, "train")
    assert (composed.split, composed.commonality, len(composed)) == ("train", 0.3, 100)
    assert composed.object_names[composed.common_object] == "bird"
    assert composed.scene_names[composed.target_scene] == "bamboo forest"


def test_only_the_relative_contrast_has_mixed_scenes():
    data = load("painted", n=(1, 2))
    family = data.with_common_object(1.0, "test")
    assert type(family.scenes).__name__ == "MixedScenes"
    assert type(data.test.data.scenes).__name__ == "PaintedScenes"
    # what is mixed in leaves the label what it was: the scene itself shows through
    bare, plain = family.with_view("0s").images([0])[0].numpy(), family.scenes.scenes
    of_target = [index for index in range(len(plain)) if plain.labels[index] == family.scene_labels[0]]
    corners = [np.corrcoef(plain[index].transpose(2, 0, 1).ravel(), bare.ravel())[0, 1] for index in of_target]
    assert 0.5 < max(corners) < 0.999


def test_folders(files):
    data = load_folders(files)
    assert (data.train.object_names, data.train.scene_names) == (list(OBJECTS), list(SCENES))
    assert (len(data.train), len(data.test)) == (12, 8)
    again, other = (load_folders(files, seed=seed).train.images() for seed in (0, 1))
    assert torch.equal(again, data.train.images())
    assert not torch.equal(again, other)
    assert not set(data.train.cutout_indices) & set(data.test.data.cutout_indices)
    assert not set(data.train.scene_indices) & set(data.test.data.scene_indices)
    composed = data.with_common_object(1.0, "test")
    # Those that ObjectsOnScenes takes where nothing is said.
    assert (composed.common_object, composed.target_scene, len(composed)) == (0, 0, 8)
    other = load_folders(files, common_object="stone", target_scene="forest").with_common_object(0.5, "test")
    assert (other.common_object, other.target_scene) == (1, 1)
    assert set(other.object_labels[other.scene_labels == 1].tolist()) == {1}
    assert set(other.object_labels[other.scene_labels == 0].tolist()) == {-1}


def test_bam(files):
    data = load("bam", 32, root=files / "bam")
    assert (len(data.train), len(data.test)) == (24, 8)
    # Folders are sorted by class; here classes take turns.
    assert data.test.object_labels[:4].tolist() == [0, 1, 0, 1]
    assert data.test.scene_labels[:4].tolist() == [0, 1, 1, 0]
    assert data.train.object_labels[:2].tolist() == [0, 1]
    assert data.with_common_object is None
    assert data.test.masks().any((1, 2, 3)).all()


def test_coco(files):
    path = write_coco(files, [[5, 5, 25, 5, 25, 25, 5, 25]])
    places = {"objects": files / "photographs", "annotations": path, "scenes": files / "scenes"}

    def load_coco(**changes: object) -> AttributionData:
        return load("coco-miniplaces", 16, n=(1, 1), **places, **changes)

    data = load_coco()
    assert len(data.test.object_names) == 10
    composed = data.with_common_object(1.0, "test")
    assert composed.object_names[composed.common_object] == "dog"
    content = json.loads(path.read_text())
    content["annotations"] = [a for a in content["annotations"] if a["id"] not in (1, 11, 14)]  # birds, and a kite
    path.write_text(json.dumps(content))
    with pytest.warns(UserWarning, match=r"2 of 3 classes .*: bird \(0\), kite \(1\)"):
        data = load_coco(object_classes="zebra, bird, kite", min_photographs=2)
    assert data.test.object_names == ["zebra"]
    with pytest.raises(ValueError, match=r"class 'bird' .*`--min-photographs`"):
        load_coco(object_classes="zebra, bird, kite")


SIZE = 32


class Reads(torch.nn.Module):
    """Predicts the class of an object or a scene, and another one for the image `wrong`."""

    def __init__(self, data: Interleaved, channel: int, wrong: int | None = None) -> None:
        super().__init__()
        labels = data.object_labels if channel == 0 else data.scene_labels
        self.answers = {image.numpy().tobytes(): int(label) for image, label in zip(data.images(), labels, strict=True)}
        if wrong is not None:
            self.answers[data.images([wrong])[0].numpy().tobytes()] = 3
        self.channel = channel

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        keys = [(image * 255).round().byte().cpu().numpy().tobytes() for image in images]
        return torch.nn.functional.one_hot(torch.tensor([self.answers[key] for key in keys]), 4).float()


def red(model, inputs, targets, **kwargs):
    """Of the model of objects, what is red; of the other, everything alike but the first pixel."""
    maps = np.zeros((len(inputs), 1, SIZE, SIZE))
    if model.channel == 0:
        maps[:, 0] = inputs[:, 0] > 0
    maps[:, 0, 0, 0] = 1
    return maps


def test_scores_by_hand(tmp_path: Path) -> None:
    settings = {"n_per_pair": 2, "image_size": SIZE, "split": "test", "test_share": 0.4}
    data = Interleaved(PlacedObjects(Blocks(), Plains(), **settings, **CHANGES["centre"]))
    models = {"f_o": Reads(data, 0, wrong=2), "f_s": Reads(data, 2)}
    scoring = Scoring({"red": red}, Attribution(n_images=10, batch_size=3, device="cpu", progress=False))
    with RunFolder("test", {}, tmp_path / "out") as folder:
        table = score_change(folder, "centre", data, models, scoring)
    # 1 inside the object under the one, 0 under the other, in nine of ten images
    assert table[["metric", "variant", "method"]].to_numpy().tolist() == [["robustness", "centre", "red"]]
    assert table[["value", "n", "undefined"]].to_numpy().tolist() == [[1.0, 9, 1]]
