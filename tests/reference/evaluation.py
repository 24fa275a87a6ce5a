"""The evaluation of a concept model from the formulas, image by image and concept by concept, in float64."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from reference.cem import rank
from reference.clm import point_hits


def effect(values: np.ndarray, level: np.ndarray, k: int, head: Callable[[np.ndarray], np.ndarray]) -> np.ndarray:
    """Of one image and any head: what class k, less the mean of all, loses when one concept each is absent."""

    def margin(u: np.ndarray) -> float:
        logits = head(u)
        return float(logits[k] - sum(logits) / len(logits))

    losses = []
    for j in range(len(values)):
        without = values.copy()
        without[j] = level[j]
        losses.append(margin(values) - margin(without))
    return np.array(losses)


def linear_importance(values: np.ndarray, theta: np.ndarray, k: int, level: np.ndarray) -> dict[str, np.ndarray]:
    """Of one image; theta is (K, L), the level of absent concepts (L,)."""
    by_effect = effect(values, level, k, lambda u: theta @ u)
    return {"weight": theta[k], "value": values, "contribution": theta[k] * values, "effect": by_effect}


def evaluate(
    *,
    values: np.ndarray,
    theta: np.ndarray,
    bias: np.ndarray,
    maps: np.ndarray,
    present: np.ndarray,
    points: np.ndarray,
    parts: np.ndarray,
    size: tuple[int, int],
    absent: np.ndarray,
    tops: tuple[int, ...],
    alphas: tuple[float, ...],
) -> dict[tuple[Any, ...], Any]:
    """Scores by ("cem", importance, l), ("clm", importance, l, alpha)."""
    n, n_concepts = values.shape
    out: dict[tuple[Any, ...], Any] = {}
    for i in range(n):
        logits = [sum(theta[k, j] * values[i, j] for j in range(n_concepts)) + bias[k] for k in range(len(theta))]
        k = int(np.argmax(logits))
        out.setdefault(("predicted",), []).append(k)
        for name, importance in linear_importance(values[i], theta, k, absent).items():
            # An absence is no reason to name a concept.
            below = (values[i] < absent) & (name == "effect")
            naming = np.where(below, -abs(importance), importance)
            ranked = rank(naming)
            placed = rank(naming, parts >= 0)
            for top in tops:
                out.setdefault(("cem", name, top), []).append(np.mean([present[i, j] for j in ranked[:top]]))
                for alpha in alphas:
                    hits = [
                        point_hits(maps[i, j][None], points[i, parts[j]][None], size, (alpha,))[0, 0]
                        for j in placed[:top]
                    ]
                    hits = [h for h in hits if not math.isnan(h)]
                    score = float(np.mean(hits)) if hits else math.nan
                    out.setdefault(("clm", name, top, alpha), []).append(score)
    return out
