"""Completeness of concept models: which share of what their network knows of the classes they keep."""

from __future__ import annotations

from typing import Any, Unpack, cast

import numpy as np
from quantus.helpers.enums import ScoreDirection
from torch import Tensor

from quantus_concepts.functional.arguments import Numbers
from quantus_concepts.functional.bottleneck.completeness import completeness
from quantus_concepts.metrics.concepts.leakage import OfValues
from quantus_concepts.metrics.host.checks import to_classes
from quantus_concepts.metrics.host.predictions import ConceptPredictions
from quantus_concepts.metrics.host.record import QuantusArguments
from quantus_concepts.metrics.host.scores import Counted, MetricScores

#: Why there is no number.
NO_BETTER = "the network is no better than its commonest class"


class Completeness(OfValues):
    """The share of its network's accuracy above chance that a concept model keeps: 1 if the concepts lose nothing.

    The row "completeness" is `functional.completeness` of all images; chance is 0.

    Parameters
    ----------
    network_classes : array_like, optional
        (N,) the class that the network itself predicts for each image, in the order of the loader. Batches, or the
        `truth` of `score_concepts`, may have it under this name.
    labels : array_like, optional
        (N,) true classes; ``y_batch`` of a call if None.
    **quantus : Unpack[QuantusArguments]
        What every Quantus metric takes, by keyword; no attribution enters.

    Raises
    ------
    ValueError
        If it is not (N,).

    Notes
    -----
    Higher is better. A call of Quantus gives one number, of images with a concept model, or at the bottleneck of
    concept values (N, L) with the head as ``model``.

    Examples
    --------
    >>> import torch
    >>> from torch import nn
    >>> from captum_concepts import ConceptBank, PostHocCBM
    >>> from quantus_concepts import Completeness, score_concepts
    >>> classes = torch.arange(60) % 3
    >>> concepts = nn.functional.one_hot(classes, 3)
    >>> head = nn.Linear(3, 3)
    >>> model = PostHocCBM(nn.Identity(), ConceptBank(torch.eye(3)), head, values="raw")
    >>> batches = [(concepts.float(), classes, concepts)]
    >>> head.weight.data, head.bias.data = torch.eye(3), torch.zeros(3)
    >>> network_classes = torch.where(torch.arange(60) < 12, 0, classes)  # .87 are right
    >>> table = score_concepts(model, batches, metrics=[Completeness(network_classes)])
    >>> round(table["value"][0].item(), 2)  # the concept model has (1 - 1/3) / (.87 - 1/3)
    1.25
    """

    name = "completeness"
    score_direction = ScoreDirection.HIGHER
    bounds = (-np.inf, np.inf)
    of_samples = False
    sample_truth = ("network_classes", "labels")
    needed = ("network_classes",)

    def __init__(
        self,
        network_classes: Numbers | None = None,
        labels: Numbers | None = None,
        **quantus: Unpack[QuantusArguments],
    ) -> None:
        """Bind what the network predicts. A score of 1 says that the concepts lose nothing of its accuracy.

        A score of 0 says that the concept model guesses.
        """
        super().__init__(**quantus)
        self._bind(network_classes=network_classes, labels=labels)

    def check_truth(self, name: str, value: Any) -> np.ndarray:
        """Return classes (N,), or raise."""
        return to_classes(name, value)

    def score_rows(self, rows: ConceptPredictions) -> MetricScores:
        """Return the number of all samples."""
        value = completeness(cast(Tensor, rows.predicted), rows.truth["network_classes"], rows.labels)
        n = len(rows)
        reasons = {NO_BETTER: Counted(n, n)} if np.isnan(value) else {}
        settings: dict[str, Any] = {"intervals": False, "totals": [value], "total_of": n, "reasons": lambda _: reasons}
        return MetricScores([{"metric": self.name}], np.array([[value]]), 0.0, **settings)
