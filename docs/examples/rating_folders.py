"""Folders of images and explanations, as `pasta sheet` reads them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image
from torch import nn


def write_folders(
    model: nn.Module,
    images: np.ndarray,
    labels: Sequence[int],
    class_names: Sequence[str],
    methods: Mapping[str, Callable[..., Any]],
) -> None:
    """Write `images/birds_000_NAME.png` and `explanations/METHOD/birds_000_NAME.npy`."""
    for folder in ("images", *(f"explanations/{name}" for name in methods)):
        Path(folder).mkdir(parents=True, exist_ok=True)
    for number, (image, label) in enumerate(zip(images, labels, strict=True)):
        file = f"birds_{number:03}_{class_names[label].replace('_', '-')}"
        pixels = (image.transpose(1, 2, 0) * 255).round().astype(np.uint8)
        Image.fromarray(pixels).save(f"images/{file}.png")
        for name, method in methods.items():
            map_ = method(model, image[None], [label])[0, 0]
            np.save(f"explanations/{name}/{file}.npy", map_)
