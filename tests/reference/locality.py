"""Locality, slowly and in float64: one concept of one image after another."""

from __future__ import annotations

import math

import numpy as np


def hide_part(image: np.ndarray, places: np.ndarray) -> np.ndarray:
    """Paint the mean colour of an image (C, H, W) on every pixel within a disc of a twelfth of it around a place."""
    hidden, radius = image.copy(), math.sqrt(image[0].size / 12 / math.pi)
    for row in range(image.shape[1]):
        for column in range(image.shape[2]):
            for x, y in places:
                if math.hypot(column - x, row - y) <= radius:
                    hidden[:, row, column] = image.mean((1, 2))
    return hidden


def locality(values: np.ndarray, hidden: np.ndarray, parts: np.ndarray) -> np.ndarray:
    """Change at the own part less the mean over concepts about other visible parts of the change at theirs."""
    scores = np.full(values.shape, np.nan)
    for i, image in enumerate(values):
        for j, own in enumerate(parts):
            if own < 0 or np.isnan(hidden[i, own, j]):
                continue
            others = [abs(hidden[i, p, j] - image[j]) for p in parts if p not in (-1, own)]
            others = [change for change in others if not np.isnan(change)]
            if others:
                scores[i, j] = abs(hidden[i, own, j] - image[j]) - np.mean(others)
    return scores
