"""What observes a stream: metrics of the user, by list and by name, the usual ones, and every one; and their truth."""

from __future__ import annotations

from typing import Any, NamedTuple, Unpack

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset

from captum_concepts import ConceptBank, PostHocCBM
from quantus_concepts import CEM, CGIM, CLM, MCS, score_concepts
from quantus_concepts.metrics import (
    ConceptPredictions,
    InterventionAccuracy,
    UsualMetrics,
    predict_concepts,
    score_predictions,
)
from quantus_concepts.metrics.concepts import names as col
from quantus_concepts.metrics.host.concept_metric import ConceptMetric
from quantus_concepts.metrics.host.record import QuantusArguments
from quantus_concepts.metrics.host.scores import MetricScores
from tiny_models import N_CLASSES, N_CONCEPTS, SharingConceptModel

N = 12
DRAW = torch.Generator().manual_seed(3)
IMAGES = torch.rand(N, 3, 12, 12, generator=DRAW)
CLASSES = torch.arange(N) % N_CLASSES
LABELS = torch.randint(0, 2, (N, N_CONCEPTS), generator=DRAW)
POINTS = torch.rand(N, 3, 2, generator=DRAW) * 11
TABLE = torch.rand(N_CLASSES, N_CONCEPTS, generator=DRAW).numpy()
PARTS = [2, 0, -1, 1, 0]
BATCHES = [tuple(field[rows] for field in (IMAGES, CLASSES, LABELS, POINTS)) for rows in (slice(0, 8), slice(8, N))]
MODEL = SharingConceptModel()
PREDICTED = MODEL(IMAGES).argmax(1).numpy()


class Brightness(ConceptMetric):
    """Distance of the first concept value from a number that only this metric knows of each sample."""

    name = "brightness"
    sample_truth = needed = ("lux",)

    def __init__(self, lux: Any = None, **quantus: Unpack[QuantusArguments]) -> None:
        """Bind the truth. A score of 0 says that they agree."""
        super().__init__(**quantus)
        self._bind(lux=lux)

    def score_rows(self, rows: ConceptPredictions) -> MetricScores:
        return self.scored(rows, (rows.values[:, 0] - rows.truth["lux"]).abs())


LUX = torch.arange(N) / 10.0


class WithLux(NamedTuple):
    image: Tensor
    label: int
    concepts: Tensor
    points: Tensor
    lux: Tensor


class Lights(Dataset[Any]):
    lux = LUX.numpy()

    def __len__(self) -> int:
        return N

    def __getitem__(self, index: int) -> Any:
        return IMAGES[index], int(CLASSES[index])


def test_baselines_stand_beside_each_metric_once() -> None:
    truth = {"part_of_concept": PARTS}
    metrics = [CEM(), CEM(importance="value"), CLM(), CGIM(TABLE)]
    table = score_concepts(MODEL, BATCHES, metrics, class_concepts=TABLE, truth=truth)
    counts = table[table["item"] == ""].groupby(["metric", "baseline"]).size()
    assert counts["CEM"].to_dict() == {"": 2, col.COMMONEST_CONCEPT: 1, col.CLASS_RECITAL: 1}
    assert counts["CLM"].sum() == 6
    usual = score_concepts(MODEL, BATCHES, class_concepts=TABLE, truth=truth)
    keys = [name for name in table if name not in ("value", "low", "high", "n", "undefined", "chance", "reason")]
    both = table.merge(usual, on=keys, suffixes=("", "_usual"))
    # The usual baselines of CLM are of the contribution, as here.
    assert len(both) == len(table)
    np.testing.assert_array_equal(both["value"], both["value_usual"])


def test_keys_of_a_dict_are_names_and_equal_names_raise() -> None:
    first, second = InterventionAccuracy([0]), InterventionAccuracy([0], seed=1)
    with pytest.raises(ValueError, match="`metrics` to hold metrics that the columns of the table tell apart"):
        score_concepts(MODEL, BATCHES, [first, second])
    table = score_concepts(MODEL, BATCHES, {"before": first, "after": second, "mine": CEM()}, baselines=False)
    assert table["metric"].drop_duplicates().tolist() == ["before", "after", "mine"]


def test_all_has_the_usual_rows_and_more() -> None:
    settings: dict[str, Any] = {"class_concepts": TABLE, "truth": {"part_of_concept": PARTS}, "value_threshold": 0.1}
    usual, every = (score_concepts(MODEL, BATCHES, metrics, **settings) for metrics in (None, "all"))
    assert every.iloc[: len(usual)].equals(usual)
    assert "accuracy after interventions" in {*every["metric"]} - {*usual["metric"]}
    with pytest.raises(TypeError, match="metrics has no argument `every`"):
        score_concepts(MODEL, BATCHES, "every")


