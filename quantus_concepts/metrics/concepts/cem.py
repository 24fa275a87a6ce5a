"""The concept existence metric: are the most important concepts in the image?"""

from __future__ import annotations

from typing import Any, Unpack

import numpy as np
import torch
from quantus.helpers.enums import EvaluationCategory, ScoreDirection

from captum_concepts._support.constraints import Choice, Flag, Whole, check_arguments
from captum_concepts._support.running import predict_logits
from quantus_concepts.functional.cem import ranked_presence
from quantus_concepts.functional.ranking import first_concepts
from quantus_concepts.metrics.host.base import UpdatedMetric
from quantus_concepts.metrics.host.call import QuantusArguments
from quantus_concepts.metrics.host.checks import (
    CLASSES,
    PRESENCE,
    SELECT,
    check_concept_order,
    check_concept_values,
    checked_classes,
    concepts_of,
)
from quantus_concepts.metrics.host.model import IMPORTANCES, concept_importances, is_concept_model


class CEM(UpdatedMetric):
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

    @check_arguments(
        concept_labels=PRESENCE, labels=CLASSES, top_l=Whole(1), only_correct=Flag(), importance=Choice(IMPORTANCES)
    )
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
        self.top_l, self.only_correct, self.importance = top_l, only_correct, importance
        self._columns = concepts_of(concept_labels)
        self._bind(concept_labels=concept_labels, labels=labels)

    def _truth_array(self, name: str, value: Any) -> np.ndarray:
        # Torch warns of what cannot be written, as the array of a DataFrame is.
        array = np.require(value, requirements=("C", "W"))
        if name == "concept_labels" and self.top_l > array.shape[1]:
            raise ValueError(
                f"Expected argument `top_l` to be at most the number of concepts, {array.shape[1]}, but got "
                f"{self.top_l}."
            )
        return array

    def _works_on_images(self, model: Any, x_batch: np.ndarray) -> bool:
        return x_batch.ndim in (2, 4) and is_concept_model(model)

    def _check_call(
        self, model: Any, x_batch: np.ndarray, y_batch: np.ndarray, s_batch: np.ndarray | None
    ) -> dict[str, np.ndarray]:
        concept_labels = self._required_truth("concept_labels")
        self.call.clusters = y_batch
        self.call.chances = concept_labels.mean(1).tolist()
        if not self.call.on_images:
            check_concept_values("concept_labels", concept_labels.shape[1], x_batch)
        if self.only_correct and model is None:
            raise ValueError("only_correct=True needs argument `model`, to know which samples are correct.")
        if concept_labels is self.concept_labels:
            check_concept_order("concept_labels", self._columns, model)
        return {}

    def evaluate_batch(
        self,
        model: Any,
        x_batch: np.ndarray,
        y_batch: np.ndarray,
        a_batch: np.ndarray,
        rows_batch: np.ndarray,
        concept_labels_batch: np.ndarray,
        labels_batch: np.ndarray | None = None,
        **kwargs: Any,
    ) -> list[float]:
        """Score some samples by their importances, given or computed from images."""
        module: Any = None if model is None else model.get_model()
        n_concepts, logits = concept_labels_batch.shape[1], None
        if self.call.on_images:
            _, values, logits = self.concept_outputs(module, x_batch, rows_batch)
            if values.shape[1] != n_concepts:
                raise ValueError(
                    "Expected argument `concept_labels` to have shape (N, L) with the model's "
                    f"L = {values.shape[1]} concepts but got {n_concepts} columns. {SELECT}"
                )
            classes = checked_classes(y_batch, logits)
            importance = concept_importances(module, values, classes, (self.importance,))[self.importance]
        else:
            importance = self.concept_attributions(module, x_batch, a_batch, n_concepts)
            if self.only_correct:
                logits = predict_logits(module, x_batch, **model.model_predict_kwargs)
        # Equations 9 and 10: how many of the first concepts of each sample it shows.
        labels = torch.as_tensor(concept_labels_batch, device=importance.device)
        order = first_concepts(importance, self.top_l)
        shares = ranked_presence(importance, labels, order).mean(1).double()
        # One transfer from the device for each batch.
        predicted = shares if logits is None else logits.argmax(1).to(shares)
        scores, predicted_classes = torch.stack([shares, predicted]).cpu().numpy()
        if self.call.on_images:
            self.leave_out("the model's importances are NaN", int(np.isnan(scores).sum()))
        if self.only_correct:
            truth = y_batch if labels_batch is None else labels_batch
            wrong = predicted_classes != truth
            self.leave_out("they are misclassified", int(wrong.sum()))
            scores[wrong] = np.nan
        return scores.tolist()
