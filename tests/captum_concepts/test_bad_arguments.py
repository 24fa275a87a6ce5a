"""Bad arguments that no constraint describes: those that do not fit each other, and what models and loaders give."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import captum_concepts as cc
from bad_arguments import NAN, NO_ARRAY, Case, assert_refused, spoilt
from concept_inputs import (
    BANK,
    BOTTLENECK,
    CBM,
    CLASSES,
    IMAGES,
    PRESENT,
    RESIDUAL,
    Tower,
)
from good.captum_concepts import GOOD, OBJECTS

Bad = Mapping[str, Any]
NO_MODULE: Bad = {"None": None, "text": "resnet18", "a list": [1], "a class": torch.nn.Linear}
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
#: Bad values of the arguments of a callable, which otherwise gets good ones.
BAD: dict[str, Mapping[str, Bad]] = {
    "ConceptBank": {"cavs": {"bools": np.eye(3, dtype=bool)}},
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
        "loader": NO_LOADER,
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
    "fit_logistic": NO_FIT,
    # What else it takes is tried where a model of PyC's is at hand.
    "from_pyc": {"model": {"of another library": nn.Linear(2, 2)}},
}


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
