"""Concept models scored on substitutions: in one pass, or by ranges of batches, each batch what it is in one pass."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
import pandas as pd
import torch
from torch.utils.data import DataLoader, Subset

from quantus_concepts.metrics import score_substitutions
from quantus_concepts.metrics.host.protocols import ConceptModel
from quantus_concepts.metrics.ray_workers import RAY
from quantus_concepts.metrics.streaming.rows import bound_pairs, bound_substitutions
from quantus_concepts.metrics.streaming.run import SubstitutionScoring
from quantus_concepts.studies.engine import score_by_batches
from quantus_concepts.studies.run import Run
from quantus_concepts.studies.substitution.names import RANDOM
from quantus_concepts.studies.substitution.options import SubstitutionOptions


def in_order(data: Any, batch_size: int) -> DataLoader[Any]:
    """Return batches of images with a substitution."""
    # Of SUB a row group of the files is in memory at a time.
    return DataLoader(data, batch_size, generator=torch.Generator())


def scored(
    run: Run[SubstitutionOptions],
    said: str,
    models: Mapping[str, ConceptModel],
    random: Sequence[ConceptModel],
    data: Any,
    seen: DataLoader[Any],
    threshold: Mapping[str, float],
) -> pd.DataFrame:
    """Score models and random ones, in this process or by the workers of a cluster."""
    asked: dict[str, Any] = {"threshold": threshold, "controls": {RANDOM: random}}
    if run.options.engine == RAY:
        return scored_by_ranges(run, said, models, data, seen, asked)
    pairs = in_order(data, run.options.batch_size)
    return score_substitutions(models, pairs, **asked, seen=seen, display_progressbar=run.progress)


def scored_by_ranges(
    run: Run[SubstitutionOptions],
    said: str,
    models: Mapping[str, ConceptModel],
    data: Any,
    seen: DataLoader[Any],
    asked: Mapping[str, Any],
) -> pd.DataFrame:
    """Return what `score_substitutions` does with these arguments, to the bit; `seen` is gone through here."""
    bound = bound_substitutions(data.added, data.removed, data.labels)
    content = hashlib.sha256(b"".join(each.tobytes() for each in bound.values() if each is not None))
    asked = {"class_concepts": data.class_concepts, **asked}
    controls = [each for drawn in asked["controls"].values() for each in drawn]
    rows = score_by_batches(
        run,
        f"substitutions {said}",
        partial(_rows, models, data, bound, run.options.batch_size, asked),
        len(data),
        models=[*models.values(), *controls],
        depends={"said": said, "data": content.hexdigest()},
    )
    scoring = SubstitutionScoring(models, **asked)
    scoring.take(rows)
    about = scoring.about(bound_pairs(data.pairs), data.class_names, data.concept_names)
    return scoring.table(about, seen, run.progress)


def _rows(
    models: Mapping[str, ConceptModel],
    data: Any,
    bound: Mapping[str, np.ndarray | None],
    size: int,
    asked: Mapping[str, Any],
    images: range,
) -> pd.DataFrame:
    own = {name: None if each is None else each[images.start : images.stop] for name, each in bound.items()}
    scoring = SubstitutionScoring(models, **asked)
    scoring.run(in_order(Subset(data, images), size), own, display_progressbar=False)
    return scoring.rows()
