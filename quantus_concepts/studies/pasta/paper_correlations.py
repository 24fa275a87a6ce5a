"""The paper's correlations between metrics and ratings, to stand beside ours.

Source: Kazmierczak et al., Tables 7 to 9: Pearson's and Spearman's coefficient, each with its p-value; metrics by the
names of `quantus_concepts.metrics.explainer_values`. In their reading none of the metrics is strongly correlated.
"""

from __future__ import annotations

from typing import NamedTuple

SOURCE = "Kazmierczak et al., Tables 7, 8 and 9: image-level attributions of the PASTA data set"


class PaperCorrelation(NamedTuple):
    """One cell of the tables."""

    pearson: float
    pearson_p: float
    spearman: float
    spearman_p: float


def _by_question(*cells: tuple[float, float, float, float]) -> dict[str, PaperCorrelation]:
    return {f"Q{number}": PaperCorrelation(*cell) for number, cell in enumerate(cells, start=1)}


#: By metric and question.
CORRELATIONS: dict[str, dict[str, PaperCorrelation]] = {
    "Faithfulness (ROAD)": _by_question(
        (0.029, 1e-4, -0.047, 8e-10),
        (0.030, 1e-4, -0.044, 1e-9),
        (0.035, 6e-6, 0.003, 7e-1),
        (0.033, 1e-5, -0.008, 3e-1),
        (-0.060, 8e-15, 0.003, 7e-1),
        (-0.019, 1e-2, 0.059, 1e-14),
    ),
    "Faithfulness (black)": _by_question(
        (0.111, 1e-47, 0.077, 1e-23),
        (0.108, 3e-45, 0.075, 2e-22),
        (0.079, 3e-25, 0.065, 2e-17),
        (0.081, 3e-26, 0.062, 1e-15),
        (-0.067, 3e-18, -0.028, 1e-4),
        (-0.053, 4e-12, -0.031, 6e-5),
    ),
    "Faithfulness (uniform)": _by_question(
        (0.037, 1e-6, -0.036, 2e-6),
        (0.034, 9e-6, -0.037, 1e-6),
        (0.029, 2e-4, 0.005, 5e-1),
        (0.030, 9e-5, -0.001, 9e-1),
        (-0.066, 6e-18, -0.025, 1e-3),
        (-0.023, 1e-3, 0.029, 1e-4),
    ),
    "Faithfulness (Gaussian)": _by_question(
        (0.036, 1e-6, -0.032, 3e-5),
        (0.034, 1e-5, -0.032, 3e-5),
        (0.027, 1e-4, 0.004, 6e-1),
        (0.029, 2e-4, -0.001, 9e-1),
        (-0.065, 3e-17, -0.022, 4e-3),
        (-0.022, 5e-3, 0.030, 1e-4),
    ),
    "MaxSensitivity (uniform)": _by_question(
        (-0.262, 9e-178, -0.326, 4e-280),
        (-0.258, 4e-172, -0.323, 4e-273),
        (-0.164, 7e-69, -0.193, 3e-95),
        (-0.176, 6e-80, -0.201, 2e-103),
        (0.136, 9e-48, 0.169, 1e-73),
        (0.101, 5e-27, 0.125, 5e-41),
    ),
    "MaxSensitivity (Gaussian)": _by_question(
        (-0.250, 4e-165, -0.301, 7e-243),
        (-0.247, 2e-161, -0.297, 7e-236),
        (-0.175, 1e-80, -0.188, 3e-93),
        (-0.182, 8e-88, -0.190, 3e-95),
        (0.104, 2e-29, 0.103, 6e-29),
        (0.100, 3e-27, 0.132, 1e-46),
    ),
    "Sparseness": _by_question(
        (-0.137, 4e-72, -0.134, 3e-69),
        (-0.134, 6e-69, -0.131, 5e-66),
        (-0.080, 3e-25, -0.075, 9e-23),
        (-0.079, 6e-25, -0.073, 2e-21),
        (-0.085, 1e-28, -0.087, 6e-30),
        (0.052, 9e-12, 0.073, 9e-22),
    ),
}
