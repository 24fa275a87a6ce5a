"""Leakage: what concept values say about the class, or about other concepts, beyond what the concept itself says."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

import torch
from torch import Tensor

from captum_concepts.support.checks import check_axes, check_finite, check_whole
from captum_concepts.support.running import widest_float
from captum_concepts.texts import in_one_line
from quantus_concepts.functional.arguments import Numbers, as_tensor, check_zero_one, to_class_tensor, to_floats

#: Rounding of information in nats, which is of sums of float32.
_ROUNDING = 1e-7
#: Sides of the tables of pairs that are counted at a time, and images whose pairs are: 70 MB.
_CELLS, _IMAGES = 1024, 8192


@in_one_line
class Leakage(NamedTuple):
    """Leakage with its permutation test.

    Attributes
    ----------
    scores : Tensor
        Leakage less the mean of its null distribution, 0 on average without leakage; it may be negative.
    p : Tensor
        The share of all draws, the observed one included, that leak as much: small if there is leakage.
    published : Tensor
        The difference of the papers, by the same estimate of information but without a null, and not clipped at 0.
    mean_p : float
        The same share for the mean over concepts, or pairs: whether there is leakage at all.
    """

    scores: Tensor
    p: Tensor
    published: Tensor
    mean_p: float


@torch.no_grad()
def concept_task_leakage(
    values: Numbers,
    classes: Numbers,
    concepts: Numbers,
    n_bins: int = 8,
    n_permutations: int = 39,
    seed: int = 0,
) -> Leakage:
    r"""Return how much each concept value says about the class that its concept does not: concept-task leakage (CTL).

    The score is the information that a value u adds to its true concept c about the class y, as a share of the entropy
    of y: :math:`I(u; y \mid c) / H(y)`, less its mean over draws in which the values of images with the same c have
    changed places, which tell nothing else about y. Parisini et al. (2025), "Leakage and Interpretability in
    Concept-Based Models", define CTL as :math:`(I(u; y) - I(c; y)) / H(y)` and clip it at 0: that is ``published``,
    without clipping, which would make noise positive. Both are the same for a value that determines its concept; a
    noisy value has a negative published score, whatever it leaks.

    Leakage is not always bad: with concepts that do not give the class (`concept_set_ceiling`) a value has to say more
    to be of use. Wrong concept labels look like leakage: an honest model has p <= .05 as soon as one label in fifty is
    wrong. `noise_equivalent` says which share of wrong labels would give as much.

    Parameters
    ----------
    values : array_like
        (N, L) concept values u.
    classes : array_like
        (N,) true classes y.
    concepts : array_like
        (N, L) of 0/1, the true concepts c.
    n_bins : int
        Values are discretised in so many bins of equal frequency; equal values share one.
    n_permutations : int
        Draws of the null distribution. The smallest p is ``1 / (n_permutations + 1)``.
    seed : int
        Random seed of the draws.

    Returns
    -------
    Leakage
        ``scores``, ``p`` and ``published`` (L,), on the device of `values`; NaN (p = 1) if there is a single class.

    Raises
    ------
    ValueError
        If shapes do not match, values are not finite, concepts are not 0/1, or a number is too small.

    Examples
    --------
    >>> import torch
    >>> from quantus_concepts.functional import concept_task_leakage
    >>> concepts = torch.tensor([[0, 0], [0, 1], [1, 0], [1, 1]]).repeat(50, 1)
    >>> classes = concepts.amax(1)  # one or the other
    >>> values = torch.stack([concepts[:, 0], classes], 1)  # the second one copies the class
    >>> leakage = concept_task_leakage(values, classes, concepts)
    >>> [round(score, 4) for score in leakage.published.tolist()]
    [0.0, 0.6163]
    >>> [round(p, 3) for p in leakage.p.tolist()]
    [1.0, 0.025]
    """
    labels = to_class_tensor("classes", classes)
    values, concepts = checked_concepts(values, concepts, n_bins, n_permutations, labels)
    members: Tensor = labels.to(values.device).unique(return_inverse=True)[1]
    n_classes = int(members.max()) + 1
    bins = discretise(values, n_bins)
    entropy = _entropies(members[None], n_classes)
    with_class = concepts * n_classes + members

    def cells(bins: Tensor) -> Tensor:
        return _entropies(bins * 2 * n_classes + with_class, n_bins * 2 * n_classes)

    # I(u; y | c) = H(u, c) + H(y, c) - H(u, y, c) - H(c): of these a draw within strata of c changes H(u, y, c) alone,
    # and the others cancel in the difference from the draws.
    observed = cells(bins)
    draws = (-cells(drawn) for drawn in _shuffled(bins, concepts, n_permutations, seed))
    # The entropy of y cancels in I(u; y) - I(c; y).
    own = _entropies(bins, n_bins) - _entropies(bins * n_classes + members, n_bins * n_classes)
    truth = _entropies(concepts, 2) - _entropies(with_class, 2 * n_classes)
    scale = torch.where(entropy > 0, entropy, torch.nan)
    return _result(-observed, draws, (own - truth) / scale, scale)


@torch.no_grad()
def interconcept_leakage(
    values: Numbers,
    concepts: Numbers,
    n_bins: int = 8,
    n_permutations: int = 39,
    seed: int = 0,
) -> Leakage:
    r"""Return how much two concept values say about each other beyond their concepts: inter-concept leakage (ICL).

    The score of a pair is :math:`I(u_j; u_k) / \sqrt{H(u_j) H(u_k)}`, less its mean over draws in which the values of
    each concept have changed places among the images with the same truth of this concept. Parisini et al. (2025)
    subtract that of the true concepts, :math:`I(c_j; c_k) / \sqrt{H(c_j) H(c_k)}`: that is ``published``, without
    clipping.

    Parameters
    ----------
    values : array_like
        (N, L) concept values u.
    concepts : array_like
        (N, L) of 0/1, the true concepts c.
    n_bins : int
        As in `concept_task_leakage`, like the others.
    n_permutations : int
        Draws of the null distribution.
    seed : int
        Random seed of the draws.

    Returns
    -------
    Leakage
        ``scores``, ``p`` and ``published`` (L, L), symmetric, on the device of `values`; NaN (p = 1) on the diagonal,
        and where a value or (published) a concept does not vary.

    Raises
    ------
    ValueError
        As `concept_task_leakage`.

    Examples
    --------
    >>> import torch
    >>> from quantus_concepts.functional import interconcept_leakage
    >>> concepts = torch.tensor([[0, 0], [0, 1], [1, 0], [1, 1]]).repeat(50, 1)
    >>> mixed = torch.tensor([[1.0, 0.0], [0.5, 1.0]])  # the first also has half the second
    >>> leakage = interconcept_leakage(concepts.float() @ mixed, concepts)
    >>> round(leakage.published[0, 1].item(), 4), round(leakage.p[0, 1].item(), 3)
    (0.7071, 0.025)
    """
    values, concepts = checked_concepts(values, concepts, n_bins, n_permutations)
    bins = discretise(values, n_bins)

    def scaled(bins: Tensor, n_bins: int) -> Tensor:
        own = _entropies(bins, n_bins)
        lengths = (own[:, None] * own).sqrt()
        information = own[:, None] + own - _pair_entropies(bins, n_bins)
        return information / torch.where(lengths > 0, lengths, torch.nan).fill_diagonal_(torch.nan)

    observed = scaled(bins, n_bins)
    draws = (scaled(drawn, n_bins) for drawn in _shuffled(bins, concepts, n_permutations, seed))
    return _result(observed, draws, observed - scaled(concepts, 2))


@torch.no_grad()
def concept_set_ceiling(concepts: Numbers, classes: Numbers) -> float:
    """Return the best accuracy that any head can have on the true concepts of these images.

    Of the images with the same concepts a head is right on those of one class at most: the ceiling is the sum over
    distinct rows of the largest class count, divided by N. A model with a higher accuracy leaks, so that its values say
    more than the concepts, or concept labels are wrong: an honest model that is always right meets a ceiling of .80
    with one label in ten wrong. `ceiling_noise_equivalent` says which share would explain the accuracy.

    Parameters
    ----------
    concepts : array_like
        (N, L) of 0/1.
    classes : array_like
        (N,) true classes.

    Returns
    -------
    float
        In (0, 1].

    Raises
    ------
    ValueError
        If shapes do not match, or concepts are not 0/1.

    Examples
    --------
    >>> from quantus_concepts.functional import concept_set_ceiling
    >>> concept_set_ceiling([[0, 1], [0, 1], [0, 1], [1, 1]], [0, 0, 1, 2])
    0.75
    """
    rows, labels = as_tensor("concepts", concepts), to_class_tensor("classes", classes)
    check_axes(concepts=(rows, "N L"), classes=(labels, "N"))
    check_zero_one("concepts", rows)
    if not len(rows):
        raise ValueError("Expected argument `concepts` to have at least one row but got none.")
    return float(commonest_classes(rows, labels).mean())


def commonest_classes(concepts: Tensor, classes: Tensor) -> Tensor:
    """Return whether each class (N,) is the commonest of the images with the same concepts; several share the hit."""
    _, group = concepts.unique(dim=0, return_inverse=True)
    pairs, pair_of, counts = torch.stack([group, classes.to(group)], 1).unique(
        dim=0, return_inverse=True, return_counts=True
    )
    n_groups = int(group.max()) + 1
    largest = counts.new_zeros(n_groups).scatter_reduce(0, pairs[:, 0], counts, "amax")
    is_largest = (counts == largest[pairs[:, 0]]).to(widest_float(counts.device))
    several = is_largest.new_zeros(n_groups).scatter_add(0, pairs[:, 0], is_largest)
    return (is_largest / several[pairs[:, 0]])[pair_of]


def discretise(values: Tensor, n_bins: int) -> Tensor:
    """Return the bin of each of the values (L, N), by its mean rank in its row, so that equal values share a bin."""
    values = values.contiguous()
    ordered = values.sort(1).values
    below, up_to = (torch.searchsorted(ordered, values, right=right) for right in (False, True))
    return (below + up_to) * n_bins // (2 * values.shape[1])


def checked_concepts(
    values: Numbers, concepts: Numbers, n_bins: int, n_permutations: int, classes: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """Return values and concepts with a row (L, N) for each concept, or raise."""
    values = to_floats("values", values)
    labels = as_tensor("concepts", concepts).to(values.device)
    check_axes(values=(values, "N L"), concepts=(labels, "N L"), classes=(classes, "N"))
    check_finite("values", values)
    check_zero_one("concepts", labels)
    check_whole("n_bins", n_bins, 2)
    check_whole("n_permutations", n_permutations, 1)
    if not len(values):
        raise ValueError("Expected argument `values` to have at least one row but got none.")
    return values.T.contiguous(), labels.T.long().contiguous()


def cell_counts(cells: Tensor, n_cells: int) -> Tensor:
    """Return how often each cell (L, n_cells) occurs among the cells (L, N), numbers from 0 to n_cells - 1."""
    n_concepts = len(cells)
    places = cells + n_cells * torch.arange(n_concepts, device=cells.device)[:, None]
    return places.flatten().bincount(minlength=n_cells * n_concepts).view(n_concepts, n_cells)


def _entropies(cells: Tensor, n_cells: int) -> Tensor:
    """Return the entropy (L,) of the cells (L, N), numbers from 0 to n_cells - 1, in nats."""
    return _terms(cells.shape[1], cells.device)[cell_counts(cells, n_cells)].sum(1)


def _terms(n: int, device: torch.device) -> Tensor:
    """Return what a count of 0 to n of n images adds to an entropy, (n + 1,)."""
    # Counts are few numbers: a table of their terms is quicker than as many logarithms.
    return torch.special.entr(torch.arange(n + 1, device=device, dtype=widest_float(device)) / n)


def _pair_entropies(bins: Tensor, n_bins: int) -> Tensor:
    """Return the joint entropy (L, L) of each pair of rows of bins (L, N), by matrix products of a bounded size."""
    n_concepts, n = bins.shape
    terms, size = _terms(n, bins.device), max(1, _CELLS // n_bins)
    result = terms.new_empty(n_concepts, n_concepts)
    blocks = [slice(start, min(start + size, n_concepts)) for start in range(0, n_concepts, size)]
    for place, own in enumerate(blocks):
        for other in blocks[place:]:
            counts = torch.zeros((), dtype=torch.int64, device=bins.device)
            for start in range(0, n, _IMAGES):
                images = slice(start, start + _IMAGES)
                table = _one_hot(bins[own, images], n_bins)
                others = table if other is own else _one_hot(bins[other, images], n_bins)
                counts = counts + (table @ others.T).long()
            pairs = terms[counts].view(own.stop - own.start, n_bins, -1, n_bins).sum((1, 3))
            result[own, other], result[other, own] = pairs, pairs.T
    return result


def _one_hot(bins: Tensor, n_bins: int) -> Tensor:
    """Return whether images (N,) are in each bin of each concept, (L x n_bins, N)."""
    return (bins[:, None] == torch.arange(n_bins, device=bins.device)[:, None]).to(torch.float32).flatten(0, 1)


def _shuffled(bins: Tensor, strata: Tensor, n: int, seed: int) -> Iterator[Tensor]:
    """Yield bins (L, N) n times, in which those of one concept and stratum have changed places at random."""
    generator = torch.Generator(bins.device).manual_seed(seed)
    own = strata.argsort(stable=True, dim=1)
    for _ in range(n):
        keys = torch.rand(bins.shape, generator=generator, device=bins.device)
        yield torch.empty_like(bins).scatter_(1, own, bins.gather(1, (strata + keys).argsort(1)))


def _result(observed: Tensor, draws: Iterable[Tensor], published: Tensor, scale: Tensor | float = 1.0) -> Leakage:
    """Return what draws of the null say about the observed information; one draw is in memory at a time."""
    n, total, reached = 0, torch.zeros_like(observed), torch.ones_like(observed)
    mean, mean_reached = observed.nanmean(), observed.new_ones(())
    for drawn in draws:
        # What differs by rounding is as much.
        reached += ~(drawn < observed - _ROUNDING)
        mean_reached += ~(drawn.nanmean() < mean - _ROUNDING)
        total, n = total + drawn, n + 1
    scores = (observed - total / n) / scale
    p, mean_p = ((count / (n + 1)).float() for count in (reached, mean_reached))
    return Leakage(scores.float(), p, published.float(), float(mean_p))
