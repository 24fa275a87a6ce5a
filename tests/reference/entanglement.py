"""Cosines of directions against correlations of labels, by loops over pairs."""

from __future__ import annotations

import math


def cosine(a, b):
    lengths = math.sqrt(sum(x * x for x in a)) * math.sqrt(sum(y * y for y in b))
    return sum(x * y for x, y in zip(a, b, strict=True)) / lengths if lengths else math.nan


def correlation(a, b):
    means = sum(a) / len(a), sum(b) / len(b)
    return cosine([x - means[0] for x in a], [y - means[1] for y in b])


def entanglement(directions, concepts):
    columns, scores = list(zip(*concepts, strict=True)), []
    for j, own in enumerate(directions):
        off = [
            abs(cosine(own, other) - correlation(columns[j], columns[k]))
            for k, other in enumerate(directions)
            if k != j
        ]
        defined = [each for each in off if not math.isnan(each)]
        scores.append(sum(defined) / len(defined) if defined else math.nan)
    return scores
