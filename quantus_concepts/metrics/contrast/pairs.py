"""Two explanations of an image compared: what the classes MCS, IDR and IIR, and the tables of many methods, share."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from captum_concepts.support.running import to_host
from quantus_concepts.functional import concept_attribution
from quantus_concepts.functional.attribution.normalisation import finite_rows
from quantus_concepts.metrics.host.explanations import FAILED, add_reason, no_reasons

MISCLASSIFIED = "the model misclassifies the image"
UNDEFINED_MAP = "attributions hold NaN or infinity"


class Regions(NamedTuple):
    """What explanations give to the regions of images: g_c (n,) of float64, why some are NaN, and why all are."""

    inside: Tensor
    reason: np.ndarray
    failure: str = ""


def attribute_region(a_batch: np.ndarray, failure: str, masks: Tensor, side: str = "") -> Regions:
    """Average maps (n, H, W) or (n, C, H, W), already normalised, over masks (n, 1, H, W)."""
    maps = a_batch[:, None] if a_batch.ndim == 3 else a_batch
    size = tuple(masks.shape[2:])
    if not failure and (maps.ndim != 4 or maps.shape[2:] != size):
        expected = (maps.shape[1] if maps.ndim == 4 else 1, *size)
        failure = (
            f"a sample's attributions have shape {maps.shape[1:]}, expected a map (C, H, W) of the images' size = "
            f"{expected}"
        )
    if failure:
        nan = torch.full((len(maps),), torch.nan, dtype=torch.float64)
        return Regions(nan, np.full(len(maps), FAILED + side + failure, dtype=object), failure)
    # A copy only where torch needs one: of arrays that cannot be written, for instance.
    tensor = torch.as_tensor(np.require(maps, requirements=("C", "W")))
    # In float64, so that differences are not rounded.
    inside = concept_attribution(tensor, masks).double()
    return Regions(inside, unusable_reasons(~finite_rows(tensor), side))


def unusable_reasons(broken: Tensor, side: str = "") -> np.ndarray:
    """Return the reasons (n,) of maps of which some hold NaN or infinity."""
    return add_reason(no_reasons(len(broken)), broken.numpy(), FAILED + side + UNDEFINED_MAP)


def predicted_classes(*outputs: Tensor) -> list[np.ndarray]:
    """Return the predicted classes (n,) of several outputs (n, K), in one transfer from their device."""
    return [classes.numpy() for classes in to_host(*(logits.argmax(1) for logits in outputs))]


class PatchEffect(NamedTuple):
    """The effect of patches on a model's logits, by image."""

    #: Distance as a share of ||f(x)||, the class without the patch, and whether it is the same with it; (n,) each.
    distance: np.ndarray
    classes: np.ndarray
    same_class: np.ndarray

    def overlooked(self, tolerance: float) -> np.ndarray:
        """Return (n,) of bool: whether the model does not see the patch."""
        return self.same_class & (self.distance <= tolerance)


def patch_effect(logits: Tensor, patched: Tensor) -> PatchEffect:
    """Return what patches change, from logits (n, K) without and with them, in one transfer from the device."""
    # On the host in float64, which not every device has.
    logits, patched = to_host(logits, patched)
    change = torch.linalg.vector_norm((patched - logits).double(), dim=1)
    distance = change / torch.linalg.vector_norm(logits.double(), dim=1)
    classes, patched_classes = logits.argmax(1).numpy(), patched.argmax(1).numpy()
    return PatchEffect(distance.numpy(), classes, classes == patched_classes)


def exclusion_reasons(unmarked: np.ndarray, *conditions: tuple[str, np.ndarray]) -> np.ndarray:
    """Return (n,) of str: why an image has no score with any method, the first condition that it does not meet."""
    why = unmarked.copy()
    for reason, met in conditions:
        why[(why == "") & ~met] = reason
    return why


def score_pair(
    compare: Callable[[Tensor, Tensor], Tensor],
    first: Regions,
    second: Regions,
    why: np.ndarray,
    unattributed: str = "",
) -> tuple[np.ndarray, np.ndarray]:
    """Return scores (n,) of two explanations of each image, NaN where it is left out, and the reasons.

    `unattributed` is the reason where the first explanation gives the region nothing, if that leaves no score.
    """
    scores = np.where(why == "", compare(first.inside, second.inside).numpy(), np.nan)
    nothing = (why == "") & (first.inside == 0).numpy()
    reasons = [first.reason, second.reason, np.where(nothing & bool(unattributed), FAILED + unattributed, "")]
    for further in reasons:
        for reason in set(further[further != ""]):
            why = add_reason(why, further == reason, reason)
    return scores, why
