"""Sufficiency and necessity in plain loops and float64, from Algorithm 1, and the equations of ROAD, dense."""

import math

import numpy as np


def scores(predict, image, relevance, perturb, thresholds):
    """Of one image: predict(image) is p(y|x), perturb(image, pixels) changes the (row, column) pairs given."""
    pixels = list(np.ndindex(relevance.shape))
    values = {}
    for kind in ("sufficiency", "necessity"):
        values[kind] = []
        for threshold in thresholds:
            order = sorted(pixels, key=lambda pixel: relevance[pixel], reverse=kind == "necessity")
            changes = []
            i = 1
            while i < threshold:
                first = order[: math.floor(i / 100 * len(pixels) + 1e-9)]
                changes.append(abs(predict(image) - predict(perturb(image, first))))
                i += 2
            mean = sum(changes) / len(changes)
            values[kind].append(math.exp(-mean) if kind == "sufficiency" else 1 - math.exp(-mean))
    s, n = max(values["sufficiency"]), max(values["necessity"])
    return 2 / (1 / s + 1 / n) if n else 0.0, s, n


def road(image, pixels):
    """Each missing pixel is the mean of its neighbours in the image, 1/6 beside it and 1/12 across a corner."""
    _, height, width = image.shape
    missing = {pixel: i for i, pixel in enumerate(pixels)}
    result = np.array(image, dtype=np.float64)
    if not missing:
        return result
    for channel in range(len(image)):
        A, b = np.zeros((len(missing), len(missing))), np.zeros(len(missing))
        for (row, column), i in missing.items():
            for down in (-1, 0, 1):
                for right in (-1, 0, 1):
                    r, c = row + down, column + right
                    if (down, right) == (0, 0) or not (0 <= r < height and 0 <= c < width):
                        continue
                    weight = 1 / 12 if down and right else 1 / 6
                    A[i, i] += weight
                    if (r, c) in missing:
                        A[i, missing[r, c]] -= weight
                    else:
                        b[i] += weight * image[channel, r, c]
        for (row, column), value in zip(missing, np.linalg.solve(A, b), strict=True):
            result[channel, row, column] = value
    return result
