"""Reading image files."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch
from PIL import Image, UnidentifiedImageError
from torch import Tensor


def load_image(path: Path) -> Tensor:
    """Read an image file as RGB.

    Grey images get three equal channels, transparency is dropped, and a rotation noted in EXIF is not applied
    (annotated points are in pixels of the file as stored).

    Parameters
    ----------
    path : Path
        The file.

    Returns
    -------
    Tensor
        (3, H, W), float32 in [0, 1].

    Raises
    ------
    ValueError
        If the file cannot be read as an image of 8 bits per channel, truncated files included.
    """
    try:
        with Image.open(path) as image:
            if image.mode in ("I", "F") or image.mode.startswith("I;16"):
                raise ValueError(
                    f"Expected image {path} to have 8 bits per channel but got mode {image.mode!r}. Convert "
                    "it to 8 bits."
                )
            pixels = np.array(image.convert("RGB"))
    except (OSError, SyntaxError, Image.DecompressionBombError) as error:
        raise _unreadable(path, error) from error
    return torch.from_numpy(pixels).permute(2, 0, 1).contiguous().float().div_(255)


def image_size(path: Path) -> tuple[int, int]:
    """Read the size of an image from the head of its file.

    Parameters
    ----------
    path : Path
        The file.

    Returns
    -------
    tuple of int
        Height and width in pixels.

    Raises
    ------
    ValueError
        If the file is not an image.
    """
    try:
        with Image.open(path) as image:
            return image.height, image.width
    except (OSError, SyntaxError, Image.DecompressionBombError) as error:
        raise _unreadable(path, error) from error


def _unreadable(path: Path, error: Exception) -> ValueError:
    # Pillow's own message for an unknown format repeats the path.
    reason = "no known image format" if isinstance(error, UnidentifiedImageError) else str(error)
    return ValueError(f"Image {path} cannot be read ({reason}). Replace it or leave it out.")
