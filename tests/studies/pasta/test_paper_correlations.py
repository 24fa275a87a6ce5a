"""The paper's figures, as far as they can be checked against each other."""

from __future__ import annotations

from itertools import pairwise

import pytest

from quantus_concepts.datasets.ratings.questions import QUESTIONS
from quantus_concepts.metrics.explainer_values import FAITHFULNESS, SENSITIVITY, SPARSENESS
from quantus_concepts.studies.pasta.paper_correlations import CORRELATIONS


def test_every_metric_and_question() -> None:
    assert list(CORRELATIONS) == [*FAITHFULNESS, *SENSITIVITY, SPARSENESS]
    assert all(list(cells) == list(QUESTIONS) for cells in CORRELATIONS.values())
    # some cells as printed in the tables
    assert CORRELATIONS["Faithfulness (black)"]["Q1"] == (0.111, 1e-47, 0.077, 1e-23)
    assert CORRELATIONS["MaxSensitivity (Gaussian)"]["Q5"].spearman == 0.103
    assert CORRELATIONS["Sparseness"]["Q6"].pearson == 0.052


@pytest.mark.parametrize("metric", CORRELATIONS)
def test_p_values_fall_with_the_size_of_the_coefficient(metric: str) -> None:
    """A slip in a sign or a digit would show; rounding and the paper's own differences stay below a power of ten."""
    for cells in (
        [(cell.pearson, cell.pearson_p) for cell in CORRELATIONS[metric].values()],
        [(cell.spearman, cell.spearman_p) for cell in CORRELATIONS[metric].values()],
    ):
        ordered = sorted(cells, key=lambda cell: abs(cell[0]))
        for (_, weaker), (_, stronger) in pairwise(ordered):
            assert stronger <= 10 * weaker
