"""The input dependence rate: does a feature that does not matter get less importance than what it covers?"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Unpack

import numpy as np
from quantus.helpers.enums import EvaluationCategory, ScoreDirection
from torch import Tensor, nn

from quantus_concepts.functional import idr
from quantus_concepts.functional.arguments import Numbers
from quantus_concepts.metrics.contrast.pairs import MISCLASSIFIED, exclusion_reasons, predicted_classes, score_pair
from quantus_concepts.metrics.contrast.reexplaining import ReExplainingMetric
from quantus_concepts.metrics.host.explanations import Explanations
from quantus_concepts.metrics.host.predictions import Scored
from quantus_concepts.metrics.host.record import QuantusArguments


class IDR(ReExplainingMetric):
    """Input dependence rate: share of images where a feature without importance is attributed less than its absence.

    Yang and Kim (2019), "BIM", Section 4.2. ``x_batch`` shows a feature that the model provably does not use (an
    object that is equally frequent in all classes), `counterpart` the same images without it; the mask marks where
    it is, and is the same for both. An image scores 1 where the mean positive attribution inside the mask is lower
    with the feature than without it, else 0; equal values are not a success. Images that the model classifies
    wrongly, with the feature or without it, are NaN.

    Parameters
    ----------
    counterpart : array_like
        (N, C, H, W): the images without the feature, aligned with ``x_batch`` and in its units.
    masks : array_like, optional
        (N, 1, H, W) or (N, H, W) of 0 and 1, in place of ``s_batch``.
    labels : array_like, optional
        (N,) true classes; ``y_batch`` if None, with a warning where it is the predicted class of all.
    agreement : float
        Correlation, in [-1, 1], that the given explanations of two samples must reach, explained again. As in `MCS`.
    **quantus : Unpack[QuantusArguments]
        `abs`, `normalise` and what else every Quantus metric takes, by keyword. By default maps are normalised by
        `positive_percentile`, each by itself. ``abs`` is applied before. Whatever the normalisation, only positive
        attributions count. The default aggregate is the mean of the defined scores.

    Raises
    ------
    ValueError
        If images or masks have a wrong shape or value.

    Notes
    -----
    ``IDR.as_printed(...)`` is the paper's: ``normalise=False``, maps as they come.

    Higher is better. A random attribution scores 0.5.

    Examples
    --------
    >>> import torch
    >>> from captum.attr import InputXGradient
    >>> from captum_concepts import explain_func
    >>> from quantus_concepts import IDR
    >>> model = torch.nn.Sequential(torch.nn.AdaptiveAvgPool2d((2, 1)), torch.nn.Flatten())
    >>> without = torch.tensor([1.0, 1, 0, 0]).view(4, 1).expand(2, 1, 4, 4)
    >>> masks = torch.tensor([1.0, 0, 0, 0]).view(4, 1).expand(2, 1, 4, 4)
    >>> images = without - 0.5 * masks  # the feature: a darker first row
    >>> metric, explain = IDR(without, masks=masks, labels=[0, 0]), explain_func(InputXGradient)
    >>> metric(model, images, y_batch=torch.tensor([0, 0]), explain_func=explain)
    [1.0, 1.0]
    """

    name = "IDR"
    score_direction = ScoreDirection.HIGHER
    evaluation_category = EvaluationCategory.FAITHFULNESS
    bounds = (0.0, 1.0)
    sample_truth = ("counterpart", "masks", "labels")
    settings = ("agreement",)
    needed = ("counterpart",)
    other_side = "on the counterpart"
    paired = ("counterpart", "it still has the feature")
    chance = 0.5

    def __init__(
        self,
        counterpart: Numbers | None = None,
        masks: Numbers | None = None,
        labels: Numbers | None = None,
        agreement: float = 0.3,
        **quantus: Unpack[QuantusArguments],
    ) -> None:
        """Bind the images without the feature. A score of 1 says that it is less important than what it covers.

        A score of 0 says that the method falls for it.
        """
        super().__init__(**quantus)
        self._bind_shared(agreement, counterpart=counterpart, masks=masks, labels=labels)

    def score_batch(
        self, model: nn.Module, x_batch: np.ndarray, y_batch: np.ndarray, explain: Explanations, **truth: np.ndarray
    ) -> Scored:
        """Score some samples: 0, 1 or NaN."""
        labels, counterpart = truth["labels"], truth["counterpart"]
        logits = self.predict(model, x_batch, explain, y_batch=y_batch, labels=labels)
        other_logits = self.predict(model, counterpart, explain)
        why = exclusion_reasons(truth["unmarked"], *self.conditions(logits, other_logits, labels))
        return self.scored(*score_pair(idr, *self.attribute(explain, truth, model, counterpart, y_batch), why))

    @staticmethod
    def conditions(logits: Tensor, other_logits: Tensor, labels: np.ndarray) -> Iterator[tuple[str, np.ndarray]]:
        """Return what an image needs to have a score: the model is right with the feature and without it."""
        predicted, without = predicted_classes(logits, other_logits)
        yield MISCLASSIFIED, predicted == labels
        yield "the model misclassifies the counterpart", without == labels
