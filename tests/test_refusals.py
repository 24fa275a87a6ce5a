"""Bad input to what the package itself exports; metrics and functions have tables of their own."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd
import pytest
import quantus
from torch import nn

import quantus_concepts
from quantus_concepts import (
    CEM,
    CGIM,
    CLM,
    IDR,
    MCS,
    Evaluation,
    evaluate,
    explore,
    functional,
    metrics,
    plot_summary,
    read_scores,
    summarise,
    summary_metrics,
    to_markdown,
)
from refusals import Refusal, check_all
from refused.metric_classes import CHANGED, CLASSES, IMAGES, LABELS, MASKS, MODEL, OTHER, TRUTH
from spoiling import NO_ARRAY, NO_COUNT, NO_MODULE, NOTHING, TEXT, Bad, Table, public_callables, spoilt


def explain(model: Any, inputs: Any, targets: Any, **kwargs: Any) -> np.ndarray:
    return np.ones_like(inputs)


META = nn.Linear(3, 2, device="meta")
SCORES = {"a": {"m": [1.0, 0.5]}, "b": {"m": [0.0, 0.5]}}
SUMMARY = summarise(SCORES, {"m": None})
NO_DICT: Bad = {**TEXT, "a list": [1], "a number": 3, "a set": {"a"}}
CALL = {"metrics": {"CEM": CEM(LABELS)}, "xai_methods": {"a": explain}, "model": MODEL, "x_batch": IMAGES}
NO_SCORES: Bad = {**TEXT, **NOTHING, "a dict": SCORES, "without rows": SUMMARY[:0]}
TABLE: Table = {
    "evaluate": spoilt(
        evaluate,
        {**CALL, "y_batch": CLASSES},
        metrics={**NO_DICT, **NOTHING, "empty": {}, "of texts": {"CEM": "CEM"}, "of None": {"CEM": None}},
        xai_methods={**NO_DICT, **NOTHING, "empty": {}, "of numbers": {"a": 3}, "of None": {"a": None}},
        model={what: bad for what, bad in NO_MODULE.items() if what != "None"}
        | {"on the meta device": nn.Linear(3, 2, device="meta")},
        x_batch={**NO_ARRAY, "None": None, "empty": IMAGES[:0]},
        y_batch={**NO_ARRAY, "None": None, "one too few": CLASSES[:5], "of rank 2": CLASSES[:, None]},
        s_batch={**NO_ARRAY, "one too few": MASKS[:5]},
        agg_func={**TEXT, "a number": 3},
        explain_func_kwargs=NO_DICT,
        call_kwargs={**NO_DICT, "empty": {}},
        control={"a number": 3, "unknown": "c", "one unknown": ["a", "c"], "empty": []},
    ),
    "evaluate in calls": {
        "a number in them": Refusal(
            lambda: evaluate(**CALL, y_batch=CLASSES, call_kwargs={"a": 3}),  # type: ignore[dict-item]
            "`call_kwargs['a']`",
        )
    },
    "summarise": spoilt(
        summarise,
        {"results": SCORES, "metrics": {"m": None}},
        results={**NO_DICT, **NOTHING, "of texts": {"a": "m"}},
        metrics={**NO_DICT, **NOTHING, "without one": {}},
        control={"a number": 3, "unknown": "c", "numbers": [0.5], "of another metric": {"n": [0.5]}, "empty": []},
    ),
    "plot_summary": spoilt(
        plot_summary,
        {"summary": SUMMARY},
        summary={
            **TEXT,
            **NOTHING,
            "a dict": SCORES,
            "without rows": SUMMARY[:0],
            "of columns": pd.DataFrame({"a": [1]}),
        },
        ax={**TEXT, "a number": 3, "a list of numbers": [1], "a figure": object()},
        metrics={"a list": [1], "a metric": "CEM"},
    ),
    "to_markdown": spoilt(
        to_markdown, {"table": SUMMARY}, table=NO_SCORES, digits={**NO_COUNT, "negative": -1, "too many": 16}
    ),
    "summary_metrics": spoilt(
        summary_metrics, {"table": SUMMARY}, table={**NO_SCORES, "of columns": pd.DataFrame({"a": [1]})}
    ),
    "explore": spoilt(
        explore,
        {"model": MODEL, "images": IMAGES},
        model={**TEXT, **NOTHING, "a module": META},
        images={**NO_ARRAY, "None": None, "none": IMAGES[:0], "no batches": []},
        out={"a number": 3, "empty": ""},
        labels={**NO_ARRAY, "one too few": CLASSES[:5]},
        concept_labels={**NO_ARRAY, "one too few": LABELS[:5]},
        points={**TEXT, "of rank 2": np.ones((6, 2))},
        class_names={"text": "ab", "too few": ["a"]},
        pictures={**NO_ARRAY, "one too few": IMAGES[:5]},
        title={"a number": 3, "None": None},
        n_images=NO_COUNT,
        picture_size=NO_COUNT,
        batch_size=NO_COUNT,
    ),
    "read_scores": spoilt(read_scores, {}, path={**NOTHING, "a number": 3, "empty": ""}),
    "read_scores of no file": {
        "nowhere": Refusal(lambda: read_scores("nowhere.csv"), "nowhere.csv", FileNotFoundError)
    },
}
EXCEPTIONS = {"Evaluation": "a result", "Explorer": "a result"}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("refusals", TABLE.values(), ids=TABLE)
@pytest.mark.usefixtures("empty_folder")
def test_refused(refusals: Mapping[str, Refusal]) -> None:
    check_all(refusals)


def test_every_callable_is_in_a_table() -> None:
    elsewhere = {*metrics.__all__, *functional.__all__}
    public = {name.partition(".")[0] for name in public_callables(quantus_concepts, ("quantus_concepts",))}
    assert public - elsewhere == {name.partition(" ")[0] for name in TABLE} | EXCEPTIONS.keys()
    assert issubclass(Evaluation, tuple)


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
def test_stock_quantus_is_told_the_argument(
    metric: Any, changed: dict[str, Any], named: str, capsys: pytest.CaptureFixture[str]
) -> None:
    call = {"model": MODEL, "x_batch": IMAGES, "y_batch": CLASSES, "s_batch": None, **changed}
    # It prints what a metric raises, and then fails over the result that is not there.
    with pytest.raises(KeyError):
        quantus.evaluate({"m": metric}, {"a": IMAGES + CLASSES[:, None, None, None]}, **call)
    assert f"`{named}`" in capsys.readouterr().out
