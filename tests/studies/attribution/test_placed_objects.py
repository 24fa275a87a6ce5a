"""MCS under other sizes and places of the object."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from block_sources import Blocks, Plains
from captum_concepts._support.running import to_model
from quantus_concepts.datasets import ObjectsOnScenes
from quantus_concepts.studies._kit.output import OutputFolder
from quantus_concepts.studies._kit.run import Run
from quantus_concepts.studies.attribution import evaluation
from quantus_concepts.studies.attribution.data import CHANGES, Interleaved, PlacedObjects
from quantus_concepts.studies.attribution.evaluation import score_robustness
from quantus_concepts.studies.attribution.options import AttributionOptions

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


def test_scores_by_hand(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    data = Interleaved(changed("centre"))
    monkeypatch.setattr(evaluation, "CHANGES", {"centre": CHANGES["centre"]})
    models = {"f_o": Reads(data, 0, wrong=2), "f_s": Reads(data, 2)}
    assert to_model(models["f_o"], np.zeros(1)).dtype == torch.float32
    options = AttributionOptions(n_images=10, batch_size=3, progress=False, device="cpu")
    with OutputFolder(out=tmp_path / "out") as folder:
        table = score_robustness(Run(options, folder), lambda change: data, models, {"red": red})
    # 1 inside the object under the one, 0 under the other, in nine of ten images
    assert table[["metric", "variant", "method"]].to_numpy().tolist() == [["robustness", "centre", "red"]]
    assert table[["value", "n", "undefined"]].to_numpy().tolist() == [[1.0, 9, 1]]
