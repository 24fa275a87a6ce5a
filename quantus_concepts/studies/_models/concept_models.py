"""Concept models that are trained end to end: jointly, one network per concept, and with concept embeddings."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional

from quantus_concepts.painted.networks import SmallResNet, with_seed

#: Weight of the concepts' loss, where that of the classes has weight 1.
CONCEPT_WEIGHT = 20.0
#: Numbers in the embedding of a concept.
WIDTH = 8
#: Channels of a network for one concept, before and after its stride.
NARROW = (2, 4)


class JointNetwork(nn.Module):
    """Encoder, concepts and classes trained together; gives both, the concepts' logits first (N, L + K)."""

    def __init__(self, n_concepts: int, n_classes: int, seed: int = 0) -> None:
        super().__init__()
        encoder = SmallResNet(n_concepts, seed=seed)
        self.features, self.classifier = encoder.features, encoder.classifier
        with with_seed(seed):
            self.classes = nn.Linear(n_concepts, n_classes)

    def forward(self, images: Tensor) -> Tensor:
        """Return logits (N, L + K) of images (N, 3, H, W)."""
        concepts = self.classifier(self.features(images).mean((2, 3)))
        return torch.cat([concepts, self.classes(concepts.sigmoid())], dim=1)


class EmbeddingNetwork(nn.Module):
    """A concept embedding model (Espinosa Zarlenga et al. 2022), without the interventions it may be trained with."""

    def __init__(self, n_concepts: int, n_classes: int, seed: int = 0) -> None:
        super().__init__()
        encoder = SmallResNet(n_concepts, seed=seed)
        self.features = encoder.features
        with with_seed(seed):
            self.classifier = ConceptEmbeddings(encoder.channels, n_concepts)
            self.classes = nn.Linear(WIDTH * n_concepts, n_classes)

    def forward(self, images: Tensor) -> Tensor:
        """Return logits (N, L + K) of images (N, 3, H, W)."""
        logits, mixed = self.classifier.both(self.features(images).mean((2, 3)))
        return torch.cat([logits, self.classes(mixed.flatten(1))], dim=1)


class ConceptEmbeddings(nn.Module):
    """An embedding for the presence of each concept and one for its absence, mixed by how probable the presence is."""

    def __init__(self, channels: int, n_concepts: int) -> None:
        super().__init__()
        self.embeddings = nn.Linear(channels, 2 * WIDTH * n_concepts)
        # One for all concepts.
        self.presence = nn.Linear(2 * WIDTH, 1)

    def both(self, pooled: Tensor) -> tuple[Tensor, Tensor]:
        """Return the logits (N, L) of the presence, and the embeddings mixed (N, L, d)."""
        pairs = functional.leaky_relu(self.embeddings(pooled)).unflatten(1, (-1, 2 * WIDTH))
        logits = self.presence(pairs)
        present, absent = pairs.chunk(2, dim=2)
        return logits[..., 0], torch.lerp(absent, present, logits.sigmoid())

    def forward(self, pooled: Tensor) -> Tensor:
        """Return the logits (N, L) of the presence."""
        return self.both(pooled)[0]


class SeparateNetworks(nn.Module):
    """A small network for each concept, side by side as groups of one: none shares a weight with another."""

    def __init__(self, n_concepts: int, seed: int = 0) -> None:
        super().__init__()
        first, second = (n_concepts * width for width in NARROW)
        with with_seed(seed):
            self.features = nn.Sequential(
                nn.PixelUnshuffle(4),
                nn.Conv2d(48, first, 3, padding=1, bias=False),
                nn.BatchNorm2d(first),
                nn.ReLU(),
                nn.Conv2d(first, second, 3, 2, padding=1, groups=n_concepts, bias=False),
                nn.BatchNorm2d(second),
                nn.ReLU(),
            )
            last = nn.Conv2d(second, n_concepts, 1, groups=n_concepts)
        self.classifier = nn.Sequential(nn.Unflatten(1, (second, 1, 1)), last, nn.Flatten())

    def forward(self, images: Tensor) -> Tensor:
        """Return concept logits (N, L) of images (N, 3, H, W)."""
        return self.classifier(self.features(images).mean((2, 3)))


class Recital(nn.Module):
    """The concepts of the class that a classifier sees: all that is said of an image is its class."""

    class_concepts: Tensor

    def __init__(self, classifier: nn.Module, class_concepts: Tensor) -> None:
        super().__init__()
        self.classifier = classifier
        self.register_buffer("class_concepts", class_concepts)

    def forward(self, pooled: Tensor) -> Tensor:
        """Return the concepts (N, L) of pooled features (N, d)."""
        return self.class_concepts[self.classifier(pooled).argmax(1)]

    def head(self) -> nn.Linear:
        """Return what reads the class off its concepts: the one with which most are shared."""
        n_classes, n_concepts = self.class_concepts.shape
        head = nn.utils.skip_init(nn.Linear, n_concepts, n_classes, bias=False)
        with torch.no_grad():
            head.weight.copy_(self.class_concepts)
        return head


class Known(nn.Module):
    """The concepts of images given by their numbers, on any device."""

    concepts: Tensor

    def __init__(self, concepts: Tensor) -> None:
        super().__init__()
        self.register_buffer("concepts", concepts)

    def forward(self, numbers: Tensor) -> Tensor:
        """Return the concepts (N, L) of images given by number (N, 1)."""
        return self.concepts[numbers[:, 0].to(self.concepts.device)]


def joint_loss(outputs: Tensor, targets: Tensor) -> Tensor:
    """Return the loss of classes and concepts; targets (N, L + 1) hold the concepts, and last the class."""
    n_concepts = targets.shape[1] - 1
    concepts = functional.binary_cross_entropy_with_logits(outputs[:, :n_concepts], targets[:, :n_concepts])
    return CONCEPT_WEIGHT * concepts + functional.cross_entropy(outputs[:, n_concepts:], targets[:, -1].long())
