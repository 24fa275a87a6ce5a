"""A concept embedding model (CEM), and a concept model of any model with two functions."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn


class Values(nn.Module):
    """Concept values (N, L) of images by a function, beside the features they come from."""

    def __init__(
        self, features: nn.Module, predict: Callable[[Tensor], Tensor]
    ) -> None:
        super().__init__()
        self.features, self.predict = features, predict

    def forward(self, images: Tensor) -> Tensor:
        """Return concept values (N, L)."""
        return self.predict(images)


class ConceptsOf(nn.Module):
    """The four members of a concept model; its head is the mean slope of the logits in the values over `images`."""

    def __init__(
        self,
        features: nn.Module,
        predict: Callable[[Tensor], Tensor],
        decide: Callable[[Tensor, Tensor], Tensor],
        images: Tensor,
    ) -> None:
        super().__init__()
        self.concept_predictor = Values(features, predict)
        values = predict(images).detach().requires_grad_()
        slopes = torch.stack(
            [
                torch.autograd.grad(total, values, retain_graph=True)[0].mean(0)
                for total in decide(images, values).sum(0)
            ]
        )
        rest = (decide(images, values) - values @ slopes.T).mean(0)
        self.head = nn.Linear(slopes.shape[1], slopes.shape[0])
        self.head.load_state_dict({"weight": slopes, "bias": rest.detach()})

    features = property(lambda self: self.concept_predictor.features)

    def forward(self, images: Tensor) -> Tensor:
        """Return class logits (N, K)."""
        return self.head(self.concept_predictor(images))

    def concept_maps(self, images: Tensor, concepts: list[int] | None = None) -> Tensor:
        """Raise: its concepts have no maps, which only CLM needs."""
        raise ValueError("Its concepts have no maps, which only CLM needs.")


class Embeddings(nn.Module):
    """A CEM: for each concept an embedding if it is present, and one if it is absent."""

    def __init__(
        self,
        features: nn.Module,
        width: int,
        n_concepts: int,
        n_classes: int,
        size: int = 8,
    ) -> None:
        super().__init__()
        self.features = features
        self.both = nn.Linear(width, n_concepts * 2 * size)
        self.probability = nn.Linear(2 * size, 1)
        self.classes = nn.Linear(n_concepts * size, n_classes)
        self.shape = (n_concepts, 2 * size)

    def embeddings(self, images: Tensor) -> Tensor:
        """Return both embeddings of each concept, side by side (N, L, 2 * size)."""
        both = self.both(self.features(images)).unflatten(1, self.shape)
        return nn.functional.leaky_relu(both)

    def predict(self, images: Tensor) -> Tensor:
        """Return the probability of each concept (N, L)."""
        return self.probability(self.embeddings(images)).sigmoid()[:, :, 0]

    def decide(self, images: Tensor, values: Tensor) -> Tensor:
        """Return class logits (N, K) of the mixture of the embeddings by concept values (N, L)."""
        present, absent = self.embeddings(images).chunk(2, 2)
        mixed = values[:, :, None] * present + (1 - values[:, :, None]) * absent
        return self.classes(mixed.flatten(1))
