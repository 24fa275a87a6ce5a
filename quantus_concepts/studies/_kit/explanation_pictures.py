"""Explanations as people see them: images, overlays and ranked concepts."""

from __future__ import annotations

import base64
import io
import math

import numpy as np
import torch
from matplotlib.figure import Figure
from PIL import Image
from torch import Tensor
from torch.nn.functional import interpolate

from quantus_concepts.datasets.ratings.explanations import ConceptExplanation, DrawingExplanation, MapExplanation
from quantus_concepts.functional.overlay import overlay, unit_maps
from quantus_concepts.studies._kit.charts import INK
from quantus_concepts.studies._kit.findings import minus

N_CONCEPTS = 15
#: Of JPEG; with full colour resolution, since maps are red on blue.
QUALITY = 86
FOR, AGAINST = "#b34700", "#3b6ea5"


def resized(image: Tensor, longest: int) -> Tensor:
    """Bring an image to the size it is shown in."""
    scale = longest / max(image.shape[1:])
    size = [max(1, round(side * scale)) for side in image.shape[1:]]
    return interpolate(image[None], size, mode="bicubic", antialias=True, align_corners=False)[0].clamp(0, 1)


def shown_picture(explanation: MapExplanation | DrawingExplanation, longest: int) -> Tensor:
    """Return (3, h, w) in [0, 1], its longer side `longest`: a drawing as it is, or a map drawn over its image."""
    if isinstance(explanation, DrawingExplanation):
        return resized(explanation.picture, longest)
    image = resized(explanation.image, longest)
    return overlay(image[None], unit_maps(explanation.map[None].float(), explanation.normalise or "min-max"))[0]


def encoded(image: Tensor, kind: str, **settings: int) -> bytes:
    """Encode an image (3, H, W) in [0, 1] as a file of a kind of Pillow's."""
    pixels = (image * 255).round().to(torch.uint8).permute(1, 2, 0)
    buffer = io.BytesIO()
    Image.fromarray(np.ascontiguousarray(pixels.cpu().numpy())).save(buffer, kind, **settings)
    return buffer.getvalue()


def data_url(image: Tensor) -> str:
    """Return an image as a page embeds it."""
    data = encoded(image, "JPEG", quality=QUALITY, subsampling=0)
    return f"data:image/jpeg;base64,{base64.b64encode(data).decode('ascii')}"


def top_concepts(explanation: ConceptExplanation, n: int = N_CONCEPTS) -> list[tuple[str, float]]:
    """Return the most important concepts, the most important first."""
    ordered = sorted(explanation.values.items(), key=lambda pair: (abs(pair[1]), pair[0]), reverse=True)
    if explanation.ascending:
        ordered = ordered[::-1]
    return ordered[:n]


def plot_concepts(explanation: ConceptExplanation, n: int = N_CONCEPTS) -> Figure:
    """Draw the most important concepts as horizontal bars."""
    top = top_concepts(explanation, n)
    figure = Figure(figsize=(5.2, 0.6 + 0.27 * len(top)), layout="constrained")
    axes = figure.add_subplot()
    values = [value for _, value in top]
    axes.barh(range(len(top)), values, color=[FOR if value >= 0 else AGAINST for value in values], height=0.62)
    axes.set_yticks(range(len(top)), [name for name, _ in top], color=INK, fontsize=9)
    axes.invert_yaxis()
    axes.axvline(0, color=INK, linewidth=0.8)
    axes.tick_params(length=0, labelsize=8.5, colors=INK)
    for side in axes.spines.values():
        side.set_visible(False)
    return figure


def listed_concepts(explanation: ConceptExplanation, n: int = N_CONCEPTS) -> list[tuple[str, str, float]]:
    """Return the most important concepts as a page lists them: name, value as written, share of the largest."""
    top = top_concepts(explanation, n)
    largest = max(abs(value) for _, value in top) or 1.0
    return [(name, short_number(value), value / largest) for name, value in top]


def short_number(value: float) -> str:
    """Write a concept's value with three digits."""
    if value == 0 or 0.001 <= abs(value) < 1000:
        digits = 2 if value == 0 else max(0, 2 - math.floor(math.log10(abs(value))))
        text = f"{value:.{min(digits, 3)}f}"
    else:
        text = f"{value:.1e}"
    return minus(text)
