"""Explanations of all methods inside the objects' regions, kept for a run that goes on."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from quantus_concepts.metrics import RegionAttributions, Subject, attribute_regions
from quantus_concepts.studies._kit.kept import Kept
from quantus_concepts.studies._kit.run import Run
from quantus_concepts.studies.attribution.model_training import N_COMPARED
from quantus_concepts.studies.attribution.options import AttributionOptions

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
        "model": subject.model,
        "labels": subject.labels,
        "images": subject.batch(list(range(min(N_COMPARED, len(subject))))),
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
