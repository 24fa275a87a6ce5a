"""Wrong concept labels look like leakage: the share of them that would give as much with an honest model."""

from __future__ import annotations

import math

import numpy as np
import torch
from torch import Tensor
from torch.special import entr

from captum_concepts.support.checks import check_axes, check_range, check_whole
from captum_concepts.support.running import widest_float
from quantus_concepts.functional.arguments import Numbers, as_tensor, check_zero_one, to_class_tensor
from quantus_concepts.functional.bottleneck.leakage import (
    cell_counts,
    checked_concepts,
    commonest_classes,
    discretise,
)

#: Largest share of wrong labels that is considered; beyond it labels say little.
MOST_WRONG = 0.3
#: Shares of wrong labels at which leakage is computed, and of labels that are turned to extrapolate the ceiling.
_SHARES = (0.005, 0.01, 0.02, 0.035, 0.05, 0.075, 0.1, 0.125, 0.15, 0.2, 0.25, MOST_WRONG)
_TURNED = (0.0, 0.02, 0.04, 0.07, 0.1, 0.15, 0.2)
#: Share of images with concepts of their own above which the ceiling is near 1 by itself.
MOST_UNIQUE = 0.25


@torch.no_grad()
def noise_equivalent(values: Numbers, classes: Numbers, concepts: Numbers, leakage: float, n_bins: int = 8) -> float:
    """Return the share of wrong concept labels that would give as much concept-task leakage with an honest model.

    If a share q of the labels is wrong, values that say nothing beyond the *true* concepts still say something beyond
    the labels that are given. How much follows from the data, without draws: p(true | class) is
    (p(given | class) - q) / (1 - 2 q), where the shares of the classes are drawn to their mean as far as chance moves
    them; the values' distributions with and without the true concept solve the two mixtures that are seen with and
    without the given one; and I(u; y | given) / H(y) is that of the joint distribution. The result is the q at which
    its mean over concepts reaches `leakage`.

    Read it as "this is what 3.7 % wrong labels would give". It does not exclude a small leak: one of a fifth of the
    values' noise is worth .006.

    Parameters
    ----------
    values : array_like
        (N, L) concept values.
    classes : array_like
        (N,) true classes.
    concepts : array_like
        (N, L) of 0/1, the concepts as they are labelled.
    leakage : float
        The mean over concepts of the ``scores`` of `concept_task_leakage` on the same data.
    n_bins : int
        As in `concept_task_leakage`.

    Returns
    -------
    float
        A share up to .3, infinite beyond; 0 if `leakage` is not above 0. NaN if `leakage` is NaN, and if there is one
        class or no concept varies.

    Raises
    ------
    ValueError
        As `concept_task_leakage`.

    Notes
    -----
    Counted with eight classes: shares of .01, .02, .05, .10 and .14 are found as .008, .020, .053, .103 and .149. It
    takes any label to be wrong with the same probability; with omissions only, or errors by class, the shares found are
    nearly the same.

    Examples
    --------
    >>> import torch
    >>> from quantus_concepts.functional import concept_task_leakage, noise_equivalent
    >>> classes = torch.arange(4000) % 2
    >>> truth = classes[:, None]  # the concept is the class, and the value the concept
    >>> given = torch.where(torch.arange(4000) % 20 < 2, 1 - classes, classes)[
    ...     :, None
    ... ]  # .1 are wrong
    >>> leakage = concept_task_leakage(truth, classes, given).scores.mean().item()
    >>> round(leakage, 2), round(noise_equivalent(truth, classes, given, leakage), 2)
    (0.47, 0.1)
    """
    labels = to_class_tensor("classes", classes)
    rows, given = checked_concepts(values, concepts, n_bins, 1, labels)
    if math.isnan(leakage):
        return math.nan
    members = labels.to(rows.device).unique(return_inverse=True)[1]
    expected = _expected_leakage(rows, members, given, n_bins)
    if np.isnan(expected).any():
        return math.nan
    return _share_at(leakage, expected)


def _expected_leakage(rows: Tensor, members: Tensor, given: Tensor, n_bins: int) -> np.ndarray:
    """Return the leakage of honest values (L, N), a mean over concepts that vary, for each share of wrong labels."""
    dtype, n_classes, n = widest_float(rows.device), int(members.max()) + 1, rows.shape[1]
    of_class = members.bincount(minlength=n_classes).to(dtype)
    share = of_class / n
    bins = cell_counts(discretise(rows, n_bins) + n_bins * given, 2 * n_bins).view(-1, 2, n_bins).to(dtype)
    bins = bins / bins.sum(2, keepdim=True).clamp(min=1)
    in_class = cell_counts(members + n_classes * given, 2 * n_classes)[:, n_classes:].to(dtype) / of_class
    mean = (in_class * share).sum(1, keepdim=True)
    spread = ((in_class - mean) ** 2 * share).sum(1, keepdim=True)
    chance = (in_class * (1 - in_class) / (of_class - 1).clamp(min=1) * share).sum(1, keepdim=True)
    kept = ((spread - chance).clamp(min=0) / spread.clamp(min=1e-12)).sqrt()
    in_class = mean + kept * (in_class - mean)
    varies = given.amin(1) < given.amax(1)
    scale = entr(share).sum()
    found = []
    for q in _SHARES:
        joint = _joint(in_class, share, bins, q)
        # I(u; y | given) from the entropies of (y, given), (u, given), (u, y, given) and given.
        information = entr(joint.sum(3)).sum((1, 2)) + entr(joint.sum(2)).sum((1, 2))
        information = information - entr(joint).sum((1, 2, 3)) - entr(joint.sum((2, 3))).sum(1)
        found.append(float((information / scale)[varies].mean()))
    return np.array(found)


