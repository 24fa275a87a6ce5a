"""A column of `score_concepts` is what the metric class gives, for every metric of concept models and every variant."""

from __future__ import annotations

import inspect
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from torch.utils.data import DataLoader, TensorDataset

import quantus_concepts
from metric_inputs import metric_arguments
from quantus_concepts import CEM, CGIM, CLM, SubstitutionScore, score_concepts
from quantus_concepts.metrics import UsualMetrics
from quantus_concepts.metrics.host.metric import nanmean
from tiny_models import N_CLASSES, N_CONCEPTS, SharingConceptModel

N, SIZE, BATCH, THRESHOLD = 14, 12, 4, 0.1
METRICS = {metric.name: metric for metric in quantus_concepts.AVAILABLE_METRICS["Concepts"].values()}
#: The papers' metrics that rank the concepts of a concept model.
RANKING = {"CEM", "CGIM", "CLM"}
#: Rows that have another name than the class, and how the class gives them.
ALIASES: dict[str, tuple[type, dict[str, Any]]] = {
    "CEM gain": (CEM, {"gain": True}),
    "CGIM correlation": (CGIM, {"centred": True}),
    "part specificity": (CLM, {"specificity": True}),
    "S+": (SubstitutionScore, {"score": "added", "threshold": THRESHOLD}),
    "S-": (SubstitutionScore, {"score": "removed", "threshold": THRESHOLD}),
}
#: Which argument of a class a field of a row is.
ARGUMENT_OF = {"explanation": "importance", "l": "top_l", "alpha": "alpha", "item_kind": "per"}


@pytest.fixture(scope="module")
def scored():
    """A model, images, their truth by the names of arguments, and the tables of means and of images."""
    rng = np.random.default_rng(5)
    model = SharingConceptModel()
    images = rng.normal(size=(N, 3, SIZE, SIZE)).astype(np.float32)
    truth = metric_arguments(images, rng)
    truth["points"] = rng.uniform(0, SIZE - 1, (N, 3, 2, 2))
    truth["points"][0], truth["points"][3, 1] = np.nan, np.nan
    truth |= {"labels": rng.integers(0, N_CLASSES, N), "removed": rng.integers(-1, N_CONCEPTS, N)}
    fields = (images, truth["labels"], truth["concept_labels"], truth["points"])
    loader = DataLoader(TensorDataset(*map(torch.as_tensor, fields)), BATCH)
    given = {name: truth[name] for name in ("part_of_concept", "added", "removed")}
    settings = {"class_concepts": truth["class_concepts"], "truth": given, "value_threshold": THRESHOLD}
    settings |= {"metrics": UsualMetrics(top_l=[1, 2])}
    tables = (score_concepts(model, loader, **settings, per_image=each) for each in (False, True))
    return model, images, truth, *tables


def class_of(row: dict[str, Any], truth: dict[str, Any]) -> Any:
    """Return the metric that gives a row, bound to the truth; None for rows of which there is no class."""
    metric, settings = ALIASES.get(row["metric"]) or (METRICS.get(row["metric"]), {})
    if metric is None:
        return None
    parameters = inspect.signature(metric).parameters
    arguments = {name: value for name, value in truth.items() if name in parameters} | settings
    for field, argument in ARGUMENT_OF.items():
        if argument in parameters and not pd.isna(row.get(field)) and row.get(field) != "":
            arguments[argument] = int(row[field]) if argument == "top_l" else row[field]
    if "only_correct" in parameters:
        arguments["only_correct"] = row.get("set") == "correct"
    return metric(**arguments)


@pytest.mark.filterwarnings("ignore::UserWarning")
def test_every_column_is_what_the_class_gives(scored):
    """To the bit: the scores of the images, of the concepts and of the classes; and chance, and what is undefined."""
    model, images, truth, table, per_image = scored
    predicted = model(torch.as_tensor(images)).argmax(1).numpy()
    table, per_image = table[table["baseline"] == ""], per_image[per_image["baseline"] == ""]
    fields = ["metric", "explanation", "l", "alpha", "item_kind", "set"]
    checked = set()
    for _, rows in table.groupby(fields, dropna=False):
        row = rows.iloc[0].to_dict()
        metric = class_of(row, truth)
        if metric is None:
            continue
        scores = np.array(metric(model, images, predicted, batch_size=BATCH))
        assert (row["n"], row["undefined"]) == (np.isfinite(scores).sum(), np.isnan(scores).sum())
        assert row["value"] == pytest.approx(nanmean(scores), abs=1e-12, nan_ok=True)
        assert row["chance"] == pytest.approx(metric.records[-1].chance, abs=1e-7, nan_ok=True)
        # Gains of the images are over all of them.
        if metric.of_samples and (row["metric"], row["set"]) != ("CEM gain", "correct"):
            same = [
                per_image[name].isna() if pd.isna(row[name]) else per_image[name] == row[name] for name in fields[:4]
            ]
            column = per_image[np.logical_and.reduce(same)].sort_values("image")["value"]
            correct = (truth["labels"] == predicted) | (row["set"] != "correct")
            np.testing.assert_array_equal(np.where(correct, column, np.nan), scores)
        elif not metric.of_samples:
            np.testing.assert_array_equal(rows["value"].iloc[1:], scores)
        checked.add(row["metric"])
    assert checked == RANKING | {*ALIASES} | {"concept AUC"}
