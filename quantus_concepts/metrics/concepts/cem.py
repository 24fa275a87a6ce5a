"""The concept existence metric: are the most important concepts in the image?"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from itertools import product
from typing import Any, ClassVar, Unpack

import numpy as np
import pandas as pd
import torch
from quantus.helpers.enums import EvaluationCategory, ScoreDirection
from torch import Tensor, nn

from captum_concepts.support.checks import check_choice, check_whole, to_presence
from quantus_concepts.functional.arguments import Numbers
from quantus_concepts.functional.concepts.cem_gain import gain_over_others
from quantus_concepts.functional.concepts.ranking import rank_concepts
from quantus_concepts.metrics.concepts import names as col
from quantus_concepts.metrics.concepts.accuracy import shares_shown
from quantus_concepts.metrics.host.checks import Truth, to_classes
from quantus_concepts.metrics.host.concept_metric import ConceptMetric
from quantus_concepts.metrics.host.explanations import Explanations
from quantus_concepts.metrics.host.model import IMPORTANCES
from quantus_concepts.metrics.host.predictions import ConceptPredictions
from quantus_concepts.metrics.host.record import AsPrinted, QuantusArguments
from quantus_concepts.metrics.host.scores import Counts, MetricScores, counted

#: Why a sample ranks no concept.
ZERO = "importance is zero throughout"


class CEM(AsPrinted, ConceptMetric):
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
        (N,) true classes, for `only_correct`; ``y_batch`` if None, with a warning where it is the predicted
        class of all.
    importance : str
        On images: "effect", what the logit of the explained class, less the mean of all, loses if the concept is set to
        its absent level (see the notes); or, as the paper has it, "contribution" (theta times u), "value" (u)
        or "weight" (theta), which depend on what a value of 0 means.
    gain : bool
        Whether to subtract prevalence: the score is then the presence of each named concept less the share of the
        *other* samples that show it (`functional.cem_gain`), in [-1, 1], over all samples of the call or of the updates
        that have a score. 0 is a model that names concepts without looking, however common they are.
    **quantus : Unpack[QuantusArguments]
        `abs`, `normalise` and what else every Quantus metric takes, by keyword. Off by default: ``abs`` ranks by
        magnitude, so that large negative contributions come first, and no positive scaling changes a rank. The default
        aggregate is the mean of the defined scores.

    Raises
    ------
    ValueError
        If labels are not 0 or 1, or `top_l` is not between 1 and the number of concepts; or with the importance
        "effect" if the model does not know the level of absent concepts.

    Notes
    -----
    The *effect* is (theta - mean of theta over the classes)(u - a), with a the absent level of each concept: the mean
    value of the training images without it (``model.absent_values``, which `captum_concepts.PostHocCBM.fit` sets), 0
    of probabilities, and where only their mean is known the mean of the training values (``model.mean_values``), which
    is linear SHAP. If the head is not linear, it is the difference of the head's output with the concept and at its
    level. Where a value lies below its level the concept is ranked by minus the size of its effect: an absence is no
    reason to name it. The effect does not change if predictions stay: under a constant added to a concept's values and
    taken off the head's bias, one vector added to all rows of the head, or values times a factor and their weights
    divided by it. Weight, value and contribution do.

    ``CEM.as_printed(...)`` is the paper's text: ``importance="contribution"``, ``abs=True`` (magnitude), all images.
    The paper says magnitude of contributions only: by another importance pass ``abs=False`` too.

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
    sample_truth = ("concept_labels", "labels")
    needed = ("concept_labels",)
    printed: ClassVar[Mapping[str, Any]] = {
        "importance": "contribution",
        "abs": True,
        "gain": False,
        "only_correct": False,
    }
    # Each sample that is zero has its reason.
    zero_is_undefined = False

    def __init__(
        self,
        concept_labels: Numbers | pd.DataFrame | None = None,
        top_l: int = 1,
        only_correct: bool = False,
        labels: Numbers | None = None,
        importance: str = "effect",
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
        self, model: nn.Module | None, x_batch: np.ndarray, y_batch: np.ndarray, truth: Truth, explain: Explanations
    ) -> Truth:
        """Raise where it is not known which samples are correct."""
        if self.only_correct and model is None:
            raise ValueError("only_correct=True needs argument `model`, to know which samples are correct.")
        return truth

    @property
    def reads_correctness(self) -> bool:  # type: ignore[override]
        """Whether scores depend on which samples are classified correctly."""
        return self.only_correct

    def score_rows(self, rows: ConceptPredictions) -> MetricScores:
        """Return the scores, or the gains over the prevalence in all samples."""
        check_tops(self.top_l, rows.truth["concept_labels"].shape[1])
        settings: dict[str, Any] = {"gain": self.gain, "by_magnitude": [self.importance] if self.abs else ()}
        return concept_existence(rows, [self.importance], [self.top_l], self.only_correct, **settings)

    def baselines(self, rows: ConceptPredictions) -> Sequence[MetricScores]:
        """Return the commonest concepts of all samples, and those of the true class, in place of the model's."""
        names = () if self.gain else (col.COMMONEST_CONCEPT, col.CLASS_RECITAL)
        found = (concept_existence(rows, [], [self.top_l], self.only_correct, baseline=name) for name in names)
        return [scores for scores in found if scores.fields]


