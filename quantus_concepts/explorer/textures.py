"""Pictures, maps and numbers as text that a page holds."""

from __future__ import annotations

import base64
import io
import math

import numpy as np
from PIL import Image
from torch import Tensor
from torch.nn.functional import interpolate

from captum_concepts._support.visualise import as_picture

#: Maps of more places are averaged down to so many a side.
MAX_PLACES = 16
_QUALITY = 85


def picture_uri(image: Tensor, size: int) -> str:
    """Return an image (1 or 3, H, W) in [0, 1], at most so many pixels a side, as the address of a WebP picture."""
    levels = np.round(as_picture("images", image) * 255).astype(np.uint8)
    picture = Image.fromarray(levels)
    picture.thumbnail((size, size), Image.Resampling.LANCZOS)
    return _uri(picture, "WEBP", "webp", quality=_QUALITY, method=4)


def map_uri(maps: Tensor, low: float, high: float) -> str:
    """Return the maps (L, h, w) of an image as the address of one grey PNG picture: tiles in rows, of 256 levels."""
    count, h, w = maps.shape
    columns = tile_columns(count)
    sheet = np.zeros((math.ceil(count / columns) * h, columns * w), dtype=np.uint8)
    levels = ((maps.numpy() - low) / (high - low) * 255).clip(0, 255).round().astype(np.uint8)
    for j, level in enumerate(levels):
        row, column = divmod(j, columns)
        sheet[row * h : (row + 1) * h, column * w : (column + 1) * w] = level
    return _uri(Image.fromarray(sheet), "PNG", "png", optimize=True)


def tile_columns(count: int) -> int:
    """Return the number of maps in a row of a sheet."""
    return math.ceil(math.sqrt(count))


def smaller_maps(maps: Tensor) -> Tensor:
    """Return maps (N, L, h, w) of at most `MAX_PLACES` a side, averaged where they are larger."""
    size = tuple(min(side, MAX_PLACES) for side in maps.shape[2:])
    return maps if size == tuple(maps.shape[2:]) else interpolate(maps, size, mode="area")


def floats(values: Tensor) -> str:
    """Return numbers as base64 of float32, least byte first."""
    return base64.b64encode(values.detach().cpu().numpy().astype("<f4").tobytes()).decode()


def _uri(picture: Image.Image, kind: str, suffix: str, **settings: object) -> str:
    held = io.BytesIO()
    picture.save(held, kind, **settings)
    return f"data:image/{suffix};base64,{base64.b64encode(held.getvalue()).decode()}"
