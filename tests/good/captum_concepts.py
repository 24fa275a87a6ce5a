"""Good arguments of `captum_concepts`, where a constraint alone does not make one."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import captum.attr
import numpy as np
import torch
from matplotlib.figure import Figure
from torch import nn

import captum_concepts as package
from captum_concepts import Backbone, CoAM, RandomAttribution, SobelEdges, SteeredRISE, TCAVScore, TCAVScores
from concept_inputs import (
    BACKBONE,
    BANK,
    BOTTLENECK,
    CBM,
    CLASSES,
    FEATURES,
    IMAGES,
    LOADER,
    NET,
    PRESENT,
    RESIDUAL,
    Tower,
    tokens,
    trained_cav,
)

PACKAGE = package
SCORE = TCAVScore(0.5, 0.5, {})
AX = Figure().subplots()
PICTURE, MAP = np.zeros((4, 5, 3)), np.eye(2)
TCAV = {"model": NET, "layers": ["0"], "inputs": IMAGES, "target": 0}
#: Objects of the classes whose methods are checked.
OBJECTS: Mapping[str, Callable[[], Any]] = {
    "Backbone": lambda: Backbone(BACKBONE, "mean", None, 2, ((0.5,) * 3, (0.5,) * 3)),
    "BottleneckCBM": lambda: BOTTLENECK,
    "ConceptBank": lambda: BANK,
    "CoAM": lambda: CoAM(CBM),
    "PostHocCBM": lambda: CBM,
    "RandomAttribution": lambda: RandomAttribution(NET),
    "ResidualCBM": lambda: RESIDUAL,
    "SobelEdges": lambda: SobelEdges(NET),
    "SteeredRISE": lambda: SteeredRISE(NET),
    "TCAVScores": lambda: TCAVScores({"red": TCAVScore(0.5, 0.5, {})}),
}
GOOD: Mapping[str, Mapping[str, Any]] = {
    "Backbone": {"features": BACKBONE, "pool": "mean", "maps": None, "channels": 2},
    "Backbone.embed": {"images": IMAGES},
    "BottleneckCBM": {"features": BACKBONE, "concept_layer": nn.Linear(2, 3), "head": nn.Linear(3, 2)},
    "BottleneckCBM.concept_maps": {"images": IMAGES},
    "BottleneckCBM.intervene": {
        "inputs": IMAGES,
        "concepts": [0, 1],
        "values": [0, 1],
        "levels": (np.zeros(3), np.ones(3)),
    },
    "BottleneckCBM.maps_from_features": {"features": BACKBONE(IMAGES)},
    "BottleneckCBM.value_levels": {"loader": LOADER},
    "BottleneckCBM.with_head": {"head": nn.Linear(3, 2)},
    "CoAM": {"forward_func": NET, "layer": "0", "cavs": np.eye(2)},
    "CoAM.attribute": {"inputs": IMAGES},
    "ConceptBank": {"cavs": np.eye(3), "settings": {}},
    "ConceptBank.fit": {"features": FEATURES, "labels": PRESENT, "n_pos": 2, "n_neg": 2, "min_images": 1},
    "ConceptBank.from_activations": {"backbone": BACKBONE, "images": IMAGES, "n_concepts": 2},
    "ConceptBank.from_captum": {"cavs": trained_cav()},
    "ConceptBank.from_folders": {"backbone": BACKBONE, "root": "."},
    "ConceptBank.from_text": {"model": Tower(), "tokenizer": tokens, "prompts": ["a", "b"]},
    "ConceptBank.join": {"banks": [BANK]},
    "ConceptBank.load": {"path": "bank.safetensors"},
    "ConceptBank.random": {"n_concepts": 2, "n_features": 3},
    "ConceptBank.rename": {"mapping": {"red": "rouge"}},
    "ConceptBank.save": {"path": "bank.safetensors"},
    "ConceptBank.to": {"dtype": torch.float64},
    "ConceptBank.to_captum": {"layer": "layer4"},
    "LayerFeatures": {"model": NET, "layer": "0"},
    "PostHocCBM": {"features": BACKBONE, "bank": BANK, "head": nn.Linear(3, 2)},
    "PostHocCBM.fit": {"features": BACKBONE, "loader": LOADER, "n_pos": 2, "n_neg": 2, "min_images": 1},
    "RandomAttribution.attribute": {"inputs": IMAGES},
    "RandomAttribution": {"forward_func": NET},
    "ResidualCBM": {"bottleneck": CBM, "residual": nn.Linear(2, 2)},
    "ResidualCBM.of_classifier": {"features": BACKBONE, "bank": BANK, "classifier": nn.Linear(2, 2)},
    "SteeredRISE": {"forward_func": NET},
    "SteeredRISE.attribute": {"inputs": IMAGES, "target": CLASSES, "lam": 0, "n_masks": 2, "cells": 2},
    "TCAVScores.plot": {"ax": AX},
    "build_method": {"name": "SmoothGrad"},
    "embed": {"features": BACKBONE, "loader": LOADER},
    "explain_func": {"factory": captum.attr.Saliency},
    "fit_elastic_net": {"values": FEATURES, "labels": CLASSES},
    "fit_logistic": {"values": FEATURES, "labels": CLASSES},
    "fit_residual": {"cbm": CBM, "loader": LOADER},
    "from_transformers": {"model": NET},
    "gallery": {"images": PICTURE[None], "maps": MAP[None, None], "names": ["red"]},
    "method_from_spec": {"spec": "Occlusion"},
    "overlay": {"image": PICTURE, "map": MAP},
    "plot_coam": {"image": PICTURE, "map": MAP, "name": "red", "ax": AX},
    "plot_contributions": {"contributions": np.ones(2), "names": ["a", "b"], "total": 1.0},
    "prune": {"cbm": CBM, "concepts": "red"},
    "show_concepts": {"model": CBM, "images": IMAGES},
    "show_top_images": {"model": CBM, "images": IMAGES, "concept": 0},
    "tcav_contrast": {"first": SCORE, "second": SCORE},
    "tcav_folders": {**TCAV, "root": "."},
    "tcav_score": {**TCAV, "concept_images": IMAGES, "negative_images": IMAGES, "n_random": 2, "n_samples": 2},
}
#: Functions that need a file, a folder of images, another library's model or the network, and what has nothing to show.
NOT_RUN = {
    *("ConceptBank.from_captum", "ConceptBank.from_folders", "ConceptBank.from_text", "ConceptBank.load"),
    *("tcav_folders"),
    "TCAVScores.plot",
}
