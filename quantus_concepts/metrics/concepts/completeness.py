"""Completeness of concept models: which share of what their network knows of the classes they keep."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from torch import Tensor

from quantus_concepts.functional.arguments import Numbers
from quantus_concepts.functional.bottleneck.completeness import completeness
from quantus_concepts.metrics.host.batch import Batch
from quantus_concepts.metrics.host.checks import to_classes
from quantus_concepts.metrics.host.observing import Observed, Observer, Result


@dataclass(frozen=True)
class Predictions(Observed):
    """Predicted classes (n,) of a concept model and of its network, and true ones."""

    predicted: Tensor
    by_network: Tensor
    labels: Tensor


class Completeness(Observer):
    """The share of its network's accuracy above chance that a concept model keeps: 1 if the concepts lose nothing.

    The row "completeness" is `functional.completeness` of all images; chance is 0.

    Parameters
    ----------
    network_classes : array_like, optional
        (N,) the class that the network itself predicts for each image, in the order of the loader. Batches, or the
        `truth` of `score_concepts`, may have it under this name.

    Raises
    ------
    ValueError
        If it is not (N,).

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
    bounds = (-np.inf, np.inf)
    sample_truth = needed = ("network_classes",)

    def __init__(self, network_classes: Numbers | None = None) -> None:
        self.network_classes = None
        if network_classes is not None:
            self.network_classes = self.check_truth("network_classes", network_classes)

    def check_truth(self, name: str, value: Any) -> np.ndarray:
        """Return classes (N,), or raise."""
        return to_classes(name, value)

    @classmethod
    def observe(cls, metrics: Sequence[Self], batch: Batch) -> Predictions:
        """Keep the predictions of some samples."""
        return Predictions(batch.predicted, batch.tensor("network_classes"), batch.labels)

    def finish(self, observed: Predictions) -> Result:
        """Return the number of all samples."""
        value = completeness(observed.predicted, observed.by_network, observed.labels)
        count = {"value": value, "n": len(observed.labels), "undefined": 0}
        return Result(np.empty(0), {}, chance=0.0, summary=count)
