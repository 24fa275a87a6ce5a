"""Bad input to attributions, TCAV and pictures of maps, one argument at a time."""

from __future__ import annotations

from typing import Any

import captum.attr
import numpy as np
import torch
from captum.attr import LayerGradCam, Saliency
from matplotlib.figure import Figure
from torch import Tensor, nn

from captum_concepts import (
    CoAM,
    RandomAttribution,
    SobelEdges,
    SteeredRISE,
    TCAVScore,
    TCAVScores,
    build_method,
    build_methods,
    explain_func,
    gallery,
    method_from_spec,
    overlay,
    plot_coam,
    plot_contributions,
    show_concepts,
    show_top_images,
    tcav_contrast,
    tcav_folders,
    tcav_score,
)
from refusals import Refusal
from refused.concept_models import CBM, CLASSES, IMAGES, NET, NO_DEVICE, NO_IMAGES
from spoiling import (
    INF,
    NAN,
    NO_ARRAY,
    NO_CHOICE,
    NO_FUNCTION,
    NO_MODULE,
    NO_NUMBER,
    NO_POSITIVE,
    NO_SEED,
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
        CoAM(CBM).attribute,
        {"inputs": IMAGES},
        inputs={**NO_ATTRIBUTED, "an empty tuple": ()},
        target=NO_TARGET,
    ),
    "RandomAttribution": spoilt(
        RandomAttribution,
        {"forward_func": NET},
        forward_func={"None": None, "text": "resnet18"},
        seed={**NO_SEED, "None": None},
    ),
    "RandomAttribution.attribute": spoilt(
        random, {}, inputs={**NO_ATTRIBUTED, "an empty tuple": ()}, target={"one too few": CLASSES[:7], "NaN": [NAN]}
    ),
    "SobelEdges.attribute": spoilt(
        SobelEdges(NET).attribute, {}, inputs={**NO_ATTRIBUTED, "integers": torch.ones(1, 1, 4, 4, dtype=torch.int64)}
    ),
    "SteeredRISE": spoilt(
        SteeredRISE, {"forward_func": NET}, forward_func={"None": None, "text": "resnet18"}, score_func=NO_FUNCTION
    ),
    "SteeredRISE.attribute": spoilt(
        steered,
        {},
        inputs={**NO_ATTRIBUTED, "an empty tuple": ()},
        target=NO_TARGET,
        lam={**NO_NUMBER, "None": None},
        n_masks=NO_POSITIVE,
        cells={"None": None, "text": "77", "a bool": True, "a fraction": 2.5, "NaN": (NAN, NAN)},
        p={**NO_NUMBER, "None": None, "NaN": NAN, "above 1": 1.5},
        seed=NO_SEED,
        batch_size=NO_POSITIVE,
        baselines={"None": None, "text": "black", "a list": [[0.0]], "NaN": NAN, "complex": 1j},
        activation=NO_CHOICE,
    ),
    "build_method": spoilt(
        build_method,
        {"name": "IG + SmoothGrad"},
        name=NO_CHOICE,
        layer={"a number": 0, "a module": NET[0]},
        n_samples=NO_POSITIVE,
        noise={**NO_NUMBER, "None": None, "NaN": NAN, "negative": -1, "infinite": INF},
        stdev={**NO_NUMBER, "NaN": NAN, "negative": -1, "infinite": INF},
        n_steps=NO_POSITIVE,
        baseline={
            "text": "black",
            "None": None,
            "complex": 1j,
            "NaN": NAN,
            "of rank 2": np.ones((2, 2)),
            "ragged": [[1], []],
        },
        batch_size=NO_POSITIVE,
        device=NO_DEVICE,
        seed=NO_SEED,
    ),
    "build_methods": spoilt(
        build_methods,
        {},
        names={"a number": 3, "not names": [3]},
        n_steps={"text": "many"},
        seed={"a bool": True, "a fraction": 0.5},
        device={"text": "gpu number one"},
    ),
    "method_from_spec": spoilt(
        method_from_spec,
        {"spec": "Occlusion"},
        spec={"None": None, "a number": 3, "empty": "", "no function": ":", "a file that is not there": "method.py:f"},
        layer={"a number": 0, "a module": NET[0]},
        n_steps=NO_POSITIVE,
        baseline={"text": "black", "None": None, "NaN": NAN},
        batch_size=NO_POSITIVE,
        device=NO_DEVICE,
        seed=NO_SEED,
    ),
    "explain_func": spoilt(
        explain_func,
        {"factory": Saliency},
        factory={"None": None, "a number": 3},
        layer={"a number": 0, "a list": ["0"]},
        attribute_kwargs={"a list": [1], "text": "abs", "a number": 3},
        batch_size=NO_POSITIVE,
        interpolate=NO_CHOICE,
        channels=NO_CHOICE,
        rescale={"text": "yes", "None": None},
        device=NO_DEVICE,
        seed=NO_SEED,
    )
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
        model=NO_MODULE,
        layers={"None": None, "a number": 3, "not names": [0]},
        concept_images=NO_IMAGES | {"none": IMAGES[:0]},
        negative_images=NO_IMAGES,
        inputs=NO_IMAGES | {"none": IMAGES[:0]},
        target={"None": None, **NO_TARGET},
        n_random=NO_POSITIVE,
        n_samples=NO_POSITIVE,
        alpha={**NO_NUMBER, "None": None, "NaN": NAN},
        method=NO_CHOICE,
        C={**NO_NUMBER, "None": None, "NaN": NAN, "zero": 0},
        batch_size={"text": "many", "a bool": True, "NaN": NAN},
        device=NO_DEVICE,
        seed=NO_SEED,
    ),
    "tcav_folders": spoilt(
        tcav_folders,
        {"model": NET, "layers": ["0"], "root": ".", "inputs": IMAGES, "target": 0},
        model=NO_MODULE,
        layers={"None": None, "a number": 3, "not names": [0]},
        root={"None": None, "a number": 3, "empty": "", "without folders": "."},
        inputs=NO_IMAGES | {"none": IMAGES[:0]},
        # Of which classes the model has, it is asked after the folder was looked through.
        target={"None": None, "text": "cat", "a fraction": 0.5, "a bool": True},
        transform=NO_FUNCTION,
        random={"None": None, "a number": 3, "empty": "", "a path": "../random"},
        alpha={**NO_NUMBER, "None": None, "NaN": NAN},
        method=NO_CHOICE,
        C={**NO_NUMBER, "None": None, "NaN": NAN, "zero": 0},
        batch_size={"text": "many", "a bool": True, "NaN": NAN},
        num_workers={"text": "two", "a fraction": 0.5, "negative": -1},
        device=NO_DEVICE,
        seed=NO_SEED,
    ),
    "tcav_contrast": spoilt(
        tcav_contrast,
        {"first": SCORE, "second": SCORE},
        first={"None": None, "a number": 0.5, "text": "0.5"},
        second={"None": None, "a number": 0.5, "text": "0.5"},
    ),
    "overlay": spoilt(
        overlay,
        {"image": PICTURE, "map": MAP},
        image={**NO_ARRAY, "None": None, "empty": np.zeros((0, 4, 3))},
        map={**NO_ARRAY, "None": None, "empty": np.zeros((0, 0))},
        beta={**NO_NUMBER, "NaN": NAN},
        coloured={"None": None, "a number": 3, "an array": np.ones(2)},
        threshold={**NO_NUMBER, "NaN": NAN},
        low={**NO_NUMBER, "NaN": NAN},
        high={**NO_NUMBER, "NaN": NAN},
    ),
    "plot_coam": spoilt(
        plot_coam,
        {"image": PICTURE, "map": MAP},
        image={"text": "bird.png", "None": None},
        map={"text": "map.npy", "a number": 3.0},
        present={"text": "yes", "an array": np.array([True, False])},
        ax={"a number": 3, "a figure": Figure(), "text": "ax"},
    ),
    "gallery": spoilt(
        gallery,
        {"images": PICTURE[None], "maps": MAP[None, None], "names": ["red"]},
        images={"None": None, "a number": 3, "text": "birds"},
        maps={"None": None, "a list": [MAP], "text": np.array([[[["a"]]]])},
        names={"None": None, "a number": 3},
        present={"text": [["yes"]], "ragged": [[True], []], "halves": [[0.5]]},
        absent={"text": [["yes"]], "halves": [[0.5]]},
        class_maps={"a list": [MAP], "text": np.array([[["a"]]])},
        class_names={"a number": 3, "text": "a"},
        contributions={"text": [["a"]], "complex": [[1j]]},
        beta={"text": "0.4"},
        threshold={"text": "0.4"},
        axes={"a number": 3, "a list": [1, 2], "of texts": np.array([["a", "b"]])},
    ),
    "show_concepts": spoilt(
        show_concepts,
        {"model": CBM, "images": IMAGES},
        model={"None": None, "a module": NET, "text": "cbm"},
        images={**NO_IMAGES, "none": IMAGES[:0]},
        top=NO_POSITIVE,
        layer={"without a bank": "features"},
        bank={"without a layer": CBM.bank},
        by={"a number": 3, "unknown": "size"},
        concepts={"a fraction": 0.5, "unknown": ["rde"]},
        concept_labels={"text": [["yes"]], "of one": [[1]]},
        labels={"text": ["a"], "too few": [0]},
        class_names={"text": "ab", "too few": ["a"]},
        pictures={"text": "bird.png", "too few": IMAGES[:1]},
        batch_size=NO_POSITIVE,
    ),
    "show_top_images": spoilt(
        show_top_images,
        {"model": CBM, "images": IMAGES, "concept": 0},
        model={"None": None, "a module": NET},
        images={**NO_IMAGES, "none": IMAGES[:0]},
        concept={"None": None, "unknown": "rde", "too large": 99},
        top=NO_POSITIVE,
        layer={"without a bank": "features"},
        bank={"without a layer": CBM.bank},
        concept_labels={"text": [["yes"]], "of one": [[1]]},
        pictures={"text": "bird.png", "too few": IMAGES[:1]},
        batch_size=NO_POSITIVE,
    ),
    "plot_contributions": spoilt(
        plot_contributions,
        {"contributions": np.ones(2), "names": ["a", "b"], "total": 1.0},
        contributions={**NO_ARRAY, "of one": np.ones(1)},
        names={"None": None, "a number": 3},
        total=NO_NUMBER,
        top=NO_POSITIVE,
        ax={"a number": 3, "text": "ax"},
    ),
    "TCAVScores.plot": spoilt(
        TCAVScores({"a": SCORE}).plot,
        {},
        ax={"a number": 3, "a figure": Figure(), "text": "ax"},
    ),
}
