"""Bad input of the command: one line, exit code 2, nothing written."""

from __future__ import annotations

import json
import re
import shlex
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from fixtures_attribution import FOLDERS, TINY, write_folders
from quantus_concepts.studies.app import main

COMMAND = ["benchmark", "attribution"]
OWN = [*TINY, *FOLDERS]
BAM = [*TINY, "--data", "bam", "--root", "bam"]
COCO = [*TINY, *shlex.split("--data coco-miniplaces --objects photographs --annotations coco.json --scenes scenes")]


def _write_coco(root: Path) -> None:
    (root / "photographs").mkdir()
    Image.new("RGB", (40, 40)).save(root / "photographs/1.png")
    names = ["backpack", "bird", "dog", "elephant", "kite", "pizza", "stop sign", "toilet", "truck", "zebra"]
    annotation = {"id": 1, "image_id": 1, "category_id": 2, "area": 400, "iscrowd": 0, "bbox": [5, 5, 20, 20]}
    content = {
        "images": [{"id": 1, "file_name": "1.png", "height": 40, "width": 40}],
        "categories": [{"id": label, "name": name} for label, name in enumerate(names)],
        "annotations": [annotation],
    }
    (root / "coco.json").write_text(json.dumps(content))
    (root / "text.json").write_text("no json")


def _write_bad_folders(root: Path) -> None:
    shutil.copytree(root / "cutouts", root / "opaque")
    Image.new("RGB", (9, 9)).save(root / "opaque/leaf/0.png")
    for count, name in ((1, "single"), (0, "empty")):
        shutil.copytree(root / "cutouts", root / name)
        for path in sorted((root / name / "stone").iterdir())[count:]:
            path.unlink()
    shutil.copytree(root / "scenes", root / "torn")
    (root / "torn/beach/0.jpg").write_bytes(b"no image")
    (root / "full").mkdir()
    (root / "full/thesis.txt").write_text("years of work")
    (root / "nothing").mkdir()
    (root / "broken.py").write_text("def method(:\n")
    (root / "fails.py").write_text("import json\n\nraise RuntimeError('not\\ntoday')\n")


def _write_bam(root: Path) -> None:
    compose = "compose --objects cutouts --scenes scenes --n-per-pair 8 --image-size 16 --test-share 0.25 --no-progress"
    assert main([*shlex.split(compose), "--out", "bam"]) == 0
    for name in ("pickled", "maskless"):
        shutil.copytree(root / "bam", root / name)
        shutil.rmtree(root / name / "obj/val_mask")
    masks = np.empty(2, dtype=object)
    masks[:] = [np.ones((3, 4), dtype=bool), np.ones((5, 2), dtype=bool)]
    with (root / "pickled/obj/val_mask").open("wb") as file:
        np.save(file, masks, allow_pickle=True)
    shutil.copytree(root / "bam", root / "bare")
    shutil.rmtree(root / "bare/scene_only")


@pytest.fixture(scope="module", autouse=True)
def root(tmp_path_factory):
    place = write_folders(tmp_path_factory.mktemp("work"))
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(place)
        patch.setenv("COLUMNS", "100")
        _write_bad_folders(place)
        _write_coco(place)
        _write_bam(place)
        yield place


