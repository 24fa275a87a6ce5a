"""Concept models scored by ranges of batches, each batch what it is in one pass."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

import pandas as pd

from quantus_concepts.metrics import ConceptRanges
from quantus_concepts.metrics.host.protocols import ConceptModel
from quantus_concepts.studies.concepts.data_option import BenchmarkData
from quantus_concepts.studies.concepts.options import ConceptOptions
from quantus_concepts.studies.engine import score_by_batches
from quantus_concepts.studies.run import Run


def scored_by_ranges(
    run: Run[ConceptOptions],
    models: Mapping[str, ConceptModel],
    data: BenchmarkData,
    seed: int,
    asked: Mapping[str, Any],
) -> pd.DataFrame:
    """Return what `score_concepts` does with these arguments, to the bit."""
    names: dict[str, Any] = {"class_names": data.class_names, "concept_names": data.concept_names}
    ranges = ConceptRanges(models, data.test, batch_size=run.options.batch_size, seed=seed, **asked, **names)
    controls = [each for drawn in asked["controls"].values() for each in drawn]
    rows = score_by_batches(
        run,
        f"concepts {seed}",
        partial(_rows, ranges),
        len(data.test),
        models=[*models.values(), *controls],
        depends={"seed": seed, "data": data.digest()},
    )
    return ranges.table(rows)


def _rows(ranges: ConceptRanges, images: range) -> pd.DataFrame:
    return ranges.rows(images.start, images.stop)
