from __future__ import annotations

from pathlib import Path

import pytest
import torch

from quantus_concepts.metrics import Limits
from quantus_concepts.studies.attribution.options import AttributionOptions


@pytest.fixture(autouse=True)
def _files(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name in ("cutouts", "scenes", "bam"):
        (tmp_path / name).mkdir()
    (tmp_path / "instances.json").write_text("{}")


def options(**changes) -> AttributionOptions:
    return AttributionOptions(**changes)


PATHS = ("objects", "annotations", "scenes", "root", "models")
FOLDERS = {"data": "folders"}
BAD = {
    "data": ({"data": "folder"}, r"`--data` to be one of .* but got 'folder'. Did you mean 'folders'\?"),
    "no objects": (FOLDERS, "`--objects` with `--data folders`"),
    "no root": ({"data": "bam"}, "`--root` with `--data bam`"),
    "root of no bam": ({"root": "bam"}, "`--root` has no effect with `--data painted`.*belongs to: bam"),
    "scenes of no folders": ({"scenes": "scenes"}, "belongs to: coco-miniplaces, folders"),
    "no folder": (FOLDERS | {"objects": "instances.json", "scenes": "scenes"}, "`--objects` to name a folder but"),
    "no file": (
        {"data": "coco-miniplaces", "objects": "cutouts", "annotations": "cutouts", "scenes": "scenes"},
        "`--annotations` to name a file but there is none at cutouts",
    ),
    "models in a file": ({"models": "instances.json"}, "`--models` to name a folder but instances.json is a file"),
    "relative bam": ({"data": "bam", "root": "bam", "relative": True}, "`--relative` needs .*--data folders"),
    "test share 0": ({"test_share": 0.0}, r"`--test-share` to lie in \(0, 1\) but got 0.0"),
    "test share 1": ({"test_share": 1.0}, r"`--test-share` to lie in \(0, 1\)"),
    "test share nan": ({"test_share": float("nan")}, r"`--test-share` to lie in \(0, 1\)"),
    "image size": ({"image_size": 8}, r"`--image-size` to lie in \[16, 4096\] but got 8"),
    "batch of none": ({"batch_size": 0}, r"`--batch-size` to lie in \[1"),
    "batch of one to train on": ({"train_batch_size": 1}, r"`--train-batch-size` to lie in \[2"),
    "one relative image": ({"n_relative": 1}, r"`--n-relative` to lie in \[2"),
    "negative noise": ({"noise": -0.1}, r"`--noise` to lie in \[0"),
    "negative seed": ({"seed": -1}, r"`--seed` to lie in \[0"),
    "threshold": ({"threshold": 0.0}, r"`--threshold` to lie in \(0"),
    "tolerance": ({"tolerance": float("nan")}, r"`--tolerance` to lie in \(0"),
    "step size": ({"step_size": 0.0}, r"`--step-size` to lie in \(0"),
    "learning rate": ({"learning_rate": -1.0}, r"`--learning-rate` to lie in \(0"),
    "drop": ({"max_drop": 2.0}, r"`--max-drop` to lie in \[0, 1\]"),
    "remain": ({"min_remain": -0.1}, r"`--min-remain` to lie in \[0, 1\]"),
    "above chance": ({"max_above_chance": 1.1}, r"`--max-above-chance` to lie in \[0, 1\]"),
    "no method": ({"methods": "grad-cam,,random"}, "`--methods` to hold names with commas between them"),
    "no methods": ({"methods": " "}, "`--methods` to hold names"),
    "device": ({"device": "gpu"}, r"`--device` to be one of \['auto', 'cpu'.* but got 'gpu'"),
    "GPU too many": ({"device": "cuda:99"}, "`--device` to be one of"),
} | {
    name: ({name: 0}, rf"`--{name.replace('_', '-')}` to lie in \[1, .* but got 0")
    for name in ("n_train", "n_test", "epochs", "n_samples", "n_steps", "n_images", "n_patches", "patch_steps")
}


@pytest.mark.parametrize(("changes", "message"), BAD.values(), ids=BAD)
def test_what_cannot_be_is_refused(changes, message):
    paths = {name: Path(value) for name, value in changes.items() if name in PATHS}
    with pytest.raises((ValueError, FileNotFoundError), match=message):
        options(**(changes | paths))


def test_defaults_are_fine():
    given = options()
    assert given.method_names is None
    assert given.limits == Limits()
    assert given.torch_device().type == ("cuda" if torch.cuda.is_available() else "cpu")


def test_what_is_asked_for():
    given = options(methods=" grad-cam , a/b.py:mine", max_drop=0.1, min_remain=0.8, max_above_chance=0.2, device="cpu")
    assert given.method_names == ["grad-cam", "a/b.py:mine"]
    assert given.limits == Limits(drop=0.1, remain=0.8, above_chance=0.2)
    assert given.torch_device() == torch.device("cpu")


def test_patches_of_the_small_network_take_other_steps():
    assert options().patch_settings == {"step_size": 5000, "eta1": 0.001}
    assert options(backbone="resnet18").patch_settings == {"step_size": 500, "eta1": 0.01}
    assert options(step_size=3.0, eta1=0.0).patch_settings == {"step_size": 3, "eta1": 0}


def test_a_folder_of_models_need_not_be_there_yet(tmp_path):
    folder = tmp_path / "new" / "models"
    assert options(models=folder).models == folder
    assert not folder.parent.exists()
