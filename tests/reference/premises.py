"""Premise checks in plain loops: accuracies, what stays correct, and median divergences."""

import math


def softmax(logits):
    largest = max(float(value) for value in logits)
    powers = [math.exp(float(value) - largest) for value in logits]
    return [power / sum(powers) for power in powers]


def predicted(logits):
    best = 0
    for k in range(1, len(logits)):
        if logits[k] > logits[best]:
            best = k
    return best


def divergence(first, second):
    total = 0.0
    for p, q in zip(softmax(first), softmax(second), strict=True):
        total += p * (math.log(p) - math.log(q))
    return total


def median(values):
    if not values:
        return math.nan
    ordered = sorted(values)
    middle = len(ordered) // 2
    return ordered[middle] if len(ordered) % 2 else (ordered[middle - 1] + ordered[middle]) / 2


def premises(with_feature, without_feature, only_feature, labels):
    """The quantities of a check, by name, of logits (N, K) on the three sets."""
    right = [0, 0, 0]
    stayed = 0
    same, changed = [], []
    for first, second, third, label in zip(with_feature, without_feature, only_feature, labels, strict=True):
        answers = [predicted(logits) for logits in (first, second, third)]
        for place, answer in enumerate(answers):
            right[place] += answer == label
        stayed += answers[0] == label and answers[1] == label
        (same if answers[0] == answers[1] else changed).append(divergence(first, second))
    n = len(labels)
    return {
        "accuracy_with": right[0] / n,
        "accuracy_without": right[1] / n,
        "accuracy_only": right[2] / n,
        "remains_correct": stayed / right[0] if right[0] else math.nan,
        "median_kl_same": median(same),
        "median_kl_changed": median(changed),
        "chance": 1 / len(with_feature[0]),
    }
