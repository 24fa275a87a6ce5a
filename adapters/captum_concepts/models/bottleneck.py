"""A traditional concept bottleneck model (any encoder, concept layer and head) as a concept model."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Self, cast

import torch
from torch import Tensor, nn

from captum_concepts.backbones.backbone import Backbone
from captum_concepts.backbones.pooling import Concepts, Maps, Pool, resolve_stages
from captum_concepts.models.cbm import PostHocCBM
from captum_concepts.models.chain import check_class_names, check_width, outer_layer
from captum_concepts.models.files import ModelContents
from captum_concepts.models.store import StoredCBM
from captum_concepts.support.checks import check_names
from captum_concepts.support.running import first_floating, warn_user, without_autocast

_SIGMOIDS = (torch.sigmoid, torch.special.expit, nn.functional.sigmoid)
#: So many logits lie between 0 and 1 only if they are no logits.
_ENOUGH = 20


def is_sigmoid(activation: Callable[[Tensor], Tensor] | None) -> bool:
    """Whether an activation is the sigmoid."""
    return isinstance(activation, nn.Sigmoid) or activation in _SIGMOIDS


def _width(layer: nn.Module, side: str) -> int | None:
    """Return the width of a linear layer or a convolution on a side, "in" or "out"; None for other layers."""
    return getattr(layer, f"{side}_features", getattr(layer, f"{side}_channels", None))


class BottleneckLayer(nn.Module):
    """The user's concept layer with its activation: embeddings (N, d) to concept values (N, L).

    It has an attribute `names` where the names of the concepts are known.
    """

    names: list[str]

    def __init__(
        self, layer: nn.Module, activation: Callable[[Tensor], Tensor] | None, names: Sequence[str] | None = None
    ) -> None:
        super().__init__()
        self.layer = layer
        self.activation = activation
        self.training = layer.training
        #: Whether no batch has been checked yet for values that have been through a sigmoid already.
        self._unseen = is_sigmoid(activation) and not isinstance(layer, nn.Linear | nn.Conv2d)
        if names is not None:
            n_concepts = _width(outer_layer(layer, -1), "out")
            self.names = check_names(names, len([*names]) if n_concepts is None else n_concepts)

    def forward(self, embedding: Tensor) -> Tensor:
        """Return concept values (N, L), computed in the layer's own type also under autocast."""
        reference = first_floating(self.layer)
        if reference is not None and embedding.dtype in (torch.float16, torch.bfloat16):
            embedding = embedding.to(reference.dtype)
        with without_autocast(embedding.device):
            if isinstance(self.layer, nn.Conv2d):
                logits = self.layer(embedding[:, :, None, None]).flatten(1)
            else:
                logits = self.layer(embedding)
            if self._unseen and logits.numel() >= _ENOUGH:
                self._warn_of_values(logits)
            return logits if self.activation is None else self.activation(logits)

    def extra_repr(self) -> str:
        """Return the activation, which the default of `BottleneckCBM` may have set."""
        return f"activation={'sigmoid' if is_sigmoid(self.activation) else self.activation}"

    def _warn_of_values(self, logits: Tensor) -> None:
        self._unseen = False
        low, high = logits.detach().aminmax()
        if low >= 0 and high <= 1:
            warn_user(
                "Argument `concept_layer` gives numbers between 0 and 1, and `activation`, by default the sigmoid, is "
                "applied to them once more. Pass `activation=None` if they are concept values already."
            )


