"""The work of the command `compose`."""

import json
import shlex
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from block_sources import Blocks, Plains
from quantus_concepts import datasets
from quantus_concepts.datasets.scenes.bam_folder import BAMFolder
from quantus_concepts.studies.app import main
from quantus_concepts.studies.compose.command import compose


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
    return {"objects": str(folders[0]), "scenes": str(folders[1]), "out": out} | settings


def test_folders_are_composed(folders, tmp_path):
    out = compose(**_options(folders, tmp_path / "bam"))
    assert out == tmp_path / "bam"
    train, test = BAMFolder(out, split="train"), BAMFolder(out)
    assert (len(train), len(test)) == (12, 4)
    assert test.object_names == ["cat", "dog"]
    assert test.scene_names == ["place0", "place1"]
    assert test.image_size == 32
    assert json.loads((out / "compose.json").read_text())["seed"] == 0


def test_default_folder_is_new_each_time(folders, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    outs = [compose(**_options(folders, None)) for _ in range(2)]
    assert outs[0] != outs[1]
    for out in outs:
        assert out.parent.name == "reports"
        assert out.name.startswith("compose-")
        assert len(BAMFolder(out)) == 4
    assert sorted(path.name for path in (tmp_path / "reports").iterdir()) == sorted(out.name for out in outs)


def test_images_of_other_settings_are_not_replaced(folders, tmp_path):
    out = compose(**_options(folders, tmp_path / "bam", lossless=True))
    assert {path.suffix for path in (out / "obj" / "val").iterdir()} == {".png"}
    with pytest.raises(ValueError, match=r"images of other settings \(lossless: True there, none here\)"):
        compose(**_options(folders, out))
    (tmp_path / "photos").mkdir()
    (tmp_path / "photos" / "mine.jpg").write_text("mine")
    with pytest.raises(ValueError, match="holds other files"):
        compose(**_options(folders, tmp_path / "photos"))


@pytest.mark.parametrize("name", ["obj/val/mine.png", "obj/loc.txt", "compose.json"])
def test_files_of_the_user_stay(folders, tmp_path, name):
    out = compose(**_options(folders, tmp_path / "bam"))
    (out / name).unlink(missing_ok=True)
    (out / name).write_text("mine")
    with pytest.raises(ValueError, match=r"is no file of this composition|its objects or scenes were others"):
        compose(**_options(folders, out))
    assert (out / name).read_text() == "mine"


def test_a_link_in_place_of_a_folder_is_not_followed(folders, tmp_path):
    out = compose(**_options(folders, tmp_path / "bam"))
    (out / "obj" / "val").rename(tmp_path / "val")
    (out / "obj" / "val").symlink_to(tmp_path / "val")
    (tmp_path / "val" / "cat-place0-0003.jpg").unlink()
    with pytest.raises(ValueError, match=r"is a link|is no file"):
        compose(**_options(folders, out))
    assert len(list((tmp_path / "val").iterdir())) == 3


def test_other_sources_are_not_mixed_with_the_first(folders, tmp_path):
    out = compose(**_options(folders, tmp_path / "bam"))
    for path in folders[1].rglob("*.png"):
        Image.new("RGB", (40, 40), (200, 200, 200)).save(path)
    with pytest.raises(ValueError, match="its objects or scenes were others"):
        compose(**_options(folders, out))


def test_painted_sources_are_named(folders, tmp_path, monkeypatch):
    seeds = []
    for name, source in (("PaintedObjects", Blocks()), ("PaintedScenes", Plains())):
        monkeypatch.setattr(datasets, name, lambda seed, source=source: seeds.append(seed) or source)
    out = compose(out=tmp_path / "bam", n_per_pair=2, image_size=32, seed=5, progress=False)
    assert seeds == [5, 5]
    assert BAMFolder(out).object_names == ["ant", "cow", "dog"]
    mixed = compose(**_options(folders, tmp_path / "mixed", scenes="painted"))
    assert BAMFolder(mixed).scene_names == Plains().class_names
    assert BAMFolder(mixed).object_names == ["cat", "dog"]


def test_photographs_of_coco(folders, tmp_path, monkeypatch):
    calls = []
    (tmp_path / "instances.json").write_text("{}")
    monkeypatch.setattr(datasets, "COCOObjects", lambda *args, **named: calls.append((args, named)) or Blocks())
    classes = {"object_classes": "dog, cat", "min_photographs": 2}
    compose(**_options(folders, tmp_path / "bam", annotations=tmp_path / "instances.json", **classes))
    assert calls == [((tmp_path / "instances.json", str(folders[0]), ["dog", "cat"]), {"min_photographs": 2})]
    with pytest.raises(ValueError, match="`--min-photographs` has no effect without `--annotations`"):
        compose(**_options(folders, tmp_path / "bam", min_photographs=2))


def test_output_is_checked_before_sources_are_opened(folders, tmp_path):
    (tmp_path / "bam").write_text("")
    with pytest.raises(ValueError, match="is a file"):
        compose(**_options(folders, tmp_path / "bam", objects=str(folders[0] / "cat")))


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


def test_an_interrupted_composition_goes_on(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert main([*COMPOSE[:-1], "whole"]) == 0
    save, count = Image.Image.save, iter(range(10_000))

    def interrupted(*arguments, **named):
        if next(count) == 50:
            raise KeyboardInterrupt
        save(*arguments, **named)

    with monkeypatch.context() as patch:
        patch.setattr(Image.Image, "save", interrupted)
        assert main(COMPOSE) == 130
    assert "Interrupted" in capsys.readouterr().err
    assert not Path("bam/compose.json").exists()
    before = {path: path.stat().st_mtime_ns for path in Path("bam").rglob("*.jpg")}
    assert before
    assert main(COMPOSE) == 0
    assert {path: path.stat().st_mtime_ns for path in before} == before
    whole, again = (
        {path.relative_to(root).as_posix(): path.read_bytes() for path in Path(root).rglob("*") if path.is_file()}
        for root in ("whole", "bam")
    )
    assert whole == again
