"""Concept AUC by a loop over pairs, and its jackknife by scoring again without each class."""

from __future__ import annotations

import math

from scipy import stats


def concept_auc(values, concepts, classes=None):
    """Return the share of the pairs that are won, ties a half, of pairs of one class where classes are given."""
    scores = []
    for j in range(len(values[0])):
        won = pairs = 0.0
        for a in range(len(values)):
            for b in range(len(values)):
                if concepts[a][j] == 1 and concepts[b][j] == 0 and (classes is None or classes[a] == classes[b]):
                    pairs += 1
                    won += 1.0 if values[a][j] > values[b][j] else 0.5 if values[a][j] == values[b][j] else 0.0
        scores.append(won / pairs if pairs else math.nan)
    return scores


def mean(scores):
    defined = [score for score in scores if not math.isnan(score)]
    return math.fsum(defined) / len(defined) if defined else math.nan


def jackknife(score, values, concepts, classes):
    """Return the delete-one-class jackknife interval of the mean of `score`, with K - 1 degrees of freedom."""
    names = sorted(set(classes))
    left_out = []
    for name in names:
        rows = [i for i in range(len(classes)) if classes[i] != name]
        left_out.append(mean(score([values[i] for i in rows], [concepts[i] for i in rows])))
    centre, k = math.fsum(left_out) / len(names), len(names)
    error = math.sqrt((k - 1) / k * math.fsum((each - centre) ** 2 for each in left_out))
    half = stats.t.ppf(0.975, k - 1) * error
    value = mean(score(values, concepts))
    return (math.nan, math.nan) if math.isnan(half) else (max(0.0, value - half), min(1.0, value + half))


def interval(values, concepts, classes):
    return jackknife(concept_auc, values, concepts, classes)
