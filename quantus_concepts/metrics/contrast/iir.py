"""The input independence rate: does an attribution stay as it is when nothing that matters changes?"""

from __future__ import annotations

import math
from typing import Any, ClassVar, NamedTuple, Unpack

import numpy as np
import torch
from quantus.helpers.enums import EvaluationCategory, ScoreDirection
from torch import Tensor, nn

from captum_concepts._support.checks import to_array, to_numpy
from captum_concepts._support.constraints import POSITIVE, Flag, Instance, check_arguments
from captum_concepts._support.running import to_host
from quantus_concepts.functional import iir, perturbation
from quantus_concepts.metrics.contrast.patch import Patch
from quantus_concepts.metrics.contrast.patch_optimisation import patch_progress
from quantus_concepts.metrics.contrast.reexplaining import AGREEMENT, ReExplainingMetric
from quantus_concepts.metrics.host.call import OF_REGIONS, QuantusArguments, WholeProgress
from quantus_concepts.metrics.host.checks import CLASSES, IMAGES, REGIONS, check_same_shape

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
        (N,) true classes; ``y_batch`` if None.
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
        making of patches shows its progress once it takes longer than two seconds; True shows that of all work, and
        False none. If no bar is visible, one warning says how long it will take, once the first steps show that it will
        be more than a minute.

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
    >>> metric, explain = IIR(images + patch, masks=patch != 0), explain_func(Saliency)
    >>> metric(model, images, y_batch=torch.tensor([0, 0]), explain_func=explain)
    [1.0, 1.0]
    """

    name = "IIR"
    score_direction = ScoreDirection.HIGHER
    evaluation_category = EvaluationCategory.ROBUSTNESS
    bounds = (0.0, 1.0)
    sample_truth = ("patched", "masks", "labels")
    other_side = "on the patched images"
    paired = ("patched", "it has no patch")
    quantus_defaults: ClassVar[QuantusArguments] = {**OF_REGIONS, "display_progressbar": None}

    @check_arguments(
        patched=IMAGES,
        masks=REGIONS,
        labels=CLASSES,
        patch=Instance(Patch, "a quantus_concepts.Patch (images with their patches go into `patched`)"),
        threshold=POSITIVE,
        average=Flag(),
        tolerance=POSITIVE,
        agreement=AGREEMENT,
    )
    def __init__(
        self,
        patched: Any = None,
        patch: Patch | None = None,
        threshold: float = 0.1,
        masks: Any = None,
        labels: Any = None,
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
        self.patch = patch
        self.threshold = threshold
        self.average = average
        if average:
            self.score_direction = ScoreDirection.LOWER  # type: ignore[misc]
            self.bounds = (0.0, math.inf)
        self.tolerance = tolerance if tolerance is not None else 0.05 if patch is None else patch.tolerance
        self._bind_shared(agreement, patched=patched, masks=masks, labels=labels)
        self._measured: list[tuple[np.ndarray, np.ndarray, np.ndarray]] = []

    @property
    def logit_distance(self) -> np.ndarray:
        """(N,): distance of the logits with and without the patch, as a share of their norm without it."""
        return self._join_measured(0)

    @property
    def patch_size(self) -> np.ndarray:
        """(N,): norm of the difference the patch makes, in the units of ``x_batch``."""
        return self._join_measured(1)

    @property
    def converged(self) -> np.ndarray:
        """(N,) of bool: whether the model overlooks the patch."""
        return self._join_measured(2)

    @property
    def converged_share(self) -> float:
        """Share of the patches that the model overlooks; NaN before a call."""
        return float(self.converged.mean()) if self.converged.size else float("nan")

    def _join_measured(self, index: int) -> np.ndarray:
        return np.concatenate([part[index] for part in self._measured]) if self._measured else np.empty(0)

    def _check_call(
        self, model: Any, x_batch: np.ndarray, y_batch: np.ndarray, s_batch: np.ndarray | None
    ) -> dict[str, np.ndarray]:
        self._measured = []
        if "patched" in self.call.truth:
            return super()._check_call(model, x_batch, y_batch, s_batch)
        if self.patch is None:
            raise ValueError(
                "IIR needs one of arguments `patched` (images with their patches) and `patch` (how to make them): give "
                'it to the constructor, or the images with each call as custom_batch={"patched": ...}.'
            )
        init = to_array("init", self.patch.init)
        if init.ndim == 3:
            init = np.broadcast_to(init, (len(x_batch), *init.shape))
        check_same_shape("init", init, x_batch)
        self.patch.check(x_batch, init)
        return {"init": init} | super()._check_call(model, x_batch, y_batch, s_batch)

    def _progress(self, masks: np.ndarray) -> WholeProgress:
        """Return the progress of a call; nearly all of its time goes into patches, where there are some to make."""
        if self.patch is None or "patched" in self.call.truth:
            return super()._progress(masks)
        n_patches = int(masks.any((1, 2, 3)).sum())
        return patch_progress(n_patches, self.patch.steps, self._display_progressbar, len(masks))

    def _score(
        self,
        model: nn.Module,
        *,
        x_batch: np.ndarray,
        y_batch: np.ndarray,
        a_batch: np.ndarray,
        masks_batch: np.ndarray,
        labels_batch: np.ndarray,
        rows_batch: np.ndarray,
        patched_batch: np.ndarray | None = None,
        init_batch: np.ndarray | None = None,
        **kwargs: Any,
    ) -> np.ndarray:
        """Score some samples, with the patches given or made."""
        logits = self._predict(model, x_batch, rows_batch)
        if patched_batch is None:
            patched_batch = self._patches(model, x_batch, masks_batch, init_batch, rows_batch)
            logits_patched = self._predict(model, patched_batch)
        else:
            logits_patched = self._predict(model, patched_batch, rows_batch, self.call.truth["patched"])
        # A patch that has converged leaves the class as it was.
        effect = patch_effect(logits, logits_patched, self.tolerance)
        self._measure(x_batch, patched_batch, effect)
        usable = self._select_defined(
            masks_batch,
            {"the model misclassifies the image": effect.classes == labels_batch, UNCONVERGED: effect.converged},
        )
        after = self._attributed_again(model, patched_batch, y_batch, masks_batch)
        before = self._attribute_region(a_batch, masks_batch)
        if unattributed := int((usable & (before == 0).numpy()).sum()):
            self.fail(UNATTRIBUTED, unattributed)
        scores = perturbation(before, after) if self.average else iir(before, after, self.threshold)
        return np.where(usable, scores.numpy(), np.nan)

    def _patches(
        self, model: nn.Module, x_batch: np.ndarray, masks: np.ndarray, init: np.ndarray | None, rows: np.ndarray
    ) -> np.ndarray:
        """Return images with their patches, made once for several explanation methods inside `shared_passes`."""
        if self.patch is None:
            raise RuntimeError("There is no patch to make.")
        patch, made_now = self.patch, []

        def make() -> tuple[np.ndarray, np.ndarray]:
            made_now.append(True)
            patched = x_batch.astype(np.result_type(x_batch, np.float32))
            # An image without a mask has no patch, and a NaN for a score.
            marked = masks.reshape(len(masks), -1).any(1)
            if marked.any():
                objects = None if init is None else init[marked]
                result = patch.make(model, x_batch[marked], masks[marked], objects, whole=self._call_progress)
                # The model's precision may be another.
                patched[marked] = np.where(masks[marked], to_numpy(result.images.double()), patched[marked])
            return patched, masks

        # Masks may differ between calls with the same images; `init` belongs to `self.patch`.
        patched, masks_then = self.recall(("patches", patch), model, rows, make)
        if not np.array_equal(masks_then, masks):
            patched, _ = make()
        elif not made_now:
            self._advance(patch.steps * int(masks.any((1, 2, 3)).sum()))
        return patched

    def _measure(self, x_batch: np.ndarray, patched: np.ndarray, effect: PatchEffect) -> None:
        """Note how well the model overlooks the patches."""
        # One image at a time stays in the cache; a table of all in double precision would take longer than a forward.
        squares = (np.square(np.subtract(a, b, dtype=float)) for a, b in zip(patched, x_batch, strict=True))
        size = np.sqrt(np.concatenate([square.reshape(1, -1).sum(axis=1) for square in squares]))
        self._measured.append((effect.distance, size, effect.converged))


class PatchEffect(NamedTuple):
    """The effect of patches on a model's logits, by image."""

    #: Distance as a share of ||f(x)||, whether the model overlooks the patch, and the class without it; (n,) each.
    distance: np.ndarray
    converged: np.ndarray
    classes: np.ndarray


def patch_effect(logits: Tensor, patched: Tensor, tolerance: float) -> PatchEffect:
    """Return what patches change, from logits (n, K) without and with them, in one transfer from the device."""
    change = torch.linalg.vector_norm((patched - logits).double(), dim=1)
    share = change / torch.linalg.vector_norm(logits.double(), dim=1)
    on_host = to_host(share, logits.argmax(1), patched.argmax(1))
    distance, classes, patched_classes = (part.numpy() for part in on_host)
    return PatchEffect(distance, (classes == patched_classes) & (distance <= tolerance), classes)
