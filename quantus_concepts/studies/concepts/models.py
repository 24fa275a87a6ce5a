"""What the models of a seed of the concept study are fitted with."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from captum_concepts.backbones import Backbone
from captum_concepts.backbones.embedding import Embeddings
from captum_concepts.bank.bank import ConceptBank
from captum_concepts.models.cbm import PostHocCBM
from quantus_concepts.functional import baseline_range
from quantus_concepts.functional.arguments import Numbers
from quantus_concepts.metrics import CGIM, predict_concepts
from quantus_concepts.metrics.concepts.cgim import global_importance
from quantus_concepts.metrics.concepts.names import CGIM_CORRELATION, SHUFFLED_IMAGES
from quantus_concepts.metrics.host.model import ConceptModel
from quantus_concepts.metrics.host.scores import Row, nanmean
from quantus_concepts.painted.subject import (
    ORACLE,
    POST_HOC,
    RANDOM,
    TRADITIONAL,
)
from quantus_concepts.studies.concepts.command import Concepts
from quantus_concepts.studies.concepts.data import BenchmarkData
from quantus_concepts.studies.concepts.terms import values_name


def thresholds(settings: Concepts) -> dict[str, float | None]:
    """Return the value from which on a model predicts a concept; not known for raw values, which lack the intercept."""
    known = {"margin": 0.0, "raw": None}
    return {
        POST_HOC: known[settings.values],
        RANDOM: known[settings.values],
        values_name(settings.other_values): known[settings.other_values],
        TRADITIONAL: 0.5,
        ORACLE: 0.5,
    }


def fit_bank(settings: Concepts, train: Embeddings, names: Sequence[str], seed: int) -> ConceptBank:
    """Fit a concept bank to embeddings."""
    return ConceptBank.fit(
        train.features,
        train.concept_labels,
        names,
        settings.method,
        settings.n_pos,
        settings.n_neg,
        settings.C,
        seed,
        min_images=settings.min_images,
    )


@dataclass(frozen=True)
class Models:
    """The models of one seed, and what they were fitted to."""

    models: dict[str, ConceptModel]
    controls: list[PostHocCBM]
    post_hoc: PostHocCBM
    backbone: Backbone
    train_set: Embeddings
    #: The classifier of the small network, where it is trained here.
    classifier: nn.Module | None


def shuffled_rows(
    train: Embeddings,
    test: tuple[Tensor, Tensor],
    class_concepts: Numbers,
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
    metric = CGIM(class_concepts, centred=True, importance="effect")
    predicted = predict_concepts(models, [test], metric, baselines=False, random_banks=False)
    rows = []
    for explanation, only_correct in (("effect", True), ("value", False)):
        settings = {"centred": True, "only_correct": only_correct}
        values = [
            nanmean(global_importance(own, metric.class_concepts, [explanation], "concept", **settings).of_call)
            for own in predicted.values()
        ]
        low, high = baseline_range(values)
        row = {"metric": CGIM_CORRELATION, "explanation": explanation, "item_kind": "concept"}
        row |= {"set": "correct" if only_correct else "all", "baseline": SHUFFLED_IMAGES}
        rows.append(row | {"value": nanmean(values), "low": low, "high": high, "n": len(values)})
    return rows


def normalisation_text(data: BenchmarkData) -> str:
    """Say how images are normalised."""
    numbers = [", ".join(f"{number:g}" for number in part) for part in (data.mean or (), data.std or ())]
    return f"mean {numbers[0]}, deviation {numbers[1]}" if data.mean else "none"
