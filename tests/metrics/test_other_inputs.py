"""Concept models of tables are evaluated at their bottleneck and on their rows."""

from __future__ import annotations

import numpy as np
import pytest
import quantus
import torch
from torch import Tensor, nn

from captum_concepts import BottleneckCBM
from quantus_concepts import CEM, CGIM, CLM, intervention_curve, score_concepts
from quantus_concepts.metrics import UsualMetrics


class Rows(nn.Module):
    """Rows of a table (N, F) to embeddings (N, 2): the sums of two columns each."""

    def forward(self, rows: Tensor) -> Tensor:
        return torch.stack([rows[:, :2].sum(1), rows[:, 2:].sum(1)], 1)


ROWS = torch.tensor([[3.0, 1, 0, 0], [1, 1, 0, 1], [0, 0, 2, 2], [0, 1, 3, 0]])


class Own(nn.Module):
    """A concept model of a user's own class, whose predictor is no module."""

    def __init__(self) -> None:
        super().__init__()
        self.features, self.concepts, self.head = Rows(), nn.Linear(2, 3), nn.Linear(3, 2)

    def concept_maps(self, rows: Tensor, concepts: Tensor | None = None) -> Tensor:
        raise NotImplementedError

    def concept_predictor(self, rows: Tensor) -> Tensor:
        return self.concepts(self.features(rows))


SHOWN = np.eye(3, dtype=int)[[0, 1, 2, 1]]


def test_rows_of_a_table_go_the_way_of_images():
    cbm = BottleneckCBM(Rows(), nn.Linear(2, 3), nn.Linear(3, 2)).eval()
    rows = ROWS.numpy()
    with torch.no_grad():
        values, classes = cbm.concept_predictor(ROWS).numpy(), cbm(ROWS).argmax(1).numpy()
    by = {"importance": "contribution"}
    metrics = {"CEM": CEM(SHOWN, **by), "CGIM": CGIM(np.eye(2, 3), per="class", **by)}
    methods = {"InputXGradient": {"method": "InputXGradient"}}
    on_rows, at_the_head = (
        quantus.evaluate(metrics, methods, model, x_batch, classes)["InputXGradient"]
        for model, x_batch in ((cbm, rows), (cbm.head, values))
    )
    np.testing.assert_allclose(on_rows["CEM"], at_the_head["CEM"])
    np.testing.assert_allclose(on_rows["CGIM"], at_the_head["CGIM"], rtol=1e-5)
    # Another table of the same shape is not taken for the first one.
    np.testing.assert_allclose(CEM(SHOWN[::-1], **by)(cbm, rows[::-1], classes[::-1]), on_rows["CEM"][::-1])

    batches = [(ROWS[start : start + 2], classes[start : start + 2], SHOWN[start : start + 2]) for start in (0, 2)]
    table = score_concepts(cbm, batches, UsualMetrics(top_l=[1], explanations=["contribution"]))
    cem = table[(table["metric"] == "CEM") & (table["baseline"] == "")]["value"]
    assert cem.tolist() == pytest.approx([np.mean(on_rows["CEM"])] * 2)
    assert intervention_curve(cbm, batches, orders=["random"])["value"].iloc[0] == 1
    with pytest.raises(ValueError, match=r"`images` to have shape \(B, C, H, W\) but got \(2, 4\)"):
        score_concepts(cbm, batches, CLM(), truth={"part_of_concept": [0, 0, 0]})
    with pytest.raises(ValueError, match=r"`x_batch` to hold the values of 3 concepts.*got shape \(4, 4\)"):
        CEM(SHOWN)(None, rows, classes, rows)


def test_members_that_an_own_class_lacks_are_named():
    with pytest.raises(TypeError, match=r"got Own whose `concept_predictor` is a method in place of a module\."):
        score_concepts(Own(), [(ROWS, [0, 0, 1, 1])])
    with pytest.raises(TypeError, match=r"got Linear without `features`, `concept_predictor`, `head`, `concept_maps`"):
        score_concepts(Own().head, [(ROWS, [0, 0, 1, 1])])
