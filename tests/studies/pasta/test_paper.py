"""The paper's figures: some as printed, all as far as they can be checked against each other."""

from __future__ import annotations

from itertools import pairwise

import pandas as pd
import pytest

from quantus_concepts.datasets.ratings.explanations import QUESTIONS
from quantus_concepts.metrics.pasta.rated_metrics import FAITHFULNESS, SENSITIVITY
from quantus_concepts.studies.pasta.ablate import ABLATIONS
from quantus_concepts.studies.pasta.report import paper_table

METRICS = (*FAITHFULNESS, *SENSITIVITY, "Sparseness")


@pytest.mark.parametrize(
    ("table", "row", "question", "measure", "value", "deviation"),
    [
        (1, "siglip", "Q1", "MSE", 0.989, 0.113),
        (1, "human", "Q5", "QWK", 0.848, 0.029),
        (1, "eva02", "Q6", "SCC", 0.220, 0.057),
        (1, "blip", "Q6", "MSE", 10.710, 4.943),
        (17, "SVM", "Q1", "MSE", 0.965, 0.077),
        (17, "PASTA-score", "Q1", "SCC", 0.501, 0.052),
        (20, "weighted", "Q1", "QWK", 0.392, None),
        (7, "Faithfulness (black)", "Q1", "SCC", 0.077, None),
        (8, "MaxSensitivity (Gaussian)", "Q5", "SCC", 0.103, None),
        (9, "Sparseness", "Q6", "PCC", 0.052, None),
        ("text", "mixture", "", "faithfulness correlation", 0.0627, None),
    ],
)
def test_figures_are_as_printed(table, row, question, measure, value, deviation) -> None:
    printed = paper_table(table)
    (cell,) = printed[(printed[["row", "question", "measure"]] == [row, question, measure]).all(axis=1)].itertuples()
    assert (cell.model, cell.value) == ("paper", value)
    if deviation is not None:
        assert cell.deviation == deviation


def test_every_table_is_whole() -> None:
    sizes = {1: 3 * 5 * 6, 2: 6, 15: 9, 16: 6, 17: 12, 18: 6, 19: 12, 20: 9}
    assert {table: len(paper_table(table)) for table in sizes} == sizes
    for ablation in ABLATIONS.values():
        if ablation.table is not None:
            assert set(paper_table(ablation.table)["row"]) <= {variant.name for variant in ablation.variants}


@pytest.mark.parametrize("metric", METRICS)
def test_p_values_fall_with_the_size_of_the_coefficient(metric: str) -> None:
    """A slip in a sign or a digit would show; rounding and the paper's own differences stay below a power of ten."""
    printed = pd.concat([paper_table(table) for table in (7, 8, 9)])
    cells = printed[printed["row"] == metric]
    assert list(cells[cells["measure"] == "SCC"]["question"]) == list(QUESTIONS)
    for _, rows in cells.groupby("measure"):
        ordered = rows.sort_values("value", key=abs)
        assert all(stronger <= 10 * weaker for weaker, stronger in pairwise(ordered["p"]))
