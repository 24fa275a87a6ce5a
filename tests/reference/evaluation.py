"""The evaluation of a concept model from the formulas, image by image and concept by concept, in float64."""

from __future__ import annotations

import math
from typing import Any

import numpy as np


def rank(importance: np.ndarray, eligible: list[int]) -> list[int]:
    return sorted(eligible, key=lambda j: (-importance[j], j))


def linear_importance(values: np.ndarray, theta: np.ndarray, k: int) -> dict[str, np.ndarray]:
    """Of one image; theta is (K, L)."""
    return {"weight": theta[k], "value": values, "contribution": theta[k] * values}


def upsampled(map_: np.ndarray, size: tuple[int, int]) -> np.ndarray:
    """Bilinear, pixel centres at halves, borders repeated."""
    h, w = map_.shape
    out = np.zeros(size)
    for r in range(size[0]):
        for c in range(size[1]):
            y = min(max((r + 0.5) * h / size[0] - 0.5, 0), h - 1)
            x = min(max((c + 0.5) * w / size[1] - 0.5, 0), w - 1)
            r0, c0 = math.floor(y), math.floor(x)
            r1, c1 = min(r0 + 1, h - 1), min(c0 + 1, w - 1)
            fy, fx = y - r0, x - c0
            top = map_[r0, c0] * (1 - fx) + map_[r0, c1] * fx
            low = map_[r1, c0] * (1 - fx) + map_[r1, c1] * fx
            out[r, c] = top * (1 - fy) + low * fy
    return out


def hit(image_map: np.ndarray, places: np.ndarray, alpha: float) -> float:
    """Of the best of several places (x, y); NaN where none is visible."""
    height, width = image_map.shape
    hits = []
    for x, y in places:
        if math.isnan(x):
            continue
        column = min(max(math.floor(x + 0.5), 0), width - 1)
        row = min(max(math.floor(y + 0.5), 0), height - 1)
        value = image_map[row, column]
        # Rounding of float32 splits ties of the formula; the maps here are random, so that there are none.
        larger, same = (image_map > value).sum(), (image_map == value).sum()
        hits.append(min(max((alpha * height * width / 12 - larger) / same, 0.0), 1.0))
    return max(hits, default=math.nan)


def evaluate(
    *,
    values: np.ndarray,
    theta: np.ndarray,
    bias: np.ndarray,
    maps: np.ndarray,
    labels: np.ndarray,
    present: np.ndarray,
    points: np.ndarray,
    parts: np.ndarray,
    size: tuple[int, int],
    tops: tuple[int, ...],
    alphas: tuple[float, ...],
) -> dict[tuple[Any, ...], Any]:
    """Scores by ("cem", importance, l), ("clm", importance, l, alpha), and ("means", importance) of (K, L)."""
    n, n_concepts = values.shape
    out: dict[tuple[Any, ...], Any] = {}
    localisable = [j for j in range(n_concepts) if parts[j] >= 0]
    sums: dict[str, np.ndarray] = {}
    counts = np.zeros(len(theta))
    for i in range(n):
        logits = [sum(theta[k, j] * values[i, j] for j in range(n_concepts)) + bias[k] for k in range(len(theta))]
        k = int(np.argmax(logits))
        out.setdefault(("predicted",), []).append(k)
        if k == labels[i]:
            counts[k] += 1
        for name, importance in linear_importance(values[i], theta, k).items():
            if k == labels[i]:
                sums.setdefault(name, np.zeros_like(theta))[k] += importance
            ranked = rank(importance, list(range(n_concepts)))
            placed = rank(importance, localisable)
            for top in tops:
                out.setdefault(("cem", name, top), []).append(np.mean([present[i, j] for j in ranked[:top]]))
                for alpha in alphas:
                    hits = [hit(upsampled(maps[i, j], size), points[i, parts[j]], alpha) for j in placed[:top]]
                    hits = [h for h in hits if not math.isnan(h)]
                    score = float(np.mean(hits)) if hits else math.nan
                    out.setdefault(("clm", name, top, alpha), []).append(score)
    for name, total in sums.items():
        out["means", name] = np.array(
            [total[k] / counts[k] if counts[k] else np.full(n_concepts, np.nan) for k in range(len(theta))]
        )
    # A linear head's weights need no image of their class.
    out["means", "weight"] = theta
    return out
