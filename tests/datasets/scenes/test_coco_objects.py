"""Objects cut out of photographs with COCO's segmentations."""

import importlib.util
import json
import sys

import numpy as np
import pytest
from PIL import Image

from quantus_concepts.datasets.scenes import coco_objects
from quantus_concepts.datasets.scenes.coco_objects import COCOObjects

HEIGHT, WIDTH = 40, 60
NAMES = ["dog", "kite"]
needs_pycocotools = pytest.mark.skipif(
    importlib.util.find_spec("pycocotools") is None, reason="run lengths need pycocotools"
)


def _rectangle(x0, y0, x1, y1):
    return [x0, y0, x1, y0, x1, y1, x0, y1]


def _annotation(number, image, category, segmentation, area, iscrowd=0):
    found = {"id": number, "image_id": image, "category_id": category, "iscrowd": iscrowd}
    return found | {"segmentation": segmentation, "area": area, "bbox": [0, 0, 1, 1]}


class Files:
    """An annotation file and its photographs; each pixel of a photograph tells its row and column."""

    def __init__(self, root):
        self.root, self.images, self.path = root, root / "images", root / "instances_tiny.json"
        self.images.mkdir()
        rows, cols = np.mgrid[:HEIGHT, :WIDTH]
        for number in range(1, 5):
            pixels = np.dstack([rows, cols, np.full_like(rows, number)]).astype(np.uint8)
            Image.fromarray(pixels).save(self.images / f"{number:012d}.png")
        self.content = {
            "images": [{"id": n, "file_name": f"{n:012d}.png", "height": HEIGHT, "width": WIDTH} for n in range(1, 5)],
            "categories": [{"id": 18, "name": "dog"}, {"id": 38, "name": "kite"}, {"id": 1, "name": "person"}],
            "annotations": [
                _annotation(11, 2, 18, [_rectangle(10, 5, 30, 15)], 200.0),
                _annotation(12, 1, 18, [_rectangle(20, 10, 40, 30)], 400.0),
                _annotation(13, 1, 18, [_rectangle(2, 2, 8, 8)], 36.0),
                _annotation(14, 1, 38, [[10, 10, 30, 10, 10, 30]], 200.0),
                _annotation(15, 3, 38, [_rectangle(0, 0, 10, 10), _rectangle(20, 5, 30, 15)], 200.0),
                _annotation(16, 3, 1, [_rectangle(0, 0, 9, 9)], 81.0),
                _annotation(17, 4, 38, {"counts": [5, 2000], "size": [HEIGHT, WIDTH]}, 2000.0, iscrowd=1),
                _annotation(18, 4, 38, [_rectangle(30, 20, 33, 23)], 9.0),
            ],
        }

    def open(self, **settings):
        self.path.write_text(json.dumps(self.content))
        return COCOObjects(self.path, self.images, **({"class_names": NAMES} | settings))

    def change(self, number, **values):
        next(a for a in self.content["annotations"] if a["id"] == number).update(values)


@pytest.fixture
def files(tmp_path):
    return Files(tmp_path)


def test_largest_of_each_photograph(files):
    source = files.open()
    assert source.annotation_ids.tolist() == [12, 11, 14, 15]  # 13 is the smaller dog, 17 a crowd, 18 under 1 %
    assert source.labels.tolist() == [0, 0, 1, 1]
    assert source.groups[0] == source.groups[2]  # dog and kite of photograph 1
    assert len(set(source.groups.tolist())) == 3
    assert [path.name for path in source.paths] == [f"{i:012d}.png" for i in (1, 2, 1, 3)]


def test_rectangle_is_cut_out_to_the_pixel(files):
    cutout = files.open()[1]
    rows, cols = np.mgrid[5:15, 10:30]
    assert cutout.mask.tolist() == np.ones((10, 20), bool).tolist()
    assert (cutout.pixels == np.dstack([rows, cols, np.full_like(rows, 2)])).all()


@pytest.mark.parametrize("orientation", [3, 6])
def test_a_photograph_that_exif_turns_keeps_its_segmentation(files, orientation):
    plain = files.open()[0]
    path = files.open().paths[0]
    exif = Image.Exif()
    exif[0x0112] = orientation
    Image.open(path).copy().save(path, exif=exif)
    cutout = files.open()[0]
    np.testing.assert_array_equal(cutout.mask, np.rot90(plain.mask, 2 if orientation == 3 else -1))
    np.testing.assert_array_equal(cutout.pixels, np.rot90(plain.pixels, 2 if orientation == 3 else -1))


