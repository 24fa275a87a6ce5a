"""Scores of single images, by which the explorer sorts them."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from captum_concepts.pictures.views import ConceptViews
from quantus_concepts.functional import cem
from quantus_concepts.functional.regions import point_hits

TOP = 3


def image_scores(
    views: ConceptViews, labels: Tensor | None, concept_labels: Tensor | None, points: Tensor | None, parts: Any
) -> dict[str, tuple[Tensor, bool]]:
    """Return the scores (N,) of the images that are known by name, and whether the lowest is the worst."""
    found: dict[str, tuple[Tensor, bool]] = {}
    ranked, logits = views.contributions, views.logits
    assert ranked is not None
    assert logits is not None
    shares = logits.softmax(1)
    if labels is not None:
        # Undefined, and so last, where the prediction is right.
        found["confidence when wrong"] = shares.amax(1).masked_fill(logits.argmax(1) == labels, torch.nan), False
    found["confidence"] = shares.amax(1), True
    if concept_labels is not None:
        top = min(TOP, ranked.shape[1])
        found[f"CEM of the first {top}"] = cem(ranked, concept_labels, top), True
        if views.threshold is not None:
            present = views.values >= views.threshold
            found["disagreement with the labels"] = (present != concept_labels.bool()).double().mean(1), False
    if points is not None and parts is not None:
        located = torch.as_tensor(parts)
        chosen = ranked.masked_fill(located < 0, -torch.inf).argmax(1)
        rows = torch.arange(len(ranked))
        size = (views.images.shape[2], views.images.shape[3])
        hits = point_hits(views.maps[rows, chosen], points[rows, located[chosen]].to(views.maps), size)
        found["CLM of the first located"] = hits[:, 0], True
    return found
