"""Reading image files, the right way up."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from PIL import Image, UnidentifiedImageError
from torch import Tensor

from captum_concepts.support.files import non_file_kind, reason_of

#: Beyond these an image is refused before its pixels are taken into memory: a file of 20 kB may claim 169 million.
MAX_PIXELS = 50_000_000
#: An image of 1 x 1,000,000 pixels would have 50 billion once its shorter side has 224.
MAX_RATIO = 200
#: Pillow reads more, and of some of them by running other programs.
FORMATS = ("JPEG", "PNG", "WEBP", "BMP", "TIFF", "GIF", "PPM", "JPEG2000")
_ORIENTATION = 0x0112


class ImageHeader(NamedTuple):
    """What the header of an image file tells: (height, width) of the pixels stored, and how EXIF turns them, 1 to 8."""

    stored: tuple[int, int]
    orientation: int


@contextmanager
def open_image(path: Path, noun: str = "Image") -> Iterator[Image.Image]:
    """Open an image file for a block that reads it; any error becomes a ValueError with its path."""
    try:
        if kind := non_file_kind(path):
            raise ValueError(f"it is {kind}")
        with Image.open(path, formats=FORMATS) as image:
            if image.width * image.height > MAX_PIXELS:
                raise ValueError(f"{image.width} x {image.height} pixels, more than {MAX_PIXELS:,}: make it smaller")
            if max(image.size) > MAX_RATIO * min(image.size):
                raise ValueError(f"{image.width} x {image.height} pixels: one side is over {MAX_RATIO} times the other")
            yield image
    except Exception as error:  # a damaged file fails in any way
        # Pillow's own message for an unknown format repeats the path.
        reason = "no known image format" if isinstance(error, UnidentifiedImageError) else reason_of(error)
        raise ValueError(f"{noun} {path} cannot be read ({reason}). Replace it or leave it out.") from error


def load_image(path: Path) -> Tensor:
    """Read an image file as RGB (3, h, w), float in [0, 1], the right way up."""
    return torch.from_numpy(load_pixels(path)).permute(2, 0, 1).contiguous().float().div_(255)


def load_pixels(path: Path, mode: str = "RGB", noun: str = "Image") -> np.ndarray:
    """Read an image file as (h, w, ...) of uint8, the right way up."""
    # Grey images get three equal channels, transparency is dropped, and a rotation noted in EXIF is applied: the
    # image is as people see it. `turn_points` moves points that were annotated in the file as stored.
    with open_image(path, noun) as image:
        deep = image.mode if image.mode in ("I", "F") or image.mode.startswith("I;16") else ""
        if not deep:
            return np.ascontiguousarray(turn_upright(np.array(image.convert(mode)), _orientation(image)))
    raise ValueError(f"Expected image {path} to have 8 bits per channel but got mode {deep!r}. Convert it to 8 bits.")


def image_head(path: Path) -> ImageHeader:
    """Read the header of an image file; ValueError if it is no image."""
    with open_image(path) as image:
        return ImageHeader((image.height, image.width), _orientation(image))


def image_size(path: Path) -> tuple[int, int]:
    """Read height and width of the image that `load_image` gives from the header of its file."""
    (height, width), orientation = image_head(path)
    return (width, height) if orientation >= 5 else (height, width)


def turn_upright(pixels: np.ndarray, orientation: int) -> np.ndarray:
    """Turn stored pixels (h, w, ...) the right way up, as EXIF's orientation says."""
    if orientation in (2, 3, 7, 8):
        pixels = pixels[:, ::-1]
    if orientation in (3, 4, 6, 7):
        pixels = pixels[::-1]
    return pixels.swapaxes(0, 1) if orientation >= 5 else pixels


def turn_points(points: np.ndarray, head: ImageHeader) -> np.ndarray:
    """Move points (..., 2), each (x, y) in pixels as stored, to where `turn_upright` puts their pixels."""
    (height, width), orientation = head
    x, y = points[..., 0], points[..., 1]
    if orientation in (2, 3, 7, 8):
        x = width - 1 - x
    if orientation in (3, 4, 6, 7):
        y = height - 1 - y
    return np.stack([y, x] if orientation >= 5 else [x, y], -1)


def _orientation(image: Image.Image) -> int:
    try:
        tag: Any = image.getexif().get(_ORIENTATION, 1)
    # Pillow may raise anything for a damaged tag, which the pixels do not depend on.
    except Exception:
        return 1
    return tag if tag in range(1, 9) else 1