def test_triangle_takes_pixels_whose_centre_is_inside(files):
    mask = files.open()[2].mask
    sums = np.add.outer(np.arange(len(mask)), np.arange(mask.shape[1]))
    # Pixels on the line itself may be either.
    assert mask.shape in {(19, 19), (20, 20)}
    assert (mask == (sums < 19))[sums != 19].all()


def test_several_polygons_are_one_object(files):
    cutout = files.open()[3]
    expected = np.zeros((15, 30), dtype=bool)
    expected[:10, :10] = expected[5:15, 20:30] = True
    assert (cutout.mask == expected).all()


def test_polygons_beyond_the_photograph_are_cut_off(files):
    files.change(11, segmentation=[_rectangle(-5, -3, 20, 70)])
    cutout = files.open()[1]
    assert cutout.mask.shape == (HEIGHT, 20)
    assert cutout.mask.all()


def test_filters(files):
    assert files.open(largest_only=False).annotation_ids.tolist() == [12, 13, 11, 14, 15]
    assert files.open(largest_only=False, min_area=0.0).annotation_ids.tolist() == [12, 13, 11, 14, 15, 18]
    assert files.open(truncated=False).annotation_ids.tolist() == [12, 11, 14]  # 15 touches the corner
    assert files.open(max_per_class=1).annotation_ids.tolist() == [12, 14]
    assert files.open(class_names=["kite", "dog"]).annotation_ids.tolist() == [14, 15, 12, 11]
    assert files.open(min_area=200 / (HEIGHT * WIDTH)).annotation_ids.tolist() == [12, 11, 14, 15]
    with pytest.raises(ValueError, match=r"class 'kite' .* 3 are annotated and 0 are left"):
        files.open(min_area=201 / (HEIGHT * WIDTH))
    for annotation in files.content["annotations"]:
        del annotation["area"]  # it is counted
    assert files.open().annotation_ids.tolist() == [12, 11, 14, 15]


def test_classes_in_too_few_photographs_are_left_out_and_named(files):
    files.content["annotations"].append(_annotation(19, 4, 1, [_rectangle(5, 5, 35, 35)], 900.0))
    names = ["kite", "zebra", "person", "dog"]  # "zebra" is not in the file; in photographs: 2, 0, 2, 2
    with pytest.warns(UserWarning, match=r"1 of 4 classes .* fewer than 2 photographs of .*left out .*: zebra \(0\)$"):
        source = files.open(class_names=names, min_photographs=2)
    assert source.class_names == ["kite", "person", "dog"]
    assert source.annotation_ids.tolist() == [14, 15, 16, 19, 12, 11]
    assert source.labels.tolist() == [0, 0, 1, 1, 2, 2]
    # Photographs count after `min_area` and `truncated`, and not annotations: the two dogs of photograph 1 are one.
    with pytest.warns(UserWarning, match=r"2 of 3 classes .*: kite \(1\), person \(1\)$"):
        source = files.open(class_names=["kite", "person", "dog"], min_photographs=2, truncated=False)
    assert source.annotation_ids.tolist() == [12, 11]
    with pytest.raises(ValueError, match="`min_photographs` to be at most 2"):
        files.open(min_photographs=3)


@needs_pycocotools
@pytest.mark.parametrize("compressed", [False, True])
def test_run_lengths(files, compressed):
    from pycocotools import mask as coco

    mask = np.random.default_rng(0).random((HEIGHT, WIDTH)) < 0.2
    mask[:, :7] = mask[:4] = mask[-2:] = mask[:, 50:] = False
    runs = coco.encode(np.asfortranarray(mask.astype(np.uint8)))
    runs["counts"] = runs["counts"].decode()
    if not compressed:
        flat = np.flatnonzero(np.diff(np.concatenate([[0], mask.ravel("F").astype(int), [0]])))
        edges = np.concatenate([[0], flat, [mask.size]])
        runs = {"size": [HEIGHT, WIDTH], "counts": np.diff(edges).tolist()}
    files.change(11, segmentation=runs, area=float(mask.sum()))
    cutout = files.open(truncated=False)[1]
    rows, cols = np.flatnonzero(mask.any(1)), np.flatnonzero(mask.any(0))
    tight = slice(rows[0], rows[-1] + 1), slice(cols[0], cols[-1] + 1)
    assert (cutout.mask == mask[tight]).all()
    assert (cutout.pixels[..., 0] == np.arange(HEIGHT)[tight[0], None]).all()


