"""Attributions of regions made by ranges of batches, each batch what it is in one pass."""

from __future__ import annotations

import io
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from quantus_concepts.metrics import RegionAttributions, Subject, attribute_regions
from quantus_concepts.metrics.contrast.regions import ExplainFunc, Masks, batches, taken
from quantus_concepts.pasta.fingerprints import module_hash
from quantus_concepts.studies.engine import score_by_ranges
from quantus_concepts.studies.run import Run

#: Batches of a range: what is lost where a worker dies.
_BATCHES = 2


def explained_by_ranges(
    run: Run[Any],
    name: str,
    methods: Mapping[str, ExplainFunc],
    subjects: Sequence[Subject],
    masks: Masks,
    *,
    elsewhere: Mapping[Subject, Masks] | None = None,
    keep: Mapping[Subject, Sequence[int]] | None = None,
) -> dict[str, RegionAttributions]:
    """Return what `attribute_regions` does, to the bit."""
    subjects, elsewhere, keep = list(dict.fromkeys(subjects)), elsewhere or {}, keep or {}
    batch_size = run.options.batch_size
    items = [(place, rows) for place, each in enumerate(subjects) for rows in batches(len(each), batch_size)]
    regions = [_Region(each, masks, elsewhere.get(each), keep.get(each, ())) for each in subjects]
    models = {id(each.model): each.model for each in subjects}
    found = score_by_ranges(
        run,
        name,
        partial(_scorer, methods, regions, items),
        len(items),
        fingerprint=run.options.identity()
        | {
            "methods": list(methods),
            "models": [module_hash(model) for model in models.values()],
            "labels": [each.labels.tolist() for each in subjects],
        },
        shard_size=_BATCHES,
        names=[f"image {rows[0]} ... {rows[-1]} of subject {place}" for place, rows in items],
    )
    return {method: _joined(found[found["method"] == method], regions) for method in methods}


@dataclass(frozen=True)
class _Region:
    """A subject, its masks, others that are asked for, and the rows whose maps are."""

    subject: Subject
    masks: Masks
    elsewhere: Masks | None
    keep: Sequence[int]

    def explained(self, methods: Mapping[str, ExplainFunc], rows: list[int]) -> dict[str, pd.DataFrame]:
        """Return by method what is said of one batch, a row an image."""

        def of(whole: Any) -> Callable[[list[int]], Tensor]:
            return lambda some: taken(whole, [rows[place] for place in some])

        part = Subject(self.subject.model, of(self.subject.images), self.subject.labels[rows])
        kept = [place for place, row in enumerate(rows) if row in self.keep]
        found = attribute_regions(
            methods,
            [part],
            of(self.masks),
            elsewhere={} if self.elsewhere is None else {part: of(self.elsewhere)},
            keep={part: kept},
            batch_size=len(rows),
        )
        return {name: _table(each, part, rows, kept) for name, each in found.items()}


def _table(found: RegionAttributions, part: Subject, rows: list[int], kept: list[int]) -> pd.DataFrame:
    maps: dict[int, bytes] = {}
    for place, values in zip(kept, found.maps.get(part, ()), strict=False):  # of a method that failed there are none
        file = io.BytesIO()
        np.save(file, values)
        maps[place] = file.getvalue()
    inside = found.inside[part].numpy()
    others = found.elsewhere[part].numpy() if part in found.elsewhere else np.full(len(rows), np.nan)
    table = pd.DataFrame({"row": rows, "inside": inside, "elsewhere": others})
    return table.assign(map=[maps.get(place, b"") for place in range(len(rows))], failure=found.failure)


def _scorer(
    methods: Mapping[str, ExplainFunc], regions: Sequence[_Region], items: Sequence[tuple[int, list[int]]]
) -> Callable[[int, int], pd.DataFrame]:
    def explain(start: int, stop: int) -> pd.DataFrame:
        tables = [
            table.assign(method=name, subject=place)
            for place, rows in items[start:stop]
            for name, table in regions[place].explained(methods, rows).items()
        ]
        return pd.concat(tables, ignore_index=True)

    return explain


def _joined(found: pd.DataFrame, regions: Sequence[_Region]) -> RegionAttributions:
    """Return one method's attributions; a method that failed anywhere has none."""
    result = RegionAttributions(failure=next((text for text in found["failure"] if text), ""))
    if result.failure:
        found = found.assign(inside=np.nan, elsewhere=np.nan)
    for place, region in enumerate(regions):
        own = found[found["subject"] == place]
        result.inside[region.subject] = torch.tensor(own["inside"].to_numpy())
        if region.elsewhere is not None:
            result.elsewhere[region.subject] = torch.tensor(own["elsewhere"].to_numpy())
        if region.keep and not result.failure:
            maps = dict(zip(own["row"], own["map"], strict=True))
            result.maps[region.subject] = np.stack(
                [np.load(io.BytesIO(maps[row]), allow_pickle=False) for row in region.keep]
            )
    return result
