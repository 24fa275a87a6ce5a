"""The concept models that are compared: post-hoc, traditional, random directions, and the oracle."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn

from captum_concepts.backbones import Backbone
from captum_concepts.bank import ConceptBank
from captum_concepts.bottleneck import BottleneckCBM
from captum_concepts.cbm import ConceptLayer, PostHocCBM
from captum_concepts.embedding import Embeddings, embed
from captum_concepts.heads import fit_logistic
from quantus_concepts.datasets.base import ConceptDataset
from quantus_concepts.functional import random_banks
from quantus_concepts.studies.concepts.oracle import OracleModel
from quantus_concepts.studies.loading import sample_loader
from quantus_concepts.studies.training import SmallResNet


@dataclass(frozen=True)
class BankOptions:
    """How a concept bank is fitted, and how its values are read."""

    method: str = "svm"
    C: float = 1.0
    n_pos: int = 100
    n_neg: int = 100
    values: str = "margin"

    @property
    def threshold(self) -> float | None:
        """Value above which a concept is predicted present; not known for raw values, which lack the intercept."""
        return 0.0 if self.values == "margin" else None


def fit_bank(train: Embeddings, names: Sequence[str], options: BankOptions, seed: int) -> ConceptBank:
    """Fit a concept bank to embeddings."""
    return ConceptBank.fit(
        train.features,
        train.concept_labels,
        names,
        method=options.method,
        n_pos=options.n_pos,
        n_neg=options.n_neg,
        C=options.C,
        seed=seed,
    )


def random_models(
    backbone: Backbone, train: Embeddings, names: Sequence[str], n_classes: int, values: str, n_banks: int, seed: int
) -> list[PostHocCBM]:
    """Return post-hoc CBMs of random directions in place of concepts, in eval mode; embeddings with class labels."""
    if train.labels is None:
        raise ValueError("Expected argument `train` to hold class labels but it has none.")
    banks = random_banks(train.features, train.labels, len(names), n_classes, n_banks=n_banks, values=values, seed=seed)
    return [
        PostHocCBM(backbone, ConceptBank(bank.cavs, bank.intercepts, names), bank.head, values).eval() for bank in banks
    ]


def bank_model(backbone: Backbone, bank: ConceptBank, train: Embeddings, n_classes: int, values: str) -> PostHocCBM:
    """Make a post-hoc CBM of a bank, with a logistic head fitted to embeddings."""
    layer = ConceptLayer(bank, values)
    head = fit_logistic(layer(train.features), train.labels, n_classes)
    model = PostHocCBM(backbone, bank, head, values)
    return model.eval()


def traditional_model(network: SmallResNet, data: ConceptDataset, n_classes: int, batch_size: int) -> BottleneckCBM:
    """Make a sequential CBM of a network that was trained on the concepts."""
    train = embed(network.features, sample_loader(data, batch_size))
    with torch.no_grad():
        values = network.classifier(train.features).sigmoid()
    head = fit_logistic(values, train.labels, n_classes)
    return BottleneckCBM(network.features, network.classifier, head).eval()


def oracle_model(train: ConceptDataset, test: ConceptDataset, n_classes: int) -> OracleModel:
    """Make the oracle for test images, its head fitted to the true attributes of the training images."""
    head = fit_logistic(train.concept_labels, train.labels, n_classes)
    return OracleModel(test, head).eval()


@torch.no_grad()
def predicted_classes(head: nn.Module, inputs: Tensor) -> np.ndarray:
    """Return the classes (N,) that a head predicts for its inputs (N, L)."""
    return head(inputs).argmax(1).cpu().numpy()
