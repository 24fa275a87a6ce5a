"""Explanations of all methods inside the objects' regions, here or by ranges on workers."""

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

from captum_concepts._support.fingerprints import module_hash
from quantus_concepts.metrics import RegionAttributions, Subject, attribute_regions
from quantus_concepts.metrics.contrast.regions import ExplainFunc, Masks, batches, taken
from quantus_concepts.metrics.ray_workers import LOCAL
from quantus_concepts.studies._kit.engine import score_by_ranges
from quantus_concepts.studies._kit.kept import Kept
from quantus_concepts.studies._kit.run import Run
from quantus_concepts.studies.attribution.model_training import N_COMPARED, tensor_hash
from quantus_concepts.studies.attribution.options import AttributionOptions

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


Methods = Mapping[str, Callable[..., np.ndarray]]
#: What a method's explanation depends on, beside its name and the images.
SETTINGS = ("n_samples", "n_steps", "noise", "batch_size", "seed", "layer")


def explain_subjects(
    run: Run[AttributionOptions],
    methods: Methods,
    subjects: Mapping[str, Subject],
    masks: Any,
    elsewhere: Mapping[Subject, Any] | None = None,
    keep: Mapping[Subject, Sequence[int]] | None = None,
    after_each: Callable[[dict[str, RegionAttributions]], object] = lambda found: None,
) -> dict[str, RegionAttributions]:
    """Return what `attribute_regions` gives of named subjects, each kept as it is done; call `after_each`."""
    others, shown = elsewhere or {}, keep or {}
    if run.options.engine != LOCAL:
        name, several = next(iter(subjects)), list(subjects.values())
        return explained_by_ranges(run, name, methods, several, masks, elsewhere=others, keep=shown)
    found = {name: RegionAttributions() for name in methods}
    for called, subject in subjects.items():
        own, rows = {key: others[key] for key in others if key is subject}, list(shown.get(subject, ()))
        settings = _settings(run.options, subject, methods, rows, bool(own))
        files = Kept(run.folder.kept, f"explanations of {called}", settings)
        if (tensors := files.load()) is None:
            tensors = _explained(run.options, methods, subject, masks, own, rows)
            files.save(tensors)
        _add(found, tensors, subject)
        after_each(found)
    return {name: _undefined(subjects, others, each.failure) if each.failure else each for name, each in found.items()}


def model_hash(subject: Subject) -> str:
    """Return what tells the model of a subject from another."""
    return tensor_hash(*subject.model.state_dict().values())


def _explained(
    options: AttributionOptions,
    methods: Methods,
    subject: Subject,
    masks: Any,
    elsewhere: Mapping[Subject, Any],
    shown: Sequence[int],
) -> dict[str, Tensor]:
    found = attribute_regions(
        methods,
        [subject],
        masks,
        elsewhere=elsewhere,
        keep={subject: shown},
        batch_size=options.batch_size,
        display_progressbar=options.progress,
    )
    return _tensors(found, subject)


def _settings(
    options: AttributionOptions, subject: Subject, methods: Methods, shown: Sequence[int], elsewhere: bool
) -> dict[str, Any]:
    return {name: getattr(options, name) for name in SETTINGS} | {
        "methods": list(methods),
        "model": model_hash(subject),
        "labels": tensor_hash(subject.labels),
        "images": tensor_hash(subject.batch(list(range(min(N_COMPARED, len(subject)))))),
        "shown": list(shown),
        "elsewhere": elsewhere,
        "device": str(options.torch_device()),
    }


def _tensors(found: Mapping[str, RegionAttributions], subject: Subject) -> dict[str, Tensor]:
    tensors = {}
    for name, each in found.items():
        tensors[f"{name}: failure"] = torch.tensor(list(each.failure.encode()), dtype=torch.uint8)
        tensors[f"{name}: inside"] = each.inside[subject]
        if subject in each.elsewhere:
            tensors[f"{name}: elsewhere"] = each.elsewhere[subject]
        if subject in each.maps:
            tensors[f"{name}: maps"] = torch.from_numpy(np.ascontiguousarray(each.maps[subject]))
    return tensors


def _add(found: Mapping[str, RegionAttributions], tensors: Mapping[str, Tensor], subject: Subject) -> None:
    for name, each in found.items():
        # A method that fails for one subject may do so for others.
        each.failure = each.failure or bytes(tensors[f"{name}: failure"].tolist()).decode()
        each.inside[subject] = tensors[f"{name}: inside"]
        if f"{name}: elsewhere" in tensors:
            each.elsewhere[subject] = tensors[f"{name}: elsewhere"]
        if f"{name}: maps" in tensors:
            each.maps[subject] = tensors[f"{name}: maps"].numpy()


def _undefined(subjects: Mapping[str, Subject], elsewhere: Mapping[Subject, Any], reason: str) -> RegionAttributions:
    """Return NaN throughout: a method that fails once has no number of any subject."""
    nothing = {subject: torch.full((len(subject),), torch.nan).double() for subject in subjects.values()}
    return RegionAttributions(nothing, {subject: nothing[subject] for subject in elsewhere}, {}, reason)
