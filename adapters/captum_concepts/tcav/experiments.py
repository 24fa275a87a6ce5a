"""TCAV experiments: activations of a layer, the span of directions, gradients."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
import torch
from captum.attr import LayerActivation, LayerGradientXActivation
from torch import Tensor, nn

from captum_concepts.attributions.outputs import Targets, as_targets, tensor_outputs
from captum_concepts.backbones.layers import find_layer
from captum_concepts.bank.directions import METHODS, Fitting, fit_drawn
from captum_concepts.support.checks import check_axes, check_choice, check_finite, check_range, check_whole
from captum_concepts.support.running import evaluation_mode, first_floating, seeded_generators, widest_float

# Activations enter the products in float64, so many columns at a time.
_COLUMNS = 65536

#: Rows of images with a concept, and of images without it.
Split = tuple[np.ndarray, np.ndarray]
NEGLIGIBLE = 1e-6
"""Share of the longest axis, or of the longest activation, below which an axis or a direction is rounding."""


class Batches(NamedTuple):
    """Device, type and size of the batches in which images go through a model."""

    device: torch.device
    dtype: torch.dtype
    size: int

    def of(self, images: Tensor) -> Iterator[tuple[slice, Tensor]]:
        """Yield the slice of each batch, and the batch."""
        for start in range(0, len(images), self.size):
            part = slice(start, start + self.size)
            yield part, images[part].detach().to(self.device, self.dtype, copy=True)


def span_gradients(
    model: nn.Module,
    layer: nn.Module,
    inputs: Tensor,
    targets: Tensor,
    activations: Tensor,
    mixing: Tensor,
    batches: Batches,
) -> Tensor:
    """Return the gradients (N, r) of logits by a layer's output, along the axes of the span of activations."""
    gradient = LayerGradientXActivation(model, layer, multiply_by_inputs=False)
    products = []
    for part, batch in batches.of(inputs):
        gradients = gradient.attribute(batch.requires_grad_(), target=targets[part].to(batch.device, copy=True))
        products.append(_products(gradients.detach().flatten(1), activations))
    return torch.cat(products) @ mixing


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
    nonzero = values > NEGLIGIBLE**2 * values[-1]
    if not nonzero.any():
        # Activations that are all 0 have no axes; one of zeros keeps the shapes.
        return torch.zeros(len(values), 1).double(), torch.zeros(len(values), 1).double()
    lengths = values[nonzero].sqrt()
    return vectors[:, nonzero] * lengths, vectors[:, nonzero] / lengths


def _products(first: Tensor, second: Tensor) -> Tensor:
    """Return all inner products (n, m) of rows (n, d) and (m, d), in float64 and on the CPU."""
    place = first.device if widest_float(first.device) == torch.float64 else torch.device("cpu")
    total = torch.zeros(len(first), len(second), dtype=torch.float64, device=place)
    for start in range(0, first.shape[1], _COLUMNS):
        part = slice(start, start + _COLUMNS)
        total += first[:, part].to(place).double() @ second[:, part].to(place).double().T
    return total.cpu()


class Experiments(NamedTuple):
    """What TCAV explains, and how; `prepare_experiments` validates it."""

    model: nn.Module
    layers: list[str]
    inputs: Tensor
    targets: Tensor
    batches: Batches
    method: str
    C: float
    seed: int

    @contextlib.contextmanager
    def hold_model(self) -> Iterator[None]:
        """Work in eval mode and with gradients, and leave flags and the global generators as they were."""
        with (
            torch.inference_mode(False),
            torch.enable_grad(),
            evaluation_mode(self.model),
            # Captum reads activations through a DataLoader, which draws a seed, and libsvm asks NumPy for one.
            seeded_generators(self.batches.device, self.seed),
            tensor_outputs(self.model),
        ):
            yield

    def activations(self, name: str, images: Tensor) -> Tensor:
        """Return the finite output of a layer for images, (M, d)."""
        activations = layer_activations(self.model, find_layer(self.model, name), name, images, self.batches)
        finite = activations.isfinite().all(1)
        if not finite.all():
            raise ValueError(
                f"Expected layer {name!r} to give finite numbers but it gives NaN or infinity for "
                f"{int((~finite).sum())} of {len(activations)} images. Are they normalised as the model wants them?"
            )
        return activations

    def statistics(self, name: str, activations: Tensor, splits: Sequence[Split]) -> np.ndarray:
        """Return (P, 2) for the unit direction of each split: share of logits rising, mean derivative.

        NaN where the means of its two sides are the same up to rounding.
        """
        coordinates, mixing = span_coordinates(activations)
        layer = find_layer(self.model, name)
        gradients = span_gradients(self.model, layer, self.inputs, self.targets, activations, mixing, self.batches)
        limit = _shortest(activations, coordinates)
        statistics = np.full((len(splits), 2), math.nan)
        for row, (positive, negative) in zip(statistics, splits, strict=True):
            sides = [coordinates[torch.from_numpy(rows)] for rows in (positive, negative)]
            if float(torch.linalg.vector_norm(sides[0].mean(0) - sides[1].mean(0))) <= limit:
                continue
            present = np.arange(len(positive) + len(negative))[:, None] < len(positive)
            fitting = Fitting(self.method, len(positive), len(negative), self.C, seed=0, hold_back=0)
            direction = fit_drawn(torch.cat(sides), present, fitting).cavs[0]
            derivatives = gradients @ (direction / torch.linalg.vector_norm(direction))
            row[:] = float((derivatives > 0).double().mean()), float(derivatives.mean())
        return statistics


def _shortest(activations: Tensor, coordinates: Tensor) -> float:
    """Return the distance of two means up to which they are the same."""
    rounding = max(NEGLIGIBLE, torch.finfo(activations.dtype).eps)
    return rounding * float(torch.linalg.vector_norm(coordinates, dim=1).max())


def prepare_experiments(
    model: nn.Module,
    layers: Sequence[str],
    inputs: Tensor,
    target: Targets,
    method: str,
    C: float,
    batch_size: int,
    device: torch.device | str | None,
    seed: int,
) -> Experiments:
    """Check what all experiments share."""
    if isinstance(layers, str) or not layers:
        raise TypeError(f"Expected argument `layers` to be a sequence of names, at least one, but got {layers!r}.")
    names = list(dict.fromkeys(layers))
    for name in names:
        find_layer(model, name)
    check_choice("method", method, METHODS)
    check_range("C", C, 0, math.inf, open_low=True, open_high=True)
    check_whole("batch_size", batch_size, 1)
    check_enough("inputs", inputs, 1)
    targets = as_targets(target, len(inputs)).expand(len(inputs))
    reference = first_floating(model)
    place = torch.device(device or "cpu") if reference is None else reference.device
    batches = Batches(place, torch.float32 if reference is None else reference.dtype, batch_size)
    return Experiments(model, names, inputs, targets, batches, method, C, seed)


def check_enough(label: str, images: Tensor, least: int, why: str = "") -> None:
    """Raise unless an argument holds finite images, and enough of them."""
    check_axes(**{label: (images, "N C H W")})
    if len(images) < least:
        raise ValueError(f"Expected argument `{label}` to hold at least {least} images{why} but got {len(images)}.")
    check_finite(label, images)


def mean_of(values: Sequence[float] | np.ndarray) -> float:
    """Return the mean of the values that are no NaN; NaN without any."""
    defined = [value for value in values if not math.isnan(value)]
    return float(np.mean(defined)) if defined else math.nan
