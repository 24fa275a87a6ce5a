"""MCS under other sizes and places of the object."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from block_sources import Blocks, Plains
from captum_concepts.running import to_model
from quantus_concepts.datasets import ObjectsOnScenes
from quantus_concepts.studies.attribution.interleaving import Interleaved
from quantus_concepts.studies.attribution.options import Options
from quantus_concepts.studies.attribution.premises import PremiseCheck
from quantus_concepts.studies.attribution.results import Record
from quantus_concepts.studies.attribution.robustness import CHANGES, PlacedObjects, robustness_records
from quantus_concepts.studies.attribution.robustness_page import (
    plot_robustness,
    robustness_table,
    robustness_verdict,
)

SIZE = 32
SETTINGS = {"n_per_pair": 2, "image_size": SIZE, "split": "test", "test_share": 0.4}


def changed(change: str) -> PlacedObjects:
    return PlacedObjects(Blocks(), Plains(), **SETTINGS, **CHANGES[change]._asdict())


def boxes(data: ObjectsOnScenes) -> np.ndarray:
    return np.array([data.pasted(i).box for i in range(len(data))])


def test_one_thing_changes_at_a_time() -> None:
    usual = ObjectsOnScenes(Blocks(), Plains(), **SETTINGS)
    before = boxes(usual)
    for change in CHANGES:
        data = changed(change)
        assert torch.equal(data.object_labels, usual.object_labels)
        assert torch.equal(data.with_view("0s").images(), usual.with_view("0s").images())
        after = boxes(data)
        # Blocks are 20 x 40, so that their width governs.
        sides = (after[:, 3] - after[:, 1]) / SIZE
        low, high = {"smaller": (0.34, 0.46), "larger": (0.79, 0.91)}.get(change, (0.57, 0.72))
        assert ((sides >= low) & (sides <= high)).all()
        if change in ("centre", "corner"):
            np.testing.assert_array_equal(after[:, 2:] - after[:, :2], before[:, 2:] - before[:, :2])


def test_places_by_hand() -> None:
    usual, centre, corner = ObjectsOnScenes(Blocks(), Plains(), **SETTINGS), changed("centre"), changed("corner")
    for i, (row0, col0, row1, col1) in enumerate(boxes(usual)):
        height, width = row1 - row0, col1 - col0
        assert centre.pasted(i).box[:2] == ((SIZE - height) // 2, (SIZE - width) // 2)
        above, left = row0 + row1 <= SIZE, col0 + col1 <= SIZE
        assert corner.pasted(i).box[:2] == (0 if above else SIZE - height, 0 if left else SIZE - width)
    # the mask goes with the object, in every view
    assert torch.equal(corner.masks(), corner.with_view("og").masks())
    shown = corner.images() != corner.with_view("0s").images()
    assert not (shown & ~corner.masks()).any()


class Reads(torch.nn.Module):
    """Knows a class by its colour: red blocks, or blue plains; wrong where it is told to be."""

    def __init__(self, data: ObjectsOnScenes, channel: int, wrong: int | None = None) -> None:
        super().__init__()
        labels = data.object_labels if channel == 0 else data.scene_labels
        self.answers = {image.numpy().tobytes(): int(label) for image, label in zip(data.images(), labels, strict=True)}
        if wrong is not None:
            self.answers[data.images([wrong])[0].numpy().tobytes()] = 3
        self.channel = channel

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        keys = [(image * 255).round().byte().cpu().numpy().tobytes() for image in images]
        return torch.nn.functional.one_hot(torch.tensor([self.answers[key] for key in keys]), 4).float()


def red(model, inputs, targets, **kwargs):
    """Of the model of objects, what is red; of the other, everything alike but the first pixel."""
    maps = np.zeros((len(inputs), 1, SIZE, SIZE))
    if model.channel == 0:
        maps[:, 0] = inputs[:, 0] > 0
    maps[:, 0, 0, 0] = 1
    return maps


def test_scores_by_hand(monkeypatch: pytest.MonkeyPatch) -> None:
    data = Interleaved(changed("centre"))
    monkeypatch.setattr("quantus_concepts.studies.attribution.robustness.CHANGES", {"centre": CHANGES["centre"]})
    models = {"f_o": Reads(data, 0, wrong=2), "f_s": Reads(data, 2)}
    assert to_model(models["f_o"], np.zeros(1)).dtype == torch.float32
    options = Options(n_images=10, batch_size=3, progress=False, device="cpu", seed=4)
    (record,) = robustness_records(models, {"red": red}, lambda change: data, options)
    # 1 inside the object under the one, 0 under the other, in nine of ten images
    assert (record.metric, record.variant, record.method, record.seed) == ("robustness", "centre", "red", 4)
    assert (record.value, record.n, record.undefined) == (1.0, 9, 1)


def some(method: str, value: float, variant: str = "", half: float = 0.05) -> Record:
    metric = "robustness" if variant else "MCS"
    return Record(method, metric, value=value, low=value - half, high=value + half, n=20, variant=variant)


RECORDS = [
    some("Grad-CAM", 0.5),
    some("random", 0.0),
    *(some("Grad-CAM", value, change) for value, change in zip((0.3, 0.52, 0.7, 0.45), CHANGES, strict=True)),
    *(some("random", value, change) for value, change in zip((0.3, 0.0, 0.0, 0.0), CHANGES, strict=True)),
]


def test_verdict() -> None:
    assert robustness_verdict(RECORDS) == (
        "Beyond its interval, MCS is lower where objects are smaller for Grad-CAM; higher where objects are in the "
        "middle for Grad-CAM."
    )
    assert robustness_verdict(RECORDS[:2]) == ""
    same = [record for record in RECORDS if record.variant in ("", "larger")]
    assert robustness_verdict(same).startswith("No method's MCS can be told from its own")


def test_table_and_figure() -> None:
    check = PremiseCheck("f_o", "scene", 1, 1, 0.1, 1, 0, 0, 0.1, 20)
    table = robustness_table(RECORDS, [check])
    assert [name for name, _ in table.columns] == ["as trained", *CHANGES]
    assert [(row.label, row.control) for row in table.rows] == [("Grad-CAM", False), ("random", True)]
    assert [cell.text for cell in table.rows[0].cells] == ["0.500", "0.300", "0.520", "0.700", "0.450"]
    assert "f_s" in table.unverified
    _, ax = plot_robustness(RECORDS)
    widths = sorted(round(bar.get_width(), 3) for bar in ax.patches)
    assert widths == sorted([0.5, 0.3, 0.52, 0.7, 0.45, 0.0, 0.3, 0.0, 0.0, 0.0])
    assert [text.get_text() for text in ax.get_legend().get_texts()] == ["as trained", *CHANGES]
