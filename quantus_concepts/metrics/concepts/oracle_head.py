"""The oracle head: how far do the predicted concepts go by what people say of the classes, beside the model's head?"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Unpack, cast

import numpy as np
import pandas as pd
import torch
from quantus.helpers.enums import EvaluationCategory, ScoreDirection
from torch import Tensor, nn

from captum_concepts.support.checks import check_choice, check_range, to_presence
from quantus_concepts.functional.arguments import Numbers
from quantus_concepts.functional.concepts.oracle_head import oracle_head
from quantus_concepts.metrics.concepts.cgim import check_class_concepts
from quantus_concepts.metrics.host.checks import Truth, to_class_concepts, to_classes
from quantus_concepts.metrics.host.concept_metric import ConceptMetric
from quantus_concepts.metrics.host.explanations import Explanations
from quantus_concepts.metrics.host.predictions import ConceptPredictions
from quantus_concepts.metrics.host.record import QuantusArguments
from quantus_concepts.metrics.host.scores import MetricScores, counted

#: What each score is called in a table.
LABELS = {"oracle": "oracle accuracy", "gap": "head gap", "on_labels": "oracle on labels"}


class OracleHead(ConceptMetric):
    """Accuracy of the class whose concepts agree most with the predicted ones, and the gap to the model's own head.

    Accuracy alone says nothing about concepts: heads on random directions reach that of fitted ones. Here the model's
    concepts are read by the rule that people would apply. The class is the one with which most concepts agree, present
    in both or in neither (`functional.oracle_head`); a concept belongs to a class from 1/2 on.

    - ``score="oracle"``: whether that class is the true one; classes that agree equally share the hit.
    - ``score="gap"``: whether the model's class is the true one, less the oracle's score. Above 0 the head reads from
      the values what the concepts, as people understand them, do not say.
    - ``score="on_labels"``: the oracle on the concepts *as they are labelled*, with classes of equal rows and images
      that deviate from their class. It is no ceiling: a class's usual concepts are nearer to its row than those of one
      image, so that predicted concepts can score higher.

    It takes images with a concept model, or at the bottleneck concept values (N, L) with the head as ``model``. The
    explanation method plays no role.

    Parameters
    ----------
    class_concepts : array_like
        (K, L) in [0, 1]: how far each concept belongs to each class. The rows and columns of a DataFrame are matched by
        name with ``model.class_names`` and ``model.bank.names``, where the model has these.
    score : str
        "oracle", "gap" or "on_labels".
    threshold : float, optional
        Value from which on a concept counts as present; by default that of the concept model, 0 of margins and 0.5 of
        values in [0, 1]. `score_concepts` takes its ``value_threshold``, if there is one. With a head as ``model`` it
        is needed: a head does not say what its values are.
    concept_labels : array_like, optional
        (N, L) of 0 and 1, aligned with ``x_batch``: the labelled concepts, for ``on_labels``.
    labels : array_like, optional
        (N,) true classes; ``y_batch`` if None, with a warning where it is the predicted class of all.
    **quantus : Unpack[QuantusArguments]
        `abs`, `normalise` and what else every Quantus metric takes, by keyword; they have no effect here, where no
        attribution enters. The default aggregate is the mean of the defined scores.

    Raises
    ------
    ValueError
        If `class_concepts` is not (K, L) in [0, 1], `score` is none of the three, or it is not known from which value
        on a concept is present, as with a head as ``model`` and no `threshold`.

    Notes
    -----
    Higher is better; a gap of 0 is best. Chance, in ``records[-1].chance``, is 1 / K; a gap has none: compare it with
    that of random banks. NaN, counted by reason in ``records[-1].reasons``: samples with a value that is NaN. Source:
    arXiv 2606.30498 (2026).

    Examples
    --------
    >>> import numpy as np
    >>> from torch import nn
    >>> from quantus_concepts import OracleHead
    >>> values = np.array([[0.9, 0.2, 0.8], [0.1, 0.7, 0.6], [0.9, 0.7, 0.1]], dtype="float32")
    >>> metric = OracleHead([[1, 0, 1], [0, 1, 1]], threshold=0.5)
    >>> metric(nn.Linear(3, 2), values, y_batch=np.array([0, 1, 1]))
    [1.0, 1.0, 0.5]
    >>> metric.records[-1].chance
    0.5
    """

    name = "OracleHead"
    score_direction = ScoreDirection.HIGHER
    evaluation_category = EvaluationCategory.NONE
    bounds = (0.0, 1.0)
    sample_truth = ("concept_labels", "labels")
    reads_correctness = True
    class_concepts: np.ndarray

    def __init__(
        self,
        class_concepts: Numbers | pd.DataFrame,
        score: str = "oracle",
        threshold: float | None = None,
        concept_labels: Numbers | None = None,
        labels: Numbers | None = None,
        **quantus: Unpack[QuantusArguments],
    ) -> None:
        """Bind what people say of classes. A score of 1 says that the predicted concepts tell every class.

        A score of 0 says that they point to other classes; a gap of 0, that the head reads no more than they say.
        """
        super().__init__(**quantus)
        check_choice("score", score, [*LABELS])
        if threshold is not None:
            check_range("threshold", threshold, -np.inf, np.inf, open_low=True, open_high=True)
        self.score, self.threshold = score, threshold
        self.bounds = (-1.0, 1.0) if score == "gap" else self.bounds
        self.needed = ("concept_labels",) if score == "on_labels" else ()
        self._bind(class_concepts=class_concepts, concept_labels=concept_labels, labels=labels)

    def check_truth(self, name: str, value: Numbers | pd.DataFrame) -> np.ndarray:
        """Return the table (K, L), labels of concepts (N, L) or of classes (N,), or raise."""
        if name == "class_concepts":
            return to_class_concepts(name, value)
        return to_classes(name, value) if name == "labels" else to_presence(name, value)

    def check_call(
        self, model: nn.Module | None, x_batch: np.ndarray, y_batch: np.ndarray, truth: Truth, explain: Explanations
    ) -> Truth:
        """Raise where there is no model."""
        if model is None:
            raise ValueError(f"{self.name} needs argument `model`, whose head is compared with the oracle's.")
        return truth

    @classmethod
    def usual(cls, tables: Mapping[str, Any]) -> Sequence[OracleHead]:
        """Return the variants of a table of all metrics: all three."""
        table = tables.get("class_concepts")
        return [] if table is None else [cls(table, score) for score in LABELS]

    def missing(self, rows: ConceptPredictions) -> str:
        """Return the name of what rows have to have and lack, "" for nothing."""
        return super().missing(rows) or ("threshold" if present_from(rows, self.threshold) is None else "")

    def score_rows(self, rows: ConceptPredictions) -> MetricScores:
        """Return the accuracy of the oracle, what the head adds to it, or the oracle's with true concepts."""
        values, threshold = cast(Tensor, rows.values), known_threshold(rows, self)
        check_class_concepts(self.class_concepts, *rows.shape)
        parts = []
        for part in rows.chunks(max(rows.shape)):
            shown = (values[part] >= threshold).float().masked_fill(values[part].isnan(), torch.nan)
            shown = rows.truth["concept_labels"][part] if self.score == "on_labels" else shown
            parts.append(oracle_head(shown, self.class_concepts, rows.labels[part]))
        hits = torch.cat(parts).double().numpy()
        scores = rows.correct.double().numpy() - hits if self.score == "gap" else hits
        return MetricScores(
            [{"metric": LABELS[self.score]}],
            scores[:, None],
            np.nan if self.score == "gap" else 1 / len(self.class_concepts),
            rows.labels.int().numpy(),
            self.bounds,
            lambda _: counted({"the model's values are NaN": np.isnan(scores)}, len(scores)),
        )


def present_from(rows: ConceptPredictions, threshold: float | None) -> float | None:
    """Return the value from which on a concept is present, if a metric has no threshold; None if that is unknown."""
    if threshold is not None or rows.threshold is not None:
        return threshold if threshold is not None else rows.threshold
    if rows.about.get("is_head"):
        # A head does not say what its values are.
        return None
    if rows.about["values"] == "margin":
        return 0.0
    return 0.5 if rows.about["bounded"] else None


def known_threshold(rows: ConceptPredictions, metric: Any) -> float:
    """Return the value from which on a concept is present, or raise where a metric has no threshold either."""
    threshold = present_from(rows, metric.threshold)
    if threshold is None:
        why = "may be margins or probabilities" if rows.about.get("is_head") else "are not bounded"
        raise ValueError(
            f"{metric.name} needs argument `threshold`: the values of {rows.about['kind']} {why}: it is not "
            "known from which value on a concept is present. Pass 0 for margins, 0.5 for values in [0, 1]."
        )
    return threshold
