"""Rows that need no classes: stability of the concepts, the variance that they explain, and monosemanticity."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator

import torch
from torch import Tensor

from captum_concepts.support.running import progress
from quantus_concepts.functional.discovered.bank_stability import bank_stability
from quantus_concepts.functional.discovered.explained_variance import explained_variance, orthonormal_basis, unit_rows
from quantus_concepts.functional.discovered.monosemanticity import mean_likeness, monosemanticity
from quantus_concepts.functional.statistics.intervals import baseline_range
from quantus_concepts.metrics.discovered.rows import (
    ALIKE,
    BEST,
    COMPONENTS,
    EXPLAINED,
    HALVES,
    RANDOM_DIRECTIONS,
    SEEDS,
    Data,
    draw_rows,
    make_row,
    principal_components,
    ratio_interval,
)

#: Places of maps (n, d) and a seed to directions (L, d).
Discovery = Callable[[Tensor, int], Tensor]


def stability_rows(
    data: Data,
    cavs: Tensor,
    discover: Discovery | None,
    least: int,
    banks: dict[str, list[Tensor]],
    n_splits: int,
    show: bool,
) -> Iterator[dict[str, object]]:
    """Yield the stability of the bank, of its concepts and of random banks."""
    n_images, n = len(data.embeddings), len(cavs)
    reason = ""
    if discover is None:
        reason = "how the bank was discovered is not known: pass `discover`"
    elif n_images < 2:
        reason = "there are no two halves of one image"
    if discover is None or reason:
        yield from (make_row(metric, [math.nan] * n, reason=reason) for metric in (HALVES, SEEDS))
        return
    halves: list[Tensor] = []
    for split in range(n_splits):
        first = torch.randperm(n_images, generator=data.generator(2, split))[: n_images // 2]
        halves.append(torch.isin(data.owners, first))
    if min(int(side.sum()) for half in halves for side in (half, ~half)) < least:
        reason = "a half of the images has fewer places than there are concepts"
        yield from (make_row(metric, [math.nan] * n, reason=reason) for metric in (HALVES, SEEDS))
        return
    found: dict[str, list[Tensor]] = {HALVES: [], SEEDS: []}
    for split in progress(range(n_splits), "Discovering again", show=show):
        one, two = (discover(data.places[rows], data.seed) for rows in (halves[split], ~halves[split]))
        found[HALVES].append(bank_stability(cavs, one, two))
        found[SEEDS].append(bank_stability(cavs, cavs, discover(data.places, data.seed + 1 + split)))
    why = "a direction has length 0"
    for metric, splits in found.items():
        of_concepts = torch.stack(splits)
        yield make_row(metric, of_concepts.nanmean(0), ends=baseline_range(of_concepts.nanmean(1)), reason=why)
        draws = {
            name: torch.stack([_random_stability(data, name, i, halves, metric, cavs) for i in range(len(banks[name]))])
            for name in banks
        }
        for name, cosines in draws.items():
            yield make_row(metric, cosines.nanmean(1), name, reason=why)
        if metric == HALVES:
            for item, column in zip(data.names, of_concepts.T, strict=True):
                yield make_row(metric, column, ends=baseline_range(column), item=item, reason=why)
            for name, cosines in draws.items():
                yield make_row(metric, cosines.nan_to_num(-1).amax(1), name, item=BEST)


def _random_stability(data: Data, kind: str, number: int, halves: list[Tensor], metric: str, cavs: Tensor) -> Tensor:
    """Return the stability of a random bank, its other discoveries being random banks of the same kind."""
    half = halves[number % len(halves)]
    sources: tuple[Tensor, ...] = (data.places, data.places[half], data.places[~half])
    if metric == SEEDS:
        sources = (data.places,) * 2
    generator = data.generator(3, number)
    draws = [
        torch.randn(cavs.shape, generator=generator)
        if kind == RANDOM_DIRECTIONS
        else draw_rows(rows, len(cavs), generator)
        for rows in sources
    ]
    return bank_stability(draws[0], draws[0 if metric == SEEDS else 1], draws[-1])


def explained_rows(data: Data, cavs: Tensor, banks: dict[str, list[Tensor]]) -> list[dict[str, object]]:
    """Return the variance that the bank, random banks and principal components explain."""
    why = "the activations do not vary"
    chance = min(1.0, len(orthonormal_basis(cavs).T) / cavs.shape[1])
    value = explained_variance(data.activations, cavs)
    rows = [make_row(EXPLAINED, [value.item()], ends=_explained_interval(data, cavs), chance=chance, reason=why)]
    for name, draws in banks.items():
        shares = [explained_variance(data.activations, draw).item() for draw in draws]
        rows.append(make_row(EXPLAINED, shares, name, reason=why))
    best = explained_variance(data.activations, principal_components(data.activations, len(cavs))).item()
    return [*rows, make_row(EXPLAINED, [best], COMPONENTS, (math.nan, math.nan), reason=why)]


def likeness_rows(
    data: Data, cavs: Tensor, banks: dict[str, list[Tensor]], others: Tensor | None
) -> Iterator[dict[str, object]]:
    """Yield the monosemanticity of the bank, of its concepts and of random banks, in embeddings of another network."""
    if others is None:
        return

    def scores(directions: Tensor) -> Tensor:
        return monosemanticity(data.embeddings @ unit_rows(directions).T, others)

    own, chance, why = scores(cavs), mean_likeness(others), "fewer than two images are above a concept's smallest value"
    drawn = {name: torch.stack([scores(draw) for draw in draws]) for name, draws in banks.items()}
    none = (math.nan, math.nan)
    yield make_row(ALIKE, own, ends=none, chance=chance, reason=why)
    for name, of_banks in drawn.items():
        yield make_row(ALIKE, of_banks.nanmean(1), name, chance=chance, reason=why)
    for item, score in zip(data.names, own, strict=True):
        yield make_row(ALIKE, score, ends=none, item=item, chance=chance, reason=why)
    for name, of_banks in drawn.items():
        yield make_row(ALIKE, of_banks.nan_to_num(-1).amax(1), name, item=BEST)


def _explained_interval(data: Data, cavs: Tensor) -> tuple[float, float]:
    """Return the interval of the explained variance over images."""
    centred = data.activations - data.activations.mean(0)
    inside = (centred @ orthonormal_basis(cavs)).square().sum(1).double()
    total = centred.square().sum(1).double()
    sums = torch.zeros(2, len(data.embeddings), dtype=torch.float64)
    for row, values in zip(sums, (inside, total), strict=True):
        row.index_add_(0, data.owners if data.of_places else torch.arange(len(row)), values)
    # Linearised scores may leave [0, 1]; their mean does not.
    low, high = ratio_interval(sums[0], sums[1], None)
    return max(0.0, low), min(1.0, high)
