"""Concept models for the metrics: the protocol, running one, and sharing its outputs between metrics."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from contextvars import ContextVar
from functools import partial
from typing import Any, NamedTuple, Protocol, TypeGuard, TypeVar

import numpy as np
import torch
from torch import Tensor, nn

from captum_concepts.models.chain import ConceptChain, linear_part
from captum_concepts.models.effects import GIVE_LEVEL, effect_level
from captum_concepts.models.random_banks import RandomBank
from captum_concepts.support import checks
from captum_concepts.support.running import (
    device_of,
    first_floating,
    tensor_output,
    to_model,
    without_autocast,
)
from quantus_concepts.functional.arguments import Numbers
from quantus_concepts.metrics.host.checks import SELECT

R = TypeVar("R")

IMPORTANCES = ("weight", "value", "contribution", "effect")


class ConceptModel(Protocol):
    """A chain from images over concept values to classes, each stretch of it a module."""

    # ``model(images)`` gives the class logits (N, K). `captum_concepts.PostHocCBM` is one; any module with these
    # four members is another. The metrics read them and change nothing.

    @property
    def features(self) -> nn.Module:
        """Images (N, C, H, W) to the features of the backbone."""

    @property
    def concept_predictor(self) -> nn.Module:
        """Images (N, C, H, W) to concept values (N, L)."""

    @property
    def head(self) -> nn.Module:
        """Concept values (N, L) to class logits (N, K)."""

    def concept_maps(self, images: Tensor, concepts: Tensor | None = None) -> Tensor:
        """Concept activation maps of images."""


class FeatureSharing(ConceptModel, Protocol):
    """A concept model that also takes its own features, so that a metric runs the backbone only once."""

    def values_from_features(self, features: Tensor) -> Tensor:
        """Return concept values (N, L) from ``self.features(images)``."""

    def maps_from_features(self, features: Tensor, concepts: Tensor | None = None) -> Tensor:
        """Return maps (N, k, h, w) from ``self.features(images)``; `concepts` as in `concept_maps`."""


#: Baseline models, or random banks of the embeddings of a model; by one name, or without.
Controls = Iterable[ConceptModel | RandomBank] | Mapping[str, Iterable[ConceptModel | RandomBank]]

#: How to turn another model into a concept model.
REMEDY = (
    "captum_concepts.PostHocCBM.fit makes one of a classifier, BottleneckCBM(features, concept_layer, head) of the "
    "parts of a model that predicts concepts"
)

# `isinstance` with a runtime-checkable protocol would not do: from Python 3.12 on it looks members up statically,
# and does not find the registered children of a module.


def is_concept_model(model: object) -> TypeGuard[ConceptModel]:
    """Return whether a model has the members of `ConceptModel`."""
    # Most models that are none lack the first member.
    return isinstance(model, ConceptChain) or (hasattr(model, "concept_predictor") and not missing_members(model))


def missing_members(model: object) -> str:
    """Return which members of `ConceptModel` a model does not have, or has as a method; empty if none."""
    if isinstance(model, ConceptChain):
        return ""
    absent = []
    for name in ("features", "concept_predictor", "head", "concept_maps"):
        member = getattr(model, name, None)
        if member is None:
            absent.append(f"`{name}`")
        elif name in ("concept_predictor", "head") and inspect.isroutine(member) and not absent:
            return f"whose `{name}` is a method in place of a module"
    return f"without {', '.join(absent)}" if absent else ""


def check_concept_models(name: str, value: ConceptModel | Mapping[Any, ConceptModel]) -> dict[str, ConceptModel]:
    """Return concept models by name, one alone under "model"; or raise where one is none."""
    models = {str(key): model for key, model in value.items()} if isinstance(value, Mapping) else {"model": value}
    if not models:
        raise ValueError(f"Expected argument `{name}` to hold at least one model but it is empty.")
    for model in models.values():
        if wrong := missing_members(model):
            raise TypeError(
                f"Expected argument `{name}` to be a concept model, with modules `features`, `concept_predictor` and "
                f"`head`, and `concept_maps`, but got {type(model).__name__} {wrong}. {REMEDY}."
            )
    return models


def check_controls(
    value: Controls, model: ConceptModel | Mapping[str, ConceptModel]
) -> tuple[str, list[ConceptModel], list[RandomBank]]:
    """Return the name of baseline models, the models, and the random banks beside a model; or raise."""
    groups = value if isinstance(value, Mapping) else {"control": value}
    if len(groups) > 1:
        raise ValueError(f"Expected argument `controls` to hold models of one name but got {list(groups)}.")
    models, banks = list[ConceptModel](), list[RandomBank]()
    for group in groups.values():
        for control in checks.as_list("controls", group, "concept models or random banks"):
            if isinstance(control, RandomBank):
                banks.append(control)
            else:
                models.append(control)
    if models:
        check_concept_models("controls", dict(enumerate(models)))
    scored = [*model.values()] if isinstance(model, Mapping) else [model]
    if banks and (len(scored) > 1 or not isinstance(scored[0], ConceptChain)):
        raise TypeError(
            "Expected argument `controls` to hold concept models, or random banks beside one PostHocCBM or "
            f"BottleneckCBM, but got random banks beside {', '.join(type(other).__name__ for other in scored)}."
        )
    return (str(next(iter(groups))) if models or banks else ""), models, banks


def shares_features(model: object) -> TypeGuard[FeatureSharing]:
    """Return whether a model has the members of `FeatureSharing`."""
    return is_concept_model(model) and hasattr(model, "values_from_features") and hasattr(model, "maps_from_features")


def no_concept_model(metric: str, model: object, x_batch: np.ndarray) -> str:
    """Say why a metric cannot use a model on images, and what to do; empty if the model is not the reason."""
    if x_batch.ndim != 4 or model is None or is_concept_model(model):
        return ""
    return (
        f"argument `model`, {type(model).__name__}, is no concept model, which {metric} needs on images (it is one "
        f"{missing_members(model)}): {REMEDY} (or pass a head as `model` and concept values (N, L) as `x_batch`)"
    )


class ConceptOutputs(NamedTuple):
    """The outputs of one pass of a concept model over a batch of images."""

    features: Tensor | None
    values: Tensor
    logits: Tensor


def backbone_features(model: FeatureSharing, images: Numbers) -> Tensor:
    """Run the backbone of a concept model once over images (N, C, H, W)."""
    with torch.no_grad():
        return model.features(to_model(model.features, images))


def concept_outputs(model: ConceptModel, images: Numbers, features: Tensor | None = None) -> ConceptOutputs:
    """Run a concept model once over images (N, C, H, W), or over their `features` where it shares them."""
    # Under autocast only the backbone runs in half precision: it would round values, and make them tie.
    with torch.no_grad():
        if shares_features(model):
            features = backbone_features(model, images) if features is None else features
            with without_autocast(device_of(model)):
                features = in_precision_of(model, features)
                values = model.values_from_features(features)
                return ConceptOutputs(features, values, tensor_output(model.head(values)))
        values = tensor_output(model.concept_predictor(to_model(model.concept_predictor, images)))
        with without_autocast(device_of(model)):
            return ConceptOutputs(None, values, tensor_output(model.head(in_precision_of(model.head, values))))


def shared_features(model: ConceptModel, images: np.ndarray) -> Tensor | None:
    """Return what the backbone gives for images, once inside a block; None if the model takes no features."""
    if not shares_features(model):
        return None
    # Models of one backbone, as those of random banks, share it.
    return share("features", model.features, images, partial(backbone_features, model, images))


def shared_outputs(model: ConceptModel, images: np.ndarray, features: Tensor | None = None) -> ConceptOutputs:
    """Return the concept values (n, L) and logits (n, K) of images, once inside a block."""

    def run() -> tuple[Tensor, Tensor]:
        outputs = concept_outputs(model, images, shared_features(model, images) if features is None else features)
        return outputs.values, outputs.logits

    # Kept without the features: they find room where the features of many images do not.
    return ConceptOutputs(features, *share("values and logits", model, images, run))


def concept_maps(model: ConceptModel, features: Tensor | None, images: Numbers, concepts: Tensor) -> Tensor:
    """Return the maps (N, k, h, w) of the concepts (N, k) of each image, from the `features` of `concept_outputs`."""
    with torch.no_grad():
        if shares_features(model) and features is not None:
            with without_autocast(device_of(model)):
                return model.maps_from_features(in_precision_of(model, features), concepts.to(device_of(model)))
        images = to_model(model.concept_predictor, images)
        return model.concept_maps(images, concepts.to(images.device))


def feature_norms(model: ConceptModel, features: Tensor | None) -> Tensor | None:
    """Return the norm (N, h, w) of the backbone's maps over their channels; None of a model that does not give them."""
    feature_maps = getattr(model, "feature_maps", None)
    if features is None or feature_maps is None:
        return None
    with torch.no_grad(), without_autocast(device_of(model)):
        norms: Tensor = feature_maps(in_precision_of(model, features)).norm(dim=1)
    return norms


