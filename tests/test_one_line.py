"""Every object of the packages says on one line what it is; data sets and encoders beside their own tests."""

from __future__ import annotations

import functools
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from captum.attr import LayerGradCam
from torch import nn

import captum_concepts
import quantus_concepts
from captum_concepts import (
    Backbone,
    BottleneckCBM,
    CoAM,
    ConceptBank,
    Contributions,
    Embeddings,
    LayerFeatures,
    Levels,
    PostHocCBM,
    RandomAttribution,
    ResidualCBM,
    SobelEdges,
    SteeredRISE,
    TCAVContrast,
    TCAVScore,
    TCAVScores,
    explain_func,
)
from captum_concepts.tcav.score import LayerScore
from metric_inputs import IMAGES, METRICS, MODEL, SCORER
from one_line import all_say_what_they_are, check_one_line
from quantus_concepts import functional, metrics

LONG = "a name of\nmany lines " * 20
WIDE = torch.arange(400.0).view(20, 20)
BANK = ConceptBank(WIDE[:, :6], names=[f"{LONG}{j}" for j in range(20)])
CBM = PostHocCBM(nn.Conv2d(3, 6, 3), BANK, nn.Linear(20, 2), values="raw")


def test_attributions_and_banks() -> None:
    score = LayerScore(0.75, 0.04, True, 0.5, (0.75,), (0.5,))
    assert repr(TCAVScore(0.75, 1 / 3, {"layer4": score})) == (
        "TCAVScore(score=0.75, random_mean=0.3333, layer4: 0.75 with p = 0.040)"
    )
    examples = {
        "Backbone": Backbone(nn.Sequential(nn.Conv2d(3, 2, 3), nn.ReLU()), "mean", None, 2),
        "CoAM": CoAM(CBM),
        "ConceptBank": BANK,
        "Contributions": Contributions(WIDE, WIDE),
        "Embeddings": Embeddings(WIDE, None, WIDE),
        "Levels": Levels(WIDE[0], WIDE[1]),
        "RandomAttribution": RandomAttribution(MODEL),
        "SobelEdges": SobelEdges(lambda images: images),
        "SteeredRISE": SteeredRISE(MODEL),
        "TCAVContrast": TCAVContrast(1 / 3, 0.5),
        "TCAVScore": TCAVScore(0.5, 1 / 3, dict.fromkeys(map(str, range(90)), score)),
        "TCAVScores": TCAVScores({str(i): TCAVScore(0.5, 1 / 3, {}) for i in range(90)}),
    }
    # Modules print as all of torch's do: with the modules inside.
    modules = {"PostHocCBM": CBM, "BottleneckCBM": BottleneckCBM(CBM.features, nn.Linear(6, 20), CBM.head)}
    modules["LayerFeatures"] = LayerFeatures(MODEL, "head")  # type: ignore[assignment]
    modules["ResidualCBM"] = ResidualCBM(CBM, nn.Linear(6, 2))  # type: ignore[assignment]
    all_say_what_they_are(captum_concepts, examples, frozenset(modules))
    for name, module in modules.items():
        assert repr(module).startswith(f"{name}(\n")
        assert "0x" not in repr(module)
    assert repr(CoAM(CBM, "features", BANK.cavs)) == "CoAM(PostHocCBM, layer=Conv2d, cavs=<(20, 6)>)"
    assert repr(examples["SobelEdges"]) == "SobelEdges(<lambda>)"
    check_one_line(explain_func(functools.partial(LayerGradCam), layer="features", baselines=lambda x: x))
    assert check_one_line(explain_func(CoAM.of)) == "explain_func(CoAM.of)"


def test_metrics_and_results() -> None:
    mine = metrics.Subject(MODEL, IMAGES, np.zeros(6, int))
    premise = metrics.Premise("removed", 1 / 3, 0.02, True)
    check = metrics.PremiseCheck("the model", LONG, *[1 / 3] * 8, 6)
    examples: dict[str, Any] = METRICS | {
        "ConceptState": metrics.concept_state({LONG: MODEL}, [(torch.as_tensor(IMAGES), torch.zeros(6, dtype=int))]),
        "Limits": metrics.Limits(),
        "Patch": metrics.Patch(IMAGES[0]),
        "PatchResult": metrics.PatchResult(*[WIDE] * 5),
        "Premise": premise,
        "PremiseCheck": check,
        "RegionAttributions": metrics.RegionAttributions({mine: WIDE}, {}, {mine: IMAGES}, LONG),
        "Subject": mine,
    }
    all_say_what_they_are(metrics, examples)
    frame = pd.DataFrame({"value": WIDE[0].numpy()})
    evaluation = quantus_concepts.Evaluation({f"m{j}": {"CEM": [0.5] * 99} for j in range(9)}, frame)
    page = quantus_concepts.Explorer("<p>" * 999, 3, Path("deep") / LONG)
    subject = quantus_concepts.PaintedSubject([1] * 9, [1], MODEL, {"oracle": MODEL}, {})
    all_say_what_they_are(
        quantus_concepts, examples | {"Evaluation": evaluation, "Explorer": page, "PaintedSubject": subject}
    )
    assert check_one_line(METRICS["CEM"]) == "CEM(concept_labels=<(6, 5)>, top_l=2, importance='contribution')"
    assert check_one_line(metrics.CEM(top_l=3, only_correct=True, abs=True)) == (
        "CEM(top_l=3, only_correct=True, importance='contribution', abs=True)"
    )
    assert "normalise=False" in check_one_line(metrics.MCS(MODEL, np.zeros(6, int), normalise=False))
    assert check_one_line(SCORER) == f"Scorer(dim={SCORER.dim}, questions=('Q1',), n_labels=3)"
    assert check_one_line(mine) == "Subject(model=SharingConceptModel, images=<(6, 3, 12, 12)>, labels=<(6,)>)"


def test_mathematics() -> None:
    estimate = functional.Estimate(*[WIDE] * 3)
    examples = {
        "ClassMeans": functional.ClassMeans(3, 4),
        "Difference": functional.paired_difference([1.0, 0.5, 0.3], [0.1, 0.2, 1 / 3]),
        "Discoveries": functional.find_discoveries(WIDE[0], WIDE),
        "Estimate": estimate,
        "FaithfulnessScores": functional.FaithfulnessScores(*[WIDE] * 3),
        "Movement": functional.Movement(*[WIDE] * len(functional.Movement._fields)),
        "RandomBank": functional.RandomBank(*[WIDE] * len(functional.RandomBank._fields)),
        "RelativeContrast": functional.RelativeContrast(*[estimate] * len(functional.RelativeContrast._fields)),
        "SubstitutionScores": functional.SubstitutionScores(*[WIDE] * len(functional.SubstitutionScores._fields)),
    }
    all_say_what_they_are(functional, examples)


def test_diffusion() -> None:
    diffusers = pytest.importorskip("diffusers")
    from quantus_concepts import diffusion

    schedule = diffusion.TieSchedule()
    tied = diffusion.TiedScheduler(diffusers.DDIMScheduler(), schedule)
    pair = diffusion.TiedPair(object(), object(), [0.5] * 50)
    all_say_what_they_are(diffusion, {"TieSchedule": schedule, "TiedPair": pair, "TiedScheduler": tied})
    assert repr(tied).startswith("TiedDDIMScheduler(eta=TieSchedule(")
