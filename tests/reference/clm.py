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


def average_down(cells, size):
    """Means of the cells that each pixel touches, along the axes where there are more cells than pixels."""
    height, width = min(cells.shape[0], size[0]), min(cells.shape[1], size[1])
    means = np.empty((height, width))
    for y in range(height):
        for x in range(width):
            rows = range(y * cells.shape[0] // height, math.ceil((y + 1) * cells.shape[0] / height))
            columns = range(x * cells.shape[1] // width, math.ceil((x + 1) * cells.shape[1] / width))
            means[y, x] = sum(cells[i, j] for i in rows for j in columns) / (len(rows) * len(columns))
    return means


def upsample(cells, size):
    cells = average_down(np.asarray(cells, dtype=np.float64), size)
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


def components(mask):
    """Lists of the pixels (x, y) of each connected part, corners touching, in reading order of their first pixel."""
    remaining = [(x, y) for y in range(mask.shape[0]) for x in range(mask.shape[1]) if mask[y, x]]
    parts = []
    while remaining:
        part, frontier = [], [remaining.pop(0)]
        while frontier:
            x, y = frontier.pop()
            part.append((x, y))
            near = [other for other in remaining if abs(other[0] - x) <= 1 and abs(other[1] - y) <= 1]
            remaining = [other for other in remaining if other not in near]
            frontier += near
        parts.append(sorted(part, key=lambda pixel: (pixel[1], pixel[0])))
    return parts


def mask_centres(mask):
    centres = []
    for part in components(np.asarray(mask, dtype=bool)):
        middle = [sum(pixel[axis] for pixel in part) / len(part) for axis in (0, 1)]
        centres.append(min(part, key=lambda p: round((p[0] - middle[0]) ** 2 + (p[1] - middle[1]) ** 2, 9)))
    return centres


def mask_shares(maps, masks, alphas):
    """Pixel by pixel in order of value; pixels of one value share what is left of the region."""
    shares = np.full((len(maps), len(alphas)), math.nan)
    for b, cells in enumerate(np.asarray(maps, dtype=np.float64)):
        mask = np.asarray(masks[b], dtype=bool)
        if not mask.any() or not np.isfinite(cells).all():
            continue
        image = upsample(cells, mask.shape)
        for a, alpha in enumerate(alphas):
            n = room = alpha * image.size / 12
            inside = 0.0
            for value in sorted(set(image.ravel()), reverse=True):
                tied = image == value
                pixels_taken = min(room, tied.sum())
                inside += pixels_taken * mask[tied].mean()
                room -= pixels_taken
            shares[b, a] = inside / n
    return shares


def mask_threshold_shares(maps, masks, threshold):
    shares = np.full(len(maps), math.nan)
    for b, cells in enumerate(np.asarray(maps, dtype=np.float64)):
        mask = np.asarray(masks[b], dtype=bool)
        if mask.any() and np.isfinite(cells).all():
            reached = [
                mask[y, x] for (y, x), value in np.ndenumerate(upsample(cells, mask.shape)) if value >= threshold
            ]
            shares[b] = sum(reached) / len(reached) if reached else math.nan
    return shares


def clm(hits, top_l):
    scores = []
    for row in np.asarray(hits, dtype=np.float64):
        defined = [value for value in row[:top_l] if not math.isnan(value)]
        scores.append(sum(defined) / len(defined) if defined else math.nan)
    return np.array(scores)


def region_scores(cells, mask):
    """IoU, energy inside and pointing game of a map, pixel by pixel; None without a marked pixel."""
    mask = np.asarray(mask, dtype=bool)
    image, marked = upsample(cells, mask.shape), int(mask.sum())
    if not marked:
        return None
    low, high = image.min(), image.max()
    if low == high:
        return (marked / mask.size,) * 3
    last = sorted(image.ravel(), reverse=True)[marked - 1]
    both = either = ours = tops = 0
    inside = everywhere = 0.0
    for value, is_marked in zip(image.ravel(), mask.ravel(), strict=True):
        named = value >= last and value > low
        both += named and is_marked
        either += named or is_marked
        everywhere += value - low
        inside += (value - low) * is_marked
        tops += value == high
        ours += value == high and is_marked
    return both / either, inside / everywhere, ours / tops
