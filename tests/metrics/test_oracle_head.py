"""The oracle head as a metric: its three scores, its threshold, and its rows in a table."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn

from captum_concepts import BottleneckCBM, ConceptBank, PostHocCBM
from quantus_concepts import OracleHead, score_concepts
from quantus_concepts.metrics import UsualMetrics
from quantus_concepts.metrics.concepts.oracle_head import LABELS

TABLE = np.array([[1, 0, 1], [0, 1, 1]])
VALUES = np.array([[0.9, 0.2, 0.8], [0.1, 0.7, 0.6], [0.9, 0.7, 0.1], [0.9, 0.1, 0.9]], dtype=np.float32)
CLASSES = np.array([0, 1, 1, 1])


@pytest.fixture
def head() -> nn.Linear:
    """Right for the last sample alone, whose class its concepts do not tell."""
    head = nn.Linear(3, 2)
    nn.init.zeros_(head.weight)
    head.bias.data = torch.tensor([-1.0, 1.0])
    return head


def test_scores_by_hand(head: nn.Linear) -> None:
    """The model answers class 1: wrong, right, right, right; the oracle says 0, 1, both, 0."""
    assert OracleHead(TABLE, threshold=0.5)(head, VALUES, CLASSES) == [1, 1, 0.5, 0]
    # A value at the threshold is present.
    assert OracleHead(TABLE, threshold=float(VALUES[1, 1]))(head, VALUES, CLASSES)[:2] == [1, 1]
    gap = OracleHead(TABLE, "gap", threshold=0.5)
    assert gap(head, VALUES, CLASSES) == [-1, 0, 0.5, 1]
    assert np.isnan(gap.records[-1].chance)
    present = [[1, 0, 1], [0, 1, 1], [0, 1, 1], [1, 1, 1]]
    on_labels = OracleHead(TABLE, "on_labels", threshold=0.5, concept_labels=present)
    assert on_labels(head, VALUES, CLASSES) == [1, 1, 1, 0.5]
    assert on_labels.records[-1].chance == 0.5


def test_true_classes_that_are_bound_count_and_not_those_explained(head: nn.Linear) -> None:
    explained = np.array([1, 1, 0, 0])
    given = OracleHead(TABLE, threshold=0.5, labels=CLASSES)
    assert given(head, VALUES, explained) == [1, 1, 0.5, 0]
    assert OracleHead(TABLE, threshold=0.5)(head, VALUES, explained) == [0, 1, 0.5, 1]


def test_the_metric_s_threshold_goes_before_that_of_the_call() -> None:
    model = PostHocCBM(nn.Identity(), ConceptBank(torch.eye(3)), nn.Linear(3, 2), values="raw").eval()
    batches = [(torch.tensor(VALUES), torch.tensor(CLASSES))]
    # From .15 on all but one value of the last two images are present.
    for threshold, expected in (
        (0.5, 2.5 / 4),
        (0.15, float(np.mean(OracleHead(TABLE, threshold=0.15)(model, VALUES, CLASSES)))),
    ):
        rows = score_concepts(model, batches, [OracleHead(TABLE, threshold=threshold)], value_threshold=0.95)
        assert rows.set_index("metric").loc["oracle accuracy", "value"] == pytest.approx(expected)
    assert OracleHead(TABLE, threshold=0.15)(model, VALUES, CLASSES) != [1, 1, 0.5, 0]


def test_a_head_alone_needs_a_threshold(head: nn.Linear) -> None:
    # Margins: .5 would call most concepts that are there absent.
    with pytest.raises(ValueError, match=r"the values of Linear may be margins .* Pass 0 for margins, 0.5 for values"):
        OracleHead(TABLE)(head, VALUES - 0.5, CLASSES)
    assert OracleHead(TABLE, threshold=0)(head, VALUES - 0.5, CLASSES) == [1, 1, 0.5, 0]


def test_values_that_are_nan_are_counted() -> None:
    class Gaps(nn.Module):
        """Features of which the second image has none."""

        def forward(self, images: torch.Tensor) -> torch.Tensor:
            return images.masked_fill(images[:, :1] < 0.2, torch.nan)

    model = PostHocCBM(Gaps(), ConceptBank(torch.eye(3)), nn.Linear(3, 2), values="raw").eval()
    batches = [(torch.tensor(VALUES), torch.tensor(CLASSES))]
    rows = score_concepts(model, batches, [OracleHead(TABLE, threshold=0.5)], value_threshold=0.5)
    row = rows.set_index("metric").loc["oracle accuracy"]
    assert row["value"] == pytest.approx(1.5 / 3)
    assert row["reason"] == "the model's values are NaN (1 of 4 samples)"


def test_the_threshold_is_that_of_the_values() -> None:
    table, identity, images = np.eye(2), nn.Linear(2, 2), torch.tensor([[0.2, -0.1], [-0.1, 0.2]])
    labels = torch.tensor([0, 1])
    bank = ConceptBank(torch.eye(2))
    raw, margin = (PostHocCBM(nn.Identity(), bank, identity, values) for values in ("raw", "margin"))
    bounded = BottleneckCBM(nn.Identity(), nn.Linear(2, 2), identity)
    for model, threshold in ((margin, 0.0), (bounded, 0.5)):
        default, given = (OracleHead(table, threshold=value) for value in (None, threshold))
        assert default(model, images.numpy(), labels.numpy()) == given(model, images.numpy(), labels.numpy())
    assert OracleHead(table)(margin, images.numpy(), labels.numpy()) == [1, 1]
    with pytest.raises(ValueError, match="OracleHead needs argument `threshold`: the values of PostHocCBM"):
        OracleHead(table)(raw, images.numpy(), labels.numpy())
    batches, usual = [(images, labels)], [UsualMetrics(top_l=[1]), OracleHead(table).vary(optional=True)]
    wanted = "for model 'mine': .*give `threshold=` to the metric or `value_threshold=` to the call"
    with pytest.raises(ValueError, match=wanted):
        score_concepts({"mine": raw}, batches, [OracleHead(table)])
    # Where it is not known when a concept is present, the usual variants are left out.
    assert "oracle accuracy" not in {*score_concepts(raw, batches, usual)["metric"]}
    rows = score_concepts(raw, batches, usual, value_threshold=0.1)
    assert "oracle accuracy" in {*rows["metric"]}


def test_rows_of_a_table(head: nn.Linear) -> None:
    model = PostHocCBM(nn.Identity(), ConceptBank(torch.eye(3)), head, values="raw").eval()
    present = torch.tensor([[1, 0, 1], [0, 1, 1], [0, 1, 1], [1, 1, 1]])
    metrics = [OracleHead(TABLE, score, threshold=0.5) for score in LABELS]
    table = score_concepts(model, [(torch.tensor(VALUES), torch.tensor(CLASSES), present)], metrics, baselines=False)
    # The means of the scores by hand; the accuracy of the head, 3/4, is that of the oracle and the gap.
    expected = {"oracle accuracy": 2.5 / 4, "head gap": 0.5 / 4, "oracle on labels": 3.5 / 4}
    assert table.set_index("metric")["value"].to_dict() == pytest.approx(expected)


def test_wrong_arguments_are_refused(head: nn.Linear) -> None:
    with pytest.raises(ValueError, match="OracleHead needs argument `concept_labels`"):
        OracleHead(TABLE, "on_labels", threshold=0.5)(head, VALUES, CLASSES)
    with pytest.raises(ValueError, match=r"`class_concepts` to have shape \(K, L\) with the model's L = 3 concepts"):
        OracleHead(np.eye(2), threshold=0.5)(head, VALUES, CLASSES)
    with pytest.raises(ValueError, match="`score` to be one of"):
        OracleHead(TABLE, "head")
