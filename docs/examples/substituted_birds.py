"""Pictures of birds with one attribute replaced, and of the scores S+ and S- of models."""

from __future__ import annotations

from collections.abc import Mapping

import matplotlib.pyplot as plt
import pandas as pd
import torch
from torch import Tensor

from quantus_concepts.datasets import PaintedSubstitutions


def plot_pairs(pairs: PaintedSubstitutions) -> None:
    """Draw six birds before and after, with the attribute that was removed and added."""
    _, axes = plt.subplots(2, 6, figsize=(9, 3.6))
    for column, ax in zip(range(6), axes.T, strict=True):
        pair, concepts = pairs[column], (pairs.removed[column], pairs.added[column])
        for one, image, concept in zip(
            ax, (pair.before, pair.image), concepts, strict=True
        ):
            name = pairs.concept_names[concept].replace("has_", "")
            one.imshow(image.permute(1, 2, 0))
            one.set_title(name.replace("::", "\n"), fontsize=8)
            one.axis("off")


def baselines(pairs: PaintedSubstitutions) -> dict[str, Tensor]:
    """Return concept values (N, L) of an oracle, a model that recites its class, and a coin; present from 0 on."""
    shown = pairs.concept_labels
    coin = torch.rand(shown.shape, generator=torch.Generator().manual_seed(0))
    recital = pairs.class_concepts[pairs.labels]
    return {"oracle": shown - 0.5, "memoriser": recital - 0.5, "coin": coin - 0.5}


def plot_scores(
    pairs: PaintedSubstitutions, values: Mapping[str, Tensor], random: pd.DataFrame
) -> None:
    """Draw S+ and S- of concept values (N, L), over the ranges `low` to `high` of random banks."""
    rows = torch.arange(len(pairs.labels))
    _, ax = plt.subplots(figsize=(4.8, 3.8))
    for draw, metric in ((ax.axvspan, "S+"), (ax.axhspan, "S-")):
        low, high = random.loc[metric, ["low", "high"]]
        draw(low, high, color="#cccccc", alpha=0.5, linewidth=0)
    for name, u in values.items():
        seen = (u[rows, pairs.added] >= 0).float().mean()
        gone = (u[rows, pairs.removed] < 0).float().mean()
        left = seen < 0.1
        ax.plot(seen, gone, "o", markersize=9)
        place = {"xytext": (8 if left else -8, 6), "ha": "left" if left else "right"}
        ax.annotate(name, (seen, gone), textcoords="offset points", **place)
    ax.set(xlabel="S+: what was put in is seen", ylabel="S-: what is gone is not seen")
    ax.set(xlim=(-0.05, 1.05), ylim=(-0.05, 1.1))
