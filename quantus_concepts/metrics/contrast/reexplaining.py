"""Base class of the metrics that also explain a second model, or a second version of each image."""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from quantus.helpers.enums import DataType
from torch import Tensor, nn

from captum_concepts._support.constraints import Number
from captum_concepts._support.running import predict_logits, to_host
from quantus_concepts.functional import positive_percentile
from quantus_concepts.metrics.contrast.regions import region_attribution
from quantus_concepts.metrics.host.base import ImageMetric
from quantus_concepts.metrics.host.call import OF_REGIONS, WholeProgress, no_attributions
from quantus_concepts.metrics.host.checks import (
    REGIONS,
    check_aligned,
    check_classes,
    check_differs,
    check_images,
    check_mask_size,
    check_outputs,
    check_same_shape,
    join_numbers,
    unusable_masks,
)

N_CHECKED = 2
#: Least correlation with the given explanations of a deterministic method; rounding differs with the batch.
SAME = 0.99
#: Correlation of two calls from which on a method counts as deterministic.
REPEATED = 0.9999
#: Part of Quantus's error for a method that it does not have.
UNKNOWN_TO_QUANTUS = "XAI method is not in the list"


#: Constraint of the least correlation with explanations that are computed again.
AGREEMENT = Number(-1, 1)


class ReExplainingMetric(ImageMetric):
    """Base of `MCS`, `IDR` and `IIR`: masks, correct predictions, and explanations that are computed again.

    Given explanations are not enough for these metrics: they explain another model or other images too, through
    the `explain_func` they are given. Whether that is the method which made the given ones, two samples tell
    first; where the two do not agree, every score is NaN, and the warning says what to do. Without given explanations
    all come from `explain_func`, and there is nothing to compare.

    Inside a `quantus_concepts.shared_passes` block predictions are shared by these metrics, by `Faithfulness` and by
    the calls of several explanation methods. Explanations are never shared: a method may draw at random.

    An explanation that is zero everywhere is not a failure here: it says that nothing is important.
    """

    data_applicability = {DataType.IMAGE}  # noqa: RUF012 - a plain set is the host's contract
    zero_says_nothing = False
    quantus_defaults = OF_REGIONS
    # The second thing that is explained, as the warnings name it.
    other_side: str
    # Name of the second versions of the images, and what is wrong with one that is the image itself.
    paired: tuple[str, str] | None = None
    #: Mean score of a random attribution.
    chance = math.nan

    agreement: float

    def _bind_shared(self, agreement: float, **truth: Any) -> None:
        """Take the arguments that all three share."""
        self.agreement = float(agreement)
        self._bind(**truth)

    def _check_call(
        self, model: Any, x_batch: np.ndarray, y_batch: np.ndarray, s_batch: np.ndarray | None
    ) -> dict[str, np.ndarray]:
        name, meaning = self.paired or ("", "")
        paired = self.call.truth.get(name)
        if paired is not None:
            check_same_shape(name, paired, x_batch)
        if model is None:
            raise ValueError(
                f"{self.name} needs argument `model`, to explain it again and to know which images are right."
            )
        check_images(x_batch)
        if not self.can_explain:
            raise ValueError(
                f"{self.name} explains again, with another model or other images: pass `explain_func`, the function "
                "that made `a_batch`. `captum_concepts.explain_func` makes one of any Captum attribution."
            )
        self.call.chance = self.chance
        masks = self._masks(x_batch, s_batch)
        if paired is not None:
            check_aligned(name, paired, x_batch, masks)
            check_differs(name, paired, x_batch, masks, meaning)
        bound = {"labels": self.call.truth["labels"]} if "labels" in self.call.truth else {}
        self._check_classes({"y_batch": y_batch} | bound, model, x_batch)
        self._begin(self._progress(masks))
        return {"masks": masks, "labels": bound.get("labels", y_batch)}

    def _progress(self, masks: np.ndarray) -> WholeProgress:
        """Return the progress of a call."""
        return WholeProgress(self.name, len(masks), "image", bool(self._display_progressbar))

    def evaluate_batch(self, model: Any, x_batch: np.ndarray, **kwargs: Any) -> list[float]:
        """Score some samples, and count them as done."""
        scores = self._score(model.get_model(), x_batch=x_batch, **kwargs)
        self._advance(len(x_batch))
        return scores.tolist()

    @abstractmethod
    def _score(self, *args: Any, **kwargs: Any) -> np.ndarray:
        """Return (n,) scores of some samples."""

    def _masks(self, x_batch: np.ndarray, s_batch: np.ndarray | None) -> np.ndarray:
        name = "masks" if "masks" in self.call.truth else "s_batch"
        if name == "s_batch":
            if s_batch is None:
                raise ValueError(
                    f"{self.name} needs to know which region it asks about: pass `s_batch` (N, 1, H, W), or bind "
                    "`masks` in the constructor."
                )
            masks = REGIONS.check(name, s_batch, {})
        else:
            masks = self.call.truth["masks"]
        check_mask_size(name, masks, x_batch)
        bad = np.flatnonzero(unusable_masks(masks))
        if bad.size:
            self.leave_out(f"masks are empty or full, of samples {join_numbers(bad)}", bad.size)
            # An empty mask has no mean, which makes the score NaN.
            masks = masks & ~unusable_masks(masks)[:, None, None, None]
        return masks

    def _check_classes(self, labels: Mapping[str, np.ndarray], model: nn.Module, x_batch: np.ndarray) -> None:
        """Raise where labels, by the name of their argument, name an output that the model does not have."""
        # The whole first batch, for models exported for a fixed batch; what they give for it is used again.
        rows = np.arange(min(self.call.batch_size, len(x_batch)))
        self.call.first[id(model)] = self._predict(model, x_batch[rows], rows)
        n_classes = self.call.first[id(model)].shape[1]
        for name, classes in labels.items():
            check_classes(name, classes, n_classes)

    def _predict(
        self, model: nn.Module, images: np.ndarray, rows: np.ndarray | None = None, array: Any = None
    ) -> Tensor:
        """Return logits (n, K) of images, which are `rows` of `x_batch` or of another array, or of neither."""
        first = self.call.first.get(id(model))
        if first is not None and array is None and rows is not None and rows[0] == 0 and len(rows) == len(first):
            return first

        def make() -> Tensor:
            return predict_logits(model, images, **self.call.model_predict_kwargs)

        outputs = make() if rows is None else self._logits(model, rows, make, array)
        return check_outputs(outputs, len(images))

    @staticmethod
    def _predicted_classes(*outputs: Tensor) -> list[np.ndarray]:
        """Return the predicted classes (n,) of several outputs (n, K), in one transfer from their device."""
        return [logits.numpy() for logits in to_host(*(logits.argmax(1) for logits in outputs))]

    def _select_defined(self, masks: np.ndarray, conditions: Mapping[str, np.ndarray]) -> np.ndarray:
        """Return (n,) of bool: which samples meet all conditions; the others count under the first they do not meet."""
        # `conditions` maps a failure reason to the mask (n,) of samples that pass.
        # Samples without a mask were counted when the call began.
        marked = np.asarray(masks.any((1, 2, 3)))
        why = first_unmet(marked, conditions)
        for reason in conditions:
            self.leave_out(reason, int((why == reason).sum()))
        return marked & (why == "")

    def _explain(self, model: Any, x_batch: np.ndarray, y_batch: np.ndarray, rows: slice) -> np.ndarray:
        if self.call.refused:
            return no_attributions(len(x_batch))
        if self.call.attributions is None:
            return self._prepare(self._call_explain_func(model, x_batch, y_batch))
        a_batch = self.call.attributions[rows]
        if not self.call.checked and a_batch.size:
            self._check_agreement(model, x_batch, y_batch, a_batch)
        return no_attributions(len(x_batch)) if self.call.refused else self._prepare(a_batch)

    def _attributed_again(
        self, model: nn.Module, x_batch: np.ndarray, y_batch: np.ndarray, masks: np.ndarray
    ) -> Tensor:
        """Explain another model or other images with the method under evaluation; return (n,) g_c."""
        if self.call.refused:
            return torch.full((len(x_batch),), torch.nan, dtype=torch.float64)
        self.call.side = f"{self.other_side}, "
        try:
            return self._attribute_region(self._prepare(self._call_explain_func(model, x_batch, y_batch)), masks)
        finally:
            self.call.side = ""

    def _check_agreement(self, model: Any, x_batch: np.ndarray, y_batch: np.ndarray, a_batch: np.ndarray) -> None:
        """Explain two samples again; refuse a method that gives other explanations than `a_batch` holds."""
        rows = telling_samples(a_batch)
        if not rows.size:
            return
        again, failure = self._try_explain_func(model, x_batch[rows], y_batch[rows])
        if failure and len(x_batch) > len(rows):
            # A model exported for a fixed batch takes no two images alone.
            all_again, failure = self._try_explain_func(model, x_batch, y_batch)
            again = again if failure else all_again[rows]
        if not failure and again.size != a_batch[rows].size:
            failure = f"gave attributions of shape {again.shape[1:]} in place of {a_batch.shape[1:]}"
        measured = correlation(a_batch[rows], again)
        if np.isnan(measured) and not failure:
            # Attributions that are not finite score NaN anyway; the next batch is checked.
            return
        self.call.checked = True
        least = self.agreement
        if least <= measured < SAME and least > -1:
            # A method that gives the same in another order is deterministic: it has to repeat the given explanations.
            mirrored, _ = self._try_explain_func(model, x_batch[rows[::-1]], y_batch[rows[::-1]])
            if correlation(again, mirrored[::-1]) > REPEATED:
                least = SAME
        if measured >= least and not failure:
            return
        self.call.refused = True
        other = f"gave other attributions than before (correlation {measured:.2f}, at least {least:g} wanted)"
        answer = failure or other
        what_to_do = (
            "`quantus.evaluate` asks again under the key of `xai_methods`, so that key and method have to be alike: "
            'write {"Saliency": {"method": "Saliency"}}; give a callable in place of an array'
        )
        if UNKNOWN_TO_QUANTUS in failure:
            answer = f"was unknown: Quantus has no method {self.explain_func_kwargs.get('method')!r}"
            what_to_do += ", and for a key of your own, as `captum_concepts.explain_func` makes one"
        else:
            what_to_do += "; seed a method that draws at random, or lower `agreement`"
        self.fail(f"called again for {len(rows)} samples, it {answer}. {what_to_do}", self.call.n_samples)

    def _prepare(self, a_batch: np.ndarray) -> np.ndarray:
        # Maps of another shape are refused later, with a reason.
        if a_batch.dtype.kind not in "fiub" or a_batch.ndim not in (3, 4) or not a_batch.size:
            return a_batch
        # Before the normalisation, which drops what is negative.
        if self.abs:
            a_batch = np.abs(a_batch)
        if self.normalise and self.normalise_func is positive_percentile:
            # Works image by image on a whole batch.
            return positive_percentile(a_batch)
        return super()._prepare(a_batch)

    def _attribute_region(self, a_batch: np.ndarray, masks: np.ndarray) -> Tensor:
        """Return (n,) concept attributions g_c of treated maps; NaN where they cannot be used."""
        maps, _ = self._usable_maps(a_batch, masks.shape[2:])
        # A copy only where torch needs one: of whole numbers, and of arrays that cannot be written.
        exact = np.require(maps, maps.dtype if maps.dtype in (np.float32, np.float64) else float, ("C", "W"))
        return region_attribution(torch.as_tensor(exact), torch.as_tensor(masks))


