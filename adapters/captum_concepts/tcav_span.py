"""The activations of a layer as coordinates in the span of some of them: as many numbers as there are images."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import torch
from captum.attr import LayerActivation, LayerAttribution, LayerGradientXActivation
from captum.log import log_usage
from torch import Tensor, nn

# Activations enter the products in float64, so many columns at a time.
_COLUMNS = 65536

NEGLIGIBLE = 1e-6
"""Of the length along the main axis, or of the longest activation; below it an axis or a direction is rounding."""


class Batches(NamedTuple):
    """How images come to a model: where, of which type, and how many at once."""

    device: torch.device
    dtype: torch.dtype
    size: int

    def of(self, images: Tensor) -> Iterator[tuple[slice, Tensor]]:
        """Yield which images, and these."""
        for start in range(0, len(images), self.size):
            part = slice(start, start + self.size)
            yield part, images[part].detach().to(self.device, self.dtype, copy=True)


class Coordinates(nn.Module):
    """What Captum's TCAV takes for the model: its one layer gives coordinates as they are."""

    def __init__(self) -> None:
        super().__init__()
        self.coordinates = nn.Identity()

    def forward(self, values: Tensor) -> Tensor:
        """Return the coordinates."""
        return self.coordinates(values)


class SpanGradient(LayerAttribution):
    """The gradient of a logit by a layer's output, along the axes of the span of some activations."""

    def __init__(self, model: nn.Module, layer: nn.Module, activations: Tensor, mixing: Tensor, batches: Batches):
        super().__init__(model, layer)
        # TCAV sets the layer of its attribution method, to that of `Coordinates`.
        self.gradient = LayerGradientXActivation(model, layer, multiply_by_inputs=False)
        self.activations = activations
        self.mixing = mixing
        self.batches = batches

    @log_usage()
    def attribute(self, inputs: Tensor, target: Tensor, **kwargs: Any) -> Tensor:
        """Return (N, r); Captum's TCAV passes more arguments, all at their defaults."""
        products = []
        for part, batch in self.batches.of(inputs):
            gradients = self.gradient.attribute(batch.requires_grad_(), target=target[part].to(batch.device, copy=True))
            products.append(_products(gradients.detach().flatten(1), self.activations))
        return torch.cat(products) @ self.mixing


def layer_activations(model: nn.Module, layer: nn.Module, name: str, images: Tensor, batches: Batches) -> Tensor:
    """Return the output of a layer, (N, d)."""
    attribution = LayerActivation(model, layer)
    parts = []
    with torch.no_grad():
        for _, batch in batches.of(images):
            output = attribution.attribute(batch)
            if not isinstance(output, Tensor):
                raise ValueError(
                    f"Expected layer {name!r} to give one tensor but it gives {len(output)}. Name a layer inside "
                    "it, or one after it."
                )
            parts.append(output.detach().flatten(1))
    return torch.cat(parts)


def span_coordinates(activations: Tensor) -> tuple[Tensor, Tensor]:
    """Return coordinates (M, r) of activations (M, d), and what mixes these into the orthonormal axes (M, r)."""
    values, vectors = torch.linalg.eigh(_products(activations, activations))
    kept = values > NEGLIGIBLE**2 * values[-1]
    if not kept.any():
        # Activations that are all 0 have no axes; one of zeros keeps the shapes.
        return torch.zeros(len(values), 1).double(), torch.zeros(len(values), 1).double()
    lengths = values[kept].sqrt()
    return vectors[:, kept] * lengths, vectors[:, kept] / lengths


def _products(first: Tensor, second: Tensor) -> Tensor:
    """Return all inner products (n, m) of rows (n, d) and (m, d), in float64 and on the CPU."""
    # Apple's GPUs have no float64.
    place = torch.device("cpu") if first.device.type == "mps" else first.device
    total = torch.zeros(len(first), len(second), dtype=torch.float64, device=place)
    for start in range(0, first.shape[1], _COLUMNS):
        part = slice(start, start + _COLUMNS)
        total += first[:, part].to(place).double() @ second[:, part].to(place).double().T
    return total.cpu()
