"""Scores of concept values by loops over images, thresholds and bins, and their jackknife by leaving out classes."""

from __future__ import annotations

import math

from reference.bottleneck import bins_of
from reference.concept_auc import jackknife


def average_precision(values, shown):
    """Lower a threshold from one value to the next: precision, weighted with what recall gains."""
    n_shown, before, total = sum(shown), 0, 0.0
    for threshold in sorted(set(values), reverse=True):
        named = [c for u, c in zip(values, shown, strict=True) if u >= threshold]
        total += (sum(named) - before) / n_shown * sum(named) / len(named)
        before = sum(named)
    return total


def f1(values, shown, threshold):
    """Count with weights of which both sides have a half."""
    sides = [sum(c == side for c in shown) for side in (0, 1)]
    hits = misses = wrong = 0.0
    for u, c in zip(values, shown, strict=True):
        weight = 1 / (2 * sides[c])
        hits += weight if c == 1 and u >= threshold else 0
        misses += weight if c == 1 and u < threshold else 0
        wrong += weight if c == 0 and u >= threshold else 0
    return 2 * hits / (2 * hits + misses + wrong)


def brier(values, shown):
    return sum((u - c) ** 2 for u, c in zip(values, shown, strict=True)) / len(values)


def calibration_error(values, shown, n_bins):
    """Mean value less share of images with the concept in bins of equal frequency, weighted with their images."""
    total, bins = 0.0, bins_of(values, n_bins)
    for each in set(bins):
        rows = [i for i in range(len(values)) if bins[i] == each]
        value, share = sum(values[i] for i in rows) / len(rows), sum(shown[i] for i in rows) / len(rows)
        total += len(rows) / len(values) * abs(value - share)
    return total


def concept_quality(values, concepts, score, threshold=0.5, n_bins=15):
    """Return the score of each concept; NaN where one of two sides that it needs has no image."""
    scores = []
    for u, c in zip(zip(*values, strict=True), zip(*concepts, strict=True), strict=True):
        if score in ("average_precision", "f1") and len(set(c)) < 2:
            scores.append(math.nan)
        else:
            settings = {"f1": (threshold,), "calibration_error": (n_bins,)}.get(score, ())
            scores.append(globals()[score](u, c, *settings))
    return scores


def interval(values, concepts, classes, score):
    return jackknife(lambda some, shown: concept_quality(some, shown, score), values, concepts, classes)