def in_precision_of(model: Any, values: Tensor) -> Tensor:
    """Return a floating-point tensor in the dtype of a model's own numbers; anything else as it is."""
    reference = first_floating(model)
    floating = isinstance(values, Tensor) and values.is_floating_point()
    return values if reference is None or not floating else values.to(reference.dtype)


def linear_weights(head: nn.Module) -> Tensor | None:
    """Return theta (K, L) of a head that is one linear layer in eval mode; None for a head of another form."""
    linear = linear_part(head)
    return None if linear is None else linear.weight.detach()


def head_logits(head: nn.Module, values: Tensor) -> Tensor:
    """Return the class logits (N, K) of concept values (N, L) of any origin."""
    with torch.no_grad(), without_autocast(device_of(head)):
        own = values.to(device_of(head, values.device))
        return tensor_output(head(in_precision_of(head, own)))


def convention_of(model: object, kind: str) -> str:
    """Return what an importance of a kind is counted from in a model, "" where that is not known."""
    return effect_level(model)[1] if kind == "effect" else str(getattr(model, "zero", ""))


def no_level(kind_of_model: str) -> str:
    """Return the error that the effects of a kind of model cannot be counted."""
    return (
        "Expected argument `model` to know the values of absent concepts, for importance='effect', but "
        f"{kind_of_model} does not. {GIVE_LEVEL}; or pass importance='contribution', which depends on where the "
        "zero of the values is."
    )


