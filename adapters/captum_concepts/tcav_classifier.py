"""The concept bank as the classifier of Captum's TCAV."""

from __future__ import annotations

from typing import Any

import torch
from captum.concept import Classifier
from torch import Tensor
from torch.utils.data import DataLoader

from captum_concepts.checks import check_choice, check_range
from captum_concepts.directions import METHODS, as_embeddings, mean_directions, svm_directions


class ConceptBankClassifier(Classifier):
    """Directions as of `ConceptBank.fit` for ``captum.concept.TCAV(..., classifier=ConceptBankClassifier())``.

    It trains on all examples that it is given and draws nothing at random, where Captum's own splits them
    with the global generator.

    Parameters
    ----------
    method : str
        "svm" or "mean", as in `ConceptBank.fit`.
    C : float
        Of the SVM.

    Raises
    ------
    ValueError
        If `method` is unknown, or `C` not positive.
    """

    def __init__(self, method: str = "svm", C: float = 1.0) -> None:
        check_choice("method", method, METHODS)
        check_range("C", C, 0, float("inf"), open_low=True)
        self.method = method
        self.C = C
        self._weights = torch.empty(0)
        self._classes: list[int] = []

    def train_and_eval(self, dataloader: DataLoader[Any], **kwargs: Any) -> dict[str, Tensor]:
        """Fit one direction for each concept, against the others.

        Parameters
        ----------
        dataloader : DataLoader
            Batches of activations (n, d) and concept ids (n,).
        **kwargs : Any
            Ignored.

        Returns
        -------
        dict
            "accs": balanced share of the examples on the right side, (number of concepts,).

        Raises
        ------
        ValueError
            If there are not at least two concepts.
        """
        batches = list(dataloader)
        features = torch.cat([batch[0] for batch in batches])
        labels = torch.cat([batch[1] for batch in batches]).to(features.device)
        # In the order of the experiment: the first is the concept asked for.
        self._classes = list(dict.fromkeys(labels.tolist()))
        if len(self._classes) < 2:
            raise ValueError(f"Expected an experiment of at least two concepts but got those of ids {self._classes}.")
        # Two concepts share one boundary, and so one fit.
        wanted = self._classes[:1] if len(self._classes) == 2 else self._classes
        # Not `ConceptBank.fit`, which holds a fifth back: the sets are the experiment's, and all of them count.
        here = (labels[:, None] == torch.tensor(wanted, device=labels.device)).cpu().numpy()
        if self.method == "svm":
            found = svm_directions(as_embeddings(features), here, here, ~here, self.C)
        else:
            found = mean_directions(as_embeddings(features), here, here, ~here)
        weights, accuracy = found.cavs, found.train_accuracy
        if len(self._classes) == 2:
            weights = torch.cat([weights, -weights])
            accuracy = accuracy.repeat(2)
        self._weights = weights
        return {"accs": accuracy}

    def weights(self) -> Tensor:
        """Return the directions.

        Returns
        -------
        Tensor
            (number of concepts, d), each pointing towards its concept.
        """
        return self._weights

    def classes(self) -> list[int]:
        """Return the concepts.

        Returns
        -------
        list of int
            Their ids, in the order of the weights.
        """
        return self._classes
