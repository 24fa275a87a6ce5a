"""The model contrast score: does an attribution change when the model does?"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Unpack

import numpy as np
import torch
from quantus.helpers.enums import EvaluationCategory, ScoreDirection
from torch import Tensor, nn

from captum_concepts.support.checks import check_module
from captum_concepts.support.running import evaluation_mode
from quantus_concepts.functional import mcs, random_masks
from quantus_concepts.functional.arguments import Numbers
from quantus_concepts.metrics.contrast.pairs import MISCLASSIFIED, exclusion_reasons, predicted_classes, score_pair
from quantus_concepts.metrics.contrast.reexplaining import ReExplainingMetric
from quantus_concepts.metrics.host.explanations import Explanations
from quantus_concepts.metrics.host.predictions import Scored
from quantus_concepts.metrics.host.record import QuantusArguments


class MCS(ReExplainingMetric):
    """Model contrast score: importance of a region to a model that needs it, minus to one that does not.

    Yang and Kim (2019), "BIM", Section 4.1. ``model`` explains ``y_batch``, `contrast_model` explains
    `contrast_labels`, both with the method under evaluation; the score of an image is the difference of the mean
    positive attributions inside the mask (`quantus_concepts.functional.concept_attribution`). Images that either
    model classifies wrongly are NaN, as in the release.

    Absolute: ``model`` was trained on the objects and `contrast_model` on the scenes of the same images, and the
    masks mark the objects. Relative: ``model`` was trained with a common feature in a share of the classes, and
    `contrast_model` with it in all of them.

    Parameters
    ----------
    contrast_model : nn.Module
        The model to which the region does not matter; it stays on its own device.
    contrast_labels : array_like, optional
        (N,) of int: the classes that `contrast_model` has to find, and explains; None where calls or updates give them.
    masks : array_like, optional
        (N, 1, H, W) or (N, H, W) of 0 and 1, in place of ``s_batch``.
    labels : array_like, optional
        (N,) true classes of ``model``; ``y_batch`` if None, with a warning where it is the predicted class of all.
    random_region : bool
        Whether each mask is moved to a random place: the baseline a score has to beat.
    seed : int
        Random seed of these places, drawn anew for each call or update.
    agreement : float
        Correlation, in [-1, 1], of two explanations given as ``a_batch`` and those that ``explain_func`` gives for the
        same samples; below it all scores are NaN. Methods that draw at random without a seed may need less; those that
        draw nothing must reach 0.99. With -1 anything is accepted.
    **quantus : Unpack[QuantusArguments]
        `abs`, `normalise` and what else every Quantus metric takes, by keyword. By default maps are normalised by
        `positive_percentile`, each by itself; without it the two models' maps may be on different scales. ``abs`` is
        applied before. Whatever the normalisation, only positive attributions count. The default aggregate is the mean
        of the defined scores.

    Raises
    ------
    TypeError
        If `contrast_model` is no module, or an argument of the wrong kind.
    ValueError
        If labels or masks have a wrong shape or value.

    Notes
    -----
    ``MCS.as_printed(...)`` is the paper's: ``normalise=False``, maps as they come.

    Higher is better; in [-1, 1], of raw maps in their units. A random attribution scores 0, and so does any that does
    not look at the model.

    Examples
    --------
    >>> import torch
    >>> from captum.attr import Saliency
    >>> from captum_concepts import explain_func
    >>> from quantus_concepts import MCS
    >>> top = torch.nn.Sequential(torch.nn.AdaptiveAvgPool2d((2, 1)), torch.nn.Flatten())
    >>> left = torch.nn.Sequential(torch.nn.AdaptiveAvgPool2d((1, 2)), torch.nn.Flatten())
    >>> images = torch.arange(16, 0, -1.0).view(1, 1, 4, 4).expand(2, 1, 4, 4)
    >>> masks, y = torch.zeros(2, 1, 4, 4), torch.tensor([0, 0])
    >>> masks[:, :, :2, 2:] = 1  # top right: only the first model needs it
    >>> MCS(left, y, masks=masks, labels=y)(top, images, y, explain_func=explain_func(Saliency))
    [1.0, 1.0]
    """

    name = "MCS"
    score_direction = ScoreDirection.HIGHER
    evaluation_category = EvaluationCategory.FAITHFULNESS
    bounds = (-1.0, 1.0)
    sample_truth = ("contrast_labels", "masks", "labels")
    settings = ("random_region", "seed", "agreement")
    needed = ("contrast_labels",)
    other_side = "under the contrast model"
    chance = 0.0

    def __init__(
        self,
        contrast_model: nn.Module,
        contrast_labels: Numbers | None = None,
        masks: Numbers | None = None,
        labels: Numbers | None = None,
        random_region: bool = False,
        seed: int = 0,
        agreement: float = 0.3,
        **quantus: Unpack[QuantusArguments],
    ) -> None:
        """Bind the second model. A score of 1 says that the region is all to the one model and nothing to the other.

        A score of 0 says that the method sees no difference between them.
        """
        super().__init__(**quantus)
        if not self.normalise:
            self.bounds = (-math.inf, math.inf)
        check_module("contrast_model", contrast_model)
        self.contrast_model = contrast_model
        self.random_region = random_region
        self.seed = seed
        self._bind_shared(agreement, contrast_labels=contrast_labels, masks=masks, labels=labels)

    def check_call(
        self,
        model: nn.Module | None,
        x_batch: np.ndarray,
        y_batch: np.ndarray,
        truth: dict[str, np.ndarray],
        explain: Explanations,
    ) -> dict[str, np.ndarray]:
        """Check all samples of a call together, and move the masks if they are to be moved."""
        truth = super().check_call(model, x_batch, y_batch, truth, explain)
        if self.random_region:
            generator = torch.Generator().manual_seed(self.seed)
            truth["masks"] = random_masks(torch.as_tensor(truth["masks"]), generator).numpy()
        return truth

    def score_batch(
        self, model: nn.Module, x_batch: np.ndarray, y_batch: np.ndarray, explain: Explanations, **truth: np.ndarray
    ) -> Scored:
        """Score some samples under the two models."""
        other, labels, contrast_labels = self.contrast_model, truth["labels"], truth["contrast_labels"]
        with evaluation_mode(other):
            logits = self.predict(model, x_batch, explain, y_batch=y_batch, labels=labels)
            other_logits = self.predict(other, x_batch, explain, contrast_labels=contrast_labels)
            why = exclusion_reasons(truth["unmarked"], *self.conditions(logits, other_logits, labels, contrast_labels))
            regions = self.attribute(explain, truth, other, x_batch, contrast_labels)
        return self.scored(*score_pair(mcs, *regions, why))

    @staticmethod
    def conditions(
        logits: Tensor, other_logits: Tensor, labels: np.ndarray, contrast_labels: np.ndarray
    ) -> Iterator[tuple[str, np.ndarray]]:
        """Return what an image needs to have a score: both models are right."""
        predicted, by_contrast = predicted_classes(logits, other_logits)
        yield MISCLASSIFIED, predicted == labels
        yield "the contrast model misclassifies the image", by_contrast == contrast_labels
