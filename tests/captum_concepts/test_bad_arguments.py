"""Bad arguments that no constraint describes: those that do not fit each other, and what models and loaders give."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import captum.attr
import numpy as np
import pytest
import torch
from captum.attr import LayerGradCam, Saliency
from torch import Tensor, nn

import captum_concepts as cc
from bad_arguments import NAN, NO_ARRAY, Case, assert_refused, public_functions, spoilt
from concept_inputs import (
    BANK,
    BOTTLENECK,
    CBM,
    CLASSES,
    CUT,
    IMAGES,
    NET,
    PRESENT,
    RESIDUAL,
    Tower,
    tokens,
)
from good.captum_concepts import GOOD, OBJECTS

Bad = Mapping[str, Any]
NO_MODULE: Bad = {"None": None, "text": "resnet18", "a list": [1], "a class": torch.nn.Linear}
NO_IMAGES: Bad = {"None": None, "text": "birds.png", "a list": [[1.0]], "of rank 3": IMAGES[0]}
NO_DEVICE: Bad = {"text": "gpu number one", "a list": ["cpu"], "a fraction": 0.5}
NO_LOADER: Bad = {
    "of numbers": [1, 2],
    "of texts": [("a", "b", "c")],
    "of images of text": [(np.array(["a"]), CLASSES, CLASSES)],
    "of None": [None],
}
NO_FIT: dict[str, Bad] = {
    "labels": {"of one class": CLASSES * 0, "negative": CLASSES - 1, "halves": CLASSES / 2},
    "n_classes": {"too few": 1},
}
#: Where None stands for the one that is named.
NO_BACKBONE: Bad = {what: value for what, value in NO_MODULE.items() if value is not None}
NO_SOURCE: Bad = {"no model": "timm", "unknown": "keras:resnet50", "no weights": "open_clip:ViT-B-32"}
NO_REPOSITORY: Bad = {"too deep": "a/b/c", "with a space": "my birds"}
NO_CONCEPTS: Bad = {"text": "red", "None in it": [None], "NaN": [NAN], "too large": [3], "nested": [[[0]]]}


NO_FEATURES: Bad = {"None": None, "text": "a", "of another width": IMAGES, "of rank 3": IMAGES[0]}
NO_INPUTS: Bad = {"None": None, "text": "birds.png", "of rank 1": IMAGES[0, 0, 0]}
ONE_CONCEPT: Bad = {
    **NO_CONCEPTS,
    "text": "rde",
    "unknown": ["rde"],
    "twice the same": [1, 1],
    "empty": torch.zeros(0, dtype=torch.int64),
}
NO_LEVELS: Bad = {
    "a number": 1.0,
    "text": ("a", "b"),
    "one": [[0.0] * 3],
    "NaN": np.full((2, 3), NAN),
    "of two concepts": np.zeros((2, 2)),
    "descending": np.array([[1.0] * 3, [0.0] * 3]),
}
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
NO_PLANES: Bad = {"of rank 3": IMAGES[0], "whole numbers": IMAGES.byte()}
NO_NETWORK: Bad = {"None": None, "a number": 3, "a class": nn.Linear}
#: Bad values of the arguments of a callable, which otherwise gets good ones.
BAD: dict[str, Mapping[str, Bad]] = {
    "ConceptBank": {"cavs": {"bools": np.eye(3, dtype=bool), "without values": torch.ones(2, 3, device="meta")}},
    # In the working directory, which is empty, a good call would stop at `root` and name that.
    "ConceptBank.from_folders": {
        "backbone": NO_MODULE,
        "root": {"without folders": "."},
        "random": {"None": None, "a number": 3, "empty": "", "a path": "../random"},
    },
    "ConceptBank.join": {"banks": {"of one name": [BANK, BANK]}},
    "ConceptBank.from_text": {
        "model": {
            **{"None": None, "text": "ViT-B-32", "a class": Tower, "that gives a text": Tower("a")},
            **{"that gives one row": Tower(torch.ones(1, 2)), "that gives rank 1": Tower(torch.ones(2))},
        },
        "tokenizer": {"that gives no tensor": lambda texts: texts},
        "names": {"a number": 3, "text": "ab", "twice the same": ["a", "a"], "one too few": ["a"]},
        "templates": {"without a place": ["a photo"]},
    },
    "ConceptBank.from_captum": {
        "cavs": {"text": "cavs.pt", "a number": 3, "None": None},
        "concept": {"None": None, "a fraction": 0.5, "a bool": True, "a list": [0], "negative": -1},
        "layer": {"unknown": "head"},
    },
    "ConceptBank.random": {
        "names": {"one too few": ["a"]},
        "mean": {
            "text": ["a", "b", "c"],
            "a number": 1.0,
            "NaN": [NAN, 0, 0],
            "of rank 2": np.eye(3),
            "of 4": [0.0] * 4,
        },
    },
    "ConceptBank.index": {"name": {"None": None, "a list": ["red"], "unknown": "rde"}},
    "ConceptBank.select": {
        "concepts": {"None": None, "a bool": True, "a fraction": 1.5, "of rank 2": np.array([[0, 1]]), "NaN": [NAN]}
    },
    "ConceptBank.rename": {"mapping": {"unknown": {"rde": "a"}, "to one name": {"red": "blue"}}},
    "ConceptBank.to": {"dtype": {"integers": torch.int64, "complex": torch.complex64}},
    "PostHocCBM": {"features": NO_MODULE, "head": {"of other concepts": nn.Linear(4, 2)}},
    "PostHocCBM.fit": {
        "features": NO_MODULE,
        "bank": {"beside numbers of images": BANK},
        "loader": {**NO_LOADER, "of bool classes": [(IMAGES, CLASSES > 0, torch.from_numpy(PRESENT))]},
        "concept_labels": {**NO_ARRAY, "of rank 1": PRESENT[:, 0], "halves": PRESENT / 2, "one too few": PRESENT[:7]},
        "names": {"a number": 3, "text": "ab", "one too few": ["a"], "twice the same": ["a", "a"]},
        "head": {"that gives no module": lambda u, y: u},
        "n_classes": {"too few": 1},
        "concepts": {"a number": 2, "unknown": "concept 9", "a pattern of none": "wing*", "nothing": []},
    },
    "PostHocCBM.load": {"features": NO_BACKBONE},
    "PostHocCBM.from_hub": {"repo_id": NO_REPOSITORY, "features": NO_BACKBONE},
    "PostHocCBM.push_to_hub": {"repo_id": NO_REPOSITORY, "backbone": NO_SOURCE},
    "PostHocCBM.save": {"backbone": NO_SOURCE},
    "BottleneckCBM": {
        "features": NO_MODULE,
        "concept_layer": {"with a sigmoid": nn.Sequential(nn.Linear(2, 3), nn.Sigmoid())},
        "head": {"of other concepts": nn.Linear(4, 2)},
    },
    "BottleneckCBM.concept_maps": {"concepts": {**NO_CONCEPTS, "a number": 3.5}},
    "BottleneckCBM.maps_from_features": {"features": NO_FEATURES, "concepts": NO_CONCEPTS},
    "BottleneckCBM.values_from_features": {"features": NO_FEATURES},
    "BottleneckCBM.intervene": {
        "inputs": NO_INPUTS,
        "concepts": ONE_CONCEPT,
        "values": {"None": None, "text": "a", "NaN": [NAN, 0.0], "one too few": [1], "no labels": [2, 0]},
        "levels": NO_LEVELS,
    },
    "BottleneckCBM.value_levels": {"loader": {**NO_LOADER, "empty": [], "with NaN": [(IMAGES * NAN,)]}},
    "BottleneckCBM.with_head": {"head": {"of other concepts": nn.Linear(4, 2)}},
    "ResidualCBM.with_head": {"head": {"of other concepts": nn.Linear(4, 2)}},
    "ResidualCBM": {
        "bottleneck": {"with a residual": RESIDUAL},
        "residual": {"of another width": nn.Linear(3, 2), "of one class": nn.Linear(2, 1)},
    },
    "ResidualCBM.of_classifier": {"features": NO_MODULE, "classifier": {"of another width": nn.Linear(9, 4)}},
    "ResidualCBM.contributions": {"inputs": NO_INPUTS},
    "fit_residual": {
        "cbm": {"with a residual": RESIDUAL},
        "loader": {**NO_LOADER, "empty": [], "of other classes": [(IMAGES, CLASSES + 1)]},
    },
    "prune": {
        "concepts": ONE_CONCEPT,
        "classes": {"text": "bird", "a fraction": [0.5], "too large": [2], "bools": [True, False], "nested": [[[0]]]},
    },
    "Backbone": {
        "normalisation": {
            "text": "imagenet",
            "a mean alone": (0.5, 0.5, 0.5),
            "of two lengths": ((0.5,) * 3, (0.5,)),
            "a deviation of 0": ((0.5,) * 3, (0.5, 0.5, 0.0)),
            "NaN": ((NAN,) * 3, (0.5,) * 3),
        }
    },
    "Backbone.normalise": {
        "images": {
            **{"None": None, "text": "birds.png", "bytes": IMAGES.byte()},
            **{"of two channels": IMAGES[:, :2], "of rank 2": IMAGES[0, 0]},
        }
    },
    "embed": {"features": NO_MODULE, "loader": {**NO_LOADER, "empty": []}},
    "fit_logistic": NO_FIT,
    # What else it takes is tried where a model of PyC's is at hand.
    "from_pyc": {"model": {"of another library": nn.Linear(2, 2)}},
    "from_transformers": {
        "model": {"None": None, "a number": 3, "a class": nn.Linear, "of another library": nn.Linear(2, 2)},
        "processor": {"text": "google/vit", "a function": tokens},
    },
    "LayerFeatures": {
        "layer": {"None": None, "a number": 0, "unknown": "head", "empty": "", "of another": nn.Linear(1, 1)}
    },
    "CoAM": {
        "forward_func": {"None": None, "text": "resnet18", "a list": [NET]},
        "layer": {"None": None, "a number": 0, "unknown": "head", "a list": ["0"]},
        "cavs": {**NO_ARRAY, "None": None, "of rank 1": np.ones(2), "NaN": np.eye(2) * NAN, "empty": np.ones((0, 2))},
        "device_ids": {"text": "cuda:0", "a number": 0},
    },
    "CoAM.of": {"model": NO_MODULE},
    "CoAM.attribute": {"inputs": {**NO_ATTRIBUTED, "an empty tuple": ()}, "target": NO_TARGET},
    "RandomAttribution.attribute": {
        "inputs": {**NO_ATTRIBUTED, "an empty tuple": ()},
        "target": {"one too few": CLASSES[:7], "NaN": [NAN]},
    },
    "SobelEdges.attribute": {"inputs": {**NO_ATTRIBUTED, **NO_PLANES}},
    "SteeredRISE.attribute": {
        "inputs": {**NO_ATTRIBUTED, **NO_PLANES, "an empty tuple": ()},
        "target": NO_TARGET,
        "cells": {"None": None, "text": "77", "a bool": True, "a fraction": 2.5, "NaN": (NAN, NAN)},
        "baselines": {"None": None, "text": "black", "a list": [[0.0]], "NaN": NAN, "complex": 1j},
    },
    "build_method": {
        "baseline": {
            "text": "black",
            "None": None,
            "complex": 1j,
            "NaN": NAN,
            "of rank 2": np.ones((2, 2)),
            "ragged": [[1], []],
        }
    },
    "method_from_spec": {
        "spec": {"empty": "", "no function": ":", "a file that is not there": "method.py:f"},
        "baseline": {"text": "black", "None": None, "NaN": NAN},
    },
    "explain_func": {"factory": {"None": None, "a number": 3}},
    "tcav_score": {
        "concept_images": NO_IMAGES | {"none": IMAGES[:0]},
        "inputs": NO_IMAGES | {"none": IMAGES[:0]},
        "target": {"None": None, **NO_TARGET},
    },
    "overlay": {"image": {**NO_ARRAY, "None": None, "empty": np.zeros((0, 4, 3))}},
    "gallery": {
        "images": {"None": None, "a number": 3, "text": "birds"},
        "names": {"None": None, "a number": 3},
        "axes": {"a number": 3, "a list": [1, 2], "of texts": np.array([["a", "b"]])},
    },
    "show_concepts": {
        "model": {"None": None, "a module": NET, "text": "cbm"},
        "images": {**NO_IMAGES, "none": IMAGES[:0]},
        "layer": {"without a bank": "features"},
        "bank": {"without a layer": CBM.bank},
        "concepts": {"a fraction": 0.5, "unknown": ["rde"]},
        "concept_labels": {"of one": [[1]]},
        "labels": {"too few": [0]},
        "class_names": {"too few": ["a"]},
        "pictures": {"text": "bird.png", "too few": IMAGES[:1]},
    },
    "show_top_images": {"concept": {"None": None, "unknown": "rde", "too large": 99}},
    "plot_contributions": {"contributions": {"of one": np.ones(1)}},
    "from_open_clip": {"model": NO_NETWORK},
    "from_timm": {"model": NO_NETWORK},
    "from_torchvision": {"model": NO_NETWORK},
}


def call_explainer(**changes: Any) -> object:
    return cc.explain_func(Saliency)(**{"model": NET, "inputs": IMAGES.numpy(), "targets": CLASSES.numpy(), **changes})


class Answers(nn.Module):
    """A model that answers with what it is told, whatever it is asked."""

    def __init__(self, answer: Any) -> None:
        super().__init__()
        self.answer = answer

    def forward(self, images: Tensor) -> Any:
        return self.answer


#: Cases that are no bad value of one argument.
OTHERS: dict[str, Mapping[str, Case]] = {
    "ConceptBank.save": {
        "settings: with what JSON cannot": (
            lambda: cc.ConceptBank(np.eye(2), settings={"a": object()}).save("bank"),  # type: ignore[dict-item]
            "`settings`",
        )
    },
    "ResidualCBM.save": {
        "residual: of another kind": (
            lambda: cc.ResidualCBM(CBM, nn.Bilinear(2, 2, 2)).save("cbm.safetensors"),
            "`residual`",
        ),
        "bottleneck: of another kind": (
            lambda: cc.ResidualCBM(BOTTLENECK, nn.Linear(2, 2)).save("cbm.safetensors"),
            "a PostHocCBM but got Bottleneck",
        ),
    },
    "Backbone.normalise": {"normalisation: unknown": (lambda: CUT.normalise(IMAGES), "`normalisation`")},
    "explain_func": {
        "internal_batch_size: text": (
            lambda: cc.explain_func(captum.attr.IntegratedGradients, internal_batch_size="64"),
            "`internal_batch_size`",
        ),
        "internal_batch_size: negative": (
            lambda: cc.explain_func(captum.attr.IntegratedGradients, internal_batch_size=-1),
            "`internal_batch_size`",
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
        f"model that returns {what}": (lambda answer=answer: call_explainer(model=Answers(answer)), names)
        for what, answer, names in (
            ("nothing", None, "return"),
            ("an empty tuple", (), "return"),
            ("texts", ["a"], "return"),
            ("a vector", torch.ones(8, requires_grad=True), "return"),
            ("nothing of the inputs", torch.ones(8, 2), "gradient"),
        )
    }
    | {
        "layer of no module": (
            lambda: cc.explain_func(LayerGradCam, layer="0")(lambda x: x, IMAGES.numpy(), CLASSES.numpy()),
            "`model`",
        )
    },
}

#: Results, and what is tried under the name of the class that has it.
EXCEPTIONS = {
    "TCAVScore": "a result",
    "Backbone.embed_features": "takes what its own features give",
    "Backbone.feature_maps": "takes what its own features give",
    "PostHocCBM.project_features": "maps_from_features by another name",
    "BottleneckCBM.embed_features": "as of PostHocCBM",
    "BottleneckCBM.feature_maps": "as of Backbone",
    "BottleneckCBM.forward": "PyTorch's own errors",
    "BottleneckCBM.project_features": "as of PostHocCBM",
    "ResidualCBM.project_features": "as of PostHocCBM",
    "BottleneckCBM.embedded": "as of PostHocCBM",
    "BottleneckCBM.own_inputs": "as of PostHocCBM",
    "BottleneckCBM.logits_from_features": "as of PostHocCBM",
    "LayerFeatures.forward": "PyTorch's own errors",
}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", BAD)
@pytest.mark.usefixtures("empty_folder")
def test_bad_values_are_refused(name: str) -> None:
    owner, _, method = name.partition(".")
    function = getattr(OBJECTS[owner](), method) if method else getattr(cc, owner)
    assert_refused(spoilt(function, GOOD.get(name, {}), **BAD[name]))


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("cases", OTHERS.values(), ids=OTHERS)
@pytest.mark.usefixtures("empty_folder")
def test_other_bad_input_is_refused(cases: Mapping[str, Case]) -> None:
    assert_refused(cases)


def test_every_callable_has_constraints_or_is_in_the_tables() -> None:
    unconstrained = {name for name, function in public_functions(cc) if not hasattr(function, "constraints")}
    assert unconstrained - BAD.keys() - OTHERS.keys() == EXCEPTIONS.keys()