@needs_pycocotools
def test_polygons_agree_with_pycocotools(files):
    from pycocotools import mask as coco

    angles = np.sort(np.random.default_rng(1).uniform(0, 2 * np.pi, 23))
    radii = np.random.default_rng(2).uniform(8, 17, 23)
    polygon = np.stack([30 + radii * np.cos(angles), 20 + radii * np.sin(angles)], 1).ravel().tolist()
    files.change(11, segmentation=[polygon])
    ours = coco_objects._mask([polygon], (HEIGHT, WIDTH))
    theirs = coco.decode(coco.merge(coco.frPyObjects([polygon], HEIGHT, WIDTH))).astype(bool)
    assert (ours & theirs).sum() / (ours | theirs).sum() > 0.9
    # They differ along the outline only: next to each such pixel there is one of the other kind.
    padded = np.pad(theirs, 1)
    around = np.stack([padded[1 + i : 1 + i + HEIGHT, 1 + j : 1 + j + WIDTH] for i in (-1, 0, 1) for j in (-1, 0, 1)])
    assert (around.any(0) & ~around.all(0))[ours != theirs].all()


@pytest.mark.parametrize(
    ("segmentation", "message"),
    [
        *((bad, "its segmentation is neither polygons") for bad in ([], [[1, 2, 3, 4]], {"counts": [1]})),
        ({"counts": [1, 2], "size": [3, 1]}, r"size \[3, 1\] and not \(40, 60\)"),
        ({"counts": [5, 2396], "size": [HEIGHT, WIDTH]}, "its run lengths do not add up to 2400 pixels"),
        ([[10, 10, 10.1, 10, 10.1, 10.1]], "covers none"),
    ],
)
def test_a_bad_segmentation_is_named(files, segmentation, message):
    files.change(14, segmentation=segmentation)
    with pytest.raises(ValueError, match=rf"[aA]nnotation 14 .*{message}"):
        files.open()[2]


def test_missing_files_and_photographs_are_named(files, tmp_path):
    files.open()
    with pytest.raises(FileNotFoundError, match="`annotations`"):
        COCOObjects(tmp_path / "nowhere.json", files.images)
    with pytest.raises(FileNotFoundError, match="`images`"):
        COCOObjects(files.path, tmp_path / "nowhere")
    Image.new("RGB", (WIDTH // 2, HEIGHT // 2)).save(files.images / "000000000002.png")
    with pytest.raises(ValueError, match=r"0002.png to have \(H, W\) = \(40, 60\), as annotated, but got \(20, 30\)"):
        files.open()[1]
    for number in (1, 3):
        (files.images / f"{number:012d}.png").unlink()
    with pytest.raises(FileNotFoundError, match=r"2 of 3 are missing: 000000000001.png, 000000000003.png\."):
        files.open()


def test_files_of_another_kind(files, monkeypatch):
    monkeypatch.setitem(sys.modules, "pycocotools", None)
    monkeypatch.setitem(sys.modules, "pycocotools.mask", None)
    files.change(14, segmentation={"counts": "abc", "size": [HEIGHT, WIDTH]})
    with pytest.raises(ImportError, match=r"pip install '\.\[coco\]'"):
        files.open()
    with pytest.raises(ValueError, match="Did you mean 'kite'"):
        files.open(class_names=["kites"])
    # The order of a set, and so of the labels, is another one in each process.
    for names in ({"kite"}, []):
        with pytest.raises(ValueError, match="`class_names` to be a sequence of names"):
            files.open(class_names=names)
    files.change(11, image_id=99)
    with pytest.raises(ValueError, match=r"Annotation 11 .* its image 99 is not listed under 'images'"):
        files.open()
    del files.content["categories"]
    with pytest.raises(ValueError, match=r"COCO's instances_\*\.json, but got another content \('categories'\)"):
        files.open()
