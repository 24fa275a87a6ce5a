"""`score_contrasts` and `score_relative`: MCS, IDR and IIR of many methods."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
import pandas as pd
import torch
from torch import Tensor, nn

from captum_concepts._support.checks import check_kind, check_range, check_shape, to_numpy
from quantus_concepts.functional import idr, iir, mcs, perturbation, random_masks, relative_contrast
from quantus_concepts.functional.relative import RelativeContrast
from quantus_concepts.metrics.contrast.idr import IDR
from quantus_concepts.metrics.contrast.iir import IIR, UNATTRIBUTED
from quantus_concepts.metrics.contrast.mcs import MCS
from quantus_concepts.metrics.contrast.pairs import (
    MISCLASSIFIED,
    UNDEFINED_MAP,
    Regions,
    left_out,
    patch_effect,
    score_pair,
    unusable_reasons,
)
from quantus_concepts.metrics.contrast.reexplaining import UNMARKED
from quantus_concepts.metrics.contrast.regions import (
    ExplainFunc,
    Masks,
    RegionAttributions,
    Subject,
    as_regions,
    attribute_regions,
    batches,
    take_rows,
)
from quantus_concepts.metrics.host.checks import unusable_masks
from quantus_concepts.metrics.host.metric import FAILED
from quantus_concepts.metrics.host.rows import score_row

#: Two subjects that are compared image by image.
Pair = tuple[Subject, Subject]
BASELINE, PERTURBATION = "MCS baseline", "perturbation"
#: Why a map that is as it should be leaves no score.
NOTHING = {"IIR": UNATTRIBUTED}
CHANCE = {"MCS": MCS.chance, "IDR": IDR.chance}
BOUNDS = {"MCS": MCS.bounds, BASELINE: MCS.bounds, "IDR": IDR.bounds, "IIR": IIR.bounds, PERTURBATION: (0.0, math.inf)}
COLUMNS = ["method", "metric", "value", "low", "high", "n", "undefined", "reason", "chance", "control", "unconverged"]


def score_contrasts(
    methods: Mapping[str, ExplainFunc],
    masks: Any,
    *,
    mcs: Pair | None = None,
    idr: Pair | None = None,
    iir: Pair | None = None,
    converged: Any = None,
    tolerance: float = 0.05,
    threshold: float = 0.1,
    seed: int = 0,
    batch_size: int = 64,
    per_image: bool = False,
    display_progressbar: bool = False,
) -> pd.DataFrame:
    """Score attribution methods by MCS, IDR and IIR, each explanation computed once.

    The numbers are those of the metrics `MCS`, `IDR` and `IIR`, which see one method at a time and explain the same
    images again for each metric. Here a `Subject` in two pairs is explained once: with MCS of models f_o
    and f_s on images x, IDR of f_s on x and on images without the object, and IIR of f_0, that is five sets of
    explanations for each method in place of six.

    Parameters
    ----------
    methods : dict
        From name to ``explain_func(model, inputs, targets)`` as Quantus takes it; `captum_concepts.explain_func` and
        `captum_concepts.build_method` make them, "random" and "Sobel edges" among them, as baselines.
    masks : array_like or callable
        (N, 1, H, W) or (N, H, W) of 0 and 1: the region in image 0, 1, ... of every subject; or a function from a list
        of n rows to (n, 1, H, W). An image whose mask is empty or full has no score.
    mcs : tuple of Subject, optional
        The model that needs the region, and the one that does not, on the same images.
    idr : tuple of Subject, optional
        A model on images with a feature it does not use, and the same model on the images without it.
    iir : tuple of Subject, optional
        A model on images, and the same model on the images with patches that it does not see.
    converged : array_like, optional
        (N,) of bool: which patches the model overlooks, as `optimise_patch` tells; if None it is seen from the logits.
    tolerance : float
        Largest logit distance of a patch, as a share of ||f(x)||, without `converged`.
    threshold : float
        The relative change that IIR counts, above 0.
    seed : int
        Random seed of the random places of the masks whose MCS is the baseline of each method.
    batch_size : int
        Images that are explained together.
    per_image : bool
        Whether to return the scores of images rather than their means.
    display_progressbar : bool
        Whether to show how many images are done.

    Returns
    -------
    DataFrame
        A row for each method and metric ("MCS", "MCS baseline", the same with masks at random places, "IDR", "IIR",
        "perturbation", the relative change itself, lower is better), with the columns of `summarise`: ``value``, mean
        of the ``n`` defined scores; ``low`` and ``high``, its 95 % interval over images; ``undefined`` scores and the
        ``reason``; ``chance``, the score of a random map; ``control``, for MCS that of the masks at random places.
        Also ``unconverged``, how many patches were left out. With `per_image` a row for each method, metric and
        ``image``, with its ``score`` and why it has none.

    Raises
    ------
    TypeError
        If a method cannot be called, a pair holds no Subjects, or an argument is of the wrong kind.
    ValueError
        If no pair is given, the subjects of a pair differ in number, IDR or IIR is requested for two models, there are
        fewer masks than images, all masks are empty or full, or a number is out of its range.
    """
    pairs = {name: pair for name, pair in (("MCS", mcs), ("IDR", idr), ("IIR", iir)) if pair is not None}
    _check_pairs(pairs)
    check_range("threshold", threshold, 0, math.inf, open_low=True)
    every = list(dict.fromkeys(subject for pair in pairs.values() for subject in pair))
    regions = as_regions("masks", masks, every)
    moved = dict.fromkeys(mcs, random_regions(regions, len(mcs[0]), seed)) if mcs is not None else {}
    show = display_progressbar
    attributions = attribute_regions(
        methods, every, regions, elsewhere=moved, batch_size=batch_size, display_progressbar=show
    )
    logits = {subject: subject.logits(batch_size) for subject in every}
    if iir is None:
        converged = np.empty(0, dtype=bool)
    elif converged is None:
        converged = patch_effect(logits[iir[0]], logits[iir[1]]).overlooked(tolerance)
    else:
        check_shape("converged", converged, ("N",), (len(iir[0]),))
    overlooked = to_numpy(converged).astype(bool)
    marked = marked_rows(regions, max(len(first) for first, _ in pairs.values()), batch_size)
    why = undefined_reasons(pairs, logits, overlooked, marked)
    scores = contrast_scores(attributions, pairs, why, threshold=threshold)
    return scores if per_image else contrast_table(scores, unconverged=int((~overlooked).sum()))


def marked_rows(masks: Masks, count: int, batch_size: int) -> np.ndarray:
    """Return (N,) of bool: which images have a region that is neither empty nor the whole image."""
    usable = [~unusable_masks(take_rows(masks, rows).numpy()) for rows in batches(count, batch_size)]
    return np.concatenate(usable) if usable else np.empty(0, dtype=bool)


def undefined_reasons(
    pairs: Mapping[str, Pair],
    logits: Mapping[Subject, Tensor],
    converged: np.ndarray,
    marked: np.ndarray,
) -> dict[str, np.ndarray]:
    """Return, by metric, (N,) of str: why an image has no score with any method; empty where it enters."""
    why = {}
    for metric, (first, second) in pairs.items():
        of_first, of_second, labels = logits[first], logits[second], first.labels.numpy()
        if metric == "MCS":
            conditions = MCS.conditions(of_first, labels, of_second, second.labels.numpy())
        elif metric == "IDR":
            conditions = IDR.conditions(of_first, labels, of_second)
        else:
            conditions = IIR.conditions(patch_effect(of_first, of_second), labels, converged)
        unmarked = np.where(marked[: len(labels)], "", UNMARKED).astype(object)
        why[metric] = left_out(unmarked, *conditions)
    return why


def contrast_scores(
    by_method: Mapping[str, RegionAttributions],
    pairs: Mapping[str, Pair],
    why: Mapping[str, np.ndarray],
    *,
    threshold: float = 0.1,
) -> pd.DataFrame:
    """Return a row for each method, metric and image from what methods attribute to the regions of pairs."""
    parts = []
    for method, attributions in by_method.items():
        for metric, pair in pairs.items():
            for name, inside, compare in _variants(metric, attributions, pair, threshold):
                first, second = (_regions(attributions, inside[subject]) for subject in pair)
                scores, reasons = score_pair(compare, first, second, why[metric], NOTHING.get(metric, ""))
                columns = {"method": method, "metric": name, "image": range(len(scores)), "score": scores}
                # Of several reasons the first one.
                parts.append(pd.DataFrame(columns | {"reason": [lines.partition("\n")[0] for lines in reasons]}))
    return pd.concat(parts, ignore_index=True)


def _regions(attributions: RegionAttributions, inside: Tensor) -> Regions:
    if attributions.failure:
        return Regions(inside, np.full(len(inside), FAILED + attributions.failure, dtype=object))
    return Regions(inside, unusable_reasons(inside.isnan()))


def _variants(
    metric: str, method: RegionAttributions, pair: Pair, threshold: float
) -> Iterator[tuple[str, Mapping[Subject, Tensor], Callable[[Tensor, Tensor], Tensor]]]:
    """Yield the names of the scores of a pair, what they compare, and how."""
    if metric == "MCS":
        yield "MCS", method.inside, mcs
        if pair[0] in method.elsewhere:
            yield BASELINE, method.elsewhere, mcs
    elif metric == "IDR":
        yield "IDR", method.inside, idr
    else:
        yield "IIR", method.inside, partial(iir, threshold=threshold)
        yield PERTURBATION, method.inside, perturbation


def contrast_table(scores: pd.DataFrame, unconverged: int = 0) -> pd.DataFrame:
    """Sum up scores of images: a row for each method and metric, with its interval."""
    rows = []
    for (method, metric), group in scores.groupby(["method", "metric"], sort=False):
        values = group["score"].to_numpy()
        counts = group.loc[group["score"].isna(), "reason"].value_counts(sort=False)
        row = score_row(values, BOUNDS[str(metric)], None, method=method, metric=metric) | {
            "reason": "; ".join(f"{reason} ({count})" for reason, count in counts.items()),
            "chance": CHANCE.get(str(metric), math.nan),
            "unconverged": unconverged if metric in ("IIR", PERTURBATION) else 0,
        }
        rows.append(row)
    table = pd.DataFrame(rows, columns=COLUMNS)
    baselines = table[table["metric"] == BASELINE].set_index("method")["value"]
    return table.assign(control=table["method"].map(baselines).where(table["metric"] == "MCS").astype(float))


def random_regions(masks: Masks, count: int, seed: int) -> Masks:
    """Return the regions moved to random places, each by its own draw: the baseline of MCS."""
    seeds = torch.randint(2**62, (count,), generator=torch.Generator().manual_seed(seed)).tolist()
    return partial(_move_masks, masks, seeds)


def _move_masks(masks: Masks, seeds: Sequence[int], rows: list[int]) -> Tensor:
    generators = (torch.Generator().manual_seed(seeds[row]) for row in rows)
    regions = take_rows(masks, rows)
    return torch.cat([random_masks(region[None], draw) for region, draw in zip(regions, generators, strict=True)])


def _check_pairs(pairs: Mapping[str, Pair]) -> None:
    if not pairs:
        raise ValueError("Expected at least one of arguments `mcs`, `idr` and `iir` but got none.")
    for metric, pair in pairs.items():
        name = metric.lower()
        if not isinstance(pair, tuple | list) or len(pair) != 2:
            raise TypeError(f"Expected argument `{name}` to be two Subjects but got {type(pair).__name__}.")
        first, second = pair
        for subject in pair:
            check_kind(name, subject, Subject, "two Subjects")
        if len(first) != len(second):
            raise ValueError(
                f"Expected the subjects of argument `{name}` to show the same images but they have {len(first)} and "
                f"{len(second)}."
            )
        if metric != "MCS" and first.model is not second.model:
            raise ValueError(f"Expected the subjects of argument `{name}` to be of one model but got two.")


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
        (N, 1, H, W) or (N, H, W) of 0 and 1: where the feature is; or a function from rows to (n, 1, H, W). An image
        whose mask is empty or full has no score.
    models : dict
        From k, in (0, 1], to the model trained with the feature in that share of the classes; at least two.
    images : array_like, callable or iterable
        (N, C, H, W) test images with the feature, a function from rows to them, or batches of them, as in `Subject`.
    without : array_like, callable or iterable
        The same images without it.
    labels : array_like
        (N,) of int: the classes to find and to explain.
    seed : int
        Random seed of the bootstrap.
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
    if len(models) < 2:
        raise ValueError(f"Expected argument `models` to hold at least two models but got {len(models)}.")
    for k in models:
        check_range("models", k, 0, 1, open_low=True)
    subjects = {k: Subject(models[k], images, labels) for k in sorted(models)}
    bare = {k: Subject(models[k], without, labels) for k in subjects}
    right = right_by_commonality(subjects, bare, batch_size)
    count = len(next(iter(subjects.values())))
    regions = as_regions("masks", masks, subjects.values())
    attributions = attribute_regions(
        methods, subjects.values(), regions, batch_size=batch_size, display_progressbar=display_progressbar
    )
    marked = marked_rows(regions, count, batch_size)
    scores = relative_table(attributions, subjects, right, seed, marked)
    return pd.concat([scores, accuracy_table(right, list(subjects))])


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
    with_, without = (correct.double().mean(1).numpy() for correct in right)
    parts = [(WITH, with_), (WITHOUT, without), (DROP, with_ - without)]
    tables = [pd.DataFrame({"method": "", "metric": metric, "k": levels, "value": value}) for metric, value in parts]
    return pd.concat(tables, ignore_index=True).assign(n=right[0].shape[1], reason="").reindex(columns=RELATIVE_COLUMNS)


def relative_table(
    by_method: Mapping[str, RegionAttributions],
    subjects: Mapping[float, Subject],
    right: tuple[Tensor, Tensor],
    seed: int,
    marked: np.ndarray,
) -> pd.DataFrame:
    """Return the curve of each method and its correlation with the accuracy drop."""
    *levels, last = subjects
    right_with, right_without = right
    usable = torch.from_numpy(marked)
    rows: list[dict[str, Any]] = []
    for method, attributions in by_method.items():
        inside = [mcs(attributions.inside[subjects[k]], attributions.inside[subjects[last]]) for k in levels]
        scores = torch.stack(inside).masked_fill(~(right_with[:-1] & right_with[-1] & usable), torch.nan)
        result = relative_contrast(scores, right_with[:-1], right_without[:-1], seed=seed)
        defined = ~scores.isnan()
        # An image is what the bootstrap of the correlation draws.
        counts = [*defined.sum(1).tolist(), int(defined.any(0).sum())]
        reasons = [*_reasons(scores, right_with, usable, attributions.failure), _no_correlation(result, levels)]
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


def _reasons(scores: Tensor, right: Tensor, usable: Tensor, failure: str) -> list[str]:
    """Return for each row of scores (R, N) why some are NaN, and how many."""
    parts = []
    other = f"the explanation method failed: {failure}" if failure else UNDEFINED_MAP
    for row, correct in zip(scores, right, strict=False):
        entering = usable & correct
        counts = {
            UNMARKED: int((~usable).sum()),
            MISCLASSIFIED: int((usable & ~correct).sum()),
            "the model of the largest k misclassifies the image": int((entering & ~right[-1]).sum()),
            other: int((row.isnan() & entering & right[-1]).sum()),
        }
        parts.append("; ".join(f"{reason} ({count})" for reason, count in counts.items() if count))
    return parts


def _no_correlation(result: RelativeContrast, levels: list[float]) -> str:
    """Return why there is no correlation; empty where there is one."""
    curve, drop = result.score.value, result.drop.value
    if not result.correlation.value.isnan():
        return ""
    if len(levels) < 2:
        return "a correlation needs two k besides the largest"
    if missing := [f"{k:g}" for k, value in zip(levels, curve.tolist(), strict=True) if math.isnan(value)]:
        return f"no image has a score at k = {', '.join(missing)}"
    return f"the {'accuracy drop' if drop.std() <= curve.std() else RELATIVE} is the same at every k"
