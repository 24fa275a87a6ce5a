"""Captum's patterns for tests of attributions, by the helpers that it installs, over the attributions here.

`captum.testing.attr.helpers.test_config` invites other algorithms to be added to its cases.
"""

from __future__ import annotations

import copy
import unittest
from importlib.util import find_spec
from typing import Any

import pytest
import torch
from captum.attr import Attribution, NoiseTunnel
from captum.attr._models.base import _set_deep_layer_value
from torch import Tensor, nn

import captum_concepts
from captum_concepts import CAM_METHODS, CoAM, LibraryCAM, RandomAttribution, SobelEdges, SteeredRISE

pytest.importorskip("captum.testing", reason="this version of Captum installs no helpers for tests")
from captum.testing.attr.helpers.gen_test_utils import get_target_layer, parse_test_config
from captum.testing.attr.helpers.test_config import config
from captum.testing.helpers.basic import assertTensorTuplesAlmostEqual
from captum.testing.helpers.basic_models import BasicModel_ConvNet

#: Every attribution that the package exports.
OURS = [
    public
    for name in captum_concepts.__all__
    if isinstance(public := getattr(captum_concepts, name), type) and issubclass(public, Attribution)
]
CAVS = torch.randn(10, 4, generator=torch.Generator().manual_seed(0))
IMAGES = torch.randn(4, 1, 10, 10, generator=torch.Generator().manual_seed(1))
TARGETS = {"one": 1, "list": [0, 1, 1, 0], "tensor_of_one": torch.tensor([0]), "tensor": torch.tensor([1, 1, 0, 0])}
#: LibraryCAM is a class of its own for each class of that library.
CAMS = [*CAM_METHODS.values()] if find_spec("pytorch_grad_cam") else []
ARGUMENTS: dict[type, dict[str, Any]] = {SteeredRISE: {"lam": 0, "n_masks": 8, "cells": 4}}
SMOOTHED = {"nt_samples": 2, "stdevs": 0.0}


def cases() -> list[dict[str, Any]]:
    """Return cases in Captum's form: its own where inputs are no images, and images, plain and in a noise tunnel."""
    plain = {"inputs", "target", "additional_forward_args"}
    every = [
        {**case, "name": f"captum_{case['name']}", "algorithms": [RandomAttribution]}
        for case in config
        if "layer" not in case and case["attribute_args"].keys() <= plain
    ]
    made = [(algorithm, None) for algorithm in OURS if algorithm is not LibraryCAM]
    for algorithm, cam in [*made, *((LibraryCAM, cam) for cam in CAMS)]:
        for kind, target in TARGETS.items():
            arguments = {"inputs": IMAGES, "target": target, **ARGUMENTS.get(algorithm, {})}
            case = {
                "cam": cam,
                "name": f"images_{kind}",
                "algorithms": [algorithm],
                "model": BasicModel_ConvNet(),
                "layer": "conv2",
            }
            every.append({**case, "attribute_args": arguments})
            every.append({**case, "name": f"nt_{kind}", "attribute_args": arguments | SMOOTHED, "noise_tunnel": True})
    return every


CASES = cases()


def attribution_of(case: dict[str, Any]) -> tuple[Attribution, nn.Module, dict[str, Any]]:
    """Return the attribution of a case, its model and the arguments of its call, all new."""
    (algorithm,), model, arguments, layer, noise_tunnel, _ = parse_test_config(copy.deepcopy(case))
    if algorithm is CoAM:
        made = CoAM(model, get_target_layer(model, layer), CAVS)
    elif algorithm is LibraryCAM:
        made = LibraryCAM(model, get_target_layer(model, layer), cam=case["cam"])
    else:
        made = algorithm(model)
    return (NoiseTunnel(made) if noise_tunnel else made), model, arguments


def tell(case: dict[str, Any]) -> str:
    return f"{case['name']}_{case.get('cam') or case['algorithms'][0].__name__}"


def rows(value: Any, i: int) -> Any:
    if isinstance(value, tuple):
        return tuple(rows(each, i) for each in value)
    return value[i : i + 1] if isinstance(value, Tensor) else value


OF_EACH = [case for case in CASES if isinstance(case["attribute_args"]["target"], list | Tensor)]


@pytest.mark.parametrize("case", OF_EACH, ids=tell)
def test_targets(case: dict[str, Any]) -> None:
    """A sample alone, with its own target or a list of one, has the attributions that it has among others."""
    attribution, _, arguments = attribution_of(case)
    together = attribution.attribute(**arguments)
    targets, n = arguments["target"], len(together if isinstance(together, Tensor) else together[0])
    for i in range(n):
        forms = [targets[i], targets[i : i + 1]] if len(targets) == n else [targets]
        alone = {name: rows(value, i) for name, value in arguments.items() if name != "target"}
        for target in forms:
            single = attribution.attribute(**alone, target=target)
            assertTensorTuplesAlmostEqual(unittest.TestCase(), rows(together, i), single, delta=1e-4, mode="max")


class ErrorModule(nn.Module):
    """A module that cannot be run."""

    def forward(self, *args: Any, **kwargs: Any) -> None:
        raise AssertionError("Raising error on execution")


RUNS_NO_MODEL = (RandomAttribution, SobelEdges)
HOOKED = [
    pytest.param(case, mode, id=f"{tell(case)}-{mode}")
    for mode in ("normal", "incorrect target", "invalid module")
    for case in CASES
    if mode == "normal" or case["algorithms"][0] not in RUNS_NO_MODEL
]


@pytest.mark.parametrize(("case", "mode"), HOOKED)
def test_hook_removal(case: dict[str, Any], mode: str) -> None:
    """No hook stays behind, whatever happens. Where Captum asserts, a wrong target is a ValueError here."""
    if mode == "invalid module":
        # What has no layer gets one to break: the first.
        case = {"layer": next(iter(case["model"]._modules)), **case, "model": copy.deepcopy(case["model"])}
        _set_deep_layer_value(case["model"], case["layer"], ErrorModule())
    attribution, model, arguments = attribution_of(case)
    if mode == "normal":
        attribution.attribute(**arguments)
    elif mode == "incorrect target":
        with pytest.raises(ValueError, match="Expected argument `target` to "):
            attribution.attribute(**{**arguments, "target": (9999,) * 20})
    else:
        with pytest.raises(AssertionError, match="Raising error on execution"):
            attribution.attribute(**arguments)
    assert not any(m._forward_hooks or m._backward_hooks or m._forward_pre_hooks for m in model.modules())


def test_every_attribution_is_here() -> None:
    assert {CoAM, LibraryCAM, RandomAttribution, SobelEdges, SteeredRISE} <= set(OURS)
