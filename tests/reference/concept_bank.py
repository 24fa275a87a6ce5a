"""Concept banks and maps a second time, slowly, from the formulas."""

import numpy as np


def mean_cav(features, positive, negative):
    """FastCAV of one concept: mean of positives less mean of all drawn; boundary midway."""
    d = features.shape[1]
    cav = np.zeros(d)
    examples = list(positive) + list(negative)
    for k in range(d):
        of_positives = sum(float(features[i, k]) for i in positive) / len(positive)
        of_all = sum(float(features[i, k]) for i in examples) / len(examples)
        cav[k] = of_positives - of_all
    score = [sum(float(features[i, k]) * cav[k] for k in range(d)) for i in range(len(features))]
    middle = sum(score[i] for i in positive) / len(positive) + sum(score[i] for i in negative) / len(negative)
    return cav, -middle / 2


def concept_map(features, cav):
    """Eq. 2 for one image: features (d, h, w), cav (d,)."""
    d, h, w = features.shape
    result = np.zeros((h, w))
    for y in range(h):
        for x in range(w):
            for k in range(d):
                result[y, x] += float(cav[k]) * float(features[k, y, x]) / d
    return result
