"""The input dependence rate: does a feature that does not matter get less importance than what it covers?"""

from __future__ import annotations

from typing import Any, Unpack

import numpy as np
from quantus.helpers.enums import EvaluationCategory, ScoreDirection
from torch import nn

from captum_concepts._support.constraints import check_arguments
from quantus_concepts.functional import idr
from quantus_concepts.metrics.contrast.reexplaining import AGREEMENT, ReExplainingMetric
from quantus_concepts.metrics.host.call import QuantusArguments
from quantus_concepts.metrics.host.checks import CLASSES, IMAGES, REGIONS


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
        (N,) true classes; ``y_batch`` if None.
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
    >>> metric, explain = IDR(without, masks=masks), explain_func(InputXGradient)
    >>> metric(model, images, y_batch=torch.tensor([0, 0]), explain_func=explain)
    [1.0, 1.0]
    """

    name = "IDR"
    score_direction = ScoreDirection.HIGHER
    evaluation_category = EvaluationCategory.FAITHFULNESS
    bounds = (0.0, 1.0)
    sample_truth = ("counterpart", "masks", "labels")
    other_side = "on the counterpart"
    paired = ("counterpart", "it still has the feature")
    chance = 0.5

    @check_arguments(counterpart=IMAGES, masks=REGIONS, labels=CLASSES, agreement=AGREEMENT)
    def __init__(
        self,
        counterpart: Any = None,
        masks: Any = None,
        labels: Any = None,
        agreement: float = 0.3,
        **quantus: Unpack[QuantusArguments],
    ) -> None:
        """Bind the images without the feature. A score of 1 says that it is less important than what it covers.

        A score of 0 says that the method falls for it.
        """
        super().__init__(**quantus)
        self._bind_shared(agreement, counterpart=counterpart, masks=masks, labels=labels)

    def _check_call(
        self, model: Any, x_batch: np.ndarray, y_batch: np.ndarray, s_batch: np.ndarray | None
    ) -> dict[str, np.ndarray]:
        self._required_truth("counterpart")
        return super()._check_call(model, x_batch, y_batch, s_batch)

    def _score(
        self,
        model: nn.Module,
        *,
        x_batch: np.ndarray,
        y_batch: np.ndarray,
        a_batch: np.ndarray,
        masks_batch: np.ndarray,
        labels_batch: np.ndarray,
        counterpart_batch: np.ndarray,
        rows_batch: np.ndarray,
        **kwargs: Any,
    ) -> np.ndarray:
        """Score some samples: 0, 1 or NaN."""
        predicted, predicted_without = self._predicted_classes(
            self._predict(model, x_batch, rows_batch),
            self._predict(model, counterpart_batch, rows_batch, self.call.truth["counterpart"]),
        )
        correct = self._select_defined(
            masks_batch,
            {
                "the model misclassifies the image": predicted == labels_batch,
                "the model misclassifies the counterpart": predicted_without == labels_batch,
            },
        )
        without = self._attributed_again(model, counterpart_batch, y_batch, masks_batch)
        scores = idr(self._attribute_region(a_batch, masks_batch), without).numpy()
        return np.where(correct, scores, np.nan)
