"""`score_contrasts` and `score_relative`: MCS, IDR and IIR of many methods."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
import pandas as pd
import torch
from torch import Tensor, nn

from captum_concepts.support.checks import check_kind, check_range, check_shape, to_numpy, unusable_masks
from quantus_concepts import functional
from quantus_concepts.functional.arguments import Numbers
from quantus_concepts.functional.attribution.relative import RelativeContrast
from quantus_concepts.metrics.contrast.idr import IDR
from quantus_concepts.metrics.contrast.iir import IIR, UNATTRIBUTED
from quantus_concepts.metrics.contrast.mcs import MCS
from quantus_concepts.metrics.contrast.pairs import (
    Regions,
    exclusion_reasons,
    patch_effect,
    score_pair,
    unusable_reasons,
)
from quantus_concepts.metrics.contrast.reexplaining import UNMARKED
from quantus_concepts.metrics.contrast.regions import (
    Explainer,
    ImageSource,
    Masks,
    MaskSource,
    RegionAttributions,
    Subject,
    as_regions,
    attribute_regions,
    batches,
    check_methods,
    take_rows,
)
from quantus_concepts.metrics.host.explanations import FAILED
from quantus_concepts.metrics.host.scores import score_row

#: Two subjects that are compared image by image.
Pair = tuple[Subject, Subject]
BASELINE, PERTURBATION = "MCS baseline", "perturbation"
CHANCE = {"MCS": MCS.chance, "IDR": IDR.chance}
BOUNDS = {"MCS": MCS.bounds, BASELINE: MCS.bounds, "IDR": IDR.bounds, "IIR": IIR.bounds, PERTURBATION: (0.0, math.inf)}
CONTRAST_COLUMNS = [
    "method",
    "metric",
    "value",
    "low",
    "high",
    "n",
    "undefined",
    "reason",
    "chance",
    "control",
    "unconverged",
]


def score_contrasts(
    methods: Mapping[str, Explainer],
    masks: MaskSource,
    *,
    mcs: Pair | None = None,
    idr: Pair | None = None,
    iir: Pair | None = None,
    converged: Numbers | None = None,
    tolerance: float = 0.05,
    threshold: float = 0.1,
    seed: int = 0,
    batch_size: int = 64,
    normalise: bool = True,
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
    normalise : bool
        Whether each map is scaled by itself, as by default in `MCS`; without it maps count as they come, as printed in
        the paper (`MCS.as_printed`).
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
        ``image``, with its class ``label``, its ``score`` and why it has none: what `quantus_concepts.compare` reads.

    Raises
    ------
    TypeError
        If a method cannot be called, a pair holds no Subjects, or an argument is of the wrong kind.
    ValueError
        If no pair is given, the subjects of a pair differ in number, IDR or IIR is requested for two models, there are
        fewer masks than images, all masks are empty or full, or a number is out of its range.
    """
    pairs = {name: pair for name, pair in (("MCS", mcs), ("IDR", idr), ("IIR", iir)) if pair is not None}
    check_methods(methods)
    _check_pairs(pairs)
    check_range("threshold", threshold, 0, math.inf, open_low=True)
    every = list(dict.fromkeys(subject for pair in pairs.values() for subject in pair))
    regions = as_regions("masks", masks, every)
    moved = dict.fromkeys(mcs, random_regions(regions, len(mcs[0]), seed)) if mcs is not None else {}
    settings: dict[str, Any] = {"batch_size": batch_size, "display_progressbar": display_progressbar}
    settings["normalise"] = normalise
    by_method = attribute_regions(methods, every, regions, elsewhere=moved, **settings)
    logits = {subject: subject.logits(batch_size) for subject in every}
    overlooked = np.empty(0, dtype=bool)
    why = {}
    for metric, pair in pairs.items():
        labels, answers = pair[0].labels.numpy(), (logits[pair[0]], logits[pair[1]])
        if metric == "MCS":
            conditions = MCS.conditions(*answers, labels, pair[1].labels.numpy())
        elif metric == "IDR":
            conditions = IDR.conditions(*answers, labels)
        else:
            effect = patch_effect(*answers)
            overlooked = effect.overlooked(tolerance) if converged is None else to_numpy(converged).astype(bool)
            check_shape("converged", overlooked, ("N",), (len(labels),))
            conditions = IIR.conditions(effect, labels, overlooked)
        why[metric] = exclusion_reasons(unmarked_rows(regions, len(labels), batch_size), *conditions)
    # The class, what its second score is called, of which masks and how, and why a good map may leave no score.
    compared: dict[str, dict[str, tuple[str, Callable[[Tensor, Tensor], Tensor], str]]] = {
        "MCS": {"MCS": ("inside", functional.mcs, ""), BASELINE: ("elsewhere", functional.mcs, "")},
        "IDR": {"IDR": ("inside", functional.idr, "")},
        "IIR": {
            "IIR": ("inside", partial(functional.iir, threshold=threshold), UNATTRIBUTED),
            PERTURBATION: ("inside", functional.perturbation, UNATTRIBUTED),
        },
    }
    parts = []
    for method, result in by_method.items():
        for metric, pair in pairs.items():
            for name, (where, compare, unattributed) in compared[metric].items():
                first, second = (_regions(result, getattr(result, where)[subject]) for subject in pair)
                scores, reasons = score_pair(compare, first, second, why[metric], unattributed)
                images = {"image": range(len(scores)), "label": pair[0].labels.numpy()}
                columns = {"method": method, "metric": name, **images, "score": scores}
                parts.append(pd.DataFrame(columns | {"reason": first_reasons(reasons)}))
    table = pd.concat(parts, ignore_index=True)
    unconverged = int((~overlooked).sum())
    return table if per_image else contrast_table(table, unconverged, normalise=normalise)


