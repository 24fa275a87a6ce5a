"""Scaling a cut-out: a triangle filter over premultiplied colours, pixel by pixel in float64."""

import numpy as np


def weights(n_old, n_new):
    """(n_new, n_old): how much each old pixel counts in each new one."""
    table = np.zeros((n_new, n_old))
    factor = n_old / n_new
    support = max(factor, 1.0)
    for i in range(n_new):
        centre = (i + 0.5) * factor
        for j in range(n_old):
            table[i, j] = max(0.0, 1.0 - abs(j + 0.5 - centre) / support)
        table[i] /= table[i].sum()
    return table


def scale_cutout(pixels, mask, shape):
    """Return colours (h, w, 3), NaN where nothing is covered, and cover (h, w) in [0, 1]."""
    rows, cols = weights(mask.shape[0], shape[0]), weights(mask.shape[1], shape[1])
    colours = np.full((*shape, 3), np.nan)
    cover = np.zeros(shape)
    for i in range(shape[0]):
        for j in range(shape[1]):
            share = np.outer(rows[i], cols[j]) * mask
            cover[i, j] = share.sum()
            if cover[i, j] > 0:
                colours[i, j] = (share[..., None] * pixels).sum((0, 1)) / cover[i, j]
    return colours, cover
