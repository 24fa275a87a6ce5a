"""The gallery of the report, as the paper's Figure 4: images, their first concepts, and the class."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from matplotlib.figure import Figure
from torch import Tensor

from captum_concepts._support.running import alone_with, to_model
from captum_concepts._support.visualise import gallery
from captum_concepts.models.cbm import PostHocCBM
from quantus_concepts.datasets.base import ConceptDataset
from quantus_concepts.functional import rank_concepts
from quantus_concepts.metrics.host.model import concept_importance, concept_outputs
from quantus_concepts.studies._models.loading import collate


def draw_gallery(
    model: PostHocCBM,
    data: ConceptDataset,
    predicted: np.ndarray,
    *,
    n_images: int = 5,
    n_wrong: int = 2,
    n_concepts: int = 4,
    mean: Sequence[float] | None = None,
    std: Sequence[float] | None = None,
    seed: int = 0,
) -> Figure:
    """Draw some images with the concepts ranked first by contribution to the predicted class."""
    labels = data.labels.numpy()
    right, wrong = (np.flatnonzero(chosen) for chosen in (labels == predicted, labels != predicted))
    rows_right = _different_classes(labels, right, n_images, seed)
    rows_wrong = _different_classes(labels, wrong, n_wrong + n_images - len(rows_right), seed)
    samples = [data[index] for index in rows_right + rows_wrong]
    batch = collate(samples)
    outputs = concept_outputs(model, batch.image)
    guessed = outputs.logits.argmax(1)
    weight = concept_importance(model, outputs.values, guessed, "weight")
    contribution = weight * outputs.values
    ranked = rank_concepts(contribution, min(n_concepts, len(data.concept_names)))
    with torch.no_grad(), alone_with(model):
        features = model.features(to_model(model, batch.image))
        maps = model.maps_from_features(features, ranked)
        # The class's evidence is the weighted sum of the concepts', in the scale the values have.
        scale = model.bank.norms if model.values == "margin" else torch.ones_like(model.bank.norms)
        class_maps = torch.einsum("nl,nlhw->nhw", weight / scale, model.maps_from_features(features))
    rows = ranked.cpu()
    # A float image may be a hair outside [0, 1] after the normalisation is undone.
    pictures = _undo(batch.image, mean, std).clamp(0, 1)
    figure, _ = gallery(
        pictures,
        maps.cpu(),
        [[_readable(data.concept_names[j]) for j in row] for row in rows.tolist()],
        batch.concepts.gather(1, rows) > 0.5,
        class_maps.cpu(),
        [_title(data, sample.label, int(guess)) for sample, guess in zip(samples, guessed, strict=True)],
        absent=outputs.values.gather(1, ranked) < 0,
        contributions=contribution.gather(1, ranked),
    )
    return figure


def _different_classes(labels: np.ndarray, images: np.ndarray, count: int, seed: int) -> list[int]:
    order = np.random.default_rng(seed).permutation(images)
    seen: dict[int, list[int]] = {}
    for index in order.tolist():
        seen.setdefault(int(labels[index]), []).append(index)
    # First one image of each class, then the second ones, and so on.
    rounds = max((len(members) for members in seen.values()), default=0)
    mixed = [members[turn] for turn in range(rounds) for members in seen.values() if turn < len(members)]
    return mixed[:count]


def _readable(name: str) -> str:
    """Write a concept as a thing one can see or not: "no bill shape: cone" for CUB's has_bill_shape::cone."""
    return name.removeprefix("has_").replace("::", ": ")


def _title(data: ConceptDataset, label: int, guess: int) -> str:
    verdict = "" if guess == label else "WRONG\n"
    return f"{verdict}true: {data.class_names[label]}\npredicted: {data.class_names[guess]}"


def _undo(images: Tensor, mean: Sequence[float] | None, std: Sequence[float] | None) -> Tensor:
    if mean is None or std is None:
        return images
    shape = (1, -1, 1, 1)
    return images * torch.tensor(std).view(shape) + torch.tensor(mean).view(shape)