class BottleneckCBM(StoredCBM):
    r"""Encoder, concept layer and head presented as a chain of three models.

    Values are ``activation(concept_layer(pool(features(images))))``. Maps are Eq. 2 of Aysel et al. 2025
    with the rows of the concept layer's weight: a decomposition (but for the bias) of a concept's *logit*
    where pooling is the mean, not of what the activation makes of it.

    `save`, `load`, `save_pretrained`, `from_pretrained` and `push_to_hub` are as of `PostHocCBM`: files hold concept
    layer, head and names, and no backbone. They can be written where concept layer and head are plain layers.

    Parameters
    ----------
    features : nn.Module or Backbone
        Images (N, C, H, W), or rows (N, F) of a table, to features; a Backbone brings `pool` and `maps` with it.
    concept_layer : nn.Module
        Embeddings (N, d) to logits of concepts (N, L): an ``nn.Linear``, a 1 x 1 ``nn.Conv2d``, or anything
        else, for which there are maps only with `project`.
    head : nn.Module
        Concept values (N, L) to class logits (N, K).
    names : sequence of str, optional
        L names of the concepts, which tables, plots and pages then show.
    class_names : sequence of str, optional
        K names of the classes, likewise.
    pool : "mean" or callable
        As in `PostHocCBM`.
    maps : callable, optional
        As in `PostHocCBM`.
    activation : callable, optional
        From logits to concept values; the sigmoid by default, None for none: Label-free CBM, VLG-CBM and sequential
        CBM have none. The repr of `concept_layer` names it.
    project : callable, optional
        ``project(features, concepts)`` gives the maps (N, k, h, w) of a concept layer of another form;
        `concepts` is as in `maps_from_features`.

    Attributes
    ----------
    concept_layer : BottleneckLayer
        The second stretch, with its activation.

    Raises
    ------
    ValueError
        If `concept_layer` is a convolution over more than one pixel, or ends with a sigmoid of its own; if there
        are not as many names as concepts or classes, or two are the same.
    """

    concept_layer: BottleneckLayer
    _kind = "BottleneckCBM"

    def __init__(
        self,
        features: nn.Module | Backbone,
        concept_layer: nn.Module,
        head: nn.Module,
        names: Sequence[str] | None = None,
        class_names: Sequence[str] | None = None,
        pool: Pool = "mean",
        maps: Maps | None = None,
        activation: Callable[[Tensor], Tensor] | None = torch.sigmoid,
        project: Callable[[Tensor, Concepts], Tensor] | None = None,
    ) -> None:
        if isinstance(concept_layer, nn.Conv2d):
            _check_pointwise(concept_layer)
        if is_sigmoid(activation):
            _check_without_sigmoid(concept_layer)
        module, pooling = resolve_stages(features, pool, maps)
        channels = _width(outer_layer(concept_layer, 0), "in")
        check_width(head, _width(outer_layer(concept_layer, -1), "out"))
        super().__init__(module, pooling, BottleneckLayer(concept_layer, activation, names), head, channels)
        self.project = project
        self.class_names = None if class_names is None else check_class_names(class_names, head)
        self.know_backbone(features)

    @property
    def linear_pool(self) -> bool:
        """Whether maps are a decomposition of the values: mean pooling, linear layer and no activation."""
        linear = isinstance(self._layer, nn.Linear | nn.Conv2d) and self.project is None
        return self.pooling.linear and linear and self.concept_layer.activation is None

    @property
    def bounded(self) -> bool:
        """Whether values are those of a sigmoid, so that a label is a value."""
        return is_sigmoid(self.concept_layer.activation)

    @property
    def zero(self) -> str:
        """What a value of 0 means."""
        if self.bounded:
            return "probability"
        return "zero of the logit" if self.concept_layer.activation is None else "zero of the activation"

    @property
    def _layer(self) -> nn.Module:
        layer: nn.Module = self.concept_layer.layer
        return layer

    def maps_from_features(self, features: Tensor, concepts: Concepts = None) -> Tensor:
        """Return the concept maps of features by the concept layer's weight, or by `project`."""
        if self.project is None:
            return super().maps_from_features(features, concepts)
        maps = self.project(features, concepts)
        if maps.ndim != 4:
            raise ValueError(f"Expected argument `project` to give maps (N, k, h, w) but got {tuple(maps.shape)}.")
        return maps

    def map_weights(self) -> Tensor:
        """Return the concept vectors (L, d) that weight the maps."""
        if not isinstance(self._layer, nn.Linear | nn.Conv2d):
            raise ValueError(self._no_weights())
        return self._layer.weight.flatten(1)

    @property
    def without_maps(self) -> str:
        """Why the model has no concept maps; empty if it has."""
        has_maps = self.project is not None or isinstance(self._layer, nn.Linear | nn.Conv2d)
        return "" if has_maps else self._no_weights()

    def _no_weights(self) -> str:
        return (
            f"A concept layer of type {type(self._layer).__name__} has no weights to make maps with. "
            "Pass `project`, a callable from (features, concepts) to maps (N, k, h, w), or give "
            "`features` the part before its last linear layer and pass that layer as `concept_layer`."
        )

    def n_concepts(self) -> int | None:
        """Return L where it is known."""
        names = getattr(self.concept_layer, "names", None)
        return _width(outer_layer(self._layer, -1), "out") if names is None else len(names)

    random_models = PostHocCBM.random_models

    def _contents(self) -> ModelContents:
        width = next((part.in_features for part in self._layer.modules() if isinstance(part, nn.Linear)), None)
        if self.project is not None or width is None:
            raise ValueError(
                "Expected the concept layer of the model, to be written to a file, to hold an nn.Linear and to need no "
                f"`project` but got {type(self._layer).__name__}. Save its state dict, and build the model anew of it."
            )
        activation, names = _as_module(self.concept_layer.activation), getattr(self.concept_layer, "names", None)
        return self._contents_with(width, layer=self._layer, activation=activation, names=names)

    @classmethod
    def _restore(cls, contents: ModelContents, features: nn.Module | Backbone, pool: Pool, maps: Maps | None) -> Self:
        activation: Callable[[Tensor], Tensor] | None = contents.activation
        if isinstance(activation, nn.Identity | nn.Sigmoid):
            activation = torch.sigmoid if isinstance(activation, nn.Sigmoid) else None
        layer = cast(nn.Module, contents.layer)
        model = cls(features, layer, contents.head, contents.names, None, pool, maps, activation)
        model.know_file(contents)
        return model


def _as_module(activation: Callable[[Tensor], Tensor] | None) -> nn.Module:
    """Return an activation as the module that files hold, or raise."""
    if activation is None or activation in _SIGMOIDS:
        return nn.Identity() if activation is None else nn.Sigmoid()
    if not isinstance(activation, nn.Module):
        raise ValueError(
            "Expected the activation of the model, to be written to a file, to be a module, the sigmoid or None but "
            f"got {activation!r}. Pass nn.Tanh() in place of torch.tanh, for instance."
        )
    return activation


def _check_without_sigmoid(layer: nn.Module) -> None:
    last = outer_layer(layer, -1)
    if isinstance(last, nn.Sigmoid | nn.Softmax | nn.Hardsigmoid):
        raise ValueError(
            "Expected argument `concept_layer` to give logits, of which `activation` makes the values, but it ends "
            f"with a {type(last).__name__}, and a sigmoid would follow. Pass the layer without it, "
            "`concept_layer[:-1]`, or with it and `activation=None`."
        )


def _check_pointwise(layer: nn.Conv2d) -> None:
    expected = {"kernel_size": (1, 1), "stride": (1, 1), "padding": (0, 0), "groups": 1}
    actual = {name: getattr(layer, name) for name in expected}
    # padding="valid" is the same as none.
    if actual["padding"] == "valid":
        actual["padding"] = (0, 0)
    if actual != expected:
        raise ValueError(
            f"Expected argument `concept_layer`, a convolution, to look at one pixel only, {expected}, but "
            f"got {actual}. Put it into `features` and pass a linear layer."
        )
