"""Hits of maps that are the mean place of a part in other images, by sorting the pixels of every image anew."""

from __future__ import annotations

import numpy as np


def mean_place_hits(points, size, alphas):
    """Return (n, P, P, A): the map of part p at every part, by the mean place of p in all other images."""
    n, n_parts = points.shape[:2]
    height, width = size
    hits = np.full((n, n_parts, n_parts, len(alphas)), np.nan)
    y, x = np.mgrid[:height, :width]
    for i in range(n):
        for p in range(n_parts):
            centres = []
            for other in range(n):
                places = [q for q in points[other, p] if not np.isnan(q).any()]
                if other != i and places:
                    centres.append(np.mean(places, axis=0))
            if not centres or (len(centres) < 2 and np.isnan(points[i, p]).all()):
                continue
            cx, cy = np.mean(centres, axis=0)
            distance = ((y - cy) * width) ** 2 + ((x - cx) * height) ** 2
            for q in range(n_parts):
                best = [[] for _ in alphas]
                for place in points[i, q]:
                    if np.isnan(place).any():
                        continue
                    column, row = (
                        int(np.clip(np.floor(v + 0.5), 0, top - 1))
                        for v, top in zip(place, (width, height), strict=True)
                    )
                    nearer = (distance < distance[row, column] - 1e-9).sum()
                    ties = (np.abs(distance - distance[row, column]) <= 1e-9).sum()
                    for a, alpha in enumerate(alphas):
                        best[a].append(np.clip((alpha * height * width / 12 - nearer) / ties, 0, 1))
                for a in range(len(alphas)):
                    if best[a]:
                        hits[i, p, q, a] = max(best[a])
    return hits
