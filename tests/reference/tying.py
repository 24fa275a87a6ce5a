"""Tied predictions of Bader et al. (2025), Eqs. 3 to 6, one element after the other."""

from __future__ import annotations

import itertools

import numpy as np


def tied(reference: np.ndarray, guide: np.ndarray, eta: float, groups: list[list[tuple[int, ...]]]) -> np.ndarray:
    """Tie two predictions without a batch; `groups` are the elements that are tied together."""
    reference, guide = np.float64(reference), np.float64(guide)
    far = [sum(abs(reference[place] - guide[place]) for place in group) / len(group) for group in groups]
    # The least bound that a share of at least eta is at or below.
    bound = min(value for value in far if sum(other <= value for other in far) >= eta * len(far) - 1e-9)
    pair = np.stack([reference, guide])
    for group, value in zip(groups, far, strict=True):
        for place in group if value <= bound else ():
            pair[(0, *place)] = pair[(1, *place)] = (reference[place] + guide[place]) / 2
    return pair


def elements(shape: tuple[int, ...]) -> list[list[tuple[int, ...]]]:
    return [[place] for place in itertools.product(*map(range, shape))]


def pixels(shape: tuple[int, ...]) -> list[list[tuple[int, ...]]]:
    """Group the elements of (C, H, W), or of (tokens, C), by place."""
    if len(shape) == 3:
        return [[(c, y, x) for c in range(shape[0])] for y in range(shape[1]) for x in range(shape[2])]
    return [[(token, c) for c in range(shape[1])] for token in range(shape[0])]
