"""The base of all concept models: images to features to concept values to classes, each stage a module."""

from __future__ import annotations

import copy
import json
import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from typing import Self

import torch
from numpy.typing import ArrayLike
from torch import Tensor, nn
from torch.nn import functional

from captum_concepts.backbones.embedding import Embeddings, LoaderBatch, embed_batches
from captum_concepts.backbones.pooling import Concepts, Pooling, check_concepts, project_maps
from captum_concepts.bank.bank import ConceptBank
from captum_concepts.bank.files import P_VALUES, TENSORS
from captum_concepts.models.interventions import Levels, chosen_concepts, replacements
from captum_concepts.support import running
from captum_concepts.support.checks import as_list, check_axes, check_finite, check_names, check_range, to_tensor
from captum_concepts.support.files import parse_json, shorten

#: How a concept value is computed from an embedding and a concept vector.
VALUES = ("margin", "raw")


def check_width(head: nn.Module, n_concepts: int | None) -> None:
    """Raise where a head that is, or begins with, a linear layer takes another number of concepts."""
    first = outer_layer(head, 0)
    if n_concepts is not None and type(first) is nn.Linear and first.in_features != n_concepts:
        raise ValueError(
            f"Expected argument `head` to take the values of {n_concepts} concepts but it takes {first.in_features}."
        )


def outer_layer(module: nn.Module, place: int) -> nn.Module:
    """Return the first (0) or the last (-1) layer of a Sequential, or the module itself."""
    while isinstance(module, nn.Sequential) and len(module):
        module = module[place]
    return module


def linear_part(head: nn.Module) -> nn.Linear | None:
    """Return the linear layer of a head that is nothing else in eval mode; None for a head of another form."""
    linear = None
    for part in head.modules():
        # By type: a subclass may do more in its forward pass than its parts tell.
        if type(part) is nn.Linear and linear is None:
            linear = part
        elif type(part) not in (nn.Sequential, nn.Identity, nn.Dropout):
            return None
    return linear


@torch.no_grad()
def make_linear(weight: Tensor, bias: Tensor, kind: torch.dtype, device: torch.device | None = None) -> nn.Linear:
    """Return a linear layer of these numbers; nothing is drawn for it, which would use the global generator."""
    # Not by `skip_init`, whose tensors without memory load two seconds of code.
    layer = nn.Linear.__new__(nn.Linear)
    nn.Module.__init__(layer)
    layer.out_features, layer.in_features = weight.shape
    for name, tensor in (("weight", weight), ("bias", bias)):
        layer.register_parameter(name, nn.Parameter(tensor.detach().to(device or weight.device, kind, copy=True)))
    return layer


def check_class_names(names: Sequence[str], head: nn.Module) -> list[str]:
    """Return the names of the classes, as many as a linear head has, or raise."""
    listed = [str(name) for name in as_list("class_names", names, "names")]
    linear = linear_part(head)
    if linear is not None and len(listed) != linear.out_features:
        raise ValueError(
            f"Expected argument `class_names` to hold K = {linear.out_features} names, one for each class, but got "
            f"{len(listed)}."
        )
    return listed


