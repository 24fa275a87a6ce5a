"""Embeddings of painted birds that hold their concepts, under as much noise as one likes: no network is needed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import torch
from matplotlib.axes import Axes
from torch import Tensor, nn

from captum_concepts import BottleneckCBM, ConceptBank, PostHocCBM, fit_logistic
from quantus_concepts import UsualMetrics, score_concepts
from quantus_concepts.datasets import PaintedBirds

L, D = 30, 64
train, test = (
    PaintedBirds(400, split, image_size=48, n_classes=10, n_concepts=L)
    for split in ("train", "test")
)


def embeddings(birds: PaintedBirds, noise: float) -> Tensor:
    """Return (N, d): each concept that an image shows adds its own direction, noise is added to the sum."""
    directions = torch.randn(L, D, generator=torch.Generator().manual_seed(0))
    generator = torch.Generator().manual_seed(1 if birds.split == "train" else 2)
    return birds.concept_labels.float() @ directions + noise * torch.randn(
        len(birds), D, generator=generator
    )


def batches(birds: PaintedBirds, noise: float) -> list[tuple[Tensor, ...]]:
    """Return one batch of embeddings, classes and concept labels, as a loader would give it."""
    return [(embeddings(birds, noise), birds.labels, birds.concept_labels)]


def post_hoc_cbm(noise: float, method: str = "mean") -> PostHocCBM:
    """Return a concept model of the embeddings of the training birds, with 39 random banks."""
    names, known = train.concept_names, batches(train, noise)
    return PostHocCBM.fit(
        nn.Identity(),
        known,
        names=names,
        method=method,
        n_pos=40,
        n_neg=40,
        random_banks=39,
    )


def values_and_head(noise: float) -> tuple[Tensor, Tensor, nn.Linear]:
    """Return concept values of training and test birds (N, L), and a head that is fitted to the former."""
    known, unknown = embeddings(train, noise), embeddings(test, noise)
    labels, names = train.concept_labels, train.concept_names
    bank = ConceptBank.fit(known, labels, names, method="mean", n_pos=40, n_neg=40)
    theirs, ours = (
        (each @ bank.cavs.T + bank.intercepts) / bank.norms for each in (known, unknown)
    )
    return theirs, ours, fit_logistic(theirs, train.labels)


def importances(
    noise: float, classes: Tensor | None = None
) -> tuple[nn.Linear, np.ndarray, np.ndarray, dict[str, np.ndarray]]:
    """Return a head, concept values (N, L), the classes explained (by default those predicted), and importances."""
    known, values, head = values_and_head(noise)
    explained = head(values).argmax(1) if classes is None else classes
    weights = head.weight.detach()
    weight = weights[explained]
    # The level of absent concepts.
    absent = known.masked_fill(train.concept_labels > 0, torch.nan).nanmean(0)
    by = {
        "weight": weight,
        "value": values,
        "contribution": weight * values,
        "effect": (weight - weights.mean(0)) * (values - absent),
    }
    arrays = {name: importance.numpy() for name, importance in by.items()}
    return head, values.numpy(), explained.numpy(), arrays


def trained_bottleneck(steps: int, noise: float = 8) -> BottleneckCBM:
    """Return a concept model with sigmoids that was trained for so many steps."""
    given, truth = embeddings(train, noise), train.concept_labels.float()
    torch.manual_seed(0)
    layer = nn.Linear(D, L)
    optimiser = torch.optim.Adam(layer.parameters(), lr=0.01)
    for _ in range(steps):
        optimiser.zero_grad()
        nn.functional.binary_cross_entropy_with_logits(layer(given), truth).backward()
        optimiser.step()
    return BottleneckCBM(nn.Identity(), layer, nn.Linear(L, 10))


def score_images(name: str, noise: float) -> pd.DataFrame:
    """Return the scores of a model that sees birds through so much noise, with a row for each test image."""
    names = train.concept_names
    model = PostHocCBM.fit(
        nn.Identity(), batches(train, noise), names=names, n_pos=80, n_neg=80
    )
    return score_concepts(
        {name: model},
        batches(test, noise),
        UsualMetrics(top_l=[1]),
        class_concepts=test.class_concepts,
        per_image=True,
    )


def plot_by_noise(
    noises: Sequence[float],
    lines: Mapping[str, Sequence[float]],
    bands: Mapping[str, tuple[Sequence[float] | float, Sequence[float] | float]],
    ylabel: str,
    chance: float | None = None,
) -> Axes:
    """Draw scores over the noise in the embedding, ranges of baselines as bands, and chance as a dashed line."""
    places = range(len(noises))
    _, ax = plt.subplots(figsize=(8, 3.4))
    colours = {
        name: ax.plot(places, values, "o-", label=name)[0].get_color()
        for name, values in lines.items()
    }
    for name, ends in bands.items():
        colour, label = (colours[name], None) if name in colours else ("0.6", name)
        low, high = (torch.as_tensor(end).expand(len(noises)) for end in ends)
        ax.fill_between(
            places, low, high, color=colour, alpha=0.25, linewidth=0, label=label
        )
    if chance is not None:
        ax.axhline(chance, color="#777777", linestyle="--", label="chance")
    ax.set(
        xticks=places,
        xticklabels=noises,
        xlabel="noise in the embedding",
        ylabel=ylabel,
    )
    ax.legend(frameon=False, loc="center left", bbox_to_anchor=(1, 0.5))
    return ax
