"""Monosemanticity: do the images that activate a concept look alike to another network?"""

from __future__ import annotations

from typing import Any, Unpack, cast

import numpy as np
from quantus.helpers.enums import EvaluationCategory, ScoreDirection
from torch import Tensor

from quantus_concepts.functional import monosemanticity
from quantus_concepts.functional.arguments import Numbers
from quantus_concepts.functional.discovered.monosemanticity import mean_likeness, to_units
from quantus_concepts.metrics.concepts import names as col
from quantus_concepts.metrics.host.concept_metric import ConceptMetric
from quantus_concepts.metrics.host.predictions import ConceptPredictions
from quantus_concepts.metrics.host.record import QuantusArguments
from quantus_concepts.metrics.host.scores import Counted, MetricScores

#: Why a concept has no score.
NOT_VARIED = "fewer than two images are above the smallest value of the concept, or a value is not finite"


class Monosemanticity(ConceptMetric):
    """Monosemanticity: how alike the images are that a concept is active in, to another network.

    arXiv 2504.02821 (`functional.monosemanticity`). It needs no concept labels, so that it scores concepts that nobody
    has named, such as those of a sparse autoencoder; `score_discovered` has it for a bank that was discovered.

    - **At the bottleneck** ``x_batch`` are the concept values (N, L), of any model; no explanation is read.
    - **On images** ``model`` is a concept model (`ConceptModel`), whose values it computes.

    Parameters
    ----------
    embeddings : array_like, optional
        (N, e), aligned with ``x_batch``: embeddings of the images in a network *other* than the model's, such as
        ``captum_concepts.embed(other, loader).features``. May be left out where every call passes
        ``custom_batch={"embeddings": ...}``.
    **quantus : Unpack[QuantusArguments]
        `abs`, `normalise` and what else every Quantus metric takes, by keyword. Explanations are not read. The default
        aggregate is the mean of the defined scores.

    Raises
    ------
    ValueError
        If embeddings are not finite, or one is 0.

    Notes
    -----
    Scores are in [-1, 1] and about concepts, higher is better. Chance is the mean cosine of all pairs of the images,
    which is far above 0 for most networks: compare with it, and with random banks, whose range `score_concepts` gives
    for each concept. A concept of a class scores high whatever it is named after. Values are scaled to [0, 1] over the
    images, so that those below the middle of the scale count a little as well: sparse values are what it was made for.
    NaN, counted in ``records[-1].reasons``: a concept that is active in fewer than two images.

    Examples
    --------
    >>> import numpy as np
    >>> from torch import nn
    >>> from quantus_concepts import Monosemanticity
    >>> values = np.array([[1.0, 1.0], [1.0, 0.0], [0.0, 1.0]], dtype="float32")
    >>> metric = Monosemanticity(embeddings=[[2.0, 0.0], [1.0, 0.0], [0.0, 1.0]])
    >>> metric(nn.Linear(2, 2), values, y_batch=np.array([0, 0, 1]), a_batch=values)
    [1.0, 0.0]
    """

    name = col.MONOSEMANTICITY
    score_direction = ScoreDirection.HIGHER
    evaluation_category = EvaluationCategory.NONE
    bounds = (-1.0, 1.0)
    of_samples = False
    sample_truth = needed = ("embeddings",)

    def __init__(self, embeddings: Numbers | None = None, **quantus: Unpack[QuantusArguments]) -> None:
        """Bind the embeddings. A score of 1 says that all images in which a concept is active look the same.

        The mean cosine of all pairs of images is chance.
        """
        super().__init__(**quantus)
        self._bind(embeddings=embeddings)

    def check_truth(self, name: str, value: Any) -> np.ndarray:
        """Return embeddings (N, e) at length 1, or raise."""
        units: np.ndarray = to_units(name, value).float().cpu().numpy()
        return units

    def score_rows(self, rows: ConceptPredictions) -> MetricScores:
        """Return the score of each concept in all rows."""
        embeddings = rows.truth["embeddings"]
        scores = monosemanticity(cast(Tensor, rows.values), embeddings).cpu().numpy()
        undefined = int(np.isnan(scores).sum())
        reasons = {NOT_VARIED: Counted(undefined, len(scores), "concepts")} if undefined else {}
        return MetricScores(
            [{"metric": self.name, "item_kind": "concept"}],
            scores[:, None],
            mean_likeness(embeddings),
            reasons=lambda _: reasons,
        )
