"""The paper's own figures, to stand beside ours on the same data.

Source: Aysel et al. (2025), "Concept-Based Explainable AI: Metrics and Benchmarks", Tables 1, 2 and 3: a
post-hoc concept bottleneck model on CUB-200-2011. All are percentages. The explanations are named as
everywhere here: weight is theta, value is u, contribution is theta times u.
"""

from __future__ import annotations

SOURCE = "Aysel et al. (2025), Concept-Based Explainable AI: Metrics and Benchmarks"

#: Table 1: the concept existence metric by (set, explanation, l), in %.
CEM: dict[tuple[str, str, int], float] = {
    ("all", "weight", 1): 39.2,
    ("all", "weight", 3): 37.9,
    ("all", "weight", 5): 37.1,
    ("all", "value", 1): 84.3,
    ("all", "value", 3): 80.1,
    ("all", "value", 5): 77.2,
    ("all", "contribution", 1): 49.3,
    ("all", "contribution", 3): 44.3,
    ("all", "contribution", 5): 41.2,
    ("correct", "weight", 1): 48.5,
    ("correct", "weight", 3): 46.8,
    ("correct", "weight", 5): 44.8,
    ("correct", "value", 1): 85.4,
    ("correct", "value", 3): 82.1,
    ("correct", "value", 5): 80.7,
    ("correct", "contribution", 1): 55.4,
    ("correct", "contribution", 3): 49.1,
    ("correct", "contribution", 5): 45.8,
}

#: Table 2: the concept location metric by (alpha, explanation, l), in %.
CLM: dict[tuple[float, str, int], float] = {
    (1.0, "weight", 1): 10.8,
    (1.0, "weight", 3): 13.6,
    (1.0, "weight", 5): 13.8,
    (1.0, "value", 1): 14.9,
    (1.0, "value", 3): 14.6,
    (1.0, "value", 5): 14.6,
    (1.0, "contribution", 1): 13.3,
    (1.0, "contribution", 3): 13.5,
    (1.0, "contribution", 5): 12.9,
    (3.0, "weight", 1): 29.6,
    (3.0, "weight", 3): 30.1,
    (3.0, "weight", 5): 31.2,
    (3.0, "value", 1): 39.2,
    (3.0, "value", 3): 33.7,
    (3.0, "value", 5): 33.1,
    (3.0, "contribution", 1): 33.4,
    (3.0, "contribution", 3): 32.2,
    (3.0, "contribution", 5): 31.8,
    (6.0, "weight", 1): 52.3,
    (6.0, "weight", 3): 50.8,
    (6.0, "weight", 5): 51.6,
    (6.0, "value", 1): 54.5,
    (6.0, "value", 3): 56.4,
    (6.0, "value", 5): 55.9,
    (6.0, "contribution", 1): 59.0,
    (6.0, "contribution", 3): 55.0,
    (6.0, "contribution", 5): 53.9,
}

#: Table 3: class accuracy by (C, n_pos = n_neg), in %.
ACCURACY: dict[tuple[float, int], float] = {
    (0.001, 50): 26.7,
    (0.001, 100): 52.2,
    (0.01, 50): 34.1,
    (0.01, 100): 44.9,
    (0.1, 50): 29.1,
    (0.1, 100): 41.5,
    (1.0, 50): 25.5,
    (1.0, 100): 59.1,
    (10.0, 50): 25.3,
    (10.0, 100): 58.7,
}

#: Table 3, last row: class accuracy of the backbone without a bottleneck, in %.
PLAIN_ACCURACY = 75.4
