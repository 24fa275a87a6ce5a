"""How often photographs are read and run through a network in the study of concept models."""

from collections import Counter

import pytest
import torch
from torch import nn

from fixtures_cub import write_cub
from quantus_concepts.datasets import CUB200
from quantus_concepts.studies._kit.run import Run
from quantus_concepts.studies._models.networks import Network
from quantus_concepts.studies.concepts.data_option import load_data
from quantus_concepts.studies.concepts.options import ConceptOptions
from quantus_concepts.studies.concepts.study import score_seed


class Counting(nn.ReLU):
    """Counts the images of its passes."""

    def __init__(self):
        super().__init__()
        self.seen = 0

    def forward(self, x):
        self.seen += len(x)
        return super().forward(x)


@pytest.mark.parametrize("n_outputs", [3, 5])
def test_test_photographs_are_read_and_scored_once(tmp_path, monkeypatch, n_outputs):
    with torch.random.fork_rng():
        torch.manual_seed(0)
        counting = Counting()
        convolution, last = nn.Conv2d(3, 8, 3), nn.Linear(8, n_outputs)
        network = nn.Sequential(convolution, counting, nn.AdaptiveAvgPool2d(1), nn.Flatten(), last).eval()
    options = ConceptOptions(
        data="cub", root=write_cub(tmp_path), backbone="resnet18", image_size=32, min_images=1, device="cpu"
    )
    network = Network(network, "a test", "", (0.5,) * 3, (0.5,) * 3)
    (data,) = load_data(options, network)
    read = Counter()

    def noted(data, index, original=CUB200.__getitem__):
        read[data.split, index] += 1
        return original(data, index)

    monkeypatch.setattr(CUB200, "__getitem__", noted)
    run = Run(options, None)
    scores = score_seed(run, network, data, 0, first=False, show_scores=len)
    # The first image also tells the shape of the maps.
    assert [key for key, count in read.items() if count > 1] == [("test", 0)]
    own = scores[scores["model"] == "plain backbone"]
    has_classes = n_outputs == len(data.class_names)
    assert own["n"].tolist() == [6] * has_classes
    assert any("accuracy: not applicable. Its 5 outputs" in note for note in run.notes) is not has_classes
    # Training images, test images, those that the network classifies itself, and the shape of the maps.
    assert counting.seen <= 6 + 6 + 6 + 4
    assert len(scores[scores["item_kind"] == "setting"]) == 10
