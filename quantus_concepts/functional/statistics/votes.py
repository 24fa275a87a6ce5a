"""One vote from those of several annotators, and the difference of the votes on two explainers."""

from __future__ import annotations

import math

import numpy as np
from scipy import stats

from captum_concepts.support.checks import check_choice, check_shape, to_numpy
from quantus_concepts.functional.arguments import Numbers
from quantus_concepts.functional.statistics.differences import Difference
from quantus_concepts.functional.statistics.intervals import clipped_interval, cluster_estimate, t_quantile

#: Ends of the scale.
MIN_VOTE, MAX_VOTE = 1, 5
JOINS = ("mode", "mean", "median")


def join_votes(votes: Numbers, how: str = "mode") -> np.ndarray:
    """Join the votes of several annotators on each item."""
    # Kazmierczak et al., PASTA, Eq. 13 for the mode, which they chose among the three (Table 15).
    check_choice("how", how, JOINS)
    values = check_votes("votes", votes)
    voted = ~np.isnan(values)
    n_votes = voted.sum(-1)
    if how == "mode":
        scale = np.arange(MIN_VOTE, MAX_VOTE + 1)
        counts = np.stack([(values == vote).sum(-1) for vote in scale], axis=-1)
        # The first of several largest counts is that of the smallest vote.
        joined = scale[counts.argmax(-1)].astype(np.float64)
    elif how == "mean":
        joined = np.where(voted, values, 0).sum(-1) / np.maximum(n_votes, 1)
    elif values.shape[-1]:
        # NaN are sorted to the end, so the middle is that of the votes given.
        ordered = np.sort(values, axis=-1)
        middle = np.stack([np.maximum(n_votes - 1, 0) // 2, np.maximum(n_votes, 1) // 2], axis=-1)
        joined = np.take_along_axis(ordered, np.minimum(middle, values.shape[-1] - 1), axis=-1).mean(-1)
    else:
        joined = np.zeros(values.shape[:-1])
    return np.where(n_votes > 0, joined, np.nan)


#: Variance of the difference of two numbers that are rounded to whole ones: votes cannot agree more closely.
ROUNDING = 1 / 6


def vote_difference(first: Numbers, second: Numbers) -> Difference:
    """Compare the votes on two explainers by the same raters on the same images.

    The difference of each rater on each image is taken first, so that how strict a rater is and how easy an image
    cancels. It is averaged over raters by image, and then over images. The interval is the widest of three: with
    images as clusters, with raters as clusters, and with the sum of both variances.

    Parameters
    ----------
    first : array_like
        (A, N) votes of each rater on the first explainer's explanation of each image; NaN where there is none. One row
        of mean votes where it is not known who voted: raters are then no source of variance.
    second : array_like
        (A, N) votes of the same raters on the second explainer's explanations of the same images.

    Returns
    -------
    Difference
        Means and difference are over the images that one rater rated for both, ``n`` votes on each, ``undefined``
        votes have no partner; interval and p-value (the largest of the three) are NaN below two images.

    Raises
    ------
    ValueError
        If the votes are not (A, N) both, or lie outside 1 to 5.

    Notes
    -----
    The wider of the first two alone rejects up to .12 of true hypotheses where both raters and images differ. The
    degrees of freedom of the sum are those of its larger part. No part is smaller than `ROUNDING` / n, which is what
    rounding leaves: votes that all differ by 1 have an interval too. ``docs/coverage.md`` has what was counted.
    """
    a, b = (np.asarray(to_numpy(votes), dtype=np.float64) for votes in (first, second))
    check_shape("first", a, ("A", "N"), (None, None))
    check_shape("second", b, ("A", "N"), a.shape)
    check_scale("first", a)
    check_scale("second", b)
    differences = a - b
    paired = ~np.isnan(differences)
    images, raters, n = paired.any(0), paired.any(1), int(paired.sum())
    undefined = int((~np.isnan(a) | ~np.isnan(b)).sum()) - n
    if not n:
        return Difference(math.nan, math.nan, math.nan, math.nan, math.nan, 0, undefined, math.nan)
    one, two = (float(np.nanmean(np.where(paired, votes, np.nan)[:, images], 0).mean()) for votes in (a, b))
    by_image, by_rater = np.nanmean(differences[:, images], 0), np.nanmean(differences[raters], 1)
    difference = float(by_image.mean())
    if len(by_image) < 2:
        return Difference(one, two, difference, math.nan, math.nan, n, undefined, math.nan)
    of_parts = (cluster_estimate(values, None) for values in (by_image, by_rater) if len(values) > 1)
    parts = [(max(of.variance, ROUNDING / n), of.n_clusters - 1) for of in of_parts]
    if len(parts) > 1:
        parts.append((parts[0][0] + parts[1][0], max(parts, key=lambda part: (part[0], -part[1]))[1]))
    errors = [(math.sqrt(variance), freedom) for variance, freedom in parts]
    widest = max(errors, key=lambda part: part[0] * t_quantile(part[1]))
    low, high = clipped_interval(difference, *widest, (MIN_VOTE - MAX_VOTE, MAX_VOTE - MIN_VOTE))
    p = max(float(2 * stats.t.sf(abs(difference) / error, freedom)) for error, freedom in errors)
    return Difference(one, two, difference, low, high, n, undefined, p)


def check_votes(name: str, votes: Numbers) -> np.ndarray:
    """Return votes as numbers, or raise."""
    values = np.asarray(to_numpy(votes), dtype=np.float64)
    if values.ndim == 0:
        raise ValueError(f"Expected argument `{name}` to have shape (..., A) but got one number.")
    bad = ~np.isnan(values) & ~((values >= MIN_VOTE) & (values <= MAX_VOTE) & (values == np.rint(values)))
    if bad.any():
        first = tuple(int(i) for i in np.argwhere(bad)[0])
        raise ValueError(
            f"Expected argument `{name}` to hold whole votes of {MIN_VOTE} to {MAX_VOTE}, NaN where one is missing, "
            f"but got {values[first]:g} at {first}; {int(bad.sum())} of {values.size} entries are no votes."
        )
    return values


def check_scale(name: str, values: np.ndarray) -> None:
    """Raise unless scores or joined votes lie on the scale or are NaN."""
    outside = values[(values < MIN_VOTE) | (values > MAX_VOTE)]
    if outside.size:
        raise ValueError(
            f"Expected argument `{name}` to lie in [{MIN_VOTE}, {MAX_VOTE}], NaN where one is missing, but "
            f"{outside.size} of {values.size} do not, the first is {outside[0]:g}."
        )
