"""Cut-outs and scenes in a user's own folders."""

import numpy as np
import pytest
from PIL import Image

from quantus_concepts.datasets.scenes.image_folders import CutoutFolder, SceneFolder


def _rgba(alpha=((0, 0, 0, 0), (0, 127, 200, 0), (0, 255, 128, 0)), colour=(10, 20, 30)):
    alpha = np.array(alpha, dtype=np.uint8)
    pixels = np.zeros((*alpha.shape, 4), dtype=np.uint8)
    pixels[..., :3] = colour
    pixels[..., 3] = alpha
    return Image.fromarray(pixels)


@pytest.fixture
def cutouts(tmp_path):
    root = tmp_path / "cutouts"
    for label, name in enumerate(("cat", "bird")):
        (root / name).mkdir(parents=True)
        for i in range(3):
            _rgba(colour=(100 * label + i, 0, 0)).save(root / name / f"{i}.png")
    (root / "manifest.json").write_text("[]")
    (root / ".hidden").mkdir()
    (root / "cat" / "notes.txt").write_text("")
    (root / "cat" / ".3.png").write_bytes(b"")
    return root


@pytest.fixture
def scenes(tmp_path):
    root = tmp_path / "scenes"
    for label, name in enumerate(("land", "sea")):
        (root / name).mkdir(parents=True)
        for i, suffix in enumerate(("png", "JPG", "webp", "jpeg")):
            Image.new("RGB", (20 + i, 30), (100 * label, 10 * i, 0)).save(root / name / f"{i}.{suffix}")
    return root


def test_cutouts_are_cropped_to_the_opaque(cutouts):
    source = CutoutFolder(cutouts)
    assert source.class_names == ["bird", "cat"]
    assert source.labels.tolist() == [0, 0, 0, 1, 1, 1]
    assert source.groups.tolist() == [0, 1, 2, 3, 4, 5]
    assert CutoutFolder(cutouts, group_of=lambda path: path.stem).groups.tolist() == [0, 1, 2, 0, 1, 2]
    assert [path.name for path in source.paths] == ["0.png", "1.png", "2.png"] * 2
    cutout = source[1]
    assert cutout.mask.tolist() == [[False, True], [True, True]]  # alpha 127, 200 / 255, 128
    assert cutout.pixels.tolist() == [[[101, 0, 0]] * 2] * 2


def test_scenes_of_any_size_and_kind(scenes):
    source = SceneFolder(scenes)
    assert source.class_names == ["land", "sea"]
    assert source[4].tolist() == [[[100, 0, 0]] * 20] * 30
    assert [source[i].shape for i in range(4)] == [(30, 20 + i, 3) for i in range(4)]
    Image.new("L", (5, 6), 77).save(scenes / "land" / "0.png")
    assert SceneFolder(scenes)[0].tolist() == [[[77] * 3] * 5] * 6


def test_cutouts_without_an_object_or_a_background_are_refused(cutouts):
    _rgba(((0, 127), (3, 0))).save(cutouts / "bird" / "0.png")
    _rgba(((255, 128), (255, 255))).save(cutouts / "bird" / "1.png")
    source = CutoutFolder(cutouts)
    with pytest.raises(ValueError, match=r"bird/0.png to show an object"):
        source[0]
    with pytest.raises(ValueError, match=r"bird/1.png .* a transparent background"):
        source[1]
    Image.new("L", (4, 4)).save(cutouts / "cat" / "1.png")
    with pytest.raises(ValueError, match=r"cat/1\.png to have an alpha channel"):
        CutoutFolder(cutouts)


@pytest.mark.parametrize("kind", [CutoutFolder, SceneFolder])
def test_folders_that_are_empty_or_missing_are_named(cutouts, kind):
    with pytest.raises(ValueError, match="there is no folder"):
        kind(cutouts / "cat")
    with pytest.raises(FileNotFoundError, match="`root`"):
        kind(cutouts / "nowhere")
    (cutouts / "dog").mkdir()
    with pytest.raises(ValueError, match=r"dog, which is a class, but got none"):
        kind(cutouts)