def _joint(in_class: Tensor, share: Tensor, bins: Tensor, q: float) -> Tensor:
    """Return p(given, class, bin), (L, 2, K, B), if a share q of the labels is wrong and values are honest.

    `in_class` (L, K) is p(given | class), `share` (K,) that of the classes, and `bins` (L, 2, B) p(bin | given).
    """
    true = ((in_class - q) / (1 - 2 * q)).clamp(0, 1)
    prevalence = (true * share).sum(1)
    # p(true | given) and p(true | not given).
    shown = prevalence * (1 - q) / (prevalence * (1 - q) + (1 - prevalence) * q)
    hidden = prevalence * q / (prevalence * q + (1 - prevalence) * (1 - q))
    a, b = shown[:, None], hidden[:, None]
    of_bins = []
    for mixed in ((1 - b) * bins[:, 1] - (1 - a) * bins[:, 0], a * bins[:, 0] - b * bins[:, 1]):
        positive = mixed.clamp(min=0)
        of_bins.append(positive / positive.sum(1, keepdim=True).clamp(min=1e-12))
    with_it, without = (part[:, :, None] * own[:, None] for part, own in zip((true, 1 - true), of_bins, strict=True))
    joint = torch.stack([q * with_it + (1 - q) * without, (1 - q) * with_it + q * without], 1)
    return share[:, None] * joint


def _share_at(score: float, expected: np.ndarray) -> float:
    """Return the share of wrong labels at which a curve that begins at 0 reaches a score; infinite beyond."""
    if score <= 0:
        return 0.0
    rising = np.append(0.0, np.maximum.accumulate(expected))
    return math.inf if score > rising[-1] else float(np.interp(score, rising, (0.0, *_SHARES)))


@torch.no_grad()
def ceiling_noise_equivalent(
    concepts: Numbers, classes: Numbers, accuracy: float, n_draws: int = 10, seed: int = 0
) -> float:
    """Return the share of wrong concept labels that would explain an accuracy above the `concept_set_ceiling`.

    Wrong labels lower the ceiling: images of one class no longer have the same concepts. How the ceiling falls if
    *more* labels are turned is continued backwards, by a parabola in 1 - 2 q, to the point where it would be as high as
    the accuracy.

    Parameters
    ----------
    concepts : array_like
        (N, L) of 0/1, the concepts as they are labelled.
    classes : array_like
        (N,) true classes.
    accuracy : float
        That of a model on these images.
    n_draws : int
        Random draws for each share of turned labels.
    seed : int
        Random seed of the draws.

    Returns
    -------
    float
        A share up to .3, infinite beyond; 0 if the accuracy is not above the ceiling. NaN if more than a quarter
        of the images have concepts that no other image has: these concepts then identify the class, wrong or not, and
        the ceiling does not fall.

    Raises
    ------
    ValueError
        If shapes do not match, concepts are not 0/1, `accuracy` is not in [0, 1], or a number is too small.

    Notes
    -----
    Counted with six concepts of eight classes: shares of .02, .05, .10 and .14 are found as .012, .040, .091 and .130.
    With many concepts that say the same it is too low.

    Examples
    --------
    >>> import torch
    >>> from quantus_concepts.functional import ceiling_noise_equivalent, concept_set_ceiling
    >>> generator = torch.Generator().manual_seed(0)
    >>> classes = torch.arange(800) % 4
    >>> truth = torch.stack([classes % 2, classes // 2], 1).repeat(1, 2)  # each concept twice
    >>> given = (
    ...     truth ^ (torch.rand(truth.shape, generator=generator) < 0.1).long()
    ... )  # .1 are wrong
    >>> round(concept_set_ceiling(given, classes), 2)
    0.83
    >>> abs(ceiling_noise_equivalent(given, classes, accuracy=1.0) - 0.1) < 0.03
    True
    """
    rows, labels = as_tensor("concepts", concepts), to_class_tensor("classes", classes)
    check_axes(concepts=(rows, "N L"), classes=(labels, "N"))
    check_zero_one("concepts", rows)
    check_range("accuracy", accuracy, 0, 1)
    check_whole("n_draws", n_draws, 1)
    check_whole("seed", seed, 0)
    if not len(rows):
        raise ValueError("Expected argument `concepts` to have at least one row but got none.")
    rows, labels = rows.to(torch.uint8), labels.to(rows.device)
    if unique_share(rows) > MOST_UNIQUE:
        return math.nan
    own = float(commonest_classes(rows, labels).mean())
    if accuracy <= own:
        return 0.0
    generator = torch.Generator(rows.device).manual_seed(seed)

    def turned(share: float) -> float:
        wrong = torch.rand(rows.shape, generator=generator, device=rows.device) < share
        return float(commonest_classes(rows ^ wrong.to(rows.dtype), labels).mean())

    ceilings = [own, *(float(np.mean([turned(share) for _ in range(n_draws)])) for share in _TURNED[1:])]
    # The ceiling itself has no error of draws. A share q of wrong labels leaves 1 - 2 q of their contrast.
    parabola = np.polyfit(1 - 2 * np.array(_TURNED), ceilings, 2, w=[3, *[1] * (len(_TURNED) - 1)])
    contrast = np.linspace(1, 1 / (1 - 2 * MOST_WRONG), 400)
    reached = np.flatnonzero(np.polyval(parabola, contrast) >= accuracy)
    return float(1 - 1 / contrast[reached[0]]) / 2 if reached.size else math.inf


def unique_share(concepts: Tensor) -> float:
    """Return the share of the images (N, L) whose concepts no other image has."""
    counts = concepts.unique(dim=0, return_counts=True)[1]
    return float((counts == 1).sum()) / len(concepts)
