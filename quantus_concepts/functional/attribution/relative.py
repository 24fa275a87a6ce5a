"""Relative model contrast: a curve over commonality, and whether it follows the accuracy drop."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from captum_concepts.support.checks import check_axes, check_whole
from captum_concepts.texts import in_one_line
from quantus_concepts.functional.arguments import Numbers, as_tensor, check_zero_one, to_floats
from quantus_concepts.functional.statistics.intervals import CONFIDENCE


@in_one_line
class Estimate(NamedTuple):
    """A number with its interval.

    Attributes
    ----------
    value : Tensor
        The number, or one for each commonality.
    low : Tensor
        Lower end of the 95 % interval.
    high : Tensor
        Upper end.
    """

    value: Tensor
    low: Tensor
    high: Tensor


@in_one_line
class RelativeContrast(NamedTuple):
    """Result of `relative_contrast`.

    Attributes
    ----------
    score : Estimate
        (R,), the mean model contrast score at each commonality.
    drop : Estimate
        (R,), accuracy with the feature minus accuracy without it.
    correlation : Estimate
        (), Pearson correlation of the two curves.
    """

    score: Estimate
    drop: Estimate
    correlation: Estimate


@torch.no_grad()
def relative_contrast(
    scores: Numbers, correct_with: Numbers, correct_without: Numbers, n_resamples: int = 2000, seed: int = 0
) -> RelativeContrast:
    """Average scores over images for each commonality and correlate them with the accuracy drop.

    Yang and Kim (2019), "BIM", Section 5.1 and Figure 7. Intervals are bootstrap percentiles over images; an image
    is drawn with its scores at every commonality and with what happens to it when the feature is removed, so that
    the correlation's interval knows of their dependence.

    Parameters
    ----------
    scores : array_like
        (R, N), `mcs` of each image between the model of commonality r and the model of commonality 1; NaN where
        undefined.
    correct_with : array_like
        (R, N) of bool, or of 0 and 1: whether model r is right on the image with the feature.
    correct_without : array_like
        (R, N) of bool, or of 0 and 1: and on the same image without it.
    n_resamples : int
        Bootstrap samples, at least 100.
    seed : int
        Random seed of the bootstrap; no global generator is touched.

    Returns
    -------
    RelativeContrast
        On the CPU, in float64. The correlation is NaN where a curve is constant or there are fewer than two points.

    Raises
    ------
    ValueError
        If shapes differ, a sample is neither right nor wrong, or `n_resamples` is below 100.

    Examples
    --------
    >>> import torch
    >>> from quantus_concepts.functional import relative_contrast
    >>> scores = torch.tensor([[0.1, 0.2], [0.4, 0.6]])  # two models, two images
    >>> right = torch.ones(2, 2, dtype=torch.bool)
    >>> without = torch.tensor([[True, True], [False, True]])
    >>> relative_contrast(scores, right, without).drop.value
    tensor([0.0000, 0.5000], dtype=torch.float64)
    """
    scores, right_with = to_floats("scores", scores), as_tensor("correct_with", correct_with)
    right_without = as_tensor("correct_without", correct_without)
    check_axes(scores=(scores, "R N"), correct_with=(right_with, "R N"), correct_without=(right_without, "R N"))
    check_zero_one("correct_with", right_with)
    check_zero_one("correct_without", right_without)
    n_resamples = check_whole("n_resamples", n_resamples, 100)
    scores = scores.cpu().double()
    defined = ~scores.isnan()
    change = right_with.cpu().double() - right_without.cpu().double()
    n_images = scores.shape[1]
    generator = torch.Generator().manual_seed(seed)
    resampled = torch.randint(max(n_images, 1), (n_resamples, n_images), generator=generator)
    # How often each image is in each sample; the first row is the images themselves.
    times = torch.zeros(n_resamples + 1, n_images, dtype=torch.float64)
    times[1:].scatter_add_(1, resampled, torch.ones_like(resampled, dtype=torch.float64))
    times[0] = 1
    curve = (times @ scores.nan_to_num(0).T) / (times @ defined.double().T)
    drop = (times @ change.T) / n_images
    return RelativeContrast(_estimate(curve), _estimate(drop), _estimate(_pearson(curve, drop)))


def _pearson(first: Tensor, second: Tensor) -> Tensor:
    """Return the correlation of each row of (B, R) and (B, R)."""
    first = first - first.mean(1, keepdim=True)
    second = second - second.mean(1, keepdim=True)
    spread = torch.linalg.vector_norm(first, dim=1) * torch.linalg.vector_norm(second, dim=1)
    # Rounding leaves a constant curve with a spread of about 1e-17.
    return torch.where(spread > 1e-14, ((first * second).sum(1) / spread).clamp(-1, 1), torch.nan)


def _estimate(samples: Tensor) -> Estimate:
    ends = torch.tensor([(1 - CONFIDENCE) / 2, (1 + CONFIDENCE) / 2], dtype=samples.dtype)
    low, high = samples[1:].nanquantile(ends, 0)
    undefined = samples[0].isnan()
    return Estimate(samples[0], low.masked_fill(undefined, torch.nan), high.masked_fill(undefined, torch.nan))
