"""Concept AUC: does a value rank the images that show its concept above those that do not?"""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

from captum_concepts.support.checks import check_axes
from captum_concepts.support.running import widest_float
from quantus_concepts.functional.arguments import Numbers, as_tensor, check_zero_one, to_class_tensor, to_floats

#: So many values are ranked at a time.
_AT_ONCE = 2**17


@torch.no_grad()
def concept_auc(values: Numbers, concepts: Numbers, classes: Numbers | None = None) -> Tensor:
    """Return how often an image that shows a concept has a higher value than one that does not: the area under ROC.

    Of all pairs of an image with the concept and one without it, the share in which the first has the higher value;
    equal values count a half (Mann and Whitney). It needs no threshold and no calibration: 1 is best, .5 is chance, 0
    is a concept whose sign is turned, and an increasing change of the values changes nothing.

    Parameters
    ----------
    values : array_like
        (N, L) concept values, or those of several models (..., N, L).
    concepts : array_like
        (N, L) of 0/1, the true concepts.
    classes : array_like, optional
        (N,) of int: only pairs of images of one class count. Within the *predicted* classes a model that recites the
        concepts of the class it predicts has .5 exactly.

    Returns
    -------
    Tensor
        (L,) or (..., L), on the device of `values`; NaN for a concept that all images show or none (in every class),
        or of which a value is NaN.

    Raises
    ------
    ValueError
        If shapes do not match, or concepts are not 0/1.

    Examples
    --------
    >>> from quantus_concepts.functional import concept_auc
    >>> values, concepts = [[0.1], [0.4], [0.4], [0.8]], [[0], [0], [1], [1]]
    >>> concept_auc(values, concepts).tolist()  # three pairs are right, one is equal
    [0.875]
    >>> concept_auc(values, concepts, classes=[0, 0, 0, 1]).tolist()
    [0.75]
    """
    return concept_aucs(values, concepts, classes)[-1]


def concept_aucs(values: Numbers, concepts: Numbers, classes: Numbers | None) -> list[Tensor]:
    """Return `concept_auc` of all pairs and, with classes, of those within classes: values are sorted once."""
    values, shown, _ = checked_values(values, concepts)
    members, n_classes = (None, 0) if classes is None else class_members(classes, shown)
    found = []
    for part in concepts_at_once(values):
        own, here = values[..., part, :].contiguous(), shown[part]
        places, ranks = ranked(own)
        pairs = [pairs_won(ranks, here)]
        if members is not None:
            won, with_it, without = pairs_won_by_class(places, here, members, n_classes)
            pairs.append((won.sum(-1), (with_it * without).sum(-1)))
        found.append([share_won(*of).masked_fill(own.isnan().any(-1), torch.nan) for of in pairs])
    nothing = [values.new_empty(values.shape[:-1], dtype=widest_float(values.device))] * (1 + (members is not None))
    return [torch.cat(of, -1) for of in zip(*found, strict=True)] or nothing


def checked_values(values: Numbers, concepts: Numbers) -> tuple[Tensor, Tensor, int]:
    """Return values (..., L, N), whether concepts are shown (L, N), and N."""
    values, shown = to_floats("values", values), as_tensor("concepts", concepts)
    check_axes(values=(values, "... N L"), concepts=(shown, "N L"))
    check_zero_one("concepts", shown)
    return values.mT, (shown > 0).to(values.device).mT, len(shown)


def concepts_at_once(values: Tensor) -> Iterator[slice]:
    """Yield some concepts after others of values (..., L, N), so that what is made of them stays small."""
    n_concepts = values.shape[-2]
    size = max(1, _AT_ONCE * n_concepts // max(1, values.numel()))
    return (slice(start, start + size) for start in range(0, n_concepts, size))


def class_members(classes: Numbers, shown: Tensor) -> tuple[Tensor, int]:
    """Return classes (N,) counted from 0, and how many there are."""
    labels = to_class_tensor("classes", classes)
    check_axes(classes=(labels, f"{shown.shape[1]}"))
    members: Tensor = labels.to(shown.device).unique(return_inverse=True)[1]
    return members, int(members.max()) + 1 if len(members) else 0


def ranked(values: Tensor) -> tuple[Tensor, Tensor]:
    """Return how many values along the last axis are smaller, and twice the mean rank from 1: whole numbers."""
    # From one sort: searching in it for each value took three times as long.
    ordered, place = values.sort(-1)
    starts = torch.ones_like(place, dtype=torch.bool)
    starts[..., 1:] = ordered[..., 1:] != ordered[..., :-1]
    number = torch.arange(values.shape[-1], device=values.device)
    smaller = torch.where(starts, number, 0).cummax(-1).values
    # The last of each run of equal values is the one before the next start.
    larger = torch.where(starts.roll(-1, -1), number.flip(0), 0).flip(-1).cummax(-1).values.flip(-1)
    ranks = smaller - larger + (values.shape[-1] + 1)
    return torch.empty_like(place).scatter_(-1, place, smaller), torch.empty_like(place).scatter_(-1, place, ranks)


def pairs_won(ranks: Tensor, shown: Tensor) -> tuple[Tensor, Tensor]:
    """Return twice the pairs won (..., L), ties as one, and the number of pairs (L,), of twice the mean ranks."""
    count = shown.sum(1)
    won = (ranks * shown).sum(-1) - count * (count + 1)
    return won, count * (shown.shape[1] - count)


def others_below(places: Tensor, ranks: Tensor, shown: Tensor) -> Tensor:
    """Return twice how many images of the other side lie below each (L, N), ties as one."""
    n = shown.shape[1]
    return ranks - ranked(places + n * shown)[1] + 2 * torch.where(shown, n - shown.sum(1, keepdim=True), 0)


def pairs_won_by_class(places: Tensor, shown: Tensor, members: Tensor, n_classes: int) -> tuple[Tensor, Tensor, Tensor]:
    """Return twice the pairs won within each class (..., L, K), and its images with and without the concept (L, K)."""
    size = sums_by_class(torch.ones_like(members), members, n_classes)
    start = (size.cumsum(0) - size)[members]
    ranks = ranked(places + shown.shape[1] * members)[1] - 2 * start
    with_it = sums_by_class(shown.long(), members, n_classes)
    won = sums_by_class(ranks * shown, members, n_classes) - with_it * (with_it + 1)
    return won, with_it, size - with_it


def sums_by_class(counts: Tensor, members: Tensor, n_classes: int) -> Tensor:
    """Return the sums (..., K) of whole numbers (..., N) by class."""
    sums = counts.new_zeros(*counts.shape[:-1], n_classes)
    return sums.scatter_add_(-1, members.expand(counts.shape), counts)


def share_won(won: Tensor, pairs: Tensor) -> Tensor:
    """Return the share of the pairs that are won, of twice their number; NaN without any."""
    wide = widest_float(won.device)
    return torch.where(pairs > 0, won.to(wide) / (2 * pairs.to(wide)), torch.nan)
