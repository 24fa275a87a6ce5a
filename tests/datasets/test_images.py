"""Image files: read the right way up where EXIF turns them, points with them or not at all; bad ones are named."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from PIL import Image, ImageOps

from captum_concepts.support.images import image_head, image_size, load_image, turn_points
from fixtures_cub import write_cub
from quantus_concepts.datasets import CUB200, ConceptFolder
from quantus_concepts.datasets.birds.attributes import PARTS

HEIGHT, WIDTH = 20, 32
ORIENTATION = 0x0112
TAGS = range(1, 9)


def tagged(orientation: int) -> Image.Exif:
    exif = Image.Exif()
    exif[ORIENTATION] = orientation
    return exif


def write(path: Path, orientation: int, mode: str = "RGB") -> Image.Image:
    """Save an image that is brighter to the right, redder to the bottom, with a black corner."""
    y, x = np.mgrid[:HEIGHT, :WIDTH]
    pixels = np.stack([120 + 5 * y, 60 + 5 * x, 0 * x, 255 * ((x > 3) & (y > 8))], -1).astype(np.uint8)
    pixels[2:5, 4:9] = 0, 0, 0, 255
    image = Image.fromarray(pixels[..., : len(mode)], mode)
    path.parent.mkdir(parents=True, exist_ok=True)
    image.save(path, exif=tagged(orientation), **({"quality": 100} if path.suffix == ".jpg" else {}))
    return Image.open(path)


@pytest.mark.parametrize("suffix", [".jpg", ".png"])
@pytest.mark.parametrize("orientation", TAGS)
def test_images_are_read_the_right_way_up_and_points_stay_on_their_pixel(
    tmp_path: Path, orientation: int, suffix: str
) -> None:
    path = tmp_path / f"image{suffix}"
    stored = write(path, orientation)
    expected = np.array(ImageOps.exif_transpose(stored).convert("RGB"))
    image = load_image(path)
    np.testing.assert_array_equal((image.permute(1, 2, 0) * 255).round().byte(), expected)
    assert image_size(path) == image.shape[1:] == ((WIDTH, HEIGHT) if orientation > 4 else (HEIGHT, WIDTH))
    points = np.array([[5.0, 3.0], [31.0, 0.0], [np.nan, np.nan], [0.0, 19.0]])
    x, y = turn_points(points, image_head(path))[[0, 1, 3]].astype(int).T
    before = np.array(stored)[[3, 0, 19], [5, 31, 0]]
    np.testing.assert_array_equal((image[:, y, x].T * 255).round(), before)
    assert np.isnan(turn_points(points, image_head(path))[2]).all()


def test_sixteen_bits_are_refused(tmp_path: Path) -> None:
    Image.fromarray(np.full((10, 12), 60000, dtype=np.uint16)).save(tmp_path / "a.png")
    with pytest.raises(ValueError, match=r"a\.png to have 8 bits per channel but got mode 'I(;16)?'"):
        load_image(tmp_path / "a.png")


def test_points_on_a_turned_image_of_a_folder_are_refused(tmp_path: Path) -> None:
    for name, orientation in (("a", 1), ("b", 6)):
        write(tmp_path / "images" / name / "1.jpg", orientation)
    concepts, parts = tmp_path / "concepts.csv", tmp_path / "parts.csv"
    concepts.write_text("class,ear\na,1\nb,0\n")
    parts.write_text("image,part,x,y\na/1.jpg,ear,3,4\n")
    # Without points on it the image is as welcome as any.
    data = ConceptFolder(tmp_path / "images", concepts, parts, image_size=16)
    assert data[1].image.shape == (3, 16, 16)
    parts.write_text("image,part,x,y\na/1.jpg,ear,3,4\nb/1.jpg,ear,3,4\n")
    with pytest.raises(ValueError, match=r"parts\.csv, line 3: .*b.1\.jpg is turned by its EXIF orientation 6"):
        ConceptFolder(tmp_path / "images", concepts, parts, image_size=16)


@pytest.mark.parametrize("orientation", [3, 6])
def test_points_of_cub_are_turned_with_the_image(tmp_path: Path, orientation: int) -> None:
    cub = write_cub(tmp_path)
    path = CUB200(cub, "test").image_paths[0]
    Image.open(path).copy().save(path, exif=tagged(orientation), quality=95)
    data = CUB200(cub, "test")
    x, y = data[0].points[data.part_names.index("beak"), 0].round().int().tolist()
    # The beak bears a white dot.
    assert data[0].image[:, y - 1 : y + 2, x - 1 : x + 2].min() > 0.8


@pytest.mark.parametrize("place", ["-50.0 20.0", "20.0 500.0"])
def test_parts_of_cub_outside_their_image_warn_and_are_not_visible(tmp_path: Path, place: str) -> None:
    cub = write_cub(tmp_path)
    table = cub / "parts" / "part_locs.txt"
    lines = table.read_text().splitlines()
    # The second part of the first image, the beak, which is always visible.
    lines[1] = f"1 2 {place} 1"
    table.write_text("\n".join(lines) + "\n")
    with pytest.warns(UserWarning, match=r"puts 1 visible parts outside .* the beak of .*_0001_1\.jpg"):
        beaks = CUB200(cub).points[:, PARTS.index("beak"), 0]
    assert beaks.isnan().any(1).tolist() == [True] + [False] * 5
