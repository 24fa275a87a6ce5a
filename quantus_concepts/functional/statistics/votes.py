"""One vote from those of several annotators."""

from __future__ import annotations

import numpy as np

from captum_concepts.support.checks import check_choice, to_numpy
from quantus_concepts.functional.arguments import Numbers

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
