"""From concept attributions to the records of the result table."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple

import torch
from torch import Tensor

from quantus_concepts.functional import idr, iir, mcs, perturbation, random_masks
from quantus_concepts.studies.attribution.collect import Attributed
from quantus_concepts.studies.attribution.results import Record, mean_record

#: Subjects of the absolute benchmark: which model is explained on which images.
OBJECT_MODEL, SCENE_MODEL, SCENE_MODEL_BARE = "f_o on X_os", "f_s on X_os", "f_s on X_0s"
BARE_MODEL, BARE_MODEL_PATCHED = "f_0 on X_0s", "f_0 on patched X_0s"
CHANCE_IDR = 0.5


class Defined(NamedTuple):
    """Which images enter which metric."""

    contrast: Tensor
    dependence: Tensor
    independence: Tensor
    converged: Tensor


def score_records(
    attributed: Mapping[str, Attributed], defined: Defined, *, threshold: float, seed: int
) -> list[Record]:
    """Return MCS with its baseline, IDR, IIR and average perturbation of every method."""
    records = []
    for method, found in attributed.items():
        inside, elsewhere = found.inside, found.elsewhere
        baseline = mean_record(
            only(mcs(elsewhere[OBJECT_MODEL], elsewhere[SCENE_MODEL]), defined.contrast),
            method=method,
            metric="MCS baseline",
            seed=seed,
        )
        contrast = only(mcs(inside[OBJECT_MODEL], inside[SCENE_MODEL]), defined.contrast)
        dependence = only(idr(inside[SCENE_MODEL], inside[SCENE_MODEL_BARE]), defined.dependence)
        before, after = inside[BARE_MODEL], inside[BARE_MODEL_PATCHED]
        patched = defined.independence & defined.converged
        unconverged = int((~defined.converged).sum())
        records += [
            mean_record(contrast, method=method, metric="MCS", reference=baseline.value, seed=seed),
            baseline,
            mean_record(dependence, method=method, metric="IDR", reference=CHANCE_IDR, seed=seed),
            mean_record(
                only(iir(before, after, threshold), patched),
                method=method,
                metric="IIR",
                unconverged=unconverged,
                seed=seed,
            ),
            mean_record(
                only(perturbation(before, after), patched),
                method=method,
                metric="perturbation",
                unconverged=unconverged,
                seed=seed,
            ),
        ]
    return records


def only(scores: Tensor, chosen: Tensor) -> Tensor:
    """Return scores (N,), NaN where an image does not enter."""
    return scores.masked_fill(~chosen, torch.nan)


def random_regions(masks: Callable[[list[int]], Tensor], count: int, seed: int) -> Callable[[list[int]], Tensor]:
    """Return the regions moved to random places, each by its own draw: the baseline of MCS."""
    seeds = torch.randint(2**62, (count,), generator=torch.Generator().manual_seed(seed)).tolist()

    def moved(rows: list[int]) -> Tensor:
        regions = masks(rows)
        generators = (torch.Generator().manual_seed(seeds[row]) for row in rows)
        return torch.cat([random_masks(region[None], own) for region, own in zip(regions, generators, strict=True)])

    return moved
