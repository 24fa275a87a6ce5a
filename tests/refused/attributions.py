"""Bad input to attributions, TCAV and pictures of maps, one argument at a time."""

from __future__ import annotations

from typing import Any

import captum.attr
import numpy as np
import torch
from captum.attr import LayerGradCam, Saliency
from torch import Tensor, nn

from captum_concepts import (
    CoAM,
    RandomAttribution,
    SobelEdges,
    SteeredRISE,
    TCAVScore,
    build_method,
    explain_func,
    gallery,
    method_from_spec,
    overlay,
    plot_coam,
    plot_contributions,
    show_concepts,
    show_top_images,
    tcav_folders,
    tcav_score,
)
from refusals import Refusal
from refused.concept_models import CBM, CLASSES, IMAGES, NET, NO_DEVICE, NO_IMAGES
from spoiling import (
    NAN,
    NO_ARRAY,
    NO_MODULE,
    Bad,
    Table,
    spoilt,
)

SCORE = TCAVScore(0.5, 0.5, {})
PICTURE, MAP = np.zeros((4, 5, 3)), np.eye(2)

NO_TARGET: Bad = {
    "text": "cat",
    "a fraction": 0.5,
    "a bool": True,
    "complex": torch.zeros(8, dtype=torch.complex64),
    "too large": 7,
    "negative": -1,
    "one too few": CLASSES[:7],
}
NO_ATTRIBUTED: Bad = {"None": None, "text": "birds", "a list": [[1.0]], "an array": IMAGES.numpy()}


def call_explainer(**changes: Any) -> object:
    return explain_func(Saliency)(**{"model": NET, "inputs": IMAGES.numpy(), "targets": CLASSES.numpy(), **changes})


def random(**changes: Any) -> object:
    return RandomAttribution(NET).attribute(**{"inputs": IMAGES, **changes})


def steered(**changes: Any) -> object:
    good = {"inputs": IMAGES, "target": CLASSES, "lam": 0, "n_masks": 2, "cells": 2}
    return SteeredRISE(NET).attribute(**{**good, **changes})


class Answers(nn.Module):
    """A model that answers with what it is told, whatever it is asked."""

    def __init__(self, answer: Any) -> None:
        super().__init__()
        self.answer = answer

    def forward(self, images: Tensor) -> Any:
        return self.answer


