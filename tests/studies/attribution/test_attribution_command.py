"""Bad input of the command: one line, exit code 2, nothing written."""

from __future__ import annotations

import shlex
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from fixtures_attribution import FOLDERS, TINY, write_coco, write_folders
from fixtures_commands import check_command
from kills import raising
from quantus_concepts.studies.app import main

COMMAND = ["benchmark", "attribution"]
OWN = [*TINY, *FOLDERS]
BAM = [*TINY, "--data", "bam", "--root", "bam"]
COCO = [*TINY, *shlex.split("--data coco-miniplaces --objects photographs --annotations coco.json --scenes scenes")]


def _write_bad_folders(root: Path) -> None:
    shutil.copytree(root / "cutouts", root / "opaque")
    Image.new("RGB", (9, 9)).save(root / "opaque/leaf/0.png")
    for count, name in ((1, "single"), (0, "empty")):
        shutil.copytree(root / "cutouts", root / name)
        for path in sorted((root / name / "stone").iterdir())[count:]:
            path.unlink()
    shutil.copytree(root / "scenes", root / "torn")
    (root / "torn/beach/0.jpg").write_bytes(b"no image")
    (root / "nothing").mkdir()


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
        write_coco(place)
        Path("text.json").write_text("no json")
        _write_bam(place)
        yield place


@pytest.fixture(autouse=True)
def _nothing_is_trained(monkeypatch):
    monkeypatch.setattr(torch.optim.AdamW, "step", raising(AssertionError("trained")))


@pytest.mark.parametrize(
    "case",
    {
        "no class": (OWN, "--objects nothing", "one folder per class in nothing"),
        "empty class": (OWN, "--objects empty", "empty/stone, which is a class, but got none"),
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
    file, arguments, message = case[1]
    check_command([*COMMAND, *file, *shlex.split(arguments)], message, capsys)


def test_images_that_the_network_does_not_take(root, capsys):
    network = "nn.Sequential(nn.Conv2d(3, 4, 40), nn.Flatten(), nn.Linear(4, 2))"
    (root / "large.py").write_text(f"from torch import nn\n\n\ndef model():\n    return {network}\n")
    arguments = [*COMMAND, *OWN, "--unnormalised", "--backbone", "large.py:model"]
    check_command(arguments, r"does not take images of shape \(3, 16, 16\)", capsys)


def test_the_way_to_convert_pickled_masks_works_as_it_is_told(root, capsys):
    assert main([*COMMAND, *BAM, "--root", "pickled"]) == 2
    code = capsys.readouterr().err.strip().partition("convert it once: ")[2]
    exec(compile(code, "told", "exec"), {})
    with np.load("pickled/obj/val_mask.npz", allow_pickle=False) as masks:
        assert masks["1"].shape == (5, 2)
    Path("pickled/obj/val_mask.npz").unlink()
