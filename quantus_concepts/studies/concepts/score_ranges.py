"""Concept models scored by ranges of batches, each batch what it is in one pass."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import pandas as pd
import torch
from torch import Tensor
from torch.utils.data import Subset

from quantus_concepts.datasets.base import ConceptDataset
from quantus_concepts.metrics.concept_scoring import ConceptScoring
from quantus_concepts.metrics.intervening import in_every_order
from quantus_concepts.metrics.location_baselines import EarlierPoints
from quantus_concepts.metrics.protocols import ConceptModel
from quantus_concepts.pasta.fingerprints import module_hash
from quantus_concepts.studies.concepts.data_option import BenchmarkData
from quantus_concepts.studies.concepts.options import ConceptOptions
from quantus_concepts.studies.engine import score_by_ranges
from quantus_concepts.studies.loading import sample_loader
from quantus_concepts.studies.run import Run

#: Batches of a range: what is lost where a worker dies.
_BATCHES = 2


def scored_by_ranges(
    run: Run[ConceptOptions],
    models: Mapping[str, ConceptModel],
    data: BenchmarkData,
    seed: int,
    asked: Mapping[str, Any],
) -> pd.DataFrame:
    """Return what `score_concepts` does with these arguments, to the bit."""
    asked = {**asked, "interventions": in_every_order(asked.get("interventions", ()), seed)}
    size, n_images = run.options.batch_size, len(data.test)
    starts = range(0, n_images, size)
    controls = [each for drawn in asked["controls"].values() for each in drawn]
    rows = score_by_ranges(
        run,
        f"concepts {seed}",
        partial(_scorer, models, data.test, size, seed, asked),
        len(starts),
        fingerprint=run.options.identity()
        | {"seed": seed, "data": data.digest()}
        | {"models": [module_hash(each) for each in (*models.values(), *controls)]},
        shard_size=_BATCHES,
        names=[f"image {start} ... {min(start + size, n_images) - 1}" for start in starts],
    )
    scoring = ConceptScoring(models, **asked)
    scoring.take(rows, size)
    return scoring.table(data.class_names, data.concept_names)


def _scorer(
    models: Mapping[str, ConceptModel], dataset: ConceptDataset, size: int, seed: int, asked: Mapping[str, Any]
) -> Callable[[int, int], pd.DataFrame]:
    def points_of(images: Sequence[int]) -> Tensor:
        return torch.stack([dataset[image].points for image in images])

    def score(start: int, stop: int) -> pd.DataFrame:
        first = start * size
        images = range(first, min(stop * size, len(dataset)))
        scoring = ConceptScoring(models, **asked, start=first, record=True)
        scoring.run(sample_loader(Subset(dataset, images), size), {}, EarlierPoints(seed, first, points_of))
        return scoring.rows()

    return score
