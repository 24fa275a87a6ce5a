"""Base class of the metrics that also explain a second model, or a second version of each image."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np
import torch
from quantus.helpers.enums import DataType
from torch import Tensor, nn

from captum_concepts.support.checks import check_finite, check_range, check_shape, to_array, to_masks, unusable_masks
from captum_concepts.support.running import predict_logits
from quantus_concepts.functional import positive_percentile
from quantus_concepts.functional.arguments import Numbers
from quantus_concepts.metrics.contrast.agreement import disagreement
from quantus_concepts.metrics.contrast.checks import check_differs, check_same_shape
from quantus_concepts.metrics.contrast.pairs import MISCLASSIFIED, Regions, attribute_region
from quantus_concepts.metrics.host.checks import (
    check_classes,
    check_image_axes,
    check_mask_size,
    check_outputs,
    join_numbers,
    to_classes,
)
from quantus_concepts.metrics.host.explanations import FAILED, Explanations, no_reasons
from quantus_concepts.metrics.host.metric import AttributionMetric
from quantus_concepts.metrics.host.model import share
from quantus_concepts.metrics.host.predictions import Scored
from quantus_concepts.metrics.host.record import OF_REGIONS, AsPrinted

UNMARKED = "masks are empty or full"


class ReExplainingMetric(AsPrinted, AttributionMetric):
    """Base of `MCS`, `IDR` and `IIR`: masks, correct predictions, and explanations that are computed again.

    Given explanations are not enough for these metrics: they explain another model or other images too, through
    the `explain_func` they are given. Whether that is the method which made the given ones, two samples of each call
    show first; where the two do not agree, every score is NaN, and the warning says what to do. Without given
    explanations all come from `explain_func`, and there is nothing to compare.

    Inside a `quantus_concepts.shared_passes` block predictions are shared by these metrics, by `Faithfulness` and by
    the calls of several explanation methods. Explanations are never shared: a method may draw at random.

    ``as_printed(...)`` is the paper's: ``normalise=False``, maps as they come.

    An explanation that is zero everywhere is not a failure here: it says that nothing is important.
    """

    data_applicability = {DataType.IMAGE}  # noqa: RUF012 - a plain set is the host's contract
    zero_is_undefined = False
    quantus_defaults = OF_REGIONS
    printed: ClassVar[Mapping[str, Any]] = {"normalise": False}
    reads_correctness = True
    # The second thing that is explained, as the reasons name it.
    other_side: str
    # Name of the second versions of the images, and what is wrong with one that is the image itself.
    paired: tuple[str, str] | None = None
    #: Mean score of a random attribution.
    chance = math.nan

    def _bind_shared(self, agreement: float, **truth: Numbers | None) -> None:
        """Take the arguments that all three share."""
        check_range("agreement", agreement, -1, 1)
        self.agreement = float(agreement)
        self._bind(**truth)

    def check_truth(self, name: str, value: Numbers) -> np.ndarray:
        """Return masks, classes or images as an array, or raise."""
        if name == "masks":
            return to_masks(name, value, usable=True)
        if name.endswith("labels"):
            return to_classes(name, value)
        # Torch knows no negative strides.
        images = np.ascontiguousarray(to_array(name, value))
        check_shape(name, images, ("N", "C", "H", "W"), (None,) * 4)
        check_finite(name, images)
        return images

    def check_call(
        self,
        model: nn.Module | None,
        x_batch: np.ndarray,
        y_batch: np.ndarray,
        truth: dict[str, np.ndarray],
        explain: Explanations,
    ) -> dict[str, np.ndarray]:
        """Check the masks, the second images and the method; a row of ``refused`` says why it is another method."""
        if model is None:
            raise ValueError(
                f"{self.name} needs argument `model`, to explain it again and to know which images are right."
            )
        check_image_axes(x_batch)
        if explain.call.explain_func is None:
            raise ValueError(
                f"{self.name} explains again, with another model or other images: pass `explain_func`, the function "
                "that made `a_batch`. `captum_concepts.explain_func` makes one of any Captum attribution."
            )
        s_batch = truth.pop("s_batch", None)
        if "masks" in truth:
            masks = truth["masks"]
        elif s_batch is not None:
            masks = to_masks("s_batch", s_batch, usable=True)
        else:
            raise ValueError(
                f"{self.name} needs to know which region it asks about: pass `s_batch` (N, 1, H, W), or bind `masks` "
                "in the constructor."
            )
        check_mask_size("masks" if "masks" in truth else "s_batch", masks, x_batch)
        bad = unusable_masks(masks)
        # An empty mask has no mean, which makes the score NaN.
        masks = masks & ~bad[:, None, None, None] if bad.any() else masks
        marks = f"{UNMARKED}, of samples {join_numbers(np.flatnonzero(bad))}"
        unmarked = np.where(bad, marks, "").astype(object)
        if self.paired and self.paired[0] in truth:
            name, meaning = self.paired
            check_same_shape(name, truth[name], x_batch)
            check_differs(name, truth[name], x_batch, masks, meaning)
        why = disagreement(explain, self.agreement)
        refused = np.full(len(x_batch), why and FAILED + why, dtype=object)
        return {"labels": y_batch, **truth, "masks": masks, "unmarked": unmarked, "refused": refused}

    def preprocess(self, a_batch: np.ndarray) -> np.ndarray:
        """Return maps made absolute before they are normalised, which drops what is negative."""
        # Maps of another shape are refused later, with a reason.
        if a_batch.ndim not in (3, 4):
            return a_batch
        if self.abs:
            a_batch = np.abs(a_batch)
        # It works image by image on a whole batch.
        by_image = self.normalise and self.normalise_func is positive_percentile
        return positive_percentile(a_batch) if by_image else super().preprocess(a_batch)

    def predict(self, model: nn.Module, images: np.ndarray, explain: Explanations, **classes: np.ndarray) -> Tensor:
        """Return logits (n, K), shared inside `shared_passes`; raise where classes name none of its outputs."""

        def make() -> Tensor:
            return predict_logits(model, images, **explain.call.model_predict_kwargs)

        # Outputs depend on further arguments of the model, which may be anything.
        # Not from the explanation's own forward pass: layer ablation and noise in weights give other outputs for the
        # same images.
        logits = make() if explain.call.model_predict_kwargs else share("logits", model, images, make)
        check_outputs(logits, len(images))
        for name, indices in classes.items():
            check_classes(name, indices, logits.shape[1])
        return logits

    def attribute(
        self,
        explain: Explanations,
        truth: Mapping[str, np.ndarray],
        model: nn.Module,
        images: np.ndarray,
        classes: np.ndarray,
    ) -> tuple[Regions, Regions]:
        """Return what the batch's explanations give to the regions, and those of another model or of other images."""
        refused, masks = truth["refused"], torch.as_tensor(truth["masks"])
        if refused[0]:
            nan = torch.full((len(masks),), torch.nan, dtype=torch.float64)
            return Regions(nan, refused), Regions(nan, no_reasons(len(masks)))
        first = attribute_region(*explain(), masks)
        attributions, failure = explain.compute(model, images, classes)
        return first, attribute_region(self.preprocess(attributions), failure, masks, f"{self.other_side}, ")

    def scored(self, scores: np.ndarray, why: np.ndarray) -> Scored:
        """Return the scores of a batch with their reasons."""
        # Of an image without a mask nothing else is told.
        n_wrong = sum(MISCLASSIFIED in reason or UNMARKED in reason for reason in why)
        return Scored(scores, np.full(len(scores), self.chance), why, explained=True, n_wrong=n_wrong)
