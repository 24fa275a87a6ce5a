"""Concept models that depend on things no fingerprint of a module can see, one family each, with a knob to change them.

The knob rolls the channels of the features, so that values, maps and logits change. Run as a script, it writes the
scores of models whose knob was turned before their first pass, for the comparison with a fresh process.
"""

from __future__ import annotations

import functools
import json
import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from quantus_concepts import CEM, MCS, Faithfulness, evaluate
from tiny_models import N_CONCEPTS, SharingConceptModel

N, SIZE = 8, 12
KNOBS = (0, 2, -2, 0)
GLOBAL = [0]


class Rolled(nn.Module):
    """Rolls the channels by what `read` gives."""

    def __init__(self, read_shift: Callable[[], int]) -> None:
        super().__init__()
        self.read = read_shift

    def forward(self, features: Tensor) -> Tensor:
        return torch.roll(features, self.read(), 1)


def with_last(layer: nn.Module) -> SharingConceptModel:
    model = SharingConceptModel()
    model.features.append(layer)
    return model.eval()


class Slots:
    __slots__ = ("shift",)

    def __init__(self) -> None:
        self.shift = 0


class ByClass(nn.Module):
    shift = 0

    def forward(self, features: Tensor) -> Tensor:
        return torch.roll(features, type(self).shift, 1)


class Scripted(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.shift = 0

    def forward(self, features: Tensor) -> Tensor:
        return torch.roll(features, self.shift, 1)


class Cached(nn.Module):
    """Builds its table of channels in the first pass after a change."""

    def __init__(self) -> None:
        super().__init__()
        self.shift, self.table = 0, None

    def forward(self, features: Tensor) -> Tensor:
        if self.table is None:
            self.table = torch.roll(torch.arange(features.shape[1]), self.shift)
        return features[:, self.table]


class Attribute(nn.Module):
    """Keeps its setting in an attribute of any type."""

    def __init__(self, value: Any, read_shift: Callable[[Any], int]) -> None:
        super().__init__()
        self.value = value
        self.read = read_shift

    def forward(self, features: Tensor) -> Tensor:
        return torch.roll(features, self.read(self.value), 1)


Made = tuple[SharingConceptModel, Callable[[int], Any]]


def hook_with_state() -> Made:
    model, state = SharingConceptModel().eval(), Slots()
    model.features.register_forward_hook(lambda module, inputs, output: torch.roll(output, state.shift, 1))
    return model, lambda shift: setattr(state, "shift", shift)


def unregistered_module() -> Made:
    inner = Cached()
    layer = Attribute([inner], lambda modules: modules[0].shift)
    return with_last(layer), lambda shift: setattr(inner, "shift", shift)


def closure() -> Made:
    shift = 0

    def turn(value: int) -> None:
        nonlocal shift
        shift = value

    return with_last(Rolled(lambda: shift)), turn


def partial() -> Made:
    shifts = [0]
    return with_last(Rolled(functools.partial(shifts.__getitem__, 0))), lambda shift: shifts.__setitem__(0, shift)


def slots() -> Made:
    state = Slots()
    return with_last(Attribute(state, lambda value: value.shift)), lambda shift: setattr(state, "shift", shift)


def deep_dictionary() -> Made:
    deepest: dict[str, int] = {"shift": 0}
    settings = {"a": {"b": {"c": deepest}}}
    return with_last(Attribute(settings, lambda value: value["a"]["b"]["c"]["shift"])), lambda shift: deepest.update(
        shift=shift
    )


def numpy_integer() -> Made:
    layer = Attribute(np.int64(0), int)
    return with_last(layer), lambda shift: setattr(layer, "value", np.int64(shift))


def a_range() -> Made:
    layer = Attribute(range(0), lambda value: value.start)
    return with_last(layer), lambda shift: setattr(layer, "value", range(shift, shift + 3))


def quantised_scale() -> Made:
    # The same integer, another scale.
    def quantise(shift: int) -> Tensor:
        return torch.quantize_per_tensor(torch.tensor([shift + 3.0]), shift + 3.0, 0, torch.qint8)

    layer = Attribute(quantise(0), lambda value: round(float(value.dequantize())) - 3)
    return with_last(layer), lambda shift: setattr(layer, "value", quantise(shift))


def class_attribute() -> Made:
    class Own(ByClass):
        pass

    return with_last(Own()), lambda shift: setattr(Own, "shift", shift)


def global_variable() -> Made:
    GLOBAL[0] = 0
    return with_last(Rolled(lambda: GLOBAL[0])), lambda shift: GLOBAL.__setitem__(0, shift)


def torchscript_attribute() -> Made:
    scripted = torch.jit.script(Scripted())
    return with_last(scripted), lambda shift: setattr(scripted, "shift", shift)


def lazily_cached_tensor() -> Made:
    layer = Cached()

    def turn(shift: int) -> None:
        layer.shift, layer.table = shift, None

    return with_last(layer), turn


FAMILIES = (
    hook_with_state,
    unregistered_module,
    closure,
    partial,
    slots,
    deep_dictionary,
    numpy_integer,
    a_range,
    quantised_scale,
    class_attribute,
    global_variable,
    torchscript_attribute,
    lazily_cached_tensor,
)


class Subject:
    """A model, its knob, images, and metrics that are called again and again."""

    def __init__(self, make: Callable[[], Made]) -> None:
        rng = np.random.default_rng(0)
        self.model, self.turn = make()
        self.images = rng.normal(size=(N, 3, SIZE, SIZE)).astype(np.float32)
        self.classes = np.arange(N) % 4
        self.maps = rng.uniform(size=(N, 1, SIZE, SIZE)).astype(np.float32)
        self.masks = np.zeros((N, 1, SIZE, SIZE))
        self.masks[..., :5] = 1
        with torch.no_grad():
            contrast = SharingConceptModel(seed=1).eval()
            labels, contrast_labels = (
                model(torch.as_tensor(self.images)).argmax(1).numpy() for model in (self.model, contrast)
            )
        self.metrics = {
            "CEM": CEM(rng.integers(0, 2, (N, N_CONCEPTS)), top_l=2),
            "Faithfulness": Faithfulness(thresholds=(20,), disable_warnings=True),
            "MCS": MCS(contrast, contrast_labels, masks=self.masks, labels=labels, disable_warnings=True),
        }

    def explain(self, model: nn.Module, inputs: np.ndarray, targets: np.ndarray, **kwargs: Any) -> np.ndarray:
        """A map that depends on the image, and on the model's logits."""
        with torch.no_grad():
            logits = model(torch.as_tensor(inputs)).numpy()
        return np.abs(inputs).sum(1, keepdims=True) ** (1 + np.abs(logits[:, :1, None, None]))

    def scores(self) -> dict[str, list[float]]:
        """Scores of the metrics, called one by one and together."""
        inputs = {"x_batch": self.images, "y_batch": self.classes}
        scores = {
            name: list(metric(self.model, a_batch=self.maps, explain_func=self.explain, **inputs))
            for name, metric in self.metrics.items()
            if name != "MCS"
        }
        results, _ = evaluate(self.metrics, {"own": self.explain}, self.model, **inputs, verbose=False)
        return scores | {f"{name} together": list(together) for name, together in results["own"].items()}


if __name__ == "__main__":
    torch.set_num_threads(1)
    fresh = {}
    for family in FAMILIES:
        for knob in sorted(set(KNOBS)):
            subject = Subject(family)
            subject.turn(knob)
            fresh[f"{family.__name__} {knob}"] = subject.scores()
    json.dump(fresh, sys.stdout)
