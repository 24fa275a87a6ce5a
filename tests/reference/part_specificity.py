"""Part specificity in plain loops, in float64."""

import math


def part_specificity(hits, parts, weights):
    others, differences = [], []
    for row, part in zip(hits, parts, strict=True):
        total = count = 0.0
        for place, hit in enumerate(row):
            if place != part and not math.isnan(hit):
                total += weights[place] * hit
                count += weights[place]
        defined = count > 0 and not math.isnan(row[part])
        others.append(total / count if defined else math.nan)
        differences.append(row[part] - others[-1])
    return others, differences
