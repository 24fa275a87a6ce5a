"""The concept existence metric: are the most important concepts in the image?"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Unpack

import numpy as np
import torch
from quantus.helpers.enums import EvaluationCategory, ScoreDirection
from torch import Tensor

from captum_concepts._support.checks import check_binary, check_choice, check_whole, to_array
from captum_concepts._support.running import predict_logits
from quantus_concepts.functional.cem import ranked_presence
from quantus_concepts.functional.ranking import first_concepts
from quantus_concepts.metrics.host.checks import check_concept_order, to_classes
from quantus_concepts.metrics.host.metric import ConceptMetric, Explain, Scored, add_reason, no_reasons
from quantus_concepts.metrics.host.model import IMPORTANCES, check_concepts, image_importance, is_concept_model
from quantus_concepts.metrics.host.record import QuantusArguments


def existence(importance: Tensor, present: Tensor, order: Tensor, tops: Sequence[int]) -> Tensor:
    """Return the share of the first l concepts that images show, for each l: (..., len(tops)); Equations 9 and 10.

    The concepts present (..., L) are 0 and 1, their order (..., at least max(tops)) is that of the importance (..., L).
    """
    presence = ranked_presence(importance, present, order)
    shares = presence.new_empty(*presence.shape[:-1], len(tops))
    for place, top in enumerate(tops):
        shares[..., place] = presence[..., :top].mean(-1)
    return shares


def to_presence(name: str, value: Any) -> np.ndarray:
    """Return which concepts images show, (N, L) of 0 and 1, or raise."""
    labels = to_array(name, value)
    if labels.ndim != 2:
        raise ValueError(f"Expected argument `{name}` to have shape (N, L) but got {labels.shape}.")
    check_binary(name, labels)
    # Torch warns of what cannot be written, as the array of a DataFrame is.
    return np.require(labels, requirements=("C", "W"))


class CEM(ConceptMetric):
    """Concept existence metric: share of the `top_l` most important concepts that the image shows.

    Aysel et al. (2025), Equations 9 and 10. Concepts are ranked by *signed* importance for the explained
    class, largest first (the paper's text says magnitude; a strong negative contribution is no reason for a
    class), ties by concept index.

    - **At the bottleneck** ``model`` is the head, ``x_batch`` the concept values (N, L), and the
      importance comes from the explanation method: Gradient gives the paper's weights theta, the values
      themselves give u, InputXGradient gives theta times u. Concept models of tables and of texts are evaluated
      here too, as ``cbm.head`` and ``cbm.concept_predictor(inputs)``.
    - **On images** ``model`` is a concept model (`ConceptModel`), and the metric
      computes values and importance itself. The explanation method then plays no role: every row of
      ``quantus.evaluate`` shows the same scores.

    ``y_batch`` is the explained class, in the paper the predicted one.

    Parameters
    ----------
    concept_labels : array_like, optional
        (N, L) of 0 and 1: the concepts each image shows, aligned with ``x_batch``. May be left out where
        every call passes ``custom_batch={"concept_labels": ...}``. The columns of a DataFrame have to be in the
        order of the model's concepts, ``model.bank.names``.
    top_l : int
        How many concepts count, 1 to L; the paper uses 1, 3 and 5.
    only_correct : bool
        Whether wrongly classified samples are NaN.
    labels : array_like, optional
        (N,) true classes, for `only_correct`; ``y_batch`` if None.
    importance : str
        On images: "contribution" (theta times u), "value" (u) or "weight" (theta).
    **quantus : Unpack[QuantusArguments]
        `abs`, `normalise` and what else every Quantus metric takes, by keyword. Off by default: ``abs`` would rank
        negative contributions first, and no positive scaling changes a rank. The default aggregate is the mean of the
        defined scores.

    Raises
    ------
    ValueError
        If labels are not 0 or 1, or `top_l` is not between 1 and the number of concepts.

    Notes
    -----
    Higher is better. An image that shows fewer than `top_l` concepts cannot reach 1. Chance, in ``records[-1].chance``,
    is the mean density of the labels of the images scored. Images explained for one class are not independent (by
    weight they have the same first concepts, and labels are often given by class): ``records[-1].clusters`` holds
    their classes, for intervals. NaN, counted by reason in ``records[-1].reasons``: misclassified samples with
    `only_correct`, and explanations that cannot be used. Importances are compared in float32; a model in half precision
    gives other, coarser values, and with them ties. The paper's Table 1, ranked by contribution, correct class set:
    55.4 %.

    Examples
    --------
    >>> import numpy as np
    >>> from torch import nn
    >>> from quantus_concepts import CEM
    >>> values = np.array([[3.0, 2.0, 1.0], [0.0, 1.0, 5.0]], dtype="float32")
    >>> metric = CEM(concept_labels=[[1, 0, 1], [1, 0, 0]], top_l=2)
    >>> metric(nn.Linear(3, 2), values, y_batch=np.array([0, 1]), a_batch=values)
    [0.5, 0.0]
    >>> metric.records[-1].chance
    0.5
    """

    name = "CEM"
    score_direction = ScoreDirection.HIGHER
    evaluation_category = EvaluationCategory.NONE
    bounds = (0.0, 1.0)
    sample_truth = ("concept_labels", "labels")
    settings = ("top_l", "only_correct", "importance")
    concept_labels: np.ndarray | None

    def __init__(
        self,
        concept_labels: Any = None,
        top_l: int = 1,
        only_correct: bool = False,
        labels: Any = None,
        importance: str = "contribution",
        **quantus: Unpack[QuantusArguments],
    ) -> None:
        """Bind the labels. A score of 1 says that all of the most important concepts are in the image.

        A score of 0 says that none is.
        """
        super().__init__(**quantus)
        check_choice("importance", importance, IMPORTANCES)
        self.top_l, self.only_correct = check_whole("top_l", top_l, 1), only_correct
        self.importance = importance
        self._columns = getattr(concept_labels, "columns", None)
        self._bind(concept_labels=concept_labels, labels=labels)

    def check_truth(self, name: str, value: Any) -> np.ndarray:
        """Return labels of concepts (N, L) or of classes (N,), or raise."""
        if name == "labels":
            return to_classes(name, value)
        labels = to_presence(name, value)
        if self.top_l > labels.shape[1]:
            raise ValueError(
                f"Expected argument `top_l` to be at most the number of concepts, {labels.shape[1]}, but got "
                f"{self.top_l}."
            )
        return labels

    def check_call(
        self, model: Any, x_batch: np.ndarray, y_batch: np.ndarray, truth: dict[str, Any], explain: Explain
    ) -> dict[str, Any]:
        """Raise where the labels are not those of the model's concepts."""
        if "concept_labels" not in truth:
            raise self.lacks("concept_labels")
        labels = truth["concept_labels"]
        if self.only_correct and model is None:
            raise ValueError("only_correct=True needs argument `model`, to know which samples are correct.")
        if self._columns is not None and labels is self.concept_labels:
            check_concept_order("concept_labels", self._columns, model)
        return truth

    def score_batch(
        self,
        model: Any,
        x_batch: np.ndarray,
        y_batch: np.ndarray,
        explain: Explain,
        *,
        concept_labels: np.ndarray,
        labels: np.ndarray | None = None,
        **truth: Any,
    ) -> Scored:
        """Score some samples by their importances, given or computed from images."""
        logits: Tensor | None = None
        explained, n_concepts = None, concept_labels.shape[1]
        if x_batch.ndim in (2, 4) and is_concept_model(model):
            importance, logits = image_importance(model, x_batch, y_batch, self.importance)
            check_concepts("concept_labels", "(N, L)", concept_labels, importance.shape[1])
            why = no_reasons(len(x_batch))
        else:
            attributions, why, explained = explain.of_concepts(n_concepts, "concept_labels")
            importance = torch.as_tensor(attributions)
            if self.only_correct:
                logits = predict_logits(model, x_batch, **explain.predict_kwargs)
        present = torch.as_tensor(concept_labels, device=importance.device)
        shares = existence(importance, present, first_concepts(importance, self.top_l), (self.top_l,))[:, 0].double()
        # One transfer from the device for each batch.
        predicted = shares if logits is None else logits.argmax(1).to(shares)
        scores, predicted_classes = torch.stack([shares, predicted]).cpu().numpy()
        if explained is None:
            why = add_reason(why, np.isnan(scores), "the model's importances are NaN")
        if self.only_correct:
            wrong = predicted_classes != (y_batch if labels is None else labels)
            why = add_reason(why, wrong, "they are misclassified")
            scores[wrong] = np.nan
        return Scored(scores, concept_labels.mean(1), why, y_batch, explained)
