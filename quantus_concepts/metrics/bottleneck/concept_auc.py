"""Concept AUC: do a model's values know their concepts, whatever its classes?"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Unpack, cast

import numpy as np
import pandas as pd
from quantus.helpers.enums import EvaluationCategory, ScoreDirection
from torch import Tensor

from captum_concepts.support.checks import to_presence
from quantus_concepts.functional import concept_auc, concept_auc_interval
from quantus_concepts.functional.arguments import Numbers
from quantus_concepts.functional.concepts.concept_auc import concept_aucs
from quantus_concepts.metrics.concepts import names as col
from quantus_concepts.metrics.host.checks import to_classes
from quantus_concepts.metrics.host.concept_metric import ConceptMetric
from quantus_concepts.metrics.host.model import check_concept_count
from quantus_concepts.metrics.host.predictions import ConceptPredictions
from quantus_concepts.metrics.host.record import QuantusArguments
from quantus_concepts.metrics.host.scores import Counted, MetricScores

#: Why a concept, or an image, has no score.
ONE_SIDED = "all images show the concept, or none does"
NOT_A_NUMBER = "a concept value is NaN, and the image is left out"


class ConceptAUC(ConceptMetric):
    """Concept AUC: how often an image that shows a concept has a higher value of it than one that does not.

    The area under the ROC curve of each concept (`functional.concept_auc`): by ranks, ties a half, so without a
    threshold and for any activation. It asks for the concepts alone, and so says whether a model knows them where its
    classes say nothing.

    - **At the bottleneck** ``x_batch`` are the concept values (N, L), of any model; no explanation is read.
    - **On images** ``model`` is a concept model (`ConceptModel`), whose values it computes.

    In tables of `score_concepts` the rows "concept AUC" are the mean over the concepts, with its interval by the
    delete-one-class jackknife, and that of each concept; "concept AUC within predicted classes" counts only pairs of
    images of one predicted class: a model that recites the concepts of its class has .5 there.

    Parameters
    ----------
    concept_labels : array_like, optional
        (N, L) of 0 and 1, aligned with ``x_batch``. May be left out where every call passes
        ``custom_batch={"concept_labels": ...}``.
    labels : array_like, optional
        (N,) true classes, over which the interval of the mean is; ``y_batch`` if None.
    **quantus : Unpack[QuantusArguments]
        `abs`, `normalise` and what else every Quantus metric takes, by keyword. Explanations are not read. The default
        aggregate is the mean of the defined scores.

    Raises
    ------
    ValueError
        If labels are not 0 or 1.

    Notes
    -----
    Scores are in [0, 1], higher is better, chance is .5; below it the sign of a concept is turned. The mean hides wrong
    names: with half of them exchanged it is about .75, so that it stands beside the number of concepts above their own
    random banks. The scores of a call are of concepts, not of samples. NaN, counted in ``records[-1].reasons``: a
    concept that all images show or none. An image with a value that is NaN is left out. Values are compared in float32.

    Examples
    --------
    >>> import numpy as np
    >>> from torch import nn
    >>> from quantus_concepts import ConceptAUC
    >>> values = np.array([[0.1, 2.0], [0.4, 1.0], [0.4, 3.0], [0.8, 0.0]], dtype="float32")
    >>> metric = ConceptAUC(concept_labels=[[0, 0], [0, 0], [1, 1], [1, 0]])
    >>> metric(nn.Linear(2, 2), values, y_batch=np.array([0, 0, 1, 1]), a_batch=values)
    [0.875, 1.0]
    """

    name = col.CONCEPT_AUC
    score_direction = ScoreDirection.HIGHER
    evaluation_category = EvaluationCategory.NONE
    bounds = (0.0, 1.0)
    of_samples = False
    sample_truth = ("concept_labels", "labels")
    needed = ("concept_labels",)

    def __init__(
        self,
        concept_labels: Numbers | pd.DataFrame | None = None,
        labels: Numbers | None = None,
        **quantus: Unpack[QuantusArguments],
    ) -> None:
        """Bind the labels. A score of 1 says that a value tells all images with its concept from all others.

        A score of .5 says that it does not know the concept.
        """
        super().__init__(**quantus)
        self._bind(concept_labels=concept_labels, labels=labels)

    def check_truth(self, name: str, value: Any) -> np.ndarray:
        """Return labels of concepts (N, L) or of classes (N,), or raise."""
        return to_classes(name, value) if name == "labels" else to_presence(name, value)

    def score_rows(self, rows: ConceptPredictions) -> MetricScores:
        """Return the score of each concept in all rows."""
        values, concepts, _ = seen_values(rows)
        return self._scored(rows, concept_auc(values, concepts).double().numpy(), len(rows) - len(values))

    def table_scores(self, rows: ConceptPredictions) -> Sequence[MetricScores]:
        """Return the score of all concepts and of each, and their mean within the predicted classes."""
        if rows.models:
            of_models = zip(*map(self.table_scores, rows.models), strict=True)
            return [replace(of[0], values=np.concatenate([each.values for each in of])) for of in of_models]
        if rows.predicted is None:
            return [self.score_rows(rows)]
        values, concepts, seen = seen_values(rows)
        scores, within = (each.double().numpy() for each in concept_aucs(values, concepts, rows.predicted[seen]))
        fields = {"metric": col.AUC_WITHIN, "item_kind": "concept"}
        settings: dict[str, Any] = {"intervals": False, "lists_items": False}
        own = self._scored(rows, scores, len(rows) - len(values))
        return [own, MetricScores([fields], within[:, None], col.CHANCE, **settings)]

    def _scored(self, rows: ConceptPredictions, scores: np.ndarray, left_out: int) -> MetricScores:
        undefined = int(np.isnan(scores).sum())
        reasons = {ONE_SIDED: Counted(undefined, len(scores), "concepts")} if undefined else {}
        reasons |= {NOT_A_NUMBER: Counted(left_out, len(rows))} if left_out else {}
        return MetricScores(
            [{"metric": self.name, "item_kind": "concept"}],
            scores[:, None],
            col.CHANCE,
            reasons=lambda _: reasons,
            mean_interval=lambda _: _interval(rows),
        )


def _interval(rows: ConceptPredictions) -> tuple[float, float]:
    values, concepts, seen = seen_values(rows)
    return concept_auc_interval(values, concepts, rows.labels[seen])


def seen_values(rows: ConceptPredictions) -> tuple[Tensor, Tensor, Tensor]:
    """Return the values and true concepts of the images without a value that is NaN, and which they are (N,)."""
    values, labels = cast(Tensor, rows.values).float(), rows.truth["concept_labels"]
    check_concept_count("concept_labels", "(N, L)", labels.numpy(), values.shape[1])
    seen = ~values.isnan().any(1)
    present = labels > 0.5
    # Most often all are: no copy.
    return (values, present, seen) if seen.all() else (values[seen], present[seen], seen)
