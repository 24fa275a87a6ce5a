"""Whether a model ignores the common feature, found out on images."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Protocol, Self

import numpy as np
import torch
from torch import Tensor, nn

from captum_concepts.checks import check_choice, check_finite, check_range, check_shape
from captum_concepts.progress import progress
from captum_concepts.running import evaluation_mode, tensor_output, to_model
from quantus_concepts.studies.attribution.premises import Limits, PremiseCheck
from quantus_concepts.studies.attribution.samples import TARGETS, ComposedImages, Target

BATCH_SIZE = 128


class ViewedImages(ComposedImages, Protocol):
    """Images of objects on scenes of which there are three views, `ObjectsOnScenes` for instance."""

    def with_view(self, view: str, /) -> Self:
        """Return the same images in the view "os", "og" or "0s"."""


def check_model(
    model: nn.Module,
    name: str,
    data: ViewedImages,
    target: Target,
    *,
    limits: Limits | None = None,
    batch_size: int = BATCH_SIZE,
    display_progressbar: bool = False,
) -> PremiseCheck:
    """Verify that a model trained on one label of X_os ignores the other."""
    views = {view: data.with_view(view) for view in ("os", "og", "0s")}
    check_choice("target", target, TARGETS)
    labels = views["os"].object_labels if target == "object" else views["os"].scene_labels
    removed, alone = ("og", "0s") if target == "object" else ("0s", "og")
    return check_premise(
        model,
        name,
        "scene" if target == "object" else "object",
        views["os"],
        views[removed],
        views[alone],
        labels,
        limits=limits,
        batch_size=batch_size,
        display_progressbar=display_progressbar,
    )


def check_premise(
    model: nn.Module,
    name: str,
    feature: str,
    with_feature: ComposedImages,
    without_feature: ComposedImages,
    only_feature: ComposedImages,
    labels: Tensor,
    *,
    limits: Limits | None = None,
    batch_size: int = BATCH_SIZE,
    display_progressbar: bool = False,
) -> PremiseCheck:
    """Verify that a model ignores a feature."""
    # The model is run in eval mode on its own device and is left as it was. Divergences are computed in float64.
    n = len(with_feature)
    labels = _check_labels(labels, n)
    for argument, data in (("without_feature", without_feature), ("only_feature", only_feature)):
        _check_aligned(argument, data, n)
    predicted = np.empty((3, n), dtype=np.int64)
    divergence = np.empty(n)
    chance = math.nan
    with evaluation_mode(model):
        for rows in _rows(n, batch_size, f"premises of {name}", display_progressbar):
            here = slice(rows[0], rows[-1] + 1)
            logits = [_logits(model, name, data, rows) for data in (with_feature, without_feature, only_feature)]
            chance = 1 / logits[0].shape[1]
            _check_classes(labels[here], logits[0].shape[1])
            predicted[:, here] = torch.stack(logits).argmax(2).numpy()
            first, second = (scores.log_softmax(1) for scores in logits[:2])
            divergence[here] = (first.exp() * (first - second)).sum(1).clamp(min=0).numpy()
    truth = labels.numpy()
    correct = predicted[0] == truth
    same = predicted[0] == predicted[1]
    return PremiseCheck(
        model=name,
        feature=feature,
        accuracy_with=_share(correct),
        accuracy_without=_share(predicted[1] == truth),
        accuracy_only=_share(predicted[2] == truth),
        remains_correct=_share(predicted[1][correct] == truth[correct]),
        median_kl_same=_median(divergence[same]),
        median_kl_changed=_median(divergence[~same]),
        chance=chance,
        n=n,
        limits=Limits() if limits is None else limits,
    )


def _rows(n: int, batch_size: int, description: str, display_progressbar: bool) -> Iterator[list[int]]:
    check_range("batch_size", batch_size, 1, 1_000_000)
    with progress(description=description, total=n, unit="image", show=display_progressbar) as bar:
        for start in range(0, n, batch_size):
            rows = list(range(start, min(start + batch_size, n)))
            yield rows
            bar.update(len(rows))


def _logits(model: nn.Module, name: str, data: ComposedImages, rows: list[int]) -> Tensor:
    """Return logits (n, K) in float64 on the CPU."""
    with torch.no_grad():
        logits = tensor_output(model(to_model(model, data.images(rows)) / 255), name)
    if logits.ndim != 2 or len(logits) != len(rows) or logits.shape[1] < 2:
        got = tuple(logits.shape)
        raise ValueError(f"Expected the model {name} to return logits (B, K) = ({len(rows)}, K) but got {got}.")
    scores = logits.cpu().double()
    check_finite(f"logits of {name}", scores)
    return scores


def _check_labels(labels: Tensor, n: int) -> Tensor:
    labels = torch.as_tensor(labels).cpu()
    check_shape("labels", labels, ("N",), (n,))
    if n == 0:
        raise ValueError("Expected at least one image but the data set is empty.")
    if labels.is_floating_point() or labels.dtype == torch.bool:
        raise TypeError(f"Expected argument `labels` to hold classes of int64 but got {labels.dtype}.")
    if (labels < 0).any():
        raise ValueError(
            f"Expected argument `labels` to hold classes from 0 but {int((labels < 0).sum())} of {n} are negative. "
            "Every image needs an object."
        )
    return labels.long()


def _check_classes(labels: Tensor, n_classes: int) -> None:
    wrong = labels[labels >= n_classes]
    if len(wrong):
        raise ValueError(
            f"Expected argument `labels` to lie in [0, {n_classes - 1}], the classes of the model, but got "
            f"{int(wrong[0])}."
        )


def _check_aligned(argument: str, data: ComposedImages, n: int) -> None:
    if len(data) != n:
        raise ValueError(
            f"Expected argument `{argument}` to hold N = {n} images, as those with the feature, but got {len(data)}."
        )


def _share(right: np.ndarray) -> float:
    return float(right.mean()) if right.size else math.nan


def _median(values: np.ndarray) -> float:
    return float(np.median(values)) if values.size else math.nan
