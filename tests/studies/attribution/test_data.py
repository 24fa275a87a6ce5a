from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from fixtures_attribution import OBJECTS, SCENES, write_folders
from quantus_concepts.datasets import CutoutFolder, SceneFolder, write_bam
from quantus_concepts.studies.attribution import data as module
from quantus_concepts.studies.attribution.data import load_data
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


def own(files: Path, **changes) -> AttributionOptions:
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
    made = []
    original = module.PaintedScenes
    monkeypatch.setattr(
        module, "PaintedScenes", lambda *args, **kwargs: made.append(kwargs["size"]) or original(*args, **kwargs)
    )
    data = load_data(AttributionOptions(n_train=1, n_test=1, device="cpu", **changes))
    assert data.test.image_size == size
    assert set(made) == {painted}


def test_only_the_relative_contrast_has_mixed_scenes():
    data = load_data(AttributionOptions(n_train=1, n_test=2, relative=True, device="cpu"))
    assert "20 to 40 %" in data.settings["scenes of the relative contrast"]
    family = data.at_commonality(1.0, "test")
    assert type(family.scenes).__name__ == "MixedScenes"
    # what is mixed in leaves the label what it was: the scene itself shows through
    bare, plain = family.with_view("0s").images([0])[0].numpy(), family.scenes.scenes
    own = [index for index in range(len(plain)) if plain.labels[index] == family.scene_labels[0]]
    corners = [np.corrcoef(plain[index].transpose(2, 0, 1).ravel(), bare.ravel())[0, 1] for index in own]
    assert 0.5 < max(corners) < 0.999
    assert load_data(AttributionOptions(n_train=1, n_test=2, device="cpu")).settings.keys() < data.settings.keys()


def test_folders(files):
    data = load_data(own(files))
    assert (data.train.object_names, data.train.scene_names) == (list(OBJECTS), list(SCENES))
    assert (len(data.train), len(data.test)) == (12, 8)
    assert data.settings["data"] == "cut-outs of cutouts on scenes"
    assert data.test.image_size == 64
    composed = data.at_commonality(1.0, "test")
    # Those that ObjectsOnScenes takes where nothing is said.
    assert (composed.common_object, composed.target_scene, len(composed)) == (0, 0, 8)
    other = load_data(own(files, common_object="stone", target_scene="forest")).at_commonality(0.5, "test")
    assert (other.common_object, other.target_scene) == (1, 1)
    assert set(other.object_labels[other.scene_labels == 1].tolist()) == {1}
    assert set(other.object_labels[other.scene_labels == 0].tolist()) == {-1}


def test_the_seed_decides(files):
    first, again, other = (load_data(own(files, seed=seed)).train.images() for seed in (0, 0, 1))
    assert torch.equal(first, again)
    assert not torch.equal(first, other)


def test_no_cutout_and_no_scene_is_in_both_splits(files):
    data = load_data(own(files))
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


def test_bam_without_masks_is_refused_before_any_training(files):
    folder = files / "bam/obj/val_mask"
    folder.rename(files / "mask")
    try:
        with pytest.raises(ValueError, match="Expected masks in"):
            load_data(AttributionOptions(data="bam", root=files / "bam", device="cpu"))
    finally:
        (files / "mask").rename(folder)


def coco(files: Path, segmentation: object, **changes: object) -> AttributionOptions:
    names = ["backpack", "bird", "dog", "elephant", "kite", "pizza", "stop sign", "toilet", "truck", "zebra"]
    photographs = files / "photographs"
    photographs.mkdir(exist_ok=True)
    images, annotations = [], []
    for number in range(20):
        Image.new("RGB", (40, 40), (number, 9, 9)).save(photographs / f"{number}.png")
        images.append({"id": number, "file_name": f"{number}.png", "height": 40, "width": 40})
        annotation = {"id": number, "image_id": number, "category_id": number % 10, "area": 400, "iscrowd": 0}
        annotations.append(annotation | {"bbox": [5, 5, 20, 20], "segmentation": segmentation})
    categories = [{"id": label, "name": name} for label, name in enumerate(names)]
    path = files / "instances.json"
    path.write_text(json.dumps({"images": images, "annotations": annotations, "categories": categories}))
    given = {"data": "coco-miniplaces", "objects": photographs, "annotations": path, "scenes": files / "scenes"}
    return AttributionOptions(**given, n_train=1, n_test=1, image_size=16, test_share=0.25, device="cpu", **changes)


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


@pytest.mark.parametrize("name", ["object_classes", "min_photographs"])
def test_classes_of_coco_belong_to_coco(files, name):
    with pytest.raises(
        ValueError, match=rf"`--{name.replace('_', '-')}` has no effect with `--data folders`.*belongs to: coco"
    ):
        own(files, **{name: "dog" if name == "object_classes" else 2})


def test_what_coco_needs_besides_is_said(files, monkeypatch):
    def missing(*_: object, **__: object) -> None:
        raise ImportError("Run-length encoded masks need pycocotools")

    monkeypatch.setattr("quantus_concepts.datasets.COCOObjects", missing)
    with pytest.raises(ValueError, match="need pycocotools"):
        load_data(coco(files, []))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"common_object": "leave"}, "`--common-object` to be one of .* Did you mean 'leaf'"),
        ({"target_scene": "beech"}, "`--target-scene` to be one of .* Did you mean 'beach'"),
    ],
)
def test_classes_that_are_not_there_are_refused_at_once(files, changes, message):
    with pytest.raises(ValueError, match=message):
        load_data(own(files, **changes))
    with pytest.raises(ValueError, match=message):
        load_data(AttributionOptions(data="bam", root=files / "bam", device="cpu", **changes))


def test_images_of_all_views_are_aligned(files):
    data = load_data(own(files))
    rows = [3, 1]
    shown, bare, masks = data.test.images(rows), data.test.with_view("0s").images(rows), data.test.masks(rows)
    same = (shown == bare).all(1, keepdim=True)
    assert same[~masks].all()
    assert not same[masks].all()
    assert np.all(data.test.with_view("og").images(rows).numpy()[~masks.expand(-1, 3, -1, -1).numpy()] == 128)
