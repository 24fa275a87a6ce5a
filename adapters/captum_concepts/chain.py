"""What all concept models share: images to features to concept values to classes, each stretch a module."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any

from torch import Tensor, nn

from captum_concepts.checks import check_module, check_shape
from captum_concepts.notebook import chain_html
from captum_concepts.pooling import Pooling, check_concepts, project_maps


def is_training(module: nn.Module) -> bool:
    """Whether a module is in train mode; a frozen ScriptModule has none."""
    return getattr(module, "training", False)


def check_width(head: Any, n_concepts: int | None) -> None:
    """Raise where a head that is, or begins with, a linear layer takes another number of concepts."""
    while isinstance(head, nn.Sequential) and len(head):
        head = head[0]
    if n_concepts is not None and type(head) is nn.Linear and head.in_features != n_concepts:
        raise ValueError(
            f"Expected argument `head` to take the values of {n_concepts} concepts but it takes {head.in_features}."
        )


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
        # It is made anew whenever it is asked for, and must not look untrained around a model in eval mode.
        self.training = is_training(features) or is_training(concept_layer)

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

    Raises
    ------
    TypeError
        If `features` or `head` is not a module.
    """

    def __init__(
        self, features: nn.Module, pooling: Pooling, concept_layer: nn.Module, head: nn.Module, channels: int | None
    ) -> None:
        check_module("features", features)
        check_module("head", head)
        super().__init__()
        self.features = features
        self.pooling = pooling
        self.concept_layer = concept_layer
        self.head = head
        self._channels = channels
        # Wrapping a model in eval mode gives one in eval mode, unless the head still is to be trained.
        self.training = is_training(features) or is_training(head)

    @property
    @abstractmethod
    def linear_pool(self) -> bool:
        """Whether maps are a decomposition of the values: their pixels' mean times d is the raw value.

        Where it is False, they are local evidence for the concept and nothing more.
        """

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

    def maps_from_features(self, features: Tensor, concepts: Any = None) -> Tensor:
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
        return self.project_features(features, concepts)

    def project_features(self, features: Tensor, concepts: Any) -> Tensor:
        """Return the concept maps of features; what `maps_from_features` is made of."""
        maps = self.pooling.feature_maps(features, self._channels)
        return project_maps(maps, self.map_weights(), concepts)

    def concept_maps(self, images: Tensor, concepts: Any = None) -> Tensor:
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
        check_shape("images", images, ("N", "C", "H", "W"), (None,) * 4)
        if concepts is not None:
            check_concepts(concepts, len(images), self.n_concepts())
        return self.maps_from_features(self.features(images), concepts)

    def _repr_html_(self) -> str:
        return chain_html(self)

    def forward(self, images: Tensor) -> Tensor:
        """Return class logits (N, K) of images (N, C, H, W)."""
        return self.head(self.values_from_features(self.features(images)))

    @abstractmethod
    def map_weights(self) -> Tensor:
        """Return the concept vectors (L, d) that weight the maps."""

    @abstractmethod
    def n_concepts(self) -> int | None:
        """Return L where it is known."""