def _regions(attributions: RegionAttributions, inside: Tensor) -> Regions:
    if attributions.failure:
        return Regions(inside, np.full(len(inside), FAILED + attributions.failure, dtype=object))
    return Regions(inside, unusable_reasons(inside.isnan()))


def unmarked_rows(masks: Masks, count: int, batch_size: int) -> np.ndarray:
    """Return (N,) of str: why the region of an image is none, "" where it is one."""
    bad = [unusable_masks(take_rows(masks, rows).numpy()) for rows in batches(count, batch_size)]
    return np.where(np.concatenate(bad), UNMARKED, "").astype(object)


def first_reasons(why: np.ndarray) -> list[str]:
    """Return the first reason of each score."""
    return [reasons.partition("\n")[0] for reasons in why]


def contrast_reasons(reasons: Sequence[str]) -> str:
    """Write how many scores have which reason."""
    counts = pd.Series([reason for reason in reasons if reason], dtype=object).value_counts(sort=False)
    return "; ".join(f"{reason} ({count})" for reason, count in counts.items())


def contrast_table(scores: pd.DataFrame, unconverged: int = 0, *, normalise: bool = True) -> pd.DataFrame:
    """Sum up scores of images: a row for each method and metric, with its interval; raw maps bound no contrast."""
    contrasts = {} if normalise else dict.fromkeys(("MCS", BASELINE), (-math.inf, math.inf))
    bounds = BOUNDS | contrasts
    rows = []
    for (method, metric), group in scores.groupby(["method", "metric"], sort=False):
        values = group["score"].to_numpy()
        row = score_row(values, bounds[str(metric)], None, method=method, metric=metric) | {
            "reason": contrast_reasons(group["reason"]),
            "chance": CHANCE.get(str(metric), math.nan),
            "unconverged": unconverged if metric in ("IIR", PERTURBATION) else 0,
        }
        rows.append(row)
    table = pd.DataFrame(rows, columns=CONTRAST_COLUMNS)
    baselines = table[table["metric"] == BASELINE].set_index("method")["value"]
    return table.assign(control=table["method"].map(baselines).where(table["metric"] == "MCS").astype(float))


