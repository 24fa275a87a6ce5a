"""The concept bank as the classifier of Captum's TCAV."""

from __future__ import annotations

from typing import Any

import torch
from captum.concept import Classifier
from torch import Tensor
from torch.utils.data import DataLoader

from captum_concepts.bank import ConceptBank


class ConceptBankClassifier(Classifier):
    """Directions of `ConceptBank.fit` for ``captum.concept.TCAV(..., classifier=ConceptBankClassifier())``."""

    # It trains on all examples that it is given and draws nothing at random, where Captum's own splits them with
    # the global generator.

    def __init__(self, method: str = "svm", C: float = 1.0) -> None:
        self.method = method
        self.C = C
        self._weights = torch.empty(0)
        self._classes: list[int] = []

    def train_and_eval(self, dataloader: DataLoader[Any], **kwargs: Any) -> dict[str, Tensor]:
        """Fit one direction for each concept, against the others."""
        batches = list(dataloader)
        features = torch.cat([batch[0] for batch in batches])
        labels = torch.cat([batch[1] for batch in batches]).to(features.device)
        # In the order of the experiment: the first is the concept asked for.
        self._classes = list(dict.fromkeys(labels.tolist()))
        if len(self._classes) < 2:
            raise ValueError(f"Expected an experiment of at least two concepts but got those of ids {self._classes}.")
        # Two concepts share one boundary, and so one fit.
        wanted = self._classes[:1] if len(self._classes) == 2 else self._classes
        banks = []
        for concept in wanted:
            here = labels == concept
            n_pos = int(here.sum())
            banks.append(
                ConceptBank.fit(
                    features,
                    here[:, None],
                    method=self.method,
                    n_pos=n_pos,
                    n_neg=len(here) - n_pos,
                    C=self.C,
                    hold_back=0.0,
                )
            )
        weights = torch.cat([bank.cavs for bank in banks])
        accuracy = torch.cat([bank.train_accuracy for bank in banks])
        if len(self._classes) == 2:
            weights = torch.cat([weights, -weights])
            accuracy = accuracy.repeat(2)
        self._weights = weights
        return {"accs": accuracy}

    def weights(self) -> Tensor:
        """Return the directions."""
        return self._weights

    def classes(self) -> list[int]:
        """Return the concepts."""
        return self._classes
