"""The work of the command `compose`."""

import json
import shlex
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from block_sources import Blocks, Plains
from kills import raising
from quantus_concepts import datasets
from quantus_concepts.datasets.scenes.bam_folder import BAMFolder
from quantus_concepts.studies.app import main
from quantus_concepts.studies.compose.study import ComposeOptions, compose


@pytest.fixture
def folders(tmp_path):
    objects, scenes = tmp_path / "objects", tmp_path / "scenes"
    for label, name in enumerate(("cat", "dog")):
        (objects / name).mkdir(parents=True)
        (scenes / f"place{label}").mkdir(parents=True)
        for i in range(3):
            rgba = np.zeros((12, 16, 4), dtype=np.uint8)
            rgba[2:10, 3:14] = (50 * label + i, 200, 30, 255)
            Image.fromarray(rgba).save(objects / name / f"{i}.png")
            Image.new("RGB", (40, 40), (9, 9, 90 + i)).save(scenes / f"place{label}" / f"{i}.png")
    return objects, scenes


def _options(folders, out, **changes):
    settings = {"n_per_pair": 4, "image_size": 32, "progress": False} | changes
    return ComposeOptions(**({"objects": str(folders[0]), "scenes": str(folders[1]), "out": out} | settings))


def test_folders_are_composed(folders, tmp_path):
    out = compose(_options(folders, tmp_path / "bam"))
    assert out == tmp_path / "bam"
    train, test = BAMFolder(out, split="train"), BAMFolder(out)
    assert (len(train), len(test)) == (12, 4)
    assert test.object_names == ["cat", "dog"]
    assert test.scene_names == ["place0", "place1"]
    assert test.image_size == 32
    assert json.loads((out / "compose.json").read_text())["seed"] == 0


def test_default_folder_is_new_each_time(folders, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    outs = [compose(_options(folders, None)) for _ in range(2)]
    assert outs[0] != outs[1]
    for out in outs:
        assert out.parent.name == "reports"
        assert out.name.startswith("compose-")
        assert len(BAMFolder(out)) == 4
    assert sorted(path.name for path in (tmp_path / "reports").iterdir()) == sorted(out.name for out in outs)


def test_lossless_and_overwrite(folders, tmp_path):
    compose(_options(folders, tmp_path / "bam"))
    with pytest.raises(ValueError, match=r"already holds files .*--overwrite"):
        compose(_options(folders, tmp_path / "bam"))
    out = compose(_options(folders, tmp_path / "bam", lossless=True, overwrite=True))
    assert {path.suffix for path in (out / "obj" / "val").iterdir()} == {".png"}


def test_painted_sources_are_named(folders, tmp_path, monkeypatch):
    seeds = []
    for name, source in (("PaintedObjects", Blocks()), ("PaintedScenes", Plains())):
        monkeypatch.setattr(datasets, name, lambda seed, source=source: seeds.append(seed) or source)
    out = compose(ComposeOptions(out=tmp_path / "bam", n_per_pair=2, image_size=32, seed=5, progress=False))
    assert seeds == [5, 5]
    assert BAMFolder(out).object_names == ["ant", "cow", "dog"]
    mixed = compose(_options(folders, tmp_path / "mixed", scenes="painted"))
    assert BAMFolder(mixed).scene_names == Plains().class_names
    assert BAMFolder(mixed).object_names == ["cat", "dog"]


def test_photographs_of_coco(folders, tmp_path, monkeypatch):
    calls = []
    (tmp_path / "instances.json").write_text("{}")
    monkeypatch.setattr(datasets, "COCOObjects", lambda *args, **named: calls.append((args, named)) or Blocks())
    classes = {"object_classes": "dog, cat", "min_photographs": 2}
    compose(_options(folders, tmp_path / "bam", annotations=tmp_path / "instances.json", **classes))
    assert calls == [((tmp_path / "instances.json", str(folders[0]), ["dog", "cat"]), {"min_photographs": 2})]
    with pytest.raises(ValueError, match="`--min-photographs` has no effect without `--annotations`"):
        _options(folders, tmp_path / "bam", min_photographs=2)

    monkeypatch.setattr(datasets, "COCOObjects", raising(ImportError("pip install pycocotools")))
    with pytest.raises(ValueError, match="pip install pycocotools"):
        compose(_options(folders, tmp_path / "other", annotations=tmp_path / "instances.json"))


def test_output_is_checked_before_sources_are_opened(folders, tmp_path):
    (tmp_path / "bam").write_text("")
    with pytest.raises(ValueError, match="is a file"):
        compose(_options(folders, tmp_path / "bam", objects=str(folders[0] / "cat")))


COMPOSE = shlex.split("compose --n-per-pair 2 --image-size 32 --test-share 0.5 --no-progress --out bam")


def test_composing_on_the_command_line(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert main(COMPOSE) == 0
    captured = capsys.readouterr()
    assert (captured.out, captured.err) == ("bam\n", "")
    test = BAMFolder("bam", split="test")
    assert len(test) == 100
    assert test.images([0]).shape == (1, 3, 32, 32)
    assert test.masks().any((2, 3)).all()
    # A data set is not written over unless that is asked for.
    assert main(COMPOSE) == 2
    assert "--overwrite" in capsys.readouterr().err
    before = Path("bam/obj/val.txt").read_bytes()
    assert main([*COMPOSE, "--overwrite"]) == 0
    assert Path("bam/obj/val.txt").read_bytes() == before


def test_interrupting_a_composition_leaves_nothing(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(Image.Image, "save", raising(KeyboardInterrupt()))
    assert main(COMPOSE) == 130
    assert "Interrupted" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []
