"""CGIM and the class means in plain loops, from Equations 3 to 8 and the definition of U*."""

import math

import numpy as np


def phi(a, b):
    dot = math.fsum(x * y for x, y in zip(a, b, strict=True))
    norm_a = math.sqrt(math.fsum(x * x for x in a))
    norm_b = math.sqrt(math.fsum(y * y for y in b))
    if norm_a == 0 or norm_b == 0:
        return math.nan
    return dot / (norm_a * norm_b)


def cgim(importance, truth, per):
    importance = np.asarray(importance, dtype=np.float64)
    truth = np.asarray(truth, dtype=np.float64)
    n_classes, n_concepts = importance.shape
    defined = [k for k in range(n_classes) if not any(math.isnan(x) for x in importance[k])]
    if per == "class":
        return np.array([phi(importance[k], truth[k]) if k in defined else math.nan for k in range(n_classes)])
    scores = []
    for j in range(n_concepts):
        scores.append(phi([importance[k, j] for k in defined], [truth[k, j] for k in defined]))
    return np.array(scores)
