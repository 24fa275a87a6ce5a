"""Leakage with loops over images, from the definitions of information, and the best head of a concept table."""

from __future__ import annotations

import math
from collections import Counter

import numpy as np


def entropy(cells):
    """Entropy of cells, which may be tuples, in nats."""
    n = len(cells)
    return -sum(count / n * math.log(count / n) for count in Counter(cells).values())


def bins_of(column, n_bins):
    """Equal frequency: by the mean rank of equal values."""
    n = len(column)
    ranks = [sum(other < value for other in column) + sum(other <= value for other in column) for value in column]
    return [rank * n_bins // (2 * n) for rank in ranks]


def information(a, b):
    return entropy(a) + entropy(b) - entropy(list(zip(a, b, strict=True)))


def information_given(a, b, c):
    """I(a; b | c) as the mean over the values of c."""
    total = 0.0
    for value in set(c):
        rows = [i for i in range(len(c)) if c[i] == value]
        total += len(rows) / len(c) * information([a[i] for i in rows], [b[i] for i in rows])
    return total


def concept_task_leakage(values, classes, concepts, n_bins):
    """Return the information beyond the concept, and the published difference, without a null."""
    beyond, published = [], []
    for j in range(values.shape[1]):
        u, c = bins_of(values[:, j].tolist(), n_bins), concepts[:, j].tolist()
        y = classes.tolist()
        beyond.append(information_given(u, y, c) / entropy(y))
        published.append((information(u, y) - information(c, y)) / entropy(y))
    return np.array(beyond), np.array(published)


def interconcept_leakage(values, concepts, n_bins):
    """Return the scaled information of values, and the published difference, without a null."""
    n_concepts = values.shape[1]
    own, published = np.full((2, n_concepts, n_concepts), math.nan)
    for j in range(n_concepts):
        for k in range(n_concepts):
            if j == k:
                continue
            u, v = (bins_of(values[:, i].tolist(), n_bins) for i in (j, k))
            c, d = (concepts[:, i].tolist() for i in (j, k))
            own[j, k] = information(u, v) / math.sqrt(entropy(u) * entropy(v))
            published[j, k] = own[j, k] - information(c, d) / math.sqrt(entropy(c) * entropy(d))
    return own, published


def leakage_of_wrong_labels(values, classes, concepts, shares, n_bins):
    """Return the leakage of an honest model if a share of the labels is wrong, a mean over concepts that vary."""
    n, names = len(classes), sorted(set(classes.tolist()))
    sizes = [int((classes == k).sum()) for k in names]
    entropy_of_classes = entropy(classes.tolist())
    found = []
    for q in shares:
        by_concept = []
        for j in range(concepts.shape[1]):
            given = concepts[:, j]
            if given.min() == given.max():
                continue
            bins = np.array(bins_of(values[:, j].tolist(), n_bins))
            seen = [[float(np.mean(bins[given == g] == b)) for b in range(n_bins)] for g in (0, 1)]
            in_class = [float(given[classes == k].mean()) for k in names]
            mean = float(given.mean())
            spread = sum(m / n * (p - mean) ** 2 for m, p in zip(sizes, in_class, strict=True))
            chance = sum(m / n * p * (1 - p) / max(1, m - 1) for m, p in zip(sizes, in_class, strict=True))
            kept = math.sqrt(max(0, spread - chance) / spread) if spread > 0 else 0
            true = [min(1, max(0, (mean + kept * (p - mean) - q) / (1 - 2 * q))) for p in in_class]
            prevalence = sum(m / n * p for m, p in zip(sizes, true, strict=True))
            # The shares of true concepts among those given, and among those not given, mix the two distributions.
            a = prevalence * (1 - q) / (prevalence * (1 - q) + (1 - prevalence) * q)
            b = prevalence * q / (prevalence * q + (1 - prevalence) * (1 - q))
            with_it = [max(0, (1 - b) * s1 - (1 - a) * s0) for s0, s1 in zip(*seen, strict=True)]
            without = [max(0, a * s0 - b * s1) for s0, s1 in zip(*seen, strict=True)]
            with_it, without = ([x / sum(part) if sum(part) else 0 for x in part] for part in (with_it, without))
            total = 0.0
            for of_true, of_absent in ((1 - q, q), (q, 1 - q)):
                cells = [
                    [m / n * (p * of_true * with_it[u] + (1 - p) * of_absent * without[u]) for u in range(n_bins)]
                    for m, p in zip(sizes, true, strict=True)
                ]
                whole = sum(map(sum, cells))
                columns = [sum(row[u] for row in cells) for u in range(n_bins)]
                for row in cells:
                    for u, cell in enumerate(row):
                        total += cell * math.log(cell * whole / sum(row) / columns[u]) if cell > 0 else 0
            by_concept.append(total / entropy_of_classes)
        found.append(sum(by_concept) / len(by_concept))
    return found


def concept_set_ceiling(concepts, classes):
    """Name the commonest class of each distinct row."""
    rows = [tuple(row) for row in concepts]
    right = 0
    for row in set(rows):
        counts = Counter(y for other, y in zip(rows, classes, strict=True) if other == row)
        right += max(counts.values())
    return right / len(rows)


def elastic_net_objective(values, classes, weights, biases, penalty, mix):
    """Cross entropy plus the penalty of an elastic net, image by image."""
    total = 0.0
    for row, label in zip(values, classes, strict=True):
        logits = weights @ row + biases
        total += math.log(sum(math.exp(logit - logits.max()) for logit in logits)) + logits.max() - logits[label]
    squares = (weights**2).sum() / 2
    return total / len(values) + penalty * (mix * np.abs(weights).sum() + (1 - mix) * squares)


def swapped_accuracy(values, classes, head, own_scale, other_scale):
    """Return the accuracy of a head (weights, biases) of one scale (mean, deviation) on values of another one."""
    weights, biases = head
    right = 0
    for u, y in zip(values.tolist(), classes.tolist(), strict=True):
        logits = []
        for row, bias in zip(weights.tolist(), biases.tolist(), strict=True):
            total = bias
            for j, weight in enumerate(row):
                standard = (u[j] - other_scale[0][j]) / other_scale[1][j]
                total += weight * (standard * own_scale[1][j] + own_scale[0][j])
            logits.append(total)
        right += logits.index(max(logits)) == y
    return right / len(classes)
