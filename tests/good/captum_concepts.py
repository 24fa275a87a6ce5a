"""Good arguments of `captum_concepts`, where a constraint alone does not make one."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import torch
from torch import nn

import captum_concepts as package
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
#: Objects of the classes whose methods are checked.
OBJECTS: Mapping[str, Callable[[], Any]] = {
    "BottleneckCBM": lambda: BOTTLENECK,
    "ConceptBank": lambda: BANK,
    "PostHocCBM": lambda: CBM,
    "ResidualCBM": lambda: RESIDUAL,
}
GOOD: Mapping[str, Mapping[str, Any]] = {
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
    "PostHocCBM": {"features": BACKBONE, "bank": BANK, "head": nn.Linear(3, 2)},
    "PostHocCBM.fit": {"features": BACKBONE, "loader": LOADER, "n_pos": 2, "n_neg": 2, "min_images": 1},
    "PostHocCBM.from_hub": {"repo_id": "someone/birds", "features": BACKBONE},
    "PostHocCBM.load": {"path": "cbm.safetensors", "features": BACKBONE},
    "PostHocCBM.push_to_hub": {"repo_id": "someone/birds"},
    "PostHocCBM.save_pretrained": {"folder": "cbm"},
    "PostHocCBM.save": {"path": "cbm.safetensors"},
    "ResidualCBM": {"bottleneck": CBM, "residual": nn.Linear(2, 2)},
    "ResidualCBM.of_classifier": {"features": BACKBONE, "bank": BANK, "classifier": nn.Linear(2, 2)},
    "fit_elastic_net": {"values": FEATURES, "labels": CLASSES},
    "fit_logistic": {"values": FEATURES, "labels": CLASSES},
    "fit_residual": {"cbm": CBM, "loader": LOADER},
    "from_pyc": {"model": NET},
    "prune": {"cbm": CBM, "concepts": "red"},
}
#: Functions that need a file, a folder of images, another library's model or the network, and what has nothing to show.
NOT_RUN = {
    *("ConceptBank.from_captum", "ConceptBank.from_folders", "ConceptBank.from_text", "ConceptBank.load"),
    *("PostHocCBM.from_hub", "PostHocCBM.load", "PostHocCBM.push_to_hub", "from_pyc"),
}