def check_concept_count(name: str, axes: str, truth: np.ndarray, n_concepts: int) -> None:
    """Raise where ground truth (..., L) is about other concepts than the model's."""
    if truth.shape[-1] != n_concepts:
        raise ValueError(
            f"Expected argument `{name}` to have shape {axes} with the model's L = {n_concepts} concepts but got "
            f"{truth.shape}. {SELECT}"
        )


def head_gradient(head: nn.Module, values: Tensor, classes: Tensor) -> Tensor:
    """Return the gradient (N, L) of the logit of one class each by the concept values."""
    with torch.enable_grad(), without_autocast(values.device):
        leaf = values.detach().to(device_of(head, values.device)).clone().requires_grad_(True)
        chosen = tensor_output(head(in_precision_of(head, leaf))).gather(1, classes[:, None].to(leaf.device)).sum()
        gradient = torch.autograd.grad(chosen, leaf, allow_unused=True)[0] if chosen.requires_grad else None
    if gradient is None:
        raise ValueError(
            f"Importance by weight or contribution is the gradient of the model's head but {type(head).__name__} "
            "has none (is it quantised?). Pass importance='effect' or 'value', or keep the head in floating point and "
            "quantise `model.features` alone."
        )
    return gradient.to(values.device)


#: The block that is open in this thread.
_OPEN: ContextVar[_Block | None] = ContextVar("shared_passes", default=None)


