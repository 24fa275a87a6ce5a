"""Losses, joined votes and agreement of ratings in plain loops and float64, from the formulas."""

import math

import numpy as np


def join(votes, how):
    out = []
    for row in votes:
        defined = sorted(v for v in row if not math.isnan(v))
        if not defined:
            out.append(math.nan)
        elif how == "mode":
            best = None
            for vote in defined:
                if best is None or defined.count(vote) > defined.count(best):
                    best = vote
            out.append(best)
        elif how == "mean":
            out.append(sum(defined) / len(defined))
        else:
            half = len(defined) // 2
            out.append(defined[half] if len(defined) % 2 else (defined[half - 1] + defined[half]) / 2)
    return np.array(out, dtype=np.float64)


def cosine_loss(p, t):
    top = sum(a * b for a, b in zip(p, t, strict=True))
    return 1 - top / (math.sqrt(sum(a * a for a in p)) * math.sqrt(sum(b * b for b in t)))


def squared_loss(p, t):
    return sum((a - b) ** 2 for a, b in zip(p, t, strict=True)) / len(p)


def ranking_loss(p, t):
    total, n = 0.0, 0
    for i in range(len(p)):
        for j in range(i):
            if t[i] != t[j]:
                total += max(0.0, -(p[i] - p[j]) * (t[i] - t[j]))
                n += 1
    return total / n if n else 0.0


def neighbour_loss(p, t):
    total = 0.0
    for i in range(len(p) - 1):
        if t[i] != t[i + 1]:
            sign = 1 if t[i + 1] > t[i] else -1
            total += max(0.0, -sign * (p[i + 1] - p[i]))
    return total / (len(p) - 1)


def kappa(p, t, k=5):
    """Quadratic weighted kappa by its weights of agreement (Eq. 7)."""
    n = len(p)
    observed, expected = np.zeros((k, k)), np.zeros((k, k))
    for a, b in zip(p, t, strict=True):
        observed[int(a) - 1, int(b) - 1] += 1 / n
    for i in range(k):
        for j in range(k):
            expected[i, j] = observed[i].sum() * observed[:, j].sum()
    weights = np.array([[1 - (i - j) ** 2 / (k - 1) ** 2 for j in range(k)] for i in range(k)])
    o, e = (weights * observed).sum(), (weights * expected).sum()
    return (o - e) / (1 - e) if 1 - e > 1e-12 else math.nan


def ranks(values):
    """With ties at the mean of their places."""
    return [
        sum(1 for other in values if other < value) + (sum(1 for other in values if other == value) + 1) / 2
        for value in values
    ]


def spearman(first, second):
    a, b = np.array(ranks(first)), np.array(ranks(second))
    a, b = a - a.mean(), b - b.mean()
    size = math.sqrt((a**2).sum() * (b**2).sum())
    return (a * b).sum() / size if size else math.nan


def forward(embeddings, labels, n_labels, layers):
    """The scorer of one question: one-hot label, embedding, layers of (matrix, bias) with ReLU after each."""
    scores = []
    for row, label in zip(np.asarray(embeddings, dtype=np.float64), labels, strict=True):
        one_hot = [1.0 if place == label else 0.0 for place in range(n_labels)]
        values = np.array([*one_hot, *row])
        for matrix, bias in layers:
            values = np.maximum(np.asarray(matrix, dtype=np.float64) @ values + np.asarray(bias, dtype=np.float64), 0)
        scores.append(min(max(1 + 4 * values[0], 1), 5))
    return np.array(scores)
