"""What a concept model must offer to be evaluated on images; nothing has to be inherited."""

from __future__ import annotations

import inspect
from typing import Any, Protocol, TypeGuard

from torch import Tensor, nn


class ConceptModel(Protocol):
    """A chain from images over concept values to classes, each stretch of it a module."""

    # ``model(images)`` gives the class logits (N, K). `captum_concepts.PostHocCBM` is one; any module with these
    # four members is another. The metrics read them and change nothing.

    @property
    def features(self) -> nn.Module:
        """Images (N, C, H, W) to whatever the backbone gives."""

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


#: What makes a concept model of another.
REMEDY = (
    "captum_concepts.PostHocCBM.fit makes one of a classifier, BottleneckCBM(features, concept_layer, head) of the "
    "parts of a model that predicts concepts, from_pyc of one of PyC"
)

# `isinstance` with a runtime-checkable protocol would not do: from Python 3.12 on it looks members up statically,
# and does not find the registered children of a module.


def is_concept_model(model: Any) -> TypeGuard[ConceptModel]:
    """Tell whether a model has the members of `ConceptModel`."""
    return not lacking(model)


def lacking(model: Any) -> str:
    """Say which members of `ConceptModel` a model has not, or has as a method in place of a module; empty for none."""
    found = {name: getattr(model, name, None) for name in ("features", "concept_predictor", "head", "concept_maps")}
    absent = [f"`{name}`" for name, member in found.items() if member is None]
    if absent:
        return f"without {', '.join(absent)}"
    methods = [name for name in ("concept_predictor", "head") if inspect.isroutine(found[name])]
    return f"whose `{methods[0]}` is a method in place of a module" if methods else ""


def shares_features(model: Any) -> TypeGuard[FeatureSharing]:
    """Tell whether a model has the members of `FeatureSharing`."""
    return is_concept_model(model) and all(
        hasattr(model, name) for name in ("values_from_features", "maps_from_features")
    )