def shared_passes(memory: float = 256.0) -> AbstractContextManager[None]:
    """Let the metrics called inside the block share what a model gives for the same images.

    Inside the block each model sees each image once, for any number of metrics and explanation methods. The caller
    promises that models, hooks, arrays and PyTorch's settings do not change there; open a new block after changing
    one. Outside a block every metric call computes everything anew. `quantus_concepts.evaluate` opens a block itself.

    A result is found by the identity of the model and of the array that was passed as ``x_batch``, and by the rows of
    the batch: calls with the same objects and the same ``batch_size`` share. Nothing is read, hashed or copied to find
    it. Everything is freed when the block ends. A block holds for the thread that opened it; a block inside another one
    shares nothing with it.

    Parameters
    ----------
    memory : float
        How many megabytes to keep, on the model's device. A result that does not fit is computed again.

    Returns
    -------
    AbstractContextManager
        The block, for a ``with`` statement.

    Raises
    ------
    TypeError
        If `memory` is not a number.
    ValueError
        If `memory` is negative or not finite.

    Examples
    --------
    ::

        with quantus_concepts.shared_passes():
            results = quantus.evaluate(metrics, xai_methods, model, x_batch, y_batch)
    """
    checks.check_range("memory", memory, 0, math.inf, open_high=True)
    return _open_block(int(memory * 2**20))


def ensure_block() -> AbstractContextManager[None]:
    """Open a block unless one is open."""
    return shared_passes() if _OPEN.get() is None else nullcontext()


@contextmanager
def _open_block(size: int) -> Iterator[None]:
    token = _OPEN.set(_Block(size))
    try:
        yield
    finally:
        _OPEN.reset(token)


def share(what: Hashable, model: object, array: np.ndarray, make: Callable[[], R]) -> R:
    """Return what `make` returns; inside a block, what it returned for the same model and the same rows of an array."""
    block = _OPEN.get()
    if block is None:
        return make()
    # Where the numbers lie says whose rows they are: a batch is a view of the array that the caller passed, and what is
    # kept holds the array, so that its memory is not used again.
    where = array.__array_interface__["data"][0], array.shape, array.strides, array.dtype.str
    return block.recall(what, model, array, where, make)


class _Block:
    """The results kept by one block."""

    def __init__(self, room: int) -> None:
        self.room = room
        self.results: dict[Hashable, tuple[Any, list[int | None]]] = {}
        #: Models and arrays by identity; holding them keeps identities from being used again.
        self.references: dict[int, Any] = {}

    def recall(self, what: Hashable, model: Any, array: Any, rows: Hashable, make: Callable[[], R]) -> R:
        key = what, id(model), rows
        if key in self.results:
            result, versions = self.results[key]
            # A model may write to its own output, for instance by an in-place ReLU behind the features.
            if versions == _versions(result):
                return result
        result = make()
        size = _size(result)
        if size is not None and size <= self.room:
            self.room -= 0 if key in self.results else size
            self.references |= {id(model): model, id(array): array}
            self.results[key] = result, _versions(result)
        return result


def _version(tensor: Tensor) -> int | None:
    # Inference tensors have no version counter.
    return None if tensor.is_inference() else tensor._version


def _arrays(result: Any) -> list[Any]:
    return list(result) if isinstance(result, tuple) else [result]


def _versions(result: Any) -> list[int | None]:
    return [_version(part) if isinstance(part, Tensor) else None for part in _arrays(result)]


def _size(result: Any) -> int | None:
    """Return the bytes that keeping a result keeps in memory; None if it holds anything but arrays."""
    total = 0
    for part in _arrays(result):
        if isinstance(part, np.ndarray):
            total += part.nbytes if part.base is None else max(part.nbytes, getattr(part.base, "nbytes", 0))
        elif type(part) is Tensor and part.layout is torch.strided:
            # A view keeps all of its storage.
            total += part.untyped_storage().nbytes()
        else:
            return None
    return total


#: Name, in tables, of the random banks that a model was fitted with.
RANDOM_BANKS = "random banks"


def random_banks_of(model: object) -> tuple[RandomBank, ...]:
    """Return the random banks that a model was fitted with; none for other models."""
    return tuple(getattr(model, "random_banks", ()))
