"""TCAV on models that were built to use the object, or not."""

from __future__ import annotations

import math
from dataclasses import replace
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

import pandas as pd
import pytest
import torch
from torch import Tensor, nn

from block_sources import Discs, Noise
from quantus_concepts.datasets import Cutout, ObjectsOnScenes
from quantus_concepts.painted.networks import SmallResNet
from quantus_concepts.studies._kit.folder import RunFolder
from quantus_concepts.studies._kit.results import pick
from quantus_concepts.studies.attribution import global_method
from quantus_concepts.studies.attribution.data import AttributionData
from quantus_concepts.studies.attribution.global_method import ALL_LAYERS, score_tcav, tcav_layers
from quantus_concepts.studies.attribution.study import COMMONALITIES, model_name

SIZE = 16
COMMON, TARGET = 2, 1


class Reds(Discs):
    """Objects of much red and no blue."""

    def __getitem__(self, index):
        pixels, mask = super().__getitem__(index)
        pixels[..., 0], pixels[..., 2] = 255, 0
        return Cutout(pixels, mask)


class Blues(Noise):
    """Scenes without red."""

    def __getitem__(self, index):
        pixels = super().__getitem__(index)
        pixels[..., 0] = 0
        return pixels


class Planted(nn.Module):
    """Logits are shares of red and blue: that of every class alike."""

    def __init__(self, red: float, blue: float) -> None:
        super().__init__()
        self.mix = nn.Conv2d(3, 3, 1, bias=False)
        self.shrink = nn.AvgPool2d(2)
        self.pool = nn.AdaptiveAvgPool2d(1)
        self.logits = nn.Linear(3, 4, bias=False)
        with torch.no_grad():
            self.mix.weight.copy_(torch.eye(3)[:, :, None, None])
            self.logits.weight.copy_(torch.tensor([red, 0.0, blue]).expand(4, 3))

    def forward(self, images: Tensor) -> Tensor:
        return self.logits(self.pool(self.shrink(self.mix(images))).flatten(1))


def compose(split: str, n_per_pair: int, commonality: float | None = None) -> ObjectsOnScenes:
    return ObjectsOnScenes(
        Reds(12),
        Blues(12),
        split=split,
        n_per_pair=n_per_pair,
        image_size=SIZE,
        test_share=0.3,
        commonality=commonality,
    )


@pytest.fixture(scope="module")
def data() -> AttributionData:
    train, test = compose("train", 5), compose("test", 2)
    return AttributionData(train, test, COMMON, TARGET, lambda k, split: compose(split, 2, k))


def scored(models, data, drops=None):
    """Return the rows, the scores of the layers and the notes."""
    drops = pd.DataFrame() if drops is None else drops
    settings = {"batch_size": 64, "device": "cpu", "seed": 0}
    with TemporaryDirectory() as root, RunFolder("test", {}, Path(root, "out")) as folder:
        return *score_tcav(folder, data, models, drops, n_relative=5, **settings), folder.notes


@pytest.fixture
def few_draws(monkeypatch) -> None:
    monkeypatch.setattr(global_method, "tcav_score", partial(global_method.tcav_score, method="mean"))


def test_the_last_layer_of_each_resolution_and_the_logits():
    images = torch.zeros(2, 3, SIZE, SIZE)
    assert tcav_layers(Planted(1, 1), images) == ["mix", "shrink", "logits"]
    network = SmallResNet(3, channels=8).eval()
    assert tcav_layers(network, torch.zeros(2, 3, 32, 32)) == ["features.1.2", "features.3.relu", "classifier"]
    assert not any(part._forward_hooks for part in network.modules())


@pytest.mark.usefixtures("few_draws")
def test_an_object_that_matters_to_one_model_only_has_a_contrast(data):
    models = {"f_o": Planted(1, 0), "f_s": Planted(-1, 1)}
    before = torch.get_rng_state()
    frame, layers, _ = scored(models, data)
    assert torch.equal(torch.get_rng_state(), before)
    row, baseline = (numbers for _, numbers in frame.iterrows())
    assert (baseline["metric"], baseline["value"], baseline["n"]) == ("MCS baseline", row["reference"], row["n"])
    assert (row["method"], row["metric"]) == ("TCAV", "MCS")
    # Red raises the one logit for every image and lowers the other, at every layer that passed.
    assert row["value"] == 1
    assert abs(row["reference"]) < 0.7
    # Eight test images show a dog, six are of the target scene.
    assert row["n"] == 6
    assert layers["model"].unique().tolist() == ["f_o", "f_s"]
    # Where the gradient is zero no direction raises anything.
    undefined, _, _ = scored({"f_o": Planted(0, 0), "f_s": Planted(1, 0)}, data)
    assert math.isnan(undefined["value"][0])
    assert undefined["n"][0] == 0
    of_f_o = layers[layers["model"] == "f_o"].set_index("layer")["value"]
    assert of_f_o.index.tolist() == [ALL_LAYERS, "mix", "shrink", "logits"]
    assert of_f_o["mix"] == 1
    assert all(parameter.grad is None and parameter.requires_grad for parameter in models["f_o"].parameters())


def test_too_few_images_are_noted(data):
    few = replace(data, train=compose("train", 1))
    few.train.object_labels[1:] = 0
    few.train.object_labels[0] = COMMON
    frame, _, notes = scored({}, few)
    assert frame.empty
    assert "needs 2 training images with dog and 4 bare scenes but there are 1 and 12" in notes[0]


def test_the_models_of_commonality_have_a_curve_on_images_of_the_target_scene(data, monkeypatch):
    images_of = {}

    def score(model, layers, concept, negatives, inputs, target, *, n_samples, **settings):
        images_of[model.name] = (inputs, target)
        assert n_samples == len(concept) == 20
        assert len(negatives) == len(data.train) == 60
        return global_method.TCAVScore(model.share, 0.5, {})

    monkeypatch.setattr(global_method, "tcav_score", score)
    shares = {"f_o": 0.9, "f_s": 0.4} | {model_name(k): 1 - k / 2 for k in COMMONALITIES}
    shares["f_s^0.3"] = math.nan
    models = {}
    for name, share in shares.items():
        models[name] = Planted(1, 1)
        models[name].name, models[name].share = name, share
    # Accuracy drops by k - 1, and the score falls likewise.
    drops = pd.DataFrame({"model": "f_s^k", "metric": "accuracy drop", "k": COMMONALITIES})
    frame, layers, _ = scored(models, data, drops.assign(value=1 - drops["k"]))
    curve = pick(frame, metric="relative MCS")
    expected = [math.nan if k == 0.3 else (1 - k / 2) - 0.5 for k in COMMONALITIES[:-1]]
    assert curve["value"].tolist() == pytest.approx(expected, nan_ok=True)
    assert curve["n"].tolist() == [0 if k == 0.3 else 5 for k in COMMONALITIES[:-1]]
    row = pick(frame, metric="correlation").iloc[0]
    assert row["value"] == pytest.approx(1)
    assert row["n"] == 8
    inputs, target = images_of["f_s^0.5"]
    assert target == TARGET
    assert len(inputs) == 5
    # All show the object: there is red in all of them.
    assert (inputs[:, 0].amax((1, 2)) == 1).all()
    assert images_of["f_o"][1] == COMMON
    assert len(images_of["f_o"][0]) == 8
    assert layers["model"].nunique() == 12
