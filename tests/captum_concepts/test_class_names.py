"""Names of ImageNet's classes for networks of timm with weights that it publishes."""

from __future__ import annotations

import pytest
import timm

from captum_concepts.backbones.named import build_network


@pytest.mark.parametrize(
    ("model", "weights", "zebra"),
    [
        ("resnet10t", None, "zebra"),
        ("resnet10t.c3_in1k", None, "zebra"),
        # Untrained, of other classes, and without classes.
        ("resnet10t", "none", None),
        ("vit_tiny_patch16_224.augreg_in21k", None, None),
        ("vit_small_patch14_dinov2.lvd142m", None, None),
    ],
)
def test_networks_of_timm_know_the_names_of_imagenet(monkeypatch, model, weights, zebra):
    create = timm.create_model
    monkeypatch.setattr(timm, "create_model", lambda name, pretrained: create(name))
    names = build_network("timm", model, weights).class_names
    assert (names[340] if names else None) == zebra
    assert names is None or len(set(names)) == 1000
