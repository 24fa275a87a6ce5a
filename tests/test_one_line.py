"""What objects say of themselves: one line without the numbers they hold; data sets beside their own tests."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from captum_concepts import CoAM, ConceptBank, SobelEdges, explain_func
from metric_inputs import METRICS, MODEL
from one_line import check_one_line
from quantus_concepts import metrics


@pytest.mark.parametrize("name", METRICS)
def test_metrics(name: str) -> None:
    check_one_line(METRICS[name])


def test_what_was_set_is_shown() -> None:
    assert check_one_line(METRICS["CEM"]) == "CEM(concept_labels=<(6, 5)>, top_l=2, importance='contribution')"
    assert "normalise=False" in check_one_line(metrics.MCS(MODEL, np.zeros(6, int), normalise=False))
    assert check_one_line(explain_func(CoAM.of)) == "explain_func(CoAM.of)"
    assert repr(SobelEdges(lambda images: images)) == "SobelEdges(<lambda>)"
    names = [f"a name of\nmany lines {j}" for j in range(20)]
    check_one_line(ConceptBank(torch.arange(120.0).view(20, 6), names=names))
