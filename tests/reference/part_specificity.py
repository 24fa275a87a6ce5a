"""Part specificity in plain loops, in float64."""

import math


def part_specificity(hits, parts, weights):
    elsewhere, differences = [], []
    for row, part in zip(hits, parts, strict=True):
        total = count = 0.0
        for place, hit in enumerate(row):
            if place != part and not math.isnan(hit):
                total += weights[place] * hit
                count += weights[place]
        defined = count > 0 and not math.isnan(row[part])
        elsewhere.append(total / count if defined else math.nan)
        differences.append(row[part] - elsewhere[-1])
    return elsewhere, differences
