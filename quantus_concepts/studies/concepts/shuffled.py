"""The second baseline of the CGIM correlation: banks fitted to the true labels of shuffled images."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor

from captum_concepts.backbones.embedding import Embeddings
from captum_concepts.models.cbm import PostHocCBM
from quantus_concepts.functional import baseline_range
from quantus_concepts.metrics import CGIM, concept_state
from quantus_concepts.metrics.concepts.names import SHUFFLED_IMAGES
from quantus_concepts.metrics.host.metric import nanmean
from quantus_concepts.metrics.host.rows import Row


def shuffled_rows(
    train: Embeddings,
    test: tuple[Tensor, Tensor],
    class_concepts: np.ndarray,
    fit: Callable[[Embeddings, int], PostHocCBM],
    *,
    n_banks: int,
    seed: int,
) -> list[Row]:
    """Return the range of the CGIM correlation of models that are fitted as the model is, to images that say nothing.

    The embeddings of the training images change places, and their labels stay: heads and directions then know which
    concepts go with which class, as any fitted model does, and nothing about an image. `test` are embeddings (N, d) and
    classes (N,); `fit` makes a model without a backbone of training embeddings, with a number as seed.
    """
    generator = torch.Generator().manual_seed(seed)
    models = {}
    for number in range(n_banks):
        order = torch.randperm(len(train.features), generator=generator).to(train.features.device)
        models[str(number)] = fit(train._replace(features=train.features[order]), number)
    usual = CGIM(class_concepts, centred=True, importance="effect")
    metrics = [usual, usual.vary(importance="value", only_correct=False)]
    state = concept_state(models, [test], metrics, baselines=False, controls=None)
    drawn: dict[tuple[str, str], list[float]] = {}
    for _, own in state.models:
        for _, fields, result in own.results():
            drawn.setdefault((fields["explanation"], fields.get("set", "all")), []).append(nanmean(result.scores))
    rows = []
    for (explanation, of_set), values in drawn.items():
        low, high = baseline_range(values)
        row = usual.fields() | {"explanation": explanation, "set": of_set, "baseline": SHUFFLED_IMAGES}
        rows.append(row | {"value": nanmean(values), "low": low, "high": high, "n": len(values)})
    return rows
