"""ConceptAUC in tables of `score_concepts`, and what is undefined."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from metric_inputs import CLASSES, IMAGES, LABELS, MODEL
from quantus_concepts import ConceptAUC, score_concepts
from quantus_concepts.functional import concept_auc, concept_auc_interval
from tiny_models import SharingConceptModel

with torch.no_grad():
    VALUES = MODEL.concept_predictor(torch.as_tensor(IMAGES))
    PREDICTED = MODEL(torch.as_tensor(IMAGES)).argmax(1)
EXPECTED = concept_auc(VALUES, LABELS).double().tolist()


def test_reasons_are_counted() -> None:
    labels, values = LABELS.copy(), VALUES.numpy().copy()
    labels[:, 0] = 1
    metric = ConceptAUC(labels)
    with pytest.warns(UserWarning, match="all images show the concept, or none does"):
        scores = metric(MODEL.head, values, CLASSES, a_batch=values)
    assert math.isnan(scores[0])
    assert metric.records[-1].reasons["all images show the concept, or none does"] >= 1
    assert not metric.records[-1].uses_explanations


def test_rows_of_a_table() -> None:
    truth = torch.as_tensor(LABELS)
    loader = [(torch.as_tensor(IMAGES), torch.as_tensor(CLASSES), truth)]
    banks = [SharingConceptModel(seed) for seed in range(1, 4)]
    table = score_concepts({"m": MODEL}, loader, controls={"random banks": banks})
    rows = table[table["metric"] == "concept AUC"]
    own = rows[rows["model"] == "m"]
    assert own["what"].tolist() == ["score", *["item"] * len(EXPECTED)]
    assert own["value"].tolist() == pytest.approx([float(np.nanmean(EXPECTED)), *EXPECTED], nan_ok=True)
    interval = concept_auc_interval(VALUES, LABELS, CLASSES)
    assert own[["low", "high"]].iloc[0].tolist() == pytest.approx(interval)
    assert own[["low", "high"]].iloc[1:].isna().all(axis=None)
    assert (own["chance"].iloc[0], own["set"].iloc[0], own["item_kind"].iloc[0]) == (0.5, "all", "concept")
    # Each concept has the range of its own random banks.
    banks_of = rows[rows["what"] == "random range"]
    assert banks_of["item"].tolist() == own["item"].tolist()
    with torch.no_grad():
        draws = [concept_auc(bank.concept_predictor(torch.as_tensor(IMAGES)), LABELS)[1].item() for bank in banks]
    assert banks_of[["low", "high"]].iloc[2].tolist() == pytest.approx([min(draws), max(draws)])
    within = table[(table["metric"] == "concept AUC within predicted classes") & (table["model"] == "m")]
    expected = concept_auc(VALUES, LABELS, PREDICTED).nanmean().item()
    assert within["value"].tolist() == pytest.approx([expected], nan_ok=True)


def test_a_recital_is_not_praised_within_its_classes() -> None:
    generator = torch.Generator().manual_seed(0)
    classes = torch.arange(40) % 4
    table = torch.rand(4, 5, generator=generator)
    concepts = (torch.rand(40, 5, generator=generator) < table[classes]).int()
    model = torch.nn.Module()
    model.features, model.concept_predictor, model.head = (
        torch.nn.Identity(),
        torch.nn.Identity(),
        torch.nn.Linear(5, 4),
    )
    model.concept_maps = lambda images, concepts=None: images
    # A head that tells the rows of the table apart: the nearest one.
    model.head.weight.data, model.head.bias.data = 2 * table, -(table**2).sum(1)
    rows = score_concepts(model, [(table[classes], classes, concepts)]).set_index(["metric", "item"])["value"]
    assert rows["accuracy", ""] == 1
    assert rows["concept AUC", ""] > 0.6
    assert rows["concept AUC within predicted classes", ""] == 0.5
