"""Scores of discovered concepts, slowly and in float64: all matchings are tried, and each row is fitted by itself."""

from __future__ import annotations

from itertools import permutations

import numpy as np


def cosine(first: np.ndarray, second: np.ndarray) -> float:
    length = float(np.sqrt((first**2).sum() * (second**2).sum()))
    return float((first * second).sum()) / length if length else 0.0


def best_match(directions: np.ndarray, others: np.ndarray) -> tuple[int, ...]:
    orders = permutations(range(len(directions)))
    return max(orders, key=lambda order: sum(cosine(row, others[j]) for row, j in zip(directions, order, strict=True)))


def bank_stability(directions: np.ndarray, first: np.ndarray, second: np.ndarray) -> list[float]:
    one, two = best_match(directions, first), best_match(directions, second)
    return [cosine(first[i], second[j]) for i, j in zip(one, two, strict=True)]


def explained_variance(activations: np.ndarray, directions: np.ndarray) -> float:
    """R^2 of the activations as their mean plus the best weighted sum of directions, each fitted by itself."""
    mean, lost = activations.mean(0), 0.0
    for activation in activations:
        weights = np.linalg.lstsq(directions.T, activation - mean, rcond=None)[0]
        lost += float(((activation - mean - weights @ directions) ** 2).sum())
    return 1 - lost / float(((activations - mean) ** 2).sum())


def delete_concepts(embeddings: np.ndarray, directions: np.ndarray, order: np.ndarray, count: int) -> np.ndarray:
    """The smallest change after which the removed concepts have the 5th percentile of their values.

    Those that depend on others before them are left out.
    """
    absent, rows = np.quantile(embeddings @ directions.T, 0.05, axis=0), []
    for embedding, concepts in zip(embeddings, order, strict=True):
        removed: list[int] = []
        for j in concepts[:count]:
            if np.linalg.matrix_rank(directions[[*removed, j]]) > len(removed):
                removed.append(j)
        missing = directions[removed] @ embedding - absent[removed]
        # Of an underdetermined system this is the shortest solution.
        change = np.linalg.lstsq(directions[removed], missing, rcond=None)[0] if removed else 0
        rows.append(embedding - change)
    return np.array(rows)


def surrogate_fidelity(
    logits: np.ndarray, values: np.ndarray, importances: np.ndarray, bias: np.ndarray
) -> tuple[list[float], list[float]]:
    """Mean absolute error of logits less bias, and half the absolute differences of their softmax, image by image."""
    mae, emd = [], []
    for row, own in zip(logits, values, strict=True):
        explained = [y - b for y, b in zip(row, bias, strict=True)]
        surrogate = [sum(v * w for v, w in zip(own, weights, strict=True)) for weights in importances]
        mae.append(float(np.mean([abs(y - z) for y, z in zip(explained, surrogate, strict=True)])))
        powers = [np.exp(np.array(row) - max(row)) for row in (explained, surrogate)]
        one, two = (power / power.sum() for power in powers)
        emd.append(float(np.abs(one - two).sum() / 2))
    return mae, emd


def monosemanticity(activations: np.ndarray, embeddings: np.ndarray) -> list[float]:
    """Mean cosine over all pairs of images, weighted by the product of their activations, pair by pair."""
    scores = []
    for column in activations.T:
        scaled = (column - column.min()) / (column.max() - column.min())
        total = weights = 0.0
        for i in range(len(column)):
            for k in range(i + 1, len(column)):
                total += scaled[i] * scaled[k] * cosine(embeddings[i], embeddings[k])
                weights += scaled[i] * scaled[k]
        scores.append(total / weights)
    return scores