TABLE: Table = {
    "CoAM": spoilt(
        CoAM,
        {"forward_func": NET, "layer": "0", "cavs": np.eye(2)},
        forward_func={"None": None, "text": "resnet18", "a list": [NET]},
        layer={"None": None, "a number": 0, "unknown": "head", "a list": ["0"]},
        cavs={**NO_ARRAY, "None": None, "of rank 1": np.ones(2), "NaN": np.eye(2) * NAN, "empty": np.ones((0, 2))},
        device_ids={"text": "cuda:0", "a number": 0},
    ),
    "CoAM.of": spoilt(CoAM.of, {}, model=NO_MODULE),
    "CoAM.attribute": spoilt(
        CoAM(CBM).attribute, {"inputs": IMAGES}, inputs={**NO_ATTRIBUTED, "an empty tuple": ()}, target=NO_TARGET
    ),
    "RandomAttribution.attribute": spoilt(
        random, {}, inputs={**NO_ATTRIBUTED, "an empty tuple": ()}, target={"one too few": CLASSES[:7], "NaN": [NAN]}
    ),
    "SobelEdges.attribute": spoilt(
        SobelEdges(NET).attribute, {}, inputs={**NO_ATTRIBUTED, "integers": torch.ones(1, 1, 4, 4, dtype=torch.int64)}
    ),
    "SteeredRISE.attribute": spoilt(
        steered,
        {},
        inputs={**NO_ATTRIBUTED, "an empty tuple": ()},
        target=NO_TARGET,
        cells={"None": None, "text": "77", "a bool": True, "a fraction": 2.5, "NaN": (NAN, NAN)},
        baselines={"None": None, "text": "black", "a list": [[0.0]], "NaN": NAN, "complex": 1j},
    ),
    "build_method": spoilt(
        build_method,
        {"name": "IG + SmoothGrad"},
        baseline={
            "text": "black",
            "None": None,
            "complex": 1j,
            "NaN": NAN,
            "of rank 2": np.ones((2, 2)),
            "ragged": [[1], []],
        },
    ),
    "method_from_spec": spoilt(
        method_from_spec,
        {"spec": "Occlusion"},
        spec={"empty": "", "no function": ":", "a file that is not there": "method.py:f"},
        baseline={"text": "black", "None": None, "NaN": NAN},
    ),
    "explain_func": spoilt(explain_func, {"factory": Saliency}, factory={"None": None, "a number": 3})
    | {
        "internal_batch_size: text": Refusal(
            lambda: explain_func(captum.attr.IntegratedGradients, internal_batch_size="64"), "`internal_batch_size`"
        ),
        "internal_batch_size: negative": Refusal(
            lambda: explain_func(captum.attr.IntegratedGradients, internal_batch_size=-1), "`internal_batch_size`"
        ),
    },
    "explain_func.__call__": spoilt(
        call_explainer,
        {},
        model={"None": None, "text": "resnet18", "a list": [NET]},
        inputs={**NO_ARRAY, "None": None},
        targets={**NO_TARGET, "text": ["cat"] * 8, "objects": np.array([None] * 8)},
    )
    | spoilt(call_explainer, {"model": Answers(None)}, device=NO_DEVICE)
    | {
        f"model that returns {what}": Refusal(lambda answer=answer: call_explainer(model=Answers(answer)), names)
        for what, answer, names in (
            ("nothing", None, "return"),
            ("an empty tuple", (), "return"),
            ("texts", ["a"], "return"),
            ("a vector", torch.ones(8, requires_grad=True), "return"),
            ("nothing of the inputs", torch.ones(8, 2), "gradient"),
        )
    }
    | {
        "layer of no module": Refusal(
            lambda: explain_func(LayerGradCam, layer="0")(lambda x: x, IMAGES.numpy(), CLASSES.numpy()), "`model`"
        )
    },
    "tcav_score": spoilt(
        tcav_score,
        {
            "model": NET,
            "layers": ["0"],
            "concept_images": IMAGES,
            "negative_images": IMAGES,
            "inputs": IMAGES,
            "target": 0,
            "n_random": 2,
            "n_samples": 2,
        },
        concept_images=NO_IMAGES | {"none": IMAGES[:0]},
        inputs=NO_IMAGES | {"none": IMAGES[:0]},
        target={"None": None, **NO_TARGET},
    ),
    "tcav_folders": spoilt(
        tcav_folders,
        {"model": NET, "layers": ["0"], "root": ".", "inputs": IMAGES, "target": 0},
        root={"without folders": "."},
        inputs=NO_IMAGES | {"none": IMAGES[:0]},
        target={"None": None, "text": "cat", "a fraction": 0.5, "a bool": True},
        random={"None": None, "a number": 3, "empty": "", "a path": "../random"},
    ),
    "overlay": spoilt(
        overlay, {"image": PICTURE, "map": MAP}, image={**NO_ARRAY, "None": None, "empty": np.zeros((0, 4, 3))}
    ),
    "plot_coam": spoilt(plot_coam, {"image": PICTURE, "map": MAP}, image={"text": "bird.png", "None": None}),
    "gallery": spoilt(
        gallery,
        {"images": PICTURE[None], "maps": MAP[None, None], "names": ["red"]},
        images={"None": None, "a number": 3, "text": "birds"},
        names={"None": None, "a number": 3},
        axes={"a number": 3, "a list": [1, 2], "of texts": np.array([["a", "b"]])},
    ),
    "show_concepts": spoilt(
        show_concepts,
        {"model": CBM, "images": IMAGES},
        model={"None": None, "a module": NET, "text": "cbm"},
        images={**NO_IMAGES, "none": IMAGES[:0]},
        layer={"without a bank": "features"},
        bank={"without a layer": CBM.bank},
        concepts={"a fraction": 0.5, "unknown": ["rde"]},
        concept_labels={"of one": [[1]]},
        labels={"too few": [0]},
        class_names={"too few": ["a"]},
        pictures={"text": "bird.png", "too few": IMAGES[:1]},
    ),
    "show_top_images": spoilt(
        show_top_images,
        {"model": CBM, "images": IMAGES, "concept": 0},
        model={"None": None, "a module": NET},
        images={**NO_IMAGES, "none": IMAGES[:0]},
        concept={"None": None, "unknown": "rde", "too large": 99},
        layer={"without a bank": "features"},
        bank={"without a layer": CBM.bank},
        concept_labels={"of one": [[1]]},
        pictures={"text": "bird.png", "too few": IMAGES[:1]},
    ),
    "plot_contributions": spoilt(
        plot_contributions,
        {"contributions": np.ones(2), "names": ["a", "b"], "total": 1.0},
        contributions={"of one": np.ones(1)},
    ),
}
