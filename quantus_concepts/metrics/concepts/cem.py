"""The concept existence metric: are the most important concepts in the image?"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Unpack

import numpy as np
import pandas as pd
import torch
from quantus.helpers.enums import EvaluationCategory, ScoreDirection
from torch import Tensor, nn

from captum_concepts._support.checks import check_binary, check_choice, check_whole, to_array
from captum_concepts._support.running import predict_logits
from quantus_concepts.functional.arguments import Numbers
from quantus_concepts.functional.cem import ranked_presence
from quantus_concepts.functional.cem_gain import gain_over_others
from quantus_concepts.functional.ranking import first_concepts
from quantus_concepts.metrics.host.checks import Truth, check_concept_order, to_classes
from quantus_concepts.metrics.host.explanations import Explain, add_reason, no_reasons
from quantus_concepts.metrics.host.metric import ConceptMetric, Result, Scored
from quantus_concepts.metrics.host.model import IMPORTANCES, check_concepts, image_importance, is_concept_model
from quantus_concepts.metrics.host.record import QuantusArguments

#: Why a sample ranks no concept.
ZERO = "importance is zero throughout"


def existence(presence: Tensor, tops: Sequence[int]) -> Tensor:
    """Return the share of the first l concepts that images show, for each l: (..., len(tops)); Equations 9 and 10.

    The presence (..., at least max(tops)) of the ranked concepts is 0, 1 or NaN (`ranked_presence`).
    """
    return torch.stack([presence[..., :top].mean(-1) for top in tops], -1)


def gains(presence: Tensor, order: Tensor, counts: Tensor, tops: Sequence[int]) -> Tensor:
    """Return the gains over prevalence (n, len(tops)) of ranked concepts, in float64.

    Their presence and their indices `order` are (n, at least max(tops)), the `counts` (L + 1,) those of `count_labels`
    over all samples of the set.
    """
    presence, order = presence.double(), order.long()
    each = [gain_over_others(presence[:, :top], order[:, :top], counts[:-1], counts[-1]) for top in tops]
    return torch.stack(each, -1)


def count_labels(present: Tensor, scored: Tensor) -> Tensor:
    """Return (..., L + 1): how many of the scored (..., n) samples show each concept (n, L), and how many they are."""
    shows = torch.cat([present.bool(), torch.ones_like(present[:, :1], dtype=torch.bool)], 1)
    return (scored[..., None] & shows).sum(-2)


def to_presence(name: str, value: Numbers) -> np.ndarray:
    """Return which concepts images show, (N, L) of 0 and 1, or raise."""
    labels = to_array(name, value)
    if labels.ndim != 2:
        raise ValueError(f"Expected argument `{name}` to have shape (N, L) but got {labels.shape}.")
    check_binary(name, labels)
    # Torch warns of what cannot be written, as the array of a DataFrame is.
    return np.require(labels, requirements=("C", "W"))


@dataclass(frozen=True, kw_only=True)
class GainScored(Scored):
    """Ranked concepts (n, l): whether samples show them, and their indices; and the counts of labels of each batch."""

    presence: np.ndarray
    order: np.ndarray
    #: (batches, L + 1), see `count_labels`.
    counts: np.ndarray


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
    gain : bool
        Whether to subtract prevalence: the score is then the presence of each named concept less the share of the
        *other* samples that show it (`functional.cem_gain`), in [-1, 1], over all samples of the call or of the updates
        that have a score. 0 is a model that names concepts without looking, however common they are.
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
    `only_correct`, explanations that cannot be used, and those that are zero throughout, which rank no concept.
    Importances are compared in float32; a model in half precision gives other, coarser values, and with them ties. A
    model that always names the commonest concept has a high CEM (74 to 84 % on real birds) and a gain of 0; chance of
    the gain is 0. The paper's Table 1, ranked by contribution, correct class set: 55.4 %.

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
    >>> CEM([[1, 0, 1], [1, 0, 0]], gain=True)(
    ...     nn.Linear(3, 2), values, y_batch=np.array([0, 1]), a_batch=values
    ... )
    [0.0, -1.0]
    """

    name = "CEM"
    score_direction = ScoreDirection.HIGHER
    evaluation_category = EvaluationCategory.NONE
    bounds = (0.0, 1.0)
    asks_concept_models = True
    sample_truth = ("concept_labels", "labels")
    needed = ("concept_labels",)
    settings = ("top_l", "only_correct", "importance", "gain")
    # Each sample that is zero has its reason.
    zero_says_nothing = False
    concept_labels: np.ndarray | None

    def __init__(
        self,
        concept_labels: Numbers | pd.DataFrame | None = None,
        top_l: int = 1,
        only_correct: bool = False,
        labels: Numbers | None = None,
        importance: str = "contribution",
        gain: bool = False,
        **quantus: Unpack[QuantusArguments],
    ) -> None:
        """Bind the labels. A score of 1 says that all of the most important concepts are in the image.

        A score of 0 says that none is; a gain of 0, that they are there as often as in other images.
        """
        super().__init__(**quantus)
        check_choice("importance", importance, IMPORTANCES)
        self.top_l, self.only_correct = check_whole("top_l", top_l, 1), only_correct
        self.importance, self.gain = importance, gain
        if gain:
            self.bounds = (-1.0, 1.0)
        self._columns = getattr(concept_labels, "columns", None)
        self._bind(concept_labels=concept_labels, labels=labels)

    def check_truth(self, name: str, value: Numbers) -> np.ndarray:
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
        self, model: nn.Module | None, x_batch: np.ndarray, y_batch: np.ndarray, truth: Truth, explain: Explain
    ) -> Truth:
        """Raise where the labels are not those of the model's concepts."""
        labels = truth["concept_labels"]
        if self.only_correct and model is None:
            raise ValueError("only_correct=True needs argument `model`, to know which samples are correct.")
        if self._columns is not None and labels is self.concept_labels:
            check_concept_order("concept_labels", self._columns, model)
        return truth

    def score_batch(
        self,
        model: nn.Module,
        x_batch: np.ndarray,
        y_batch: np.ndarray,
        explain: Explain,
        *,
        concept_labels: np.ndarray,
        labels: np.ndarray | None = None,
        **truth: np.ndarray,
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
        order = first_concepts(importance, self.top_l)
        presence = ranked_presence(importance, present, order)
        largest = torch.linalg.vector_norm(importance, torch.inf, 1, keepdim=True)
        predicted = order[:, :0] if logits is None else logits.argmax(1, keepdim=True)
        # One transfer from the device for each batch.
        numbers = torch.cat([presence, order.to(presence), largest.to(presence), predicted.to(presence)], 1).cpu()
        presence, order, largest, predicted = numbers.split([self.top_l, self.top_l, 1, predicted.shape[1]], 1)
        if explained is None:
            why = add_reason(why, largest[:, 0].isnan().numpy(), "the model's importances are NaN")
        why = add_reason(why, (largest[:, 0] == 0).numpy(), ZERO)
        if self.only_correct:
            wrong = predicted[:, 0].numpy() != (y_batch if labels is None else labels)
            why = add_reason(why, wrong, "they are misclassified")
            presence = presence.masked_fill(torch.as_tensor(wrong)[:, None], torch.nan)
        scores = presence.mean(1).double().numpy()
        if not self.gain:
            return Scored(scores, concept_labels.mean(1), why, y_batch, explained)
        scored = ~presence[:, 0].isnan()
        return GainScored(
            *(scores, np.zeros(len(scores)), why, y_batch, explained),
            presence=presence.numpy(),
            order=order.numpy(),
            counts=count_labels(torch.as_tensor(concept_labels), scored)[None].numpy(),
        )

    def finish(self, scored: Scored) -> Result:
        """Return the scores, or the gains over the prevalence in all batches."""
        if isinstance(scored, GainScored):
            presence, order, counts = map(torch.as_tensor, (scored.presence, scored.order, scored.counts.sum(0)))
            scores = gains(presence, order, counts, (self.top_l,))[:, 0].numpy()
            why = add_reason(scored.why, np.isnan(scores) & (scored.why == ""), "no other sample has a score")
            scored = replace(scored, scores=scores, why=why)
        return super().finish(scored)
