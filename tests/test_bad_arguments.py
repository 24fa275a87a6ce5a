"""Bad arguments of the package's own functions that no constraint describes, and what stock Quantus says of them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest
import quantus
from torch import nn

from bad_arguments import Case, assert_refused, spoilt
from good.evaluation import GOOD
from metric_inputs import CHANGED, CLASSES, IMAGES, LABELS, MASKS, MODEL, OTHER, TRUTH
from quantus_concepts import (
    CEM,
    CGIM,
    CLM,
    IDR,
    MCS,
    evaluate,
    explore,
)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.usefixtures("empty_folder")
@pytest.mark.parametrize(
    "cases",
    {
        "evaluate": spoilt(evaluate, GOOD["evaluate"], control={"a number": 3, "unknown": "c", "empty": []}),
        "explore": spoilt(
            explore,
            GOOD["explore"],
            model={"text": "many", "None": None, "a module": nn.Linear(3, 2, device="meta")},
            images={"text": "many", "None": None, "none": IMAGES[:0], "no batches": []},
            labels={"one too few": CLASSES[:5]},
            concept_labels={"one too few": LABELS[:5]},
            points={"of rank 2": np.ones((6, 2))},
            class_names={"text": "ab", "too few": ["a"]},
            pictures={"text": np.array([["a"]]), "one too few": IMAGES[:5]},
        ),
    }.values(),
)
def test_refused(cases: Mapping[str, Case]) -> None:
    assert_refused(cases)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(
    ("metric", "changed", "named"),
    [
        (CEM(LABELS), {"y_batch": CLASSES + 99}, "y_batch"),
        (CEM(LABELS[:4]), {}, "concept_labels"),
        (CGIM(TRUTH, labels=CLASSES[:4]), {}, "labels"),
        (CLM(), {"s_batch": MASKS[..., 1:]}, "s_batch"),
        (MCS(OTHER, CLASSES), {"s_batch": MASKS / 2}, "s_batch"),
        (IDR(CHANGED[:4]), {"s_batch": MASKS}, "counterpart"),
    ],
)
def test_stock_quantus_names_the_argument(
    metric: Any, changed: dict[str, Any], named: str, capsys: pytest.CaptureFixture[str]
) -> None:
    call = {"model": MODEL, "x_batch": IMAGES, "y_batch": CLASSES, "s_batch": None, **changed}
    # It prints what a metric raises, and then fails over the result that is not there.
    with pytest.raises(KeyError):
        quantus.evaluate({"m": metric}, {"a": IMAGES + CLASSES[:, None, None, None]}, **call)
    assert f"`{named}`" in capsys.readouterr().out
