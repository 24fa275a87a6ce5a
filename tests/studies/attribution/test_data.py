"""Images of the attribution study, and objects of other sizes and places."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import numpy as np
import pytest
import torch

from block_sources import Blocks, Plains
from captum_concepts._support.running import to_model
from fixtures_attribution import OBJECTS, SCENES, write_coco, write_folders
from kills import raising
from quantus_concepts.datasets import CutoutFolder, ObjectsOnScenes, SceneFolder, write_bam
from quantus_concepts.studies._kit.output import OutputFolder
from quantus_concepts.studies._kit.run import Run
from quantus_concepts.studies.attribution import data as module
from quantus_concepts.studies.attribution import evaluation
from quantus_concepts.studies.attribution.data import CHANGES, Interleaved, PlacedObjects, load_data
from quantus_concepts.studies.attribution.evaluation import score_robustness
from quantus_concepts.studies.attribution.options import AttributionOptions


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


def folder_options(files: Path, **changes) -> AttributionOptions:
    folders = {"data": "folders", "objects": files / "cutouts", "scenes": files / "scenes", "device": "cpu"}
    return AttributionOptions(**folders | {"n_train": 3, "n_test": 2, "test_share": 0.25} | changes)


def test_painted():
    data = load_data(AttributionOptions(n_train=1, n_test=1, device="cpu"))
    assert (len(data.train), len(data.test)) == (100, 100)
    assert data.train.images([0]).shape == (1, 3, 64, 64)
    assert not data.paper
    assert data.settings["data"] == "painted objects on painted scenes"
    assert (data.settings["images"], data.settings["training images"]) == ("64 px", "100")
    composed = data.at_commonality(0.3, "train")
    assert (composed.split, composed.commonality, len(composed)) == ("train", 0.3, 100)
    assert composed.object_names[composed.common_object] == "bird"
    assert composed.scene_names[composed.target_scene] == "bamboo forest"


@pytest.mark.parametrize(
    ("changes", "size", "painted"),
    [({"backbone": "resnet18"}, 224, 224), ({"image_size": 16}, 16, 32), ({"image_size": 640}, 640, 512)],
)
def test_scenes_are_painted_at_the_size_of_the_images(changes, size, painted, monkeypatch):
    calls = []
    original = module.PaintedScenes
    monkeypatch.setattr(
        module, "PaintedScenes", lambda *args, **kwargs: calls.append(kwargs["size"]) or original(*args, **kwargs)
    )
    data = load_data(AttributionOptions(n_train=1, n_test=1, device="cpu", **changes))
    assert data.test.image_size == size
    assert set(calls) == {painted}


def test_only_the_relative_contrast_has_mixed_scenes():
    data = load_data(AttributionOptions(n_train=1, n_test=2, relative=True, device="cpu"))
    assert "20 to 40 %" in data.settings["scenes of the relative contrast"]
    family = data.at_commonality(1.0, "test")
    assert type(family.scenes).__name__ == "MixedScenes"
    # what is mixed in leaves the label what it was: the scene itself shows through
    bare, plain = family.with_view("0s").images([0])[0].numpy(), family.scenes.scenes
    of_target = [index for index in range(len(plain)) if plain.labels[index] == family.scene_labels[0]]
    corners = [np.corrcoef(plain[index].transpose(2, 0, 1).ravel(), bare.ravel())[0, 1] for index in of_target]
    assert 0.5 < max(corners) < 0.999
    assert load_data(AttributionOptions(n_train=1, n_test=2, device="cpu")).settings.keys() < data.settings.keys()


def test_folders(files):
    data = load_data(folder_options(files))
    assert (data.train.object_names, data.train.scene_names) == (list(OBJECTS), list(SCENES))
    assert (len(data.train), len(data.test)) == (12, 8)
    assert data.settings["data"] == "cut-outs of cutouts on scenes"
    assert data.test.image_size == 64
    composed = data.at_commonality(1.0, "test")
    # Those that ObjectsOnScenes takes where nothing is said.
    assert (composed.common_object, composed.target_scene, len(composed)) == (0, 0, 8)
    other = load_data(folder_options(files, common_object="stone", target_scene="forest")).at_commonality(0.5, "test")
    assert (other.common_object, other.target_scene) == (1, 1)
    assert set(other.object_labels[other.scene_labels == 1].tolist()) == {1}
    assert set(other.object_labels[other.scene_labels == 0].tolist()) == {-1}


def test_the_seed_decides(files):
    first, again, other = (load_data(folder_options(files, seed=seed)).train.images() for seed in (0, 0, 1))
    assert torch.equal(first, again)
    assert not torch.equal(first, other)


def test_no_cutout_and_no_scene_is_in_both_splits(files):
    data = load_data(folder_options(files))
    test = data.test.data
    assert not set(data.train.cutout_indices) & set(test.cutout_indices)
    assert not set(data.train.scene_indices) & set(test.scene_indices)


def test_bam(files):
    options = AttributionOptions(data="bam", root=files / "bam", image_size=32, device="cpu")
    data = load_data(options)
    assert (len(data.train), len(data.test)) == (24, 8)
    # Folders are sorted by class; here classes take turns.
    assert data.test.object_labels[:4].tolist() == [0, 1, 0, 1]
    assert data.test.scene_labels[:4].tolist() == [0, 1, 1, 0]
    assert data.train.object_labels[:2].tolist() == [0, 1]
    assert data.at_commonality is None
    assert data.test.masks().any((1, 2, 3)).all()
    # Composed by the user, not the paper's, and only there do the paper's figures belong.
    assert not data.paper
    assert data.settings["data"] == "composed images of bam"
    (files / "bam/compose.json").rename(files / "bam/kept.json")
    try:
        released = load_data(options)
    finally:
        (files / "bam/kept.json").rename(files / "bam/compose.json")
    assert released.paper
    assert released.settings["data"] == "BAM, the paper's release"


def coco(files: Path, segmentation: object, **changes: object) -> AttributionOptions:
    path = write_coco(files, segmentation)
    settings = {
        "data": "coco-miniplaces",
        "objects": files / "photographs",
        "annotations": path,
        "scenes": files / "scenes",
    }
    settings |= {"data": "coco-miniplaces", "n_train": 1, "n_test": 1, "image_size": 16, "test_share": 0.25}
    return AttributionOptions(**settings, device="cpu", **changes)


def test_coco(files):
    data = load_data(coco(files, [[5, 5, 25, 5, 25, 25, 5, 25]]))
    assert data.paper
    assert len(data.test.object_names) == 10
    assert data.settings["data"] == "COCO objects on scenes"
    composed = data.at_commonality(1.0, "test")
    assert composed.object_names[composed.common_object] == "dog"


def test_a_part_of_coco(files):
    options = coco(files, [[5, 5, 25, 5, 25, 25, 5, 25]], object_classes="zebra, bird, kite", min_photographs=2)
    path = options.annotations
    content = json.loads(path.read_text())
    content["annotations"] = [a for a in content["annotations"] if a["id"] not in (1, 11, 14)]  # birds, and a kite
    path.write_text(json.dumps(content))
    with pytest.warns(UserWarning, match=r"2 of 3 classes .*: bird \(0\), kite \(1\)"):
        data = load_data(options)
    assert data.test.object_names == ["zebra"]
    assert not data.paper  # its figures are about ten classes
    with pytest.raises(ValueError, match=r"class 'bird' .*leave such classes out with `--min-photographs`"):
        load_data(dataclasses.replace(options, min_photographs=None))
    with pytest.raises(ValueError, match=r"`--object-classes` to be one of .* Did you mean 'zebra'"):
        load_data(dataclasses.replace(options, object_classes="zebr", min_photographs=None))


def test_what_coco_needs_besides_is_said(files, monkeypatch):
    error = ImportError("Run-length encoded masks need pycocotools")
    monkeypatch.setattr("quantus_concepts.datasets.COCOObjects", raising(error))
    with pytest.raises(ValueError, match="need pycocotools"):
        load_data(coco(files, []))


def test_images_of_all_views_are_aligned(files):
    data = load_data(folder_options(files))
    rows = [3, 1]
    images, bare, masks = data.test.images(rows), data.test.with_view("0s").images(rows), data.test.masks(rows)
    same = (images == bare).all(1, keepdim=True)
    assert same[~masks].all()
    assert not same[masks].all()
    assert np.all(data.test.with_view("og").images(rows).numpy()[~masks.expand(-1, 3, -1, -1).numpy()] == 128)


SIZE = 32
SETTINGS = {"n_per_pair": 2, "image_size": SIZE, "split": "test", "test_share": 0.4}


def changed(change: str) -> PlacedObjects:
    return PlacedObjects(Blocks(), Plains(), **SETTINGS, **CHANGES[change]._asdict())


def boxes(data: ObjectsOnScenes) -> np.ndarray:
    return np.array([data.pasted(i).box for i in range(len(data))])


def test_one_thing_changes_at_a_time() -> None:
    usual = ObjectsOnScenes(Blocks(), Plains(), **SETTINGS)
    before = boxes(usual)
    for change in CHANGES:
        data = changed(change)
        assert torch.equal(data.object_labels, usual.object_labels)
        assert torch.equal(data.with_view("0s").images(), usual.with_view("0s").images())
        after = boxes(data)
        # Blocks are 20 x 40, so that their width governs.
        sides = (after[:, 3] - after[:, 1]) / SIZE
        low, high = {"smaller": (0.34, 0.46), "larger": (0.79, 0.91)}.get(change, (0.57, 0.72))
        assert ((sides >= low) & (sides <= high)).all()
        if change in ("centre", "corner"):
            np.testing.assert_array_equal(after[:, 2:] - after[:, :2], before[:, 2:] - before[:, :2])


def test_places_by_hand() -> None:
    usual, centre, corner = ObjectsOnScenes(Blocks(), Plains(), **SETTINGS), changed("centre"), changed("corner")
    for i, (row0, col0, row1, col1) in enumerate(boxes(usual)):
        height, width = row1 - row0, col1 - col0
        assert centre.pasted(i).box[:2] == ((SIZE - height) // 2, (SIZE - width) // 2)
        above, left = row0 + row1 <= SIZE, col0 + col1 <= SIZE
        assert corner.pasted(i).box[:2] == (0 if above else SIZE - height, 0 if left else SIZE - width)
    # the mask goes with the object, in every view
    assert torch.equal(corner.masks(), corner.with_view("og").masks())
    differing = corner.images() != corner.with_view("0s").images()
    assert not (differing & ~corner.masks()).any()


class Reads(torch.nn.Module):
    """Knows a class by its colour: red blocks, or blue plains; wrong where it is told to be."""

    def __init__(self, data: ObjectsOnScenes, channel: int, wrong: int | None = None) -> None:
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


def test_scores_by_hand(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    data = Interleaved(changed("centre"))
    monkeypatch.setattr(evaluation, "CHANGES", {"centre": CHANGES["centre"]})
    models = {"f_o": Reads(data, 0, wrong=2), "f_s": Reads(data, 2)}
    assert to_model(models["f_o"], np.zeros(1)).dtype == torch.float32
    options = AttributionOptions(n_images=10, batch_size=3, progress=False, device="cpu")
    with OutputFolder(out=tmp_path / "out") as folder:
        table = score_robustness(Run(options, folder), lambda change: data, models, {"red": red})
    # 1 inside the object under the one, 0 under the other, in nine of ten images
    assert table[["metric", "variant", "method"]].to_numpy().tolist() == [["robustness", "centre", "red"]]
    assert table[["value", "n", "undefined"]].to_numpy().tolist() == [[1.0, 9, 1]]