class ConceptLayer(nn.Module):
    """A concept bank as a layer: embeddings (N, d) to concept values (N, L)."""

    # The bank is kept in buffers, and names, settings and the choice of values in the extra state (as bytes): a
    # state dict, and so a safetensors file, holds all of it.

    cavs: Tensor
    intercepts: Tensor
    train_accuracy: Tensor
    test_accuracy: Tensor
    p_values: Tensor

    def __init__(self, bank: ConceptBank, values: str = "margin") -> None:
        super().__init__()
        self.values = values
        self.names = list(bank.names)
        self.settings = dict(bank.settings)
        for name in TENSORS:
            self.register_buffer(name, getattr(bank, name).clone())
        # In the extra state if known, so that the state dicts of other banks keep the keys of earlier versions.
        self.register_buffer(P_VALUES, bank.p_values.clone(), persistent=False)

    @property
    def bank(self) -> ConceptBank:
        """The concepts, from the present state of the layer."""
        tensors = {name: getattr(self, name) for name in (*TENSORS, P_VALUES)}
        return ConceptBank(**tensors, names=self.names, settings=self.settings)

    def forward(self, embedding: Tensor) -> Tensor:
        """Return concept values (N, L), computed in float32 at least and given in the type of the CAVs."""
        with running.without_autocast(embedding.device):
            cavs, intercepts = running.at_least_float32(self.cavs), running.at_least_float32(self.intercepts)
            if self.values == "raw":
                values = functional.linear(running.at_least_float32(embedding), cavs)
            else:
                norms = cavs.norm(dim=1)
                values = functional.linear(
                    running.at_least_float32(embedding), cavs / norms[:, None], intercepts / norms
                )
        return values.to(self.cavs.dtype)

    def extra_repr(self) -> str:
        """Return the bank and the choice of values, for the repr."""
        return f"{self.bank!r}, values={self.values!r}"

    def get_extra_state(self) -> Tensor:
        """Return names, settings and the choice of values as a tensor of bytes."""
        state: dict[str, object] = {"values": self.values, "names": self.names, "settings": self.settings}
        if not self.p_values.isnan().all():
            state[P_VALUES] = [None if math.isnan(p) else p for p in self.p_values.tolist()]
        return torch.tensor(list(json.dumps(state).encode()), dtype=torch.uint8)

    def set_extra_state(self, state: Tensor) -> None:
        """Restore names, settings and the choice of values from the result of `get_extra_state`."""
        try:
            stored = parse_json(bytes(state.tolist()))
            values, settings = VALUES[VALUES.index(stored["values"])], dict(stored["settings"])
            names = check_names(stored["names"], len(self.cavs))
            p_values = [math.nan if p is None else float(p) for p in stored.get(P_VALUES, [None] * len(names))]
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            raise ValueError(
                f"The state of the concept layer is damaged, or of a model with other concepts: {shorten(error)}"
            ) from error
        self.values, self.names, self.settings = values, names, settings
        self.p_values = self.cavs.new_tensor(p_values)


class ConceptPredictor(nn.Module):
    """Images to concept values, as a model of its own: target j of an attribution is concept j."""

    def __init__(
        self,
        features: nn.Module,
        pooling: Pooling,
        concept_layer: nn.Module,
        channels: int | None = None,
        concept_maps: Callable[..., Tensor] | None = None,
    ) -> None:
        super().__init__()
        self.features = features
        self.pooling = pooling
        self.concept_layer = concept_layer
        self._channels = channels
        self.concept_maps = concept_maps
        # Made anew on every access, so it must take over the mode of its parts.
        self.training = features.training or concept_layer.training

    def forward(self, images: Tensor) -> Tensor:
        """Return concept values (N, L) of images (N, C, H, W)."""
        return self.concept_layer(self.pooling(self.features(images), self._channels))


