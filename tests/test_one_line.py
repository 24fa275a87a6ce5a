"""Every object that the packages export says on one line what it is; data sets beside their own tests."""

from __future__ import annotations

import re
from dataclasses import fields, is_dataclass
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from torch import nn

import captum_concepts
import quantus_concepts
from captum_concepts import ConceptBank, PostHocCBM
from metric_inputs import IMAGES, METRICS, MODEL
from quantus_concepts import functional, metrics, pasta
from tiny_encoders import tiny_open_clip


def check_one_line(value: Any) -> str:
    """Assert that an object tells its class on one short line, without an address and without the numbers it holds."""
    line = repr(value)
    name = "explain_func" if type(value).__name__ == "CaptumExplainer" else type(value).__name__
    assert line.startswith(f"{name}("), line
    assert "\n" not in line, line
    assert len(line) < 200, line
    assert not re.search("0x[0-9a-f]{4}|tensor\\(|array\\(|dtype", line), line
    return line


def public_classes(package: ModuleType) -> dict[str, type]:
    """Return the classes that a package exports, by name; a protocol has no objects of its own."""
    classes = {name: value for name in package.__all__ if isinstance(value := getattr(package, name), type)}
    return {name: value for name, value in classes.items() if not getattr(value, "_is_protocol", False)}


LONG = "a name of\nmany lines " * 20
WIDE = torch.arange(400.0).view(20, 20)
BANK = ConceptBank(WIDE[:, :6], names=[f"{LONG}{j}" for j in range(20)])
CBM = PostHocCBM(nn.Conv2d(3, 6, 3), BANK, nn.Linear(20, 2), values="raw")
SCORE = captum_concepts.TCAVScore(0.75, 1 / 3, {})
SUBJECT = metrics.Subject(MODEL, IMAGES, np.zeros(6, int))
PARTS = SimpleNamespace(**dict.fromkeys(("encode_image", "encode_text", "preprocess", "tokenizer"), len))
#: What cannot be filled with tensors: its fields are checked, or it has none.
EXAMPLES = METRICS | {
    "Backbone": captum_concepts.Backbone(nn.Sequential(nn.Conv2d(3, 2, 3), nn.ReLU()), "mean", None, 2),
    "CoAM": captum_concepts.CoAM(CBM, "features", BANK.cavs),
    "ConceptBank": BANK,
    "ConceptExplanation": pasta.ConceptExplanation({f"concept {j}": 1 / 3 for j in range(99)}),
    "ConceptPredictions": metrics.predict_concepts(MODEL, [(torch.as_tensor(IMAGES), torch.zeros(6, dtype=int))]),
    "Completeness": metrics.Completeness(np.zeros(99, int)),
    "ConceptSetCeiling": metrics.ConceptSetCeiling(),
    "ConceptTaskLeakage": metrics.ConceptTaskLeakage(),
    "DrawingExplanation": pasta.DrawingExplanation(torch.rand(3, 8, 8)),
    "EmbeddedEncoder": pasta.EmbeddedEncoder(),
    "Embedder": pasta.Embedder("embedded", size=16),
    "EmbeddingCache": pasta.EmbeddingCache(Path("folder")),
    "PartsEncoder": pasta.PartsEncoder(PARTS),
    "Evaluation": quantus_concepts.Evaluation({"m": {"CEM": [0.5] * 99}}, pd.DataFrame({"value": WIDE[0].numpy()})),
    "Explorer": quantus_concepts.Explorer("<p>" * 999, 3, Path("deep") / LONG),
    "InterconceptLeakage": metrics.InterconceptLeakage(),
    "InterventionAccuracy": metrics.InterventionAccuracy(),
    "Limits": metrics.Limits(),
    "MapExplanation": pasta.MapExplanation(torch.rand(3, 8, 8), torch.rand(8, 8)),
    "LibraryCAM": captum_concepts.LibraryCAM(nn.Linear(1, 1), cam=type("LayerCAM", (), {})),
    "OpenClipEncoder": tiny_open_clip(),
    "PaintedSubject": quantus_concepts.PaintedSubject([1] * 9, [1], MODEL, {"oracle": MODEL}, {}),
    "Patch": metrics.Patch(IMAGES[0]),
    "Perturbation": pasta.PERTURBATIONS["brightness"],
    "RandomAttribution": captum_concepts.RandomAttribution(MODEL),
    "RegionAttributions": metrics.RegionAttributions({SUBJECT: WIDE}, {}, {SUBJECT: IMAGES}, LONG),
    "Regressor": pasta.Regressor("ridge", pasta.Scorer(4), []),
    "Scorer": pasta.Scorer(4, ("Q1", "Q5"), ["cat", "dog"], (3, 2)),
    "SobelEdges": captum_concepts.SobelEdges(lambda images: images),
    "SteeredRISE": captum_concepts.SteeredRISE(MODEL),
    "SparseHeadAccuracy": metrics.SparseHeadAccuracy(),
    "Subject": SUBJECT,
    "TCAVContrast": captum_concepts.TCAVContrast(1 / 3, 0.5),
    "TCAVScore": SCORE,
    "TCAVScores": captum_concepts.TCAVScores({str(i): SCORE for i in range(90)}),
    "UsualMetrics": metrics.UsualMetrics(),
    "TrainingSettings": pasta.TrainingSettings(),
}
#: Modules print as all of torch's do: with the modules inside.
MODULES = {"PostHocCBM", "BottleneckCBM", "LayerFeatures", "ResidualCBM"}


@pytest.mark.parametrize("package", [captum_concepts, quantus_concepts, functional, metrics, pasta])
def test_every_object_says_what_it_is(package: ModuleType) -> None:
    for name, kind in public_classes(package).items():
        if name not in EXAMPLES and name not in MODULES:
            n_fields = len(fields(kind) if is_dataclass(kind) else kind._fields)
            check_one_line(kind(*[WIDE] * n_fields))
        elif name in EXAMPLES:
            assert isinstance(EXAMPLES[name], kind)
            check_one_line(EXAMPLES[name])
