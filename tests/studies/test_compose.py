"""The command `compose`: images of objects on scenes, in a folder that is new or its own."""

import json
import shlex
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from block_sources import Blocks
from kills import contents
from quantus_concepts import datasets
from quantus_concepts.datasets.scenes.bam_folder import BAMFolder
from quantus_concepts.studies.app import main
from quantus_concepts.studies.compose import COMMANDS

compose = COMMANDS["compose"]


@pytest.fixture
def options(tmp_path):
    """Return options that name folders of two objects and two scenes."""
    objects, scenes = tmp_path / "objects", tmp_path / "scenes"
    for label, name in enumerate(("cat", "dog")):
        (objects / name).mkdir(parents=True)
        (scenes / f"place{label}").mkdir(parents=True)
        for i in range(3):
            rgba = np.zeros((12, 16, 4), dtype=np.uint8)
            rgba[2:10, 3:14] = (50 * label + i, 200, 30, 255)
            Image.fromarray(rgba).save(objects / name / f"{i}.png")
            Image.new("RGB", (40, 40), (9, 9, 90 + i)).save(scenes / f"place{label}" / f"{i}.png")
    sources = {"objects": str(objects), "scenes": str(scenes)}
    return sources | {"out": tmp_path / "bam", "n_per_pair": 4, "image_size": 32, "progress": False}


def test_folders_are_composed(options):
    out = compose(**options)
    train, test = BAMFolder(out, split="train"), BAMFolder(out)
    assert (len(train), len(test)) == (12, 4)
    assert test.object_names == ["cat", "dog"]
    assert test.scene_names == ["place0", "place1"]
    assert test.image_size == 32
    assert json.loads((out / "compose.json").read_text())["seed"] == 0


def test_options_without_effect_are_refused(options):
    with pytest.raises(ValueError, match="`--min-photographs` has no effect without `--annotations`"):
        compose(**options, min_photographs=2)
    with pytest.raises(ValueError, match="`--objects` to be the folder of COCO's photographs"):
        compose(**options | {"objects": "painted"}, annotations="instances.json")


def test_the_classes_of_coco_are_those_that_are_named(options, monkeypatch):
    calls = []
    monkeypatch.setattr(datasets, "COCOObjects", lambda *args, **named: calls.append((args, named)) or Blocks())
    out = compose(**options, annotations="instances.json", object_classes="dog, cat", min_photographs=2)
    assert calls == [(("instances.json", options["objects"], ["dog", "cat"]), {"min_photographs": 2})]
    assert BAMFolder(out).object_names == Blocks().class_names


def test_images_of_other_settings_are_not_replaced(options):
    out = compose(**options, lossless=True)
    assert {path.suffix for path in (out / "obj" / "val").iterdir()} == {".png"}
    with pytest.raises(ValueError, match=r"images of other settings \(lossless: True there, none here\)"):
        compose(**options)
    for path in Path(options["scenes"]).rglob("*.png"):
        Image.new("RGB", (40, 40), (200, 200, 200)).save(path)
    with pytest.raises(ValueError, match=r"images of other settings \(scenes: "):
        compose(**options, lossless=True)


@pytest.mark.parametrize("name", ["obj/val/mine.png", "obj/loc.txt"])
def test_files_of_the_user_stay(options, name):
    out = compose(**options)
    (out / name).unlink(missing_ok=True)
    (out / name).write_text("mine")
    with pytest.raises(ValueError, match=r"is no file of this composition|its objects or scenes were others"):
        compose(**options)
    assert (out / name).read_text() == "mine"


def test_an_interrupted_composition_goes_on(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    command = shlex.split("compose --n-per-pair 2 --image-size 32 --test-share 0.5 --no-progress --out bam")
    assert main([*command[:-1], "whole"]) == 0
    assert capsys.readouterr() == ("whole\n", "")
    assert len(BAMFolder("whole").object_names) == len(BAMFolder("whole").scene_names) == 10
    save, count = Image.Image.save, iter(range(10_000))

    def interrupted(*arguments, **named):
        if next(count) == 50:
            raise KeyboardInterrupt
        save(*arguments, **named)

    with monkeypatch.context() as patch:
        patch.setattr(Image.Image, "save", interrupted)
        assert main(command) == 130
    assert "Interrupted" in capsys.readouterr().err
    assert not Path("bam/compose.json").exists()
    before = {path: path.stat().st_mtime_ns for path in Path("bam").rglob("*.jpg")}
    assert before
    assert main(command) == 0
    assert {path: path.stat().st_mtime_ns for path in before} == before
    assert contents(Path("bam"), hidden=True) == contents(Path("whole"), hidden=True)