class ConceptChain(nn.Module, ABC):
    """Base of `PostHocCBM` and `BottleneckCBM`.

    Parameters
    ----------
    features : nn.Module
        Images (N, C, H, W) to features.
    pooling : Pooling
        Features to embeddings (N, d), and to maps (N, d, h, w).
    concept_layer : nn.Module
        Embeddings to concept values (N, L).
    head : nn.Module
        Concept values to class logits (N, K).
    channels : int, optional
        d, where it is known.

    Attributes
    ----------
    class_names : list of str or None
        K names, if known: tables, plots and pages use them.
    absent_values : Tensor or None
        (L,), the value of each concept where it is absent, from which its effect on a class is counted: the mean value
        of the training images without it. `PostHocCBM.fit` sets it where it fits the bank. Set it where you know the
        concept labels of training images: ``model.absent_values = values.masked_fill(labels > 0, nan).nanmean(0)``
        of their values and labels (N, L). Not needed of values that are probabilities, where it is 0.
    mean_values : Tensor or None
        (L,), the mean values of the training images, which stand in where `absent_values` are not known.

    """

    class_names: list[str] | None = None
    absent_values: Tensor | None
    mean_values: Tensor | None

    def __init__(
        self, features: nn.Module, pooling: Pooling, concept_layer: nn.Module, head: nn.Module, channels: int | None
    ) -> None:
        super().__init__()
        last = outer_layer(head, -1)
        if isinstance(last, nn.Softmax | nn.LogSoftmax):
            running.warn_user(
                f"Argument `head` ends with a {type(last).__name__}: attributions and scores would explain "
                "probabilities and not class logits. Pass the head without it, `head[:-1]`."
            )
        self.features = features
        self.pooling = pooling
        self.concept_layer = concept_layer
        self.head = head
        self._channels = channels
        # Buffers, so that they are where the model is; not in the state dict, whose keys are those of older models.
        self.register_buffer("absent_values", None, persistent=False)
        self.register_buffer("mean_values", None, persistent=False)
        # Wrapping a model in eval mode gives one in eval mode, unless the head still is to be trained.
        self.training = features.training or head.training

    @property
    @abstractmethod
    def linear_pool(self) -> bool:
        """Whether maps are a decomposition of the values: their pixels' mean times d is the raw value.

        If False, they are only local evidence for the concept.
        """

    @property
    def without_maps(self) -> str:
        """Why the model has no concept maps; empty if it has."""
        return ""

    @property
    def bounded(self) -> bool:
        """Whether values lie between 0, absent, and 1, present, so that a label is a value."""
        return False

    @property
    def zero(self) -> str:
        """What a value of 0 means: tables say it of scores by weight, value and contribution, which depend on it."""
        return ""

    @property
    def concept_predictor(self) -> ConceptPredictor:
        """Images (N, C, H, W) to concept values (N, L); shares its parts with this model."""
        # A property, since a registered module would duplicate the keys of `features` in the state dict.
        return ConceptPredictor(
            self.features, self.pooling, self.concept_layer, self._channels, concept_maps=self.concept_maps
        )

    def embed_features(self, features: Tensor) -> Tensor:
        """Return embeddings (N, d) from ``self.features(images)``."""
        return self.pooling(features, self._channels)

    def values_from_features(self, features: Tensor) -> Tensor:
        """Return concept values (N, L) from ``self.features(images)``."""
        return self.concept_layer(self.embed_features(features))

    def maps_from_features(self, features: Tensor, concepts: Concepts = None) -> Tensor:
        """Return concept activation maps (Aysel et al. 2025, Eq. 2) from ``self.features(images)``.

        Parameters
        ----------
        features : Tensor
            What ``self.features`` gives.
        concepts : Tensor or sequence of int, optional
            Indices of the concepts wanted: (k,) for all images the same, (N, k) for each its own; None for
            all L. Only these are computed.

        Returns
        -------
        Tensor
            (N, k, h, w).

        Raises
        ------
        TypeError
            If `concepts` does not hold integers.
        ValueError
            If there are no maps, or `concepts` has another shape or is out of range.
        """
        return project_maps(self.feature_maps(features), self.map_weights(), concepts)

    def feature_maps(self, features: Tensor) -> Tensor:
        """Return the backbone's maps (N, d, h, w) from ``self.features(images)``."""
        return self.pooling.feature_maps(features, self._channels)

    def concept_maps(self, images: Tensor, concepts: Concepts = None) -> Tensor:
        """Return concept activation maps (N, k, h, w) of images.

        Parameters
        ----------
        images : Tensor
            (N, C, H, W).
        concepts : Tensor or sequence of int, optional
            As in `maps_from_features`.

        Returns
        -------
        Tensor
            (N, k, h, w), of the resolution of the feature maps.

        Raises
        ------
        TypeError
            As in `maps_from_features`.
        ValueError
            As in `maps_from_features`, or if `images` has another rank; before the backbone runs.
        """
        check_axes(images=(images, "N C H W"))
        if concepts is not None:
            check_concepts(concepts, len(images), self.n_concepts())
        return self.maps_from_features(self.features(images), concepts)

    def forward(self, images: Tensor) -> Tensor:
        """Return class logits (N, K) of images (N, C, H, W)."""
        return self.logits_from_features(self.features(images))

    def logits_from_features(self, features: Tensor) -> Tensor:
        """Return class logits (N, K) from ``self.features(images)``."""
        embedding = self.embed_features(features)
        return self._decide(self.concept_layer(embedding), embedding)

    def _decide(self, values: Tensor, embedding: Tensor) -> Tensor:
        """Return class logits from concept values, and from the embedding if a model uses it, too."""
        return self.head(values)

    def intervene(
        self,
        inputs: Tensor | ArrayLike,
        concepts: int | str | Sequence[int | str] | Tensor,
        values: Tensor | ArrayLike,
        levels: Levels | None = None,
    ) -> Tensor:
        """Return class logits after some concept values are replaced by known ones.

        Koh et al. (2020), "Concept Bottleneck Models", section 5. A label (bool or whole number, 0 absent and 1
        present) stands for itself where values lie between 0 and 1. Where they do not, margins for instance, it
        stands for one of the `levels` of its concept. A floating-point number is the value itself, without `levels`.
        The model runs in eval mode and without gradient, and is left as it was.

        Parameters
        ----------
        inputs : Tensor or array
            (N, C, H, W), or whatever else `features` takes; brought to the model's device and type.
        concepts : int, str, sequence or tensor
            (k,) for all images the same, (N, k) for each its own: indices, or the names of a `PostHocCBM` in a flat
            list.
        values : number, sequence or tensor
            One for all, (k,) or (N, k).
        levels : Levels, optional
            What `value_levels` returns, or another pair ``(low, high)`` of (L,) each.

        Returns
        -------
        Tensor
            (N, K).

        Raises
        ------
        ValueError
            If a concept is not there or named twice, shapes do not go together, or `values` are labels of which no
            level is known; before the backbone runs.
        """
        inputs, n_concepts = self.own_inputs(inputs), self.n_concepts()
        indices = chosen_concepts(concepts, getattr(self.concept_layer, "names", ()), len(inputs), n_concepts)
        replaced = replacements(values, indices, len(inputs), levels, n_concepts, bounded=self.bounded)
        with running.evaluation_mode(self), torch.no_grad():
            embedding = self.embed_features(self.features(inputs))
            predicted = self.concept_layer(embedding)
            # Only now is the number of concepts of a user's own concept layer known.
            check_concepts(indices, len(predicted), predicted.shape[1])
            place = indices.to(predicted.device).expand(len(predicted), -1)
            return running.tensor_output(self._decide(predicted.scatter(1, place, replaced.to(predicted)), embedding))

    def value_levels(
        self,
        loader: Iterable[LoaderBatch],
        *,
        percentiles: tuple[float, float] = (5.0, 95.0),
        display_progressbar: bool = False,
    ) -> Levels:
        """Return the value of each concept that stands for "absent", and the one that stands for "present".

        The 5th and the 95th percentile of the values of the training images, as Koh et al. (2020) set concepts whose
        values are not bounded. Of a concept that fewer than 5 % of the images have, the higher one may still be a
        value of images without it.

        Parameters
        ----------
        loader : iterable
            Of batches that begin with images, or what `embed` returned of them, which spares the pass.
        percentiles : tuple of float
            Two, ascending, in [0, 100].
        display_progressbar : bool
            Whether to show progress over the batches.

        Returns
        -------
        Levels
            `low` and `high`, (L,) each, on the device of the model.

        Raises
        ------
        ValueError
            If `loader` is empty, its batches have another form, an embedding is not finite, or `percentiles` do not
            ascend in [0, 100].
        """
        low, high = percentiles
        check_range("percentiles", low, 0, high)
        check_range("percentiles", high, low, 100)
        embedding = self.embedded(loader, 1, display_progressbar).features
        check_finite("loader", embedding)
        with running.evaluation_mode(self), torch.no_grad():
            values = self.concept_layer(embedding)
        ends = running.at_least_float32(torch.tensor([low / 100, high / 100], dtype=values.dtype, device=values.device))
        # Column by column: of all values together there may be more than `torch.quantile` takes.
        ends_of_values = torch.stack([running.at_least_float32(column).quantile(ends) for column in values.T], 1).to(
            values
        )
        return Levels(ends_of_values[0], ends_of_values[1])

    def own_inputs(self, inputs: Tensor | ArrayLike) -> Tensor:
        """Return inputs of the model on its device and in its type, or raise."""
        tensor = to_tensor("inputs", inputs)
        if tensor.ndim < 2:
            raise ValueError(f"Expected argument `inputs` to have shape (N, C, H, W) but got {tuple(tensor.shape)}.")
        return running.to_model(self.features, tensor)

    def embedded(self, loader: Iterable[LoaderBatch], required: int, display_progressbar: bool = False) -> Embeddings:
        """Return the embeddings of a loader's images, which may have been made before."""
        if isinstance(loader, Embeddings):
            check_axes(**{"loader.features": (loader.features, f"N {self._channels or 'd'}")})
            return loader
        return embed_batches(self.features, self.pooling, loader, required, display_progressbar)

    def with_head(self, head: nn.Module) -> Self:
        """Return a model with another head that shares all its other parts with this one."""
        check_width(head, self.n_concepts())
        model = copy.copy(self)
        # The modules themselves are shared, not the registers of parts and hooks.
        model.__dict__ = {
            name: value.copy() if isinstance(value, dict) else value for name, value in vars(self).items()
        }
        model.head = head
        return model

    @abstractmethod
    def map_weights(self) -> Tensor:
        """Return the concept vectors (L, d) that weight the maps."""

    @abstractmethod
    def n_concepts(self) -> int | None:
        """Return L where it is known."""
