"""Two concept models that must fail: one of an untrained network, and one that recites its class."""

from __future__ import annotations

import copy

import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader

from captum_concepts import BottleneckCBM, PostHocCBM, fit_logistic
from quantus_concepts import PaintedSubject


class Recital(nn.Module):
    """Return the usual concepts of the class of largest logit."""

    def __init__(self, class_concepts: Tensor) -> None:
        super().__init__()
        self.class_concepts = class_concepts

    def forward(self, logits: Tensor) -> Tensor:
        """Return (N, L) for logits (N, K)."""
        return self.class_concepts[logits.argmax(1)]


def reset(layer: nn.Module) -> None:
    """Forget what a layer has learned."""
    if hasattr(layer, "reset_parameters"):
        layer.reset_parameters()


def dishonest_models(birds: PaintedSubject) -> dict[str, nn.Module]:
    """Return both models for painted birds."""
    truth = birds.train.class_concepts
    torch.manual_seed(0)
    untrained = copy.deepcopy(birds.network.features).apply(reset)
    names, loader = birds.test.concept_names, DataLoader(birds.train, 50)
    head = fit_logistic(truth, torch.arange(len(truth)))
    return {
        "untrained": PostHocCBM.fit(untrained, loader, names=names, min_images=0),
        "recital": BottleneckCBM(birds.network, Recital(truth), head, activation=None),
    }
