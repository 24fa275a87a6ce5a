"""Concept models scored by ranges of batches, each batch what it is in one pass."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
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
from quantus_concepts.studies.concepts.data_option import BenchmarkData
from quantus_concepts.studies.concepts.options import ConceptOptions
from quantus_concepts.studies.engine import score_by_batches
from quantus_concepts.studies.loading import sample_loader
from quantus_concepts.studies.run import Run


def scored_by_ranges(
    run: Run[ConceptOptions],
    models: Mapping[str, ConceptModel],
    data: BenchmarkData,
    seed: int,
    asked: Mapping[str, Any],
) -> pd.DataFrame:
    """Return what `score_concepts` does with these arguments, to the bit."""
    asked = {**asked, "interventions": in_every_order(asked.get("interventions", ()), seed)}
    size = run.options.batch_size
    controls = [each for drawn in asked["controls"].values() for each in drawn]
    rows = score_by_batches(
        run,
        f"concepts {seed}",
        partial(_rows, models, data.test, size, seed, asked),
        len(data.test),
        models=[*models.values(), *controls],
        depends={"seed": seed, "data": data.digest()},
    )
    scoring = ConceptScoring(models, **asked)
    scoring.take(rows, size)
    return scoring.table(data.class_names, data.concept_names)


def _rows(
    models: Mapping[str, ConceptModel],
    dataset: ConceptDataset,
    size: int,
    seed: int,
    asked: Mapping[str, Any],
    images: range,
) -> pd.DataFrame:
    def points_of(images: Sequence[int]) -> Tensor:
        return torch.stack([dataset[image].points for image in images])

    first = images.start
    scoring = ConceptScoring(models, **asked, start=first, record=True)
    scoring.run(sample_loader(Subset(dataset, images), size), {}, EarlierPoints(seed, first, points_of))
    return scoring.rows()