def check_tops(top: int, n_concepts: int) -> None:
    """Raise for an l that is larger than the number of concepts."""
    if top > n_concepts:
        fitting = [usual for usual in (1, 3, 5) if usual <= n_concepts]
        raise ValueError(
            f"Expected argument `top_l` to lie in [1, {n_concepts}] but got {top}. Pass CEM(top_l={n_concepts}), or "
            f"UsualMetrics(top_l={fitting}) to `score_concepts` as `metrics`."
        )


def concept_existence(
    rows: ConceptPredictions,
    kinds: Sequence[str],
    tops: Sequence[int],
    only_correct: bool,
    *,
    gain: bool = False,
    baseline: str = "",
    by_magnitude: Collection[str] = (),
) -> MetricScores:
    """Score CEM of E importances and T tops, or its gain; or of a baseline, which is another importance.

    Importances whose names are in `by_magnitude` rank regardless of their sign.
    """
    shows, n, of_set = rows.truth["concept_labels"] > 0, len(rows), {"set": "correct" if only_correct else "all"}
    enters = rows.correct if only_correct else torch.ones(n, dtype=torch.bool)
    if baseline:
        kinds, ranked = [""], [*_ranked_baseline(rows, shows, max(tops), enters, baseline)]
    else:
        ranked = [rows.ranked(kind, max(tops), by_magnitude=kind in by_magnitude) for kind in kinds]
    columns, first = [], []
    for order, largest in ranked:
        # The commonest concepts are named for every image, whatever they are.
        scored = enters if baseline == col.COMMONEST_CONCEPT else (largest > 0) & enters
        # Shares in float32, as functional.cem has them; exact ones of the commonest concepts, whose mean is one number.
        exact = gain or baseline == col.COMMONEST_CONCEPT
        presence = shows.gather(1, order).to(torch.float64 if exact else torch.float32)
        presence = presence.masked_fill(~scored[:, None], torch.nan)
        first.append(presence[:, 0])
        known = gained(shows, scored, order, rows) if gain else ()
        for top in tops:
            part = presence[:, :top]
            columns.append(gain_over_others(part, known[0][:, :top], known[1]) if known else part.mean(1))
    values = torch.stack(columns, 1).double().numpy() if columns else np.empty((n, 0))

    def reasons(variant: int) -> Counts:
        if baseline == col.COMMONEST_CONCEPT:
            return {}
        largest, at_first = ranked[variant // len(tops)][1], first[variant // len(tops)]
        masks = {"the model's importances are NaN": largest.isnan()} if rows.given is None else {}
        masks |= {ZERO: largest == 0} | ({"they are misclassified": ~enters} if only_correct else {})
        masks["no other sample has a score"] = np.isnan(values[:, variant]) & ~np.isnan(at_first.numpy())
        return counted(masks, n, rows.reason)

    fields = [
        {"metric": col.CEM_GAIN if gain else col.CEM, "explanation": kind, "l": top, "baseline": baseline}
        | {"convention": rows.convention(kind) if kind else ""}
        | of_set
        for kind, top in product(kinds, tops if ranked else ())
    ]
    return MetricScores(
        fields,
        values,
        np.zeros((1, 1)) if gain else shares_shown(rows, torch.float64)[:, None],
        (rows.labels if baseline == col.CLASS_RECITAL else rows.classes).numpy(),
        (-1.0, 1.0) if gain else (0.0, 1.0),
        reasons,
        intervals=baseline != col.COMMONEST_CONCEPT,
    )


def gained(shows: Tensor, scored: Tensor, order: Tensor, rows: ConceptPredictions) -> tuple[Tensor, Tensor]:
    """Return how many scored samples of its model show each concept named (n, top), and how many there are (n, 1)."""
    of_model, n_scored = rows.of_model, scored.view(max(1, len(rows.models)), -1).sum(1)
    return counts_shown(shows, scored, rows)[of_model[:, None], order], n_scored[of_model, None]


def counts_shown(shows: Tensor, enters: Tensor, rows: ConceptPredictions) -> Tensor:
    """Return how many samples that enter (n,) show each concept, of each model (M, L)."""
    counts, of_model = torch.zeros(max(1, len(rows.models)), shows.shape[1], dtype=torch.int64), rows.of_model
    for part in rows.chunks():
        counts.index_add_(0, of_model[part], (shows[part] & enters[part, None]).long())
    return counts


def _ranked_baseline(
    rows: ConceptPredictions, shows: Tensor, top: int, enters: Tensor, baseline: str
) -> list[tuple[Tensor, Tensor]]:
    """Return the first concepts (n, top) that a baseline names, and the largest importance (n,); nothing if unknown."""
    if baseline == col.COMMONEST_CONCEPT:
        # Counts, which float64 holds exactly.
        table, of = counts_shown(shows, enters, rows).double(), rows.of_model
    else:
        known = (rows.tables.get(name) for name in ("training_concepts", "class_concepts"))
        found = next((table for table in known if table is not None), None)
        if found is None:
            return []
        table, of = torch.as_tensor(found), rows.labels.long()
    return [(rank_concepts(table, top)[of], torch.linalg.vector_norm(table, torch.inf, 1)[of])]