def first_unmet(entered: np.ndarray, conditions: Mapping[str, np.ndarray]) -> np.ndarray:
    """Return (n,) of str: what is wrong with each sample that entered, the first condition it does not meet, or ""."""
    why = np.full(len(entered), "", dtype=object)
    for reason, met in conditions.items():
        why[entered & (why == "") & ~met] = reason
    return why


def telling_samples(a_batch: np.ndarray) -> np.ndarray:
    """Choose the samples that show whether a method repeats itself."""
    if a_batch.dtype.kind not in "fiub" or not a_batch.size:
        return np.empty(0, dtype=int)
    finite, telling = [], []
    for row, values in enumerate(a_batch.reshape(len(a_batch), -1)):
        if np.isfinite(values).all():
            finite.append(row)
            if (values != values[0]).any():
                telling.append(row)
        if len(telling) == N_CHECKED:
            break
    return np.array((telling or finite)[:N_CHECKED], dtype=int)


def correlation(first: np.ndarray, second: np.ndarray) -> float:
    """Mean Pearson correlation of the attributions of the same samples."""
    if second.dtype.kind not in "fiub" or not second.size:
        return float("nan")
    first, second = (value.reshape(len(value), -1).astype(float) for value in (first, second))
    if not (np.isfinite(first).all() and np.isfinite(second).all()):
        return float("nan")
    if first.shape != second.shape:
        return 0.0
    correlations = []
    for a, b in zip(first, second, strict=True):
        constant = a.std() == 0 or b.std() == 0
        correlations.append(float(np.allclose(a, b)) if constant else float(np.corrcoef(a, b)[0, 1]))
    return float(np.mean(correlations))
