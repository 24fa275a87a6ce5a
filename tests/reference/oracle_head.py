"""The oracle head in plain loops (arXiv 2606.30498)."""

import math


def oracle_head(presence, class_concepts, labels):
    scores = []
    for row, label in zip(presence, labels, strict=True):
        if any(math.isnan(value) for value in row):
            scores.append(math.nan)
            continue
        agreements = []
        for of_class in class_concepts:
            agreements.append(sum((value == 1) == (share >= 0.5) for value, share in zip(row, of_class, strict=True)))
        best = [k for k, agreement in enumerate(agreements) if agreement == max(agreements)]
        scores.append(1 / len(best) if label in best else 0.0)
    return scores
