"""A note if images are normalised otherwise than the network was trained with."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from quantus_concepts.datasets.base import ConceptSample
from quantus_concepts.studies._models.normalised import better_normalised


class Bright(nn.Module):
    """Class 0 for images above the mean they were normalised with."""

    def forward(self, images: Tensor) -> Tensor:
        brightness = images.mean((1, 2, 3))
        return torch.stack([brightness, -brightness], 1)


class Samples:
    """Bright images of class 0 and dark ones of class 1, normalised."""

    class_names = ("bright", "dark")

    def __init__(self, mean: float, std: float) -> None:
        self.mean, self.std = mean, std

    def __len__(self) -> int:
        return 20

    def __getitem__(self, index: int) -> ConceptSample:
        image = torch.full((3, 4, 4), 0.6 if index < 10 else 0.3)
        return ConceptSample((image - self.mean) / self.std, int(index >= 10), torch.zeros(2), torch.zeros(0, 1, 2))


def test_a_network_that_does_better_with_the_usual_means_gets_a_note() -> None:
    (note,) = better_normalised(Bright(), Samples(0.0, 1.0), None, None)
    assert "right on 50% of 20 test images as they are given to it, and on 100% with ImageNet's" in note
    (note,) = better_normalised(Bright(), Samples(0.9, 0.5), (0.9,) * 3, (0.5,) * 3)
    assert "50%" in note
    assert better_normalised(Bright(), Samples(0.45, 0.2), (0.45,) * 3, (0.2,) * 3) == []
    # A network of other classes has no accuracy here.
    assert better_normalised(nn.Flatten(), Samples(0.0, 1.0), None, None) == []
