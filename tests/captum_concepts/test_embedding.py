"""What the images of a loader are told about before anything is fitted to them."""

from __future__ import annotations

import warnings

import pytest
import torch
from torch import nn
from torchvision import models

from captum_concepts import LayerFeatures, embed, from_torchvision

LEVELS = torch.arange(2 * 3 * 4 * 4).reshape(2, 3, 4, 4).float()
FEATURES = nn.Conv2d(3, 5, 1)
WHOLE = nn.Sequential(nn.Conv2d(3, 4, 4), nn.Flatten(), nn.Sequential(nn.Linear(4, 7), nn.Dropout()))


def test_levels_of_0_to_255_are_warned_of_once() -> None:
    with pytest.warns(UserWarning, match="reach 95: they seem to hold levels of 0 to 255") as caught:
        embed(FEATURES, [LEVELS, LEVELS])
    assert len(caught) == 1


@pytest.mark.parametrize("images", [LEVELS / 255, LEVELS - 48, LEVELS.to(torch.uint8), LEVELS[:0]])
def test_what_may_be_right_is_not_warned_of(images: torch.Tensor) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        embed(FEATURES, [images])


def test_a_mapping_is_told_to_become_a_tuple() -> None:
    with pytest.raises(ValueError, match=r"but got dict\. Make tuples of them in the `collate_fn`"):
        embed(FEATURES, [{"pixel_values": LEVELS}])


def test_channels_at_the_end_are_told_to_be_moved() -> None:
    backbone = from_torchvision(models.VisionTransformer(32, 16, 1, 1, 8, 8).eval())
    for shape, remedy in (((2, 32, 32, 3), "Move the channels to the second axis"), ((2, 3, 16, 16), "Resize them")):
        with pytest.raises(ValueError, match=rf"but got .*\. {remedy}\.$"):
            embed(backbone, [torch.zeros(shape)])


@pytest.mark.parametrize(
    ("network", "told"),
    [
        (WHOLE, "the linear '2.0', whose 7 outputs"),
        (LayerFeatures(WHOLE, "2"), "the linear 'model.2.0', whose 7 outputs"),
        (WHOLE[:2], None),
        (LayerFeatures(WHOLE, "1"), None),
        (nn.Sequential(WHOLE[:2], nn.Sequential(WHOLE[2][0], nn.ReLU())), None),
    ],
    ids=["whole", "whole by name", "embedding", "embedding by name", "no logits"],
)
def test_a_whole_network_is_told_from_a_backbone(network: nn.Module, told: str | None) -> None:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        embed(network, [LEVELS / 255] * 2)
    assert [str(each.message).count(told or "") for each in caught] == [1] * (told is not None)


def test_a_data_set_is_told_from_a_loader() -> None:
    with pytest.raises(ValueError, match=r"labels as a tensor but got int\. A data set gives .*DataLoader\(dataset"):
        embed(FEATURES, [(LEVELS[0], 3)])
