"""The input independence rate: does an attribution stay as it is when nothing that matters changes?"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any, ClassVar, Unpack, cast

import numpy as np
from quantus.helpers.enums import EvaluationCategory, ScoreDirection
from torch import nn

from captum_concepts.support.checks import check_kind, check_range, to_numpy
from quantus_concepts.functional import iir, perturbation
from quantus_concepts.functional.arguments import Numbers
from quantus_concepts.metrics.contrast.pairs import (
    MISCLASSIFIED,
    PatchEffect,
    exclusion_reasons,
    patch_effect,
    score_pair,
)
from quantus_concepts.metrics.contrast.patch import Patch
from quantus_concepts.metrics.contrast.reexplaining import ReExplainingMetric
from quantus_concepts.metrics.host.explanations import Explanations
from quantus_concepts.metrics.host.model import share
from quantus_concepts.metrics.host.predictions import Scored
from quantus_concepts.metrics.host.record import OF_REGIONS, QuantusArguments

#: Why a score is undefined whose patch was not made well enough.
UNCONVERGED = "the model sees the patch (`converged` is false)"
UNATTRIBUTED = "attributions are 0 inside the mask, so that no change is relative to them"


class IIR(ReExplainingMetric):
    """Input independence rate: share of images where a patch the model does not see leaves the attribution unchanged.

    Yang and Kim (2019), "BIM", Section 4.3; works for any classifier and any images. A patch that people recognise (a
    dog) is changed until it leaves the model's logits as they were; an image scores 1 where adding it changes the
    mean positive attribution inside the mask by less than `threshold` of what it was, else 0. NaN: images
    classified wrongly with the patch or without it, attributions that are 0 without it, and patches that have not
    converged: with them the predicted class is another, or the logits are further away than `tolerance`.

    Parameters
    ----------
    patched : array_like, optional
        (N, C, H, W): the images with their patches, aligned with ``x_batch`` and in its units.
    patch : Patch, optional
        How to make them, in place of `patched`; each is made once and shared by the methods of one
        `quantus.evaluate` (kept until a call is about other images).
        On a CPU its 300 steps take up to a minute an image with a ResNet-18 at 224 px, half a second with a small
        network at 64 px: take few images there, or a GPU; see `optimise_patch`.
    threshold : float
        t, above 0: the relative change that would be noticed; the paper uses 0.1.
    masks : array_like, optional
        (N, 1, H, W) or (N, H, W) of 0 and 1, in place of ``s_batch``: where the patches are.
    labels : array_like, optional
        (N,) true classes; ``y_batch`` if None, with a warning where it is the predicted class of all.
    average : bool
        Whether the score is the relative change itself (Appendix C; lower is better) rather than 0 or 1.
    tolerance : float, optional
        Largest logit distance of a patch, as a share of ||f(x)||; None for that of `patch`, or 0.05.
    agreement : float
        Correlation, in [-1, 1], that the given explanations of two samples must reach, explained again. As in `MCS`.
    **quantus : Unpack[QuantusArguments]
        `abs`, `normalise` and what else every Quantus metric takes, by keyword. By default maps are normalised by
        `positive_percentile`, each by itself. ``abs`` is applied before. Only positive attributions count, with every
        normalisation. The default aggregate is the mean of the defined scores. With ``display_progressbar=None`` the
        making of patches shows its progress once it takes longer than two seconds.

    Attributes
    ----------
    logit_distance : np.ndarray
        (N,) of the last call: ||f(x + d) - f(x)|| as a share of ||f(x)||.
    patch_size : np.ndarray
        (N,): ||d||, in the units of ``x_batch``.
    converged : np.ndarray
        (N,) of bool.
    converged_share : float
        Their share; NaN before a call.

    Raises
    ------
    TypeError
        If `patch` is no `Patch`.
    ValueError
        If not exactly one of `patched` and `patch` is given, or an array has a wrong shape or value.

    Notes
    -----
    ``IIR.as_printed(...)`` is the paper's: ``normalise=False``, maps as they come.

    Higher is better. There is no chance value: how far a random map changes depends on its grain.

    Examples
    --------
    >>> import torch
    >>> from captum.attr import Saliency
    >>> from captum_concepts import explain_func
    >>> from quantus_concepts import IIR
    >>> model = torch.nn.Sequential(torch.nn.AdaptiveAvgPool2d((2, 1)), torch.nn.Flatten())
    >>> images = torch.tensor([1.0, 1, 0, 0]).view(4, 1).expand(2, 1, 4, 4)
    >>> patch = torch.zeros(2, 1, 4, 4)
    >>> patch[:, :, 0, :2] = torch.tensor([0.5, -0.5])  # the mean, and so the logits, stay
    >>> metric, explain = (
    ...     IIR(images + patch, masks=patch != 0, labels=[0, 0]),
    ...     explain_func(Saliency),
    ... )
    >>> metric(model, images, y_batch=torch.tensor([0, 0]), explain_func=explain)
    [1.0, 1.0]
    """

    name = "IIR"
    score_direction = ScoreDirection.HIGHER
    evaluation_category = EvaluationCategory.ROBUSTNESS
    bounds = (0.0, 1.0)
    sample_truth = ("patched", "masks", "labels")
    settings = ("threshold", "average", "tolerance", "agreement")
    results = ("logit_distance", "patch_size", "converged")
    other_side = "on the patched images"
    paired = ("patched", "it has no patch")
    quantus_defaults: ClassVar[QuantusArguments] = {**OF_REGIONS, "display_progressbar": None}

    def __init__(
        self,
        patched: Numbers | None = None,
        patch: Patch | None = None,
        threshold: float = 0.1,
        masks: Numbers | None = None,
        labels: Numbers | None = None,
        average: bool = False,
        tolerance: float | None = None,
        agreement: float = 0.3,
        **quantus: Unpack[QuantusArguments],
    ) -> None:
        """Bind the patches. A score of 1 says that a patch without effect leaves the attribution as it was.

        A score of 0 says that the method calls it important, or unimportant.
        """
        super().__init__(**quantus)
        if patched is not None and patch is not None:
            raise ValueError("Expected one of arguments `patched` and `patch` but got both.")
        if patch is not None:
            check_kind("patch", patch, Patch, "a quantus_concepts.Patch (images with their patches go into `patched`)")
        check_range("threshold", threshold, 0, math.inf, open_low=True)
        self.patch = patch
        self.threshold = threshold
        self.average = average
        if average:
            self.score_direction = ScoreDirection.LOWER  # type: ignore[misc]
            self.bounds = (0.0, math.inf)
        self.tolerance = tolerance if tolerance is not None else 0.05 if patch is None else patch.tolerance
        self._bind_shared(agreement, patched=patched, masks=masks, labels=labels)
        self.logit_distance, self.patch_size, self.converged = np.empty(0), np.empty(0), np.empty(0, dtype=bool)

    @property
    def converged_share(self) -> float:
        """Share of the patches that the model overlooks; NaN before a call."""
        return float(self.converged.mean()) if self.converged.size else float("nan")

    def check_call(
        self,
        model: nn.Module | None,
        x_batch: np.ndarray,
        y_batch: np.ndarray,
        truth: dict[str, np.ndarray],
        explain: Explanations,
    ) -> dict[str, np.ndarray]:
        """Check all samples of a call together; add the objects that patches start from, a row for each sample."""
        if "patched" not in truth and self.patch is None:
            raise ValueError(
                "IIR needs one of arguments `patched` (images with their patches) and `patch` (how to make them): give "
                'it to the constructor, or the images with each call as custom_batch={"patched": ...}.'
            )
        if "patched" not in truth and self.patch is not None:
            truth = {**truth, "init": self.patch.objects(x_batch)}
        if x_batch.dtype == np.uint8:
            raise ValueError(
                "Expected argument `x_batch` to be images in floating point, in whose units patches and their sizes "
                "are, but got uint8. Pass x_batch / 255, and `patched` likewise."
            )
        return super().check_call(model, x_batch, y_batch, truth, explain)

    def score_batch(
        self, model: nn.Module, x_batch: np.ndarray, y_batch: np.ndarray, explain: Explanations, **truth: np.ndarray
    ) -> Patched:
        """Score some samples, with the patches given or made."""
        logits = self.predict(model, x_batch, explain, y_batch=y_batch, labels=truth["labels"])
        patched = truth["patched"] if "patched" in truth else self._make_patches(model, x_batch, truth)
        effect = patch_effect(logits, self.predict(model, patched, explain))
        converged = effect.overlooked(self.tolerance)
        why = exclusion_reasons(truth["unmarked"], *self.conditions(effect, truth["labels"], converged))
        regions = self.attribute(explain, truth, model, patched, y_batch)
        compare = perturbation if self.average else partial(iir, threshold=self.threshold)
        scored = self.scored(*score_pair(compare, *regions, why, UNATTRIBUTED))
        size = distances(patched, x_batch)
        return Patched(**vars(scored), logit_distance=effect.distance, patch_size=size, converged=converged)

    @staticmethod
    def conditions(effect: PatchEffect, labels: np.ndarray, converged: np.ndarray) -> Iterator[tuple[str, np.ndarray]]:
        """Return what an image needs to have a score: the model is right, and overlooks the patch."""
        yield MISCLASSIFIED, effect.classes == labels
        # A patch that has converged leaves the class as it was.
        yield UNCONVERGED, effect.same_class & converged

    def keep_results(self, scored: Any) -> None:
        """Keep what else the samples have."""
        scored = cast(Patched, scored)
        self.logit_distance, self.patch_size = scored.logit_distance, scored.patch_size
        self.converged = scored.converged

    def _make_patches(self, model: nn.Module, x_batch: np.ndarray, truth: Mapping[str, np.ndarray]) -> np.ndarray:
        """Return images with their patches, made once for several explanation methods inside `shared_passes`."""
        patch, masks, init = cast(Patch, self.patch), truth["masks"], truth["init"]

        def make() -> np.ndarray:
            patched = x_batch.astype(np.result_type(x_batch, np.float32))
            # An image without a mask has no patch, and a NaN for a score.
            marked = masks.any((1, 2, 3))
            if marked.any():
                result = patch.make(model, x_batch[marked], masks[marked], init[marked], self._display_progressbar)
                # The model's precision may be another.
                patched[marked] = np.where(masks[marked], to_numpy(result.images), patched[marked])
            return patched

        # Masks may differ between calls with the same images; `init` belongs to the patch.
        return share(("patches", patch, masks.tobytes()), model, x_batch, make)


@dataclass(frozen=True)
class Patched(Scored):
    """Scores of `IIR`, with the distance of the logits, the size of the patch, and whether it has converged."""

    logit_distance: np.ndarray = field(default_factory=partial(np.empty, 0))
    patch_size: np.ndarray = field(default_factory=partial(np.empty, 0))
    converged: np.ndarray = field(default_factory=partial(np.empty, 0))


def distances(patched: np.ndarray, x_batch: np.ndarray) -> np.ndarray:
    """Return the norm (n,) of the difference that each patch makes."""
    # One image at a time stays in the cache; a table of all in double precision would take longer than a forward.
    squares = (np.square(np.subtract(a, b, dtype=float)) for a, b in zip(patched, x_batch, strict=True))
    return np.sqrt(np.concatenate([square.reshape(1, -1).sum(axis=1) for square in squares]))