def random_regions(masks: Masks, count: int, seed: int) -> Masks:
    """Return the regions moved to random places, each by its own draw: the baseline of MCS."""
    seeds = torch.randint(2**62, (count,), generator=torch.Generator().manual_seed(seed)).tolist()
    return partial(_move_masks, masks, seeds)


def _move_masks(masks: Masks, seeds: Sequence[int], rows: list[int]) -> Tensor:
    generators = (torch.Generator().manual_seed(seeds[row]) for row in rows)
    pairs = zip(take_rows(masks, rows), generators, strict=True)
    return torch.cat([functional.random_masks(region[None], draw) for region, draw in pairs])


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


def score_relative(
    methods: Mapping[str, Explainer],
    masks: MaskSource,
    models: Mapping[float, nn.Module],
    images: ImageSource,
    without: ImageSource,
    labels: Numbers,
    *,
    seed: int = 0,
    batch_size: int = 64,
    normalise: bool = True,
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
    normalise : bool
        Whether each map is scaled by itself, as by default in `MCS`; without it maps count as they come, as printed in
        the paper (`MCS.as_printed`).
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
    regions = as_regions("masks", masks, subjects.values())
    settings: dict[str, Any] = {"batch_size": batch_size, "display_progressbar": display_progressbar}
    settings["normalise"] = normalise
    by_method = attribute_regions(methods, subjects.values(), regions, **settings)
    *levels, last = subjects
    logits = {k: subject.logits(batch_size) for k, subject in subjects.items()}
    truth = subjects[last].labels
    right = torch.stack([answers.argmax(1) == truth for answers in logits.values()])
    right_without = torch.stack([Subject(models[k], without, labels).correct(batch_size) for k in subjects])
    unmarked, classes = unmarked_rows(regions, len(truth), batch_size), truth.numpy()
    why = [exclusion_reasons(unmarked, *MCS.conditions(logits[k], logits[last], classes, classes)) for k in levels]
    rows: list[list[Any]] = []
    for method, result in by_method.items():
        inside = {k: _regions(result, result.inside[subjects[k]]) for k in subjects}
        of_levels = [
            score_pair(functional.mcs, inside[k], inside[last], reasons) for k, reasons in zip(levels, why, strict=True)
        ]
        scores = torch.from_numpy(np.stack([scores for scores, _ in of_levels]))
        contrast = functional.relative_contrast(scores, right[:-1], right_without[:-1], seed=seed)
        defined = ~scores.isnan()
        # An image is what the bootstrap of the correlation draws.
        counts = [*defined.sum(1).tolist(), int(defined.any(0).sum())]
        reasons = [*(contrast_reasons(first_reasons(why)) for _, why in of_levels), _no_correlation(contrast, levels)]
        numbers = np.concatenate([torch.stack(list(contrast.score)), np.array([contrast.correlation]).T], axis=1)
        names = [RELATIVE] * len(levels) + [CORRELATION]
        for *row, n, reason in zip(names, [*levels, math.nan], *numbers.tolist(), counts, reasons, strict=True):
            rows.append([method, *row, n, len(truth) - n, reason])
    accuracy, bare = (correct.double().mean(1).tolist() for correct in (right, right_without))
    drop = (right.double().mean(1) - right_without.double().mean(1)).tolist()
    for name, values in (("accuracy with", accuracy), ("accuracy without", bare), ("accuracy drop", drop)):
        for k, value in zip(subjects, values, strict=True):
            rows.append(["", name, k, value, math.nan, math.nan, len(truth), math.nan, ""])
    columns = ["method", "metric", "k", "value", "low", "high", "n", "undefined", "reason"]
    return pd.DataFrame(rows, columns=columns)


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
