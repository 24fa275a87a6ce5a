"""Captum attributions that a user wrote, by `explain_func`: they get a leaf, as Captum's callers give one."""

from __future__ import annotations

import warnings

import numpy as np
import torch
from captum.attr import Attribution, LayerGradCam, Saliency
from torch import Tensor, nn

from captum_concepts import explain_func


class Cloning(Attribution):
    """The gradient at a clone of the inputs."""

    def attribute(self, inputs: Tensor, target: Tensor) -> Tensor:
        inputs = inputs.clone().requires_grad_()
        self.forward_func(inputs).gather(1, target[:, None]).sum().backward()
        return inputs.grad


class Absolute(Saliency):
    def attribute(self, inputs: Tensor, target: Tensor) -> Tensor:
        return super().attribute(inputs, target=target, abs=True)


def test_classes_of_users_get_a_leaf_and_frozen_networks_their_gradients():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(4, 5)).eval()
    images, targets = torch.rand(7, 3, 8, 8).numpy(), np.array([0, 4, 2, 2, 1, 3, 0])
    leaf = torch.tensor(images, requires_grad=True)
    expected = Saliency(model).attribute(leaf, target=torch.tensor(targets), abs=False).numpy()
    of_layer = explain_func(LayerGradCam, layer="0")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        np.testing.assert_allclose(explain_func(Cloning)(model, images, targets), expected)
        np.testing.assert_allclose(explain_func(Absolute)(model, images, targets), np.abs(expected))
        trainable = of_layer(model, images, targets)
        np.testing.assert_array_equal(of_layer(model.requires_grad_(False), images, targets), trainable)