@pytest.mark.parametrize(
    ("metrics", "error", "message"),
    [
        ([], ValueError, "`metrics` to hold at least one metric"),
        ([CEM], TypeError, r"got CEM. Make one: CEM\(\)"),
        ([Brightness()], ValueError, "brightness needs `lux`: give it to the metric, to the call in `truth`, or with"),
        ([CLM()], ValueError, "CLM needs `part_of_concept`"),
        ([CEM(top_l=6)], ValueError, r"`top_l` to lie in \[1, 5\] but got 6"),
    ],
)
def test_wrong_metrics_are_refused(metrics: Any, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        score_concepts(MODEL, BATCHES, metrics)


def test_truth_of_a_new_name_is_found_wherever_it_is() -> None:
    expected = (MODEL.concept_predictor(IMAGES)[:, 0].detach() - LUX).abs().mean().item()
    batches = [dict(zip(("images", "labels", "lux"), fields, strict=True)) for fields in [(IMAGES, CLASSES, LUX)]]
    named = [WithLux(IMAGES, CLASSES, LABELS, POINTS, LUX)]
    for loader, metric, truth in (
        (batches, Brightness(), {}),
        (named, Brightness(), {}),
        (DataLoader(Lights(), 5), Brightness(), {}),
        (BATCHES, Brightness(LUX), {}),
        (BATCHES, Brightness(), {"lux": LUX}),
    ):
        table = score_concepts(MODEL, loader, metric, truth=truth)
        assert table["value"].tolist() == pytest.approx([expected])
    with pytest.raises(ValueError, match=r"`truth` to hold what a metric reads, .*lux, .* but got luxx"):
        score_concepts(MODEL, BATCHES, Brightness(), truth={"luxx": LUX})


class NaNFeatures(nn.Module):
    """The mean colours of images; NaN for one of them."""

    def forward(self, images: Tensor) -> Tensor:
        colours = images.mean((2, 3), keepdim=True)
        return colours.masked_fill((images[:, :1, :1, :1] == 7), torch.nan)


def test_a_model_that_gives_nan_is_counted_with_its_reason() -> None:
    model = PostHocCBM(NaNFeatures(), ConceptBank(torch.eye(3)), nn.Linear(3, 2)).eval()
    images, labels = torch.rand(6, 3, 4, 4, generator=torch.Generator().manual_seed(0)), torch.tensor([0, 1] * 3)
    images[2, 0, 0, 0] = 7
    batches = [(images, labels, torch.eye(3)[labels])]
    usual = UsualMetrics(top_l=[1], explanations=["contribution"])
    table = score_concepts(model, batches, usual, value_threshold=0.0, baselines=False)
    rows = table[(table["set"] == "all") & (table["item_kind"] == "")].set_index("metric")
    assert rows["undefined"].to_dict() == {
        "accuracy": 0,
        "concept accuracy": 1,
        "negative first": 1,
        "CEM": 1,
        "CEM gain": 1,
    }
    assert rows.loc["CEM", "reason"] == "the model's importances are NaN (1 of 6 samples)"


def test_what_was_not_looked_at_cannot_be_scored_later() -> None:
    rows = predict_concepts(MODEL, BATCHES, [CLM(alpha=3)], truth={"part_of_concept": PARTS})
    assert {*score_predictions(rows, {"maps": CLM(alpha=3)})["metric"]} == {"maps"}
    with pytest.raises(ValueError, match=r"CLM needs `points`: .*predict_concepts"):
        score_predictions(rows, [CLM(alpha=6)])
    with pytest.raises(ValueError, match="brightness needs `lux`"):
        score_predictions(rows, [Brightness()])


def test_update_without_classes_needs_labels_where_correctness_matters() -> None:
    images = IMAGES.numpy()
    for metric in (CEM(LABELS, only_correct=True), CGIM(TABLE)):
        with pytest.raises(ValueError, match="depends on which samples are classified correctly: pass their true"):
            metric.update(MODEL, images)
        metric.update(MODEL, images, labels=CLASSES)
    CEM(LABELS).update(MODEL, images)


def test_settings_follow_from_the_signature() -> None:
    """States that were made with other settings, or another contrast model of the same form, do not merge."""
    nets = [nn.Sequential(nn.Flatten(), nn.Linear(432, 3)) for _ in range(2)]
    same = nn.Sequential(nn.Flatten(), nn.Linear(432, 3))
    same.load_state_dict(nets[0].state_dict())
    first, copied, second = (MCS(net, PREDICTED) for net in (nets[0], same, nets[1]))
    first.merge_state(copied)
    with pytest.raises(ValueError, match="`contrast_model` differs"):
        first.merge_state(second)
    with pytest.raises(ValueError, match="`abs` differs"):
        CEM(LABELS).merge_state(CEM(LABELS, abs=True))
    with pytest.raises(ValueError, match="`normalise` differs"):
        CEM(LABELS).merge_state(CEM(LABELS, normalise=True))
    with pytest.raises(ValueError, match="`class_concepts` differs"):
        CGIM(TABLE).merge_state(CGIM(1 - TABLE))
    CGIM(TABLE).merge_state(CGIM(TABLE.copy()))