def refused(arguments: list[str], message: str, root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = sorted(path for path in root.rglob("*") if path.suffix != ".pyc" and path.name != "__pycache__")
    assert main([*COMMAND, *arguments]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    (line,) = captured.err.splitlines()
    assert line.startswith("Error: ")
    assert re.search(message, line), line
    after = sorted(path for path in root.rglob("*") if path.suffix != ".pyc" and path.name != "__pycache__")
    assert after == before


@pytest.fixture(autouse=True)
def _nothing_is_trained(monkeypatch):
    def trained(*_: object, **__: object) -> None:
        raise AssertionError("trained")

    monkeypatch.setattr(torch.optim.AdamW, "step", trained)


@pytest.mark.parametrize(
    "case",
    {
        "data": ("--data folder", r"`--data` to be one of .* but got 'folder'. Did you mean 'folders'"),
        "root of no bam": ("--root scenes", "`--root` has no effect with `--data painted`.*belongs to: bam"),
        "scenes of no folders": ("--scenes scenes", "belongs to: coco-miniplaces, folders"),
        "objects missing": ("--data folders --scenes scenes", "`--objects` with `--data folders` but it is missing"),
        "root missing": ("--data bam", "`--root` with `--data bam`"),
        "folder that is none": (
            "--data folders --objects nowhere --scenes scenes",
            "folder but there is none at nowhere",
        ),
        "annotations": (
            "--data coco-miniplaces --objects cutouts --scenes scenes --annotations nowhere.json",
            "`--annotations` to name a file but there is none at nowhere.json",
        ),
        "unknown method": ("--methods gradcam", "but got 'gradcam'. Nearest: .*'Grad-CAM'"),
        "one unknown method": ("--methods grad-cam,Oclusion", "but got 'Oclusion'. Nearest: .*'Occlusion'"),
        "no method": ("--methods ,", "`--methods` to hold names with commas between them"),
        "no such file of methods": ("--methods mine.py:method", "with a file that exists but got 'mine.py:method'"),
        "no such function": (
            "--methods methods.py:invertd",
            r"'methods.py' to have 'invertd' but it has not. Nearest: \['inverted'",
        ),
        "no function": ("--methods methods.py:number", "'methods.py:number' to be a function but got int"),
        "file that is not Python": ("--methods broken.py:method", "broken.py cannot be run: SyntaxError"),
        "file that fails": ("--methods fails.py:method", "fails.py cannot be run: RuntimeError: not today"),
        "no such module": ("--methods nowhere.at_all:method", "No module named 'nowhere'"),
        "Captum class of neurons": ("--methods NeuronGradient", "NeuronGradient"),
        "layer of the small network": ("--layer layer4", r"`--layer` to name a layer of FineResNet but got 'layer4'"),
        "unknown backbone": ("--backbone resnet81", "Nearest: .*resnet18"),
        "no such file of a network": ("--backbone nowhere.py:model", "none at nowhere.py"),
        "weights of the small network": ("--weights w.pth", "`--weights` belongs to a network of your own"),
        "no such weights": ("--backbone resnet18 --weights nowhere.pth", "there is none at nowhere.pth"),
        "image size": ("--image-size 36", "`--image-size` to be a multiple of 8, .* but got 36"),
        "common object": ("--common-object brid", "`--common-object` to be one of .* Did you mean 'bird'"),
        "target scene": ("--target-scene hill", "`--target-scene` to be one of .* Did you mean 'hills'"),
        "relative bam": ("--data bam --root bam --relative", "`--relative` needs images .*--data folders"),
        "models in a file": ("--models coco.json", "`--models` to name a folder but coco.json is a file"),
        "out that is a file": ("--out coco.json", "is a file"),
        "out with a stranger's files": ("--out full", r"already holds files \(thesis.txt\)"),
        "overwriting a stranger's files": ("--out full --overwrite", "did not write"),
    }.items(),
    ids=lambda case: case[0],
)
def test_bad_options_are_told_in_one_line(case, root, capsys):
    arguments, message = case[1]
    refused([*TINY, *shlex.split(arguments)], message, root, capsys)


@pytest.mark.parametrize(
    "case",
    {
        "no class": (OWN, "--objects nothing", "one folder per class in nothing"),
        "empty class": (OWN, "--objects empty", "empty/stone but there are none"),
        "too few cut-outs": (OWN, "--objects single", "stone.*cut-out"),
        "no alpha": (OWN, "--objects opaque", "opaque/leaf/0.png to have an alpha channel but its mode is 'RGB'"),
        "scene that is no image": (OWN, "--scenes torn", "torn/beach/0.jpg"),
        "no segmentation": (COCO, "", "segmentation"),
        "no json": (COCO, "--annotations text.json", "text.json"),
        "no bam": (BAM, "--root cutouts", "BAM layout"),
        "pickled masks": (BAM, "--root pickled", r"pickled, and loading a pickle runs .* np.savez_compressed"),
        "bam without masks": (BAM, "--root maskless", "Expected masks in maskless/obj"),
        "bam without bare scenes": (BAM, "--root bare", "scene_only"),
        "common object of bam": (BAM, "--common-object dog", r"`--common-object` to be one of \['leaf', 'stone'\]"),
    }.items(),
    ids=lambda case: case[0],
)
def test_bad_files_are_told_in_one_line(case, root, capsys):
    given, arguments, message = case[1]
    refused([*given, *shlex.split(arguments)], message, root, capsys)


def test_images_that_the_network_does_not_take(root, capsys):
    network = "nn.Sequential(nn.Conv2d(3, 4, 40), nn.Flatten(), nn.Linear(4, 2))"
    (root / "large.py").write_text(f"from torch import nn\n\n\ndef model():\n    return {network}\n")
    refused(
        [*OWN, "--unnormalised", "--backbone", "large.py:model"],
        r"does not take images of shape \(3, 16, 16\)",
        root,
        capsys,
    )


def test_the_way_to_convert_pickled_masks_works_as_it_is_told(root, capsys):
    assert main([*COMMAND, *BAM, "--root", "pickled"]) == 2
    code = capsys.readouterr().err.strip().partition("convert it once: ")[2]
    exec(compile(code, "told", "exec"), {})
    with np.load("pickled/obj/val_mask.npz", allow_pickle=False) as masks:
        assert masks["1"].shape == (5, 2)
    Path("pickled/obj/val_mask.npz").unlink()
