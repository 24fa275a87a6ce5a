"""CLM in plain loops over pixels, in float64: bilinear resizing, region, hits, Equation 11."""

import math

import numpy as np


def source(i, length, target):
    """Cells beside pixel i and the share of the second; pixel centres, clamped at the edges."""
    position = max((i + 0.5) * length / target - 0.5, 0.0)
    first = min(math.floor(position), length - 1)
    second = min(first + 1, length - 1)
    # At the far edge both are the same cell: no weights, whose sum is 1 up to rounding only.
    return first, second, 0.0 if first == second else position - first


def upsample(cells, size):
    cells = np.asarray(cells, dtype=np.float64)
    image = np.empty(size)
    for y in range(size[0]):
        top, bottom, down = source(y, cells.shape[0], size[0])
        for x in range(size[1]):
            left, right, across = source(x, cells.shape[1], size[1])
            image[y, x] = (
                (1 - down) * (1 - across) * cells[top, left]
                + (1 - down) * across * cells[top, right]
                + down * (1 - across) * cells[bottom, left]
                + down * across * cells[bottom, right]
            )
    return image


def hit(image, x, y, alpha):
    """Share of the pixel (x, y) that is in the region, for a region of n pixels with n not rounded."""
    larger = same = 0
    for value in image.ravel():
        if value > image[y, x]:
            larger += 1
        elif value == image[y, x]:
            same += 1
    return min(max((alpha * image.size / 12 - larger) / same, 0.0), 1.0)


def pixel(point, size):
    x, y = float(point[0]), float(point[1])
    if math.isnan(x) or math.isnan(y):
        return None
    return min(max(math.floor(x + 0.5), 0), size[1] - 1), min(max(math.floor(y + 0.5), 0), size[0] - 1)


def point_hits(maps, points, size, alphas):
    scores = np.full((len(maps), len(alphas)), math.nan)
    for b, cells in enumerate(np.asarray(maps, dtype=np.float64)):
        places = [place for place in (pixel(point, size) for point in points[b]) if place is not None]
        if not places or not np.isfinite(cells).all():
            continue
        image = upsample(cells, size)
        for a, alpha in enumerate(alphas):
            scores[b, a] = max(hit(image, x, y, alpha) for x, y in places)
    return scores


def threshold_hits(maps, points, size, threshold):
    scores = np.full(len(maps), math.nan)
    for b, cells in enumerate(np.asarray(maps, dtype=np.float64)):
        places = [place for place in (pixel(point, size) for point in points[b]) if place is not None]
        if places and np.isfinite(cells).all():
            image = upsample(cells, size)
            scores[b] = float(any(image[y, x] >= threshold for x, y in places))
    return scores


def mask_hits(maps, masks, alphas):
    scores = np.full((len(maps), len(alphas)), math.nan)
    for b, image in enumerate(np.asarray(maps, dtype=np.float64)):
        marked = [(x, y) for y in range(image.shape[0]) for x in range(image.shape[1]) if masks[b][y][x]]
        if not marked or not np.isfinite(image).all():
            continue
        for a, alpha in enumerate(alphas):
            scores[b, a] = max(hit(image, x, y, alpha) for x, y in marked)
    return scores


def mask_threshold_hits(maps, masks, threshold):
    scores = np.full(len(maps), math.nan)
    masks = np.asarray(masks, dtype=bool)
    for b, image in enumerate(np.asarray(maps, dtype=np.float64)):
        if masks[b].any() and np.isfinite(image).all():
            scores[b] = float(any(value >= threshold for value in image[masks[b]]))
    return scores


def clm(hits, top_l):
    scores = []
    for row in np.asarray(hits, dtype=np.float64):
        seen = [value for value in row[:top_l] if not math.isnan(value)]
        scores.append(sum(seen) / len(seen) if seen else math.nan)
    return np.array(scores)
