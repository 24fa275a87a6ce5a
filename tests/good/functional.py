"""Good arguments of the functions, where a constraint alone does not make one."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch

from quantus_concepts import functional as package
from quantus_concepts.functional import ClassMeans, RandomBank

PACKAGE = package
CLASSES = torch.arange(4) % 2
#: Objects of the classes whose methods are checked.
OBJECTS: Mapping[str, Callable[[], Any]] = {
    "ClassMeans": lambda: ClassMeans(2, 3),
    "RandomBank": lambda: RandomBank(torch.ones(3, 4), torch.zeros(3), torch.nn.Linear(3, 2)),
}
GOOD: Mapping[str, Mapping[str, Any]] = {
    "ClassMeans": {"dtype": torch.float64},
    "ClassMeans.merge": {"other": ClassMeans(2, 3)},
    "faithfulness": {"irrelevant": torch.zeros(4, 5), "relevant": torch.zeros(4, 5), "thresholds": [10]},
    "intervention_ranks": {"groups": [0, 1, 1], "boundary": 0.5, "weights": torch.ones(4, 3)},
    "adjust_p_values": {"p_values": [0.01, 0.5, 0.2]},
    "class_recital": {"classes": CLASSES},
    "random_masks": {"generator": torch.Generator()},
    "random_banks": {"labels": CLASSES, "n_classes": 2},
    "random_bank_scores": {"labels": CLASSES, "n_banks": 1},
    "relevance_ranks": {"order": torch.arange(16).expand(4, 16)},
}
#: Arguments without a constraint, which the function itself checks; see `functional/test_relations.py`.
OWN: Mapping[str, set[str]] = {
    "interval": {"bounds", "clusters"},
    "paired_difference": {"clusters"},
    "seeds_interval": {"bounds", "clusters"},
}
#: For streams, which have checked what they hand over.
UNCHECKED = {"ClassMeans.add", "ClassMeans.add_sums", "ClassMeans.to"}
#: Functions that cannot run here.
NOT_RUN: set[str] = set()
