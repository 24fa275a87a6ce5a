"""The work of the command `compose`."""

import json

import numpy as np
import pytest
from PIL import Image

from block_sources import Blocks, Plains
from quantus_concepts.datasets.scenes.bam_folder import BAMFolder
from quantus_concepts.studies import compose as command
from quantus_concepts.studies.compose import compose, load_objects, load_scenes
from quantus_concepts.studies.compose_options import ComposeOptions


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
        monkeypatch.setattr(command, name, lambda seed, source=source: seeds.append(seed) or source)
    out = compose(ComposeOptions(out=tmp_path / "bam", n_per_pair=2, image_size=32, seed=5, progress=False))
    assert seeds == [5, 5]
    assert BAMFolder(out).object_names == ["ant", "cow", "dog"]
    mixed = compose(_options(folders, tmp_path / "mixed", scenes="painted"))
    assert BAMFolder(mixed).scene_names == Plains().class_names
    assert BAMFolder(mixed).object_names == ["cat", "dog"]


def test_sources_of_the_package():
    assert len(load_objects("painted").class_names) == 10
    assert len(load_scenes("painted").class_names) == 10


def test_photographs_of_coco(folders, tmp_path, monkeypatch):
    seen = []
    monkeypatch.setattr(command, "COCOObjects", lambda *paths: seen.append(paths) or Blocks())
    compose(_options(folders, tmp_path / "bam", annotations=tmp_path / "instances.json"))
    assert seen == [(tmp_path / "instances.json", str(folders[0]))]

    def missing(*_):
        raise ImportError("pip install pycocotools")

    monkeypatch.setattr(command, "COCOObjects", missing)
    with pytest.raises(ValueError, match="pip install pycocotools"):
        compose(_options(folders, tmp_path / "other", annotations=tmp_path / "instances.json"))


@pytest.mark.parametrize(
    ("changes", "error", "message"),
    [
        ({"objects": "nowhere"}, FileNotFoundError, "--objects` to be 'painted' or a folder but got 'nowhere'"),
        ({"scenes": "nowhere"}, FileNotFoundError, "--scenes` to be 'painted' or a folder"),
        ({"objects": "painted", "annotations": "a.json"}, ValueError, "beside `--annotations`"),
        ({"annotations": "nowhere.json"}, FileNotFoundError, "nowhere.json"),
        ({"n_per_pair": 1}, ValueError, "n_per_pair"),
        ({"image_size": 4}, ValueError, "image_size"),
        ({"test_share": 1.5}, ValueError, "test_share"),
        ({"seed": -1}, ValueError, "seed"),
    ],
)
def test_bad_input_writes_nothing(folders, tmp_path, changes, error, message):
    before = set(tmp_path.iterdir())
    with pytest.raises(error, match=message):
        compose(_options(folders, tmp_path / "bam", **changes))
    assert set(tmp_path.iterdir()) == before


def test_output_is_checked_before_sources_are_opened(folders, tmp_path):
    (tmp_path / "bam").write_text("")
    with pytest.raises(ValueError, match="is a file"):
        compose(_options(folders, tmp_path / "bam", objects="nowhere"))
