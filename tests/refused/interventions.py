"""Bad input to interventions and their curves, one argument at a time."""

from __future__ import annotations

import numpy as np
import pandas as pd
import torch
from torch import nn

from quantus_concepts.metrics import intervention_curve, plot_interventions, score_concepts
from refused.metric_classes import CLASSES, IMAGES, LABELS, MODEL, NO_CLASSES
from spoiling import NAN, NO_ARRAY, NO_MODULE, NO_SEED, TEXT, Bad, Table, spoilt

LOADER = [(torch.from_numpy(IMAGES), torch.from_numpy(CLASSES), torch.from_numpy(LABELS))]
NO_LEVELS: Bad = {
    "a number": 1.0,
    "one": [[0.0] * 5],
    "text": ("a", "b"),
    "of rank 2": np.zeros((2, 1, 5)),
    "NaN": np.full((2, 5), NAN),
    "of two lengths": ([0.0], [1.0, 1.0]),
    "descending": np.array([[1.0] * 5, [0.0] * 5]),
    "of two concepts": np.array([[0.0] * 2, [1.0] * 2]),
}
CURVES = pd.DataFrame(
    {
        "model": "a",
        "order": "random",
        "labels": "true labels",
        "count": [0, 1],
        "value": 0.5,
        "low": 0.4,
        "high": 0.6,
        "n": 9,
    }
)

#: Of `score_concepts`.
LEVELS = spoilt(
    score_concepts, {"model": MODEL, "loader": LOADER, "top_l": (1,), "interventions": (1,)}, levels=NO_LEVELS
)
TABLE: Table = {
    "intervention_curve": spoilt(
        intervention_curve,
        {"model": MODEL, "loader": LOADER},
        model={**NO_MODULE, "of texts": {"a": "b"}, "a plain network": nn.Linear(1, 1)},
        loader={"None": None, "a number": 3, "of texts": [("a", "b")], "of None": [None]},
        concept_labels={**NO_ARRAY, "of rank 1": LABELS[0], "halves": LABELS / 2 + 0.1, "one too few": LABELS[:5]},
        labels={**NO_CLASSES, "one too few": CLASSES[:5]},
        counts={"a number": 3, "text": "1", "empty": (), "negative": (-1,), "too large": (99,), "fractions": (0.5,)},
        orders={"None": None, "text": "random", "unknown": ("rnadom",), "empty": ()},
        groups={**NO_ARRAY, "with a gap": [0, 2, 2, 2, 2], "one too few": [0, 1], "bools": [True] * 5},
        levels=NO_LEVELS,
        value_threshold={**TEXT, "a list": [0.5], "NaN": NAN},
        seed=NO_SEED,
    ),
    "plot_interventions": spoilt(
        plot_interventions,
        lambda: {"table": CURVES},
        table={"None": None, "of other columns": CURVES.drop(columns="order"), "empty": CURVES[:0]},
        control={"text": "a", "of other columns": CURVES.drop(columns="low"), "empty": CURVES[:0]},
        ax={"text": "a", "a number": 3, "too few": []},
    ),
}
