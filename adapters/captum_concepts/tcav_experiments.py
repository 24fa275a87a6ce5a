"""Experiments of TCAV: directions from one set of images to another, and how many inputs go along with each."""

from __future__ import annotations

import contextlib
import math
import tempfile
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from captum.concept import TCAV, Concept
from torch import Tensor, nn

from captum_concepts.checks import (
    as_list,
    check_choice,
    check_device,
    check_finite,
    check_materialised,
    check_module,
    check_seed,
    check_shape,
    check_weight,
    check_whole,
    is_integral,
    to_tensor,
)
from captum_concepts.directions import METHODS
from captum_concepts.layers import find_layer
from captum_concepts.outputs import check_targets, scripted, tensor_outputs
from captum_concepts.running import alone_with, evaluation_mode, first_floating, seeded_generators, tensor_output
from captum_concepts.tcav_classifier import ConceptBankClassifier
from captum_concepts.tcav_span import (
    NEGLIGIBLE,
    Batches,
    Coordinates,
    SpanGradient,
    layer_activations,
    span_coordinates,
)


class Experiments(NamedTuple):
    """What TCAV explains, and how; `prepared` checks it all."""

    model: nn.Module
    layers: list[str]
    inputs: Tensor
    targets: Tensor
    batches: Batches
    classifier: ConceptBankClassifier
    seed: int

    @contextlib.contextmanager
    def undisturbed(self) -> Iterator[None]:
        """Work in eval mode, with gradients and alone, and leave flags and the global generators as they were."""
        with contextlib.ExitStack() as stack:
            stack.enter_context(alone_with(self.model))
            stack.enter_context(torch.inference_mode(False))
            stack.enter_context(torch.enable_grad())
            stack.enter_context(evaluation_mode(self.model))
            # Captum reads activations through a DataLoader, which draws a seed, and libsvm asks NumPy for one.
            stack.enter_context(seeded_generators(self.batches.device, self.seed))
            stack.enter_context(tensor_outputs(self.model, self.targets, "target"))
            self._check_outputs()
            yield

    def activations(self, name: str, images: Tensor) -> Tensor:
        """Return what a layer makes of images, (M, d)."""
        found = layer_activations(self.model, find_layer(self.model, name), name, images, self.batches)
        finite = found.isfinite().all(1)
        if not finite.all():
            raise ValueError(
                f"Expected layer {name!r} to give finite numbers but it gives NaN or infinity for "
                f"{int((~finite).sum())} of {len(found)} images. Are they normalised as the model wants them?"
            )
        return found

    def scores(
        self, name: str, activations: Tensor, sets: Sequence[np.ndarray], pairs: Sequence[tuple[int, int]]
    ) -> np.ndarray:
        """Return the scores (P, 2) of the direction to the first set of each pair, and of that to the second.

        `sets` are rows of the activations. NaN where the means of the two are the same up to rounding.
        """
        coordinates, mixing = span_coordinates(activations)
        gradients = SpanGradient(self.model, find_layer(self.model, name), activations, mixing, self.batches)
        members = [coordinates[torch.from_numpy(rows)] for rows in sets]
        concepts = [Concept(i, f"set {i}", [each]) for i, each in enumerate(members)]
        experiments = [[concepts[first], concepts[second]] for first, second in pairs]
        with tempfile.TemporaryDirectory() as folder:
            tcav = TCAV(
                Coordinates(),
                ["coordinates"],
                classifier=self.classifier,
                layer_attr_method=gradients,
                save_path=folder,
            )
            found = tcav.interpret(self.inputs, experiments, target=self.targets)
        n = len(self.inputs)
        rounding = max(NEGLIGIBLE, torch.finfo(activations.dtype).eps)
        limit = rounding * float(torch.linalg.vector_norm(coordinates, dim=1).max())
        means = [each.mean(0) for each in members]
        scores = np.full((len(pairs), 2), math.nan)
        for row, (first, second) in zip(scores, pairs, strict=True):
            if float(torch.linalg.vector_norm(means[first] - means[second])) > limit:
                shares = found[f"{first}-{second}"]["coordinates"]["sign_count"]
                # Captum's shares are in float32; counted again they are exact.
                row[:] = [round(float(share) * n) / n for share in shares]
        return scores

    def _check_outputs(self) -> None:
        """Raise where the model has no such outputs, before the work is done."""
        with torch.no_grad():
            image = next(self.batches.of(self.inputs))[1]
            outputs = tensor_output(self.model(image), type(self.model).__name__)
        if outputs.ndim != 2:
            raise ValueError(f"Expected the model to return logits (N, K) but got shape {tuple(outputs.shape)}.")
        check_targets(self.targets, outputs.shape[1], "target")


def prepared(
    model: nn.Module,
    layers: Sequence[str],
    inputs: Tensor,
    target: int | Tensor,
    method: str,
    C: float,
    batch_size: int,
    device: torch.device | str | None,
    seed: int,
) -> Experiments:
    """Check what all experiments share."""
    check_module("model", model)
    check_materialised("model", model)
    check_device("device", device)
    names = _check_layers(model, layers)
    check_whole("batch_size", batch_size, 1)
    check_seed(seed)
    check_choice("method", method, METHODS)
    check_weight("C", C, positive=True)
    check_images("inputs", inputs, 1)
    targets = _as_targets(target, len(inputs))
    reference = first_floating(model)
    place = torch.device(device or "cpu") if reference is None else reference.device
    batches = Batches(place, torch.float32 if reference is None else reference.dtype, batch_size)
    return Experiments(model, names, inputs, targets, batches, ConceptBankClassifier(method, C), seed)


def check_images(
    label: str, images: Any, least: int, shape: tuple[int | None, ...] = (None,) * 3, why: str = ""
) -> None:
    """Raise unless an argument holds enough images, of a shape (C, H, W)."""
    if not isinstance(images, Tensor):
        raise TypeError(f"Expected argument `{label}` to be a tensor but got {type(images).__name__}.")
    check_shape(label, images, ("N", "C", "H", "W"), (None, *shape))
    check_finite(label, images)
    if len(images) < least:
        raise ValueError(f"Expected argument `{label}` to hold at least {least} images{why} but got {len(images)}.")


def mean_of(values: Sequence[float] | np.ndarray) -> float:
    """Return the mean of the values that are no NaN; NaN without any."""
    defined = [value for value in values if not math.isnan(value)]
    return float(np.mean(defined)) if defined else math.nan


def _check_layers(model: nn.Module, layers: Sequence[str]) -> list[str]:
    if isinstance(layers, str):
        raise TypeError(f"Expected argument `layers` to be a sequence of names but got one: [{layers!r}] is a list.")
    names = list(dict.fromkeys(as_list("layers", layers, "names")))
    if not names:
        raise ValueError("Expected argument `layers` to name at least one layer but it is empty.")
    for name in names:
        if not isinstance(name, str):
            raise TypeError(f"Expected argument `layers` to hold names but got {name!r}.")
        if isinstance(model, torch.jit.ScriptModule) or isinstance(find_layer(model, name), torch.jit.ScriptModule):
            raise ValueError(scripted(f"TCAV at layer {name!r}"))
    return names


def _as_targets(target: int | Tensor, n: int) -> Tensor:
    values = to_tensor("target", target)
    if not is_integral(values):
        raise TypeError(f"Expected argument `target` to hold indices of classes but got {str(values.dtype)[6:]}.")
    if values.ndim == 0:
        values = values.expand(n)
    check_shape("target", values, ("N",), (n,))
    return values.long()
