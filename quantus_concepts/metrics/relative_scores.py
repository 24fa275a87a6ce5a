"""Relative MCS of many methods: does a map follow how much a feature matters?"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd
import torch
from torch import Tensor, nn

from captum_concepts.checks import check_mapping, check_module, check_range, check_seed, check_whole, to_array
from quantus_concepts.functional import mcs, relative_contrast
from quantus_concepts.functional.relative import RelativeContrast
from quantus_concepts.metrics.contrast_scores import UNMARKED
from quantus_concepts.metrics.region_attributions import (
    ExplainFunc,
    RegionAttributions,
    attribute_regions,
    check_methods,
)
from quantus_concepts.metrics.subjects import Subject, gives_batches

RELATIVE, CORRELATION = "relative MCS", "correlation"
WITH, WITHOUT, DROP = "accuracy with", "accuracy without", "accuracy drop"
RELATIVE_COLUMNS = ["method", "metric", "k", "value", "low", "high", "n", "undefined", "reason"]


def score_relative(
    methods: Mapping[str, ExplainFunc],
    masks: Any,
    models: Mapping[float, nn.Module],
    images: Any,
    without: Any,
    labels: Any,
    *,
    seed: int = 0,
    batch_size: int = 64,
    display_progressbar: bool = False,
) -> pd.DataFrame:
    """Score attribution methods by relative MCS over the commonality of a feature.

    Yang and Kim (2019), "BIM", Section 5.1 and Figure 7: models are trained with a feature in a share k of the
    classes. The more common it is, the less it tells; the contrast of model k with the model of the largest k should
    fall with what removing the feature costs. Each model explains each image once.

    Parameters
    ----------
    methods : dict
        From name to ``explain_func(model, inputs, targets)``, as in `score_contrasts`.
    masks : array_like or callable
        (N, 1, H, W) or (N, H, W) of 0 and 1: where the feature is; or a function from rows to (n, 1, H, W).
    models : dict
        From k, in (0, 1], to the model trained with the feature in that share of the classes; at least two.
    images : array_like, callable or iterable
        (N, C, H, W) test images with the feature, a function from rows to them, or batches of them, as in `Subject`.
    without : array_like, callable or iterable
        The same images without it.
    labels : array_like
        (N,) of int: the classes to find and to explain.
    seed : int
        Of the bootstrap.
    batch_size : int
        Images that are explained together.
    display_progressbar : bool
        Whether to show how many images are done.

    Returns
    -------
    DataFrame
        For each method a row for each k but the largest ("relative MCS") and one of Pearson's "correlation" with the
        accuracy drop, ``low`` and ``high`` ends of 95 % bootstrap intervals over images, ``n`` defined scores,
        ``undefined`` ones, and the ``reason`` of these, or why there is no correlation. With an empty ``method``, for
        each k, "accuracy with", "accuracy without" the feature and their difference, "accuracy drop".

    Raises
    ------
    TypeError
        If a method cannot be called, or an argument is of the wrong kind.
    ValueError
        If there are fewer than two models or a k is not in (0, 1], there is no method, or shapes differ.
    """
    check_seed(seed)
    check_whole("batch_size", batch_size, 1)
    if len(check_mapping("models", models)) < 2:
        raise ValueError(f"Expected argument `models` to hold at least two models but got {len(models)}.")
    check_methods(methods)
    if not methods:
        raise ValueError("Expected argument `methods` to hold at least one explanation function but it is empty.")
    for k, model in models.items():
        check_range("models", k, 0, 1, open_low=True)
        check_module("models", model)
    streamed = [
        callable(each) or gives_batches(name, each) for name, each in (("without", without), ("images", images))
    ]
    if not any(streamed) and np.shape(to_array("without", without)) != np.shape(images):
        raise ValueError(
            f"Expected argument `without` to have the shape of `images`, {np.shape(images)}, but got "
            f"{np.shape(without)}."
        )
    subjects = {k: Subject(models[k], images, labels) for k in sorted(models)}
    bare = {k: Subject(models[k], without, labels) for k in subjects}
    right = right_by_commonality(subjects, bare, batch_size)
    found = attribute_regions(
        methods, subjects.values(), masks, batch_size=batch_size, display_progressbar=display_progressbar
    )
    return pd.concat([relative_table(found, subjects, right, seed), accuracy_table(right, list(subjects))])


def right_by_commonality(
    subjects: Mapping[float, Subject], bare: Mapping[float, Subject], batch_size: int
) -> tuple[Tensor, Tensor]:
    """Return (R, N) of bool, with the feature and without it: which images each model classifies correctly."""
    with_, without = (
        torch.stack([subject.correct(batch_size) for subject in group.values()]) for group in (subjects, bare)
    )
    return with_, without


def accuracy_table(right: tuple[Tensor, Tensor], levels: list[float]) -> pd.DataFrame:
    """Return accuracy with and without the feature and their difference, by commonality."""
    with_, without = (found.double().mean(1).numpy() for found in right)
    parts = [(WITH, with_), (WITHOUT, without), (DROP, with_ - without)]
    tables = [pd.DataFrame({"method": "", "metric": metric, "k": levels, "value": value}) for metric, value in parts]
    return pd.concat(tables, ignore_index=True).assign(n=right[0].shape[1], reason="").reindex(columns=RELATIVE_COLUMNS)


def relative_table(
    found: Mapping[str, RegionAttributions], subjects: Mapping[float, Subject], right: tuple[Tensor, Tensor], seed: int
) -> pd.DataFrame:
    """Return the curve of each method and its correlation with the accuracy drop."""
    *levels, last = subjects
    right_with, right_without = right
    rows: list[dict[str, Any]] = []
    for method, each in found.items():
        inside = [mcs(each.inside[subjects[k]], each.inside[subjects[last]]) for k in levels]
        scores = torch.stack(inside).masked_fill(~(right_with[:-1] & right_with[-1]), torch.nan)
        result = relative_contrast(scores, right_with[:-1], right_without[:-1], seed=seed)
        defined = ~scores.isnan()
        # An image is what the bootstrap of the correlation draws.
        counts = [*defined.sum(1).tolist(), int(defined.any(0).sum())]
        reasons = [*_reasons(scores, right_with, each.failure), _no_correlation(result, levels)]
        numbers = np.concatenate([torch.stack(list(result.score)).numpy(), np.array([result.correlation]).T], axis=1)
        rows += [
            {
                "method": method,
                "metric": CORRELATION if math.isnan(k) else RELATIVE,
                "k": k,
                "value": value,
                "low": low,
                "high": high,
                "n": n,
                "undefined": scores.shape[1] - n,
                "reason": reason,
            }
            for k, value, low, high, n, reason in zip(
                [*levels, math.nan], *numbers.tolist(), counts, reasons, strict=True
            )
        ]
    return pd.DataFrame(rows, columns=RELATIVE_COLUMNS)


def _reasons(scores: Tensor, right: Tensor, failure: str) -> list[str]:
    """Return for each row of scores (R, N) why some are NaN, and how many."""
    told = []
    other = f"the explanation method failed: {failure}" if failure else UNMARKED
    for row, own in zip(scores, right, strict=False):
        counts = {
            "the model misclassifies the image": int((~own).sum()),
            "the model of the largest k misclassifies the image": int((own & ~right[-1]).sum()),
            other: int((row.isnan() & own & right[-1]).sum()),
        }
        told.append("; ".join(f"{reason} ({count})" for reason, count in counts.items() if count))
    return told


def _no_correlation(result: RelativeContrast, levels: list[float]) -> str:
    """Return why there is no correlation; empty where there is one."""
    curve, drop = result.score.value, result.drop.value
    if not result.correlation.value.isnan():
        return ""
    if len(levels) < 2:
        return "a correlation needs two k beside the largest"
    if missing := [f"{k:g}" for k, value in zip(levels, curve.tolist(), strict=True) if math.isnan(value)]:
        return f"no image has a score at k = {', '.join(missing)}"
    return f"the {'accuracy drop' if drop.std() <= curve.std() else RELATIVE} is the same at every k"
