"""`score_concepts`, also by ranges: all metrics of concept models of a data set in one table."""

from __future__ import annotations

import itertools
import math
import warnings
from collections.abc import Iterable, Mapping, Sequence, Sized
from functools import cache
from typing import Any

import numpy as np
import pandas as pd

from captum_concepts.support.checks import check_range, check_shape, check_whole, to_points, to_presence
from quantus_concepts.functional.arguments import Numbers
from quantus_concepts.metrics.concepts.cgim import CGIM
from quantus_concepts.metrics.host.alignment import TruthLookup
from quantus_concepts.metrics.host.checks import (
    check_parts,
    to_class_concepts,
    to_classes,
    to_numbers,
    to_parts,
)
from quantus_concepts.metrics.host.model import (
    RANDOM_BANKS,
    ConceptModel,
    Controls,
    check_concept_models,
    check_controls,
    models_of_random_banks,
)
from quantus_concepts.metrics.host.observing import Known
from quantus_concepts.metrics.streaming.choice import Metrics, chosen_metrics, refusing_moved
from quantus_concepts.metrics.streaming.engine import Watched, watch
from quantus_concepts.metrics.streaming.loader import (
    ConceptBatches,
    EarlierPoints,
    points_lookup,
    whole_data,
)
from quantus_concepts.metrics.streaming.state import ConceptState
from quantus_concepts.metrics.streaming.table import concept_table, direction_rows, score_table, without_cgim_range

#: On how many images each random bank of a model is scored for CLM.
RANDOM_MAPS = 200
#: A value at or above which a concept is present: of all models, or by name.
Thresholds = float | Mapping[str, float | None] | None
#: How truth of samples is checked that several metrics read.
CHECKS = {
    **{"labels": to_classes, "concept_labels": to_presence, "points": to_points},
    **{"added": to_numbers, "removed": to_numbers, "pairs": to_classes},
}
#: What is said of CGIM whose truth fitted the directions.
SEEN_TRUTH = (
    "`class_concepts` are the shares of the images that the model's directions were fitted to: directions of noise are "
    "above random banks then, in 83 to 93 % of runs, so CGIM has no range here. Pass the shares of other images, or "
    "people's table of the classes."
)
#: Truth that is not about samples.
ABOUT_ALL = ("part_of_concept", "training_concepts", "concept_names", "class_names")


@refusing_moved
def score_concepts(
    model: ConceptModel | Mapping[str, ConceptModel],
    loader: Iterable[object],
    metrics: Metrics = None,
    *,
    class_concepts: Numbers | pd.DataFrame | None = None,
    truth: Mapping[str, Any] | None = None,
    value_threshold: Thresholds = None,
    baselines: bool = True,
    controls: Controls = (),
    control_stride: int = 1,
    per_image: bool = False,
    seed: int = 0,
    display_progressbar: bool = False,
) -> pd.DataFrame:
    """Score concept models on images by all metrics of concept models in one pass, as one tidy table.

    Aysel et al. (2025), "Concept-Based Explainable AI: Metrics and Benchmarks", Equations 3 to 11. Each number is what
    the metric class gives for it on the same images, explained for the class the model predicts: `CEM` with this
    ``importance`` and ``top_l``, and ``only_correct`` for the set "correct"; `CLM` with this ``alpha``; `CGIM` per
    concept and per class. "CEM gain" is `CEM` with ``gain=True``, "CGIM correlation" is `CGIM` with ``centred=True``.
    The backbone runs once for each image, also if several models share it. Only the scores of the images are kept, with
    their concept labels until the pass ends, and for the baselines their part points.

    A metric is scored where its ground truth is known: CGIM needs `class_concepts`, CEM "concept_labels", CLM "points"
    and "part_of_concept". Each is looked for under its name in the metric, in `truth`, in the batches and in
    ``loader.dataset`` (`quantus_concepts.datasets.ConceptDataset` has all of it). If the models' bank leaves concepts
    out (`PostHocCBM.fit`), what the data set says of the others is taken, by their names.

    Parameters
    ----------
    model : ConceptModel or dict
        A concept model (`captum_concepts.PostHocCBM`, or any with its members), or several by name. They run on their
        own devices and in eval mode, and are left as they were.
    loader : iterable
        Batches, each a tuple of images (B, C, H, W), or rows (B, F) of a table, classes (B,), concept labels (B, L)
        and part points (B, P, Q, 2) or (B, P, 2), of which the last ones may be missing, or a dict of them under
        "images", "labels", "concept_labels", "points" and other names of truth: a `torch.utils.data.DataLoader` over a
        data set of this package or over images and classes, a generator, a list. It is gone through once, and no batch
        is kept. Images are as the models take them; those of uint8 are divided by 255, and no more.
    metrics : sequence, dict or str, optional
        The metrics of the table, which `quantus.evaluate` takes as well: ``[CEM(top_l=3), CLM(alpha=1)]``, or a dict of
        them, whose keys are then their names in the table. Among them `metrics.UsualMetrics` stands for the variants of
        the papers, with other ``top_l`` or ``alphas``, and `metrics.InterventionAccuracy` for accuracy after
        corrections. By default the metrics of the papers whose truth is known, in their usual variants; with "all"
        every metric of this package whose truth is known.
    class_concepts : array_like, optional
        (K, L) in [0, 1]: how far each concept belongs to each class, for CGIM. From people's table of the classes, or
        from images that fitted no directions. If it is what a `captum_concepts.PostHocCBM` saw when it was fitted, that
        is warned of, and random banks have no range of CGIM: noise would be above it. "class_concepts" of `truth` is
        the same.
    truth : dict, optional
        What the batches and the data set do not have, or in its place: by name arrays with a row for each image of the
        loader ("labels" (N,), "concept_labels" (N, L) of 0 and 1, "points" (N, P, 2) or (N, P, Q, 2) in pixels with NaN
        where not visible, "added" and "removed" (N,) of `SubstitutionScore`, whatever a metric takes),
        "part_of_concept" (L,) of int, the part each concept is about, -1 for none, "concept_names" and "class_names".
    value_threshold : float or dict, optional
        Value from which on a concept counts as predicted present, of all models or by name: adds "concept accuracy"
        and, where "added" is known, "S+", "S-" and "recital" (`score_substitutions` has these by attribute, group and
        class).
    baselines : bool
        Whether baselines are measured too, in the column ``baseline``. CLM: the same maps at the other visible parts of
        the same image and at the parts of another image, the norm of the backbone's features (undefined without
        ``feature_maps`` of the model), and a Gaussian at the centre of every image. CEM: "commonest concept", the
        concepts that most of the images show, named for all of them, and "class recital", the commonest concepts of the
        true class by "training_concepts" (K, L) of `truth` or the data set, else by `class_concepts`. CGIM: "the same
        importance everywhere", a matrix of ones, which has no correlation.
    controls : iterable or dict
        Baseline models, or random banks of the embeddings of a single `captum_concepts.PostHocCBM` or
        `captum_concepts.BottleneckCBM` (`quantus_concepts.functional.random_banks`), or a dict of them by one name.
        Each number is their mean, with ``low`` and ``high`` the range of 95 % of them. By default the random banks that
        each model was fitted with (``PostHocCBM.fit(random_banks=39)``), as "random banks", or of several models as
        "random banks of" and the model's name, with a `control_stride` for which each is scored for CLM on 200 images
        of the loader's data set.
    control_stride : int
        The CLM of a control is computed on every `control_stride`-th image, other ones for each control: making maps
        takes most of the time.
    per_image : bool
        Whether to return the scores of the images, of the models alone, in place of their means, for
        `quantus_concepts.compare`.
    seed : int
        Random seed of the other-image baseline.
    display_progressbar : bool
        Whether a bar shows the batches, where the output is a terminal or a notebook.

    Returns
    -------
    DataFrame
        A row for each number, models in their order and controls after them. ``model``; ``what`` the row is:
        "score", "baseline" (of that name in ``baseline``), "item", one concept or class, or "random range", of random
        banks, which is no interval; ``metric`` ("accuracy",
        "concept accuracy", "negative first", the share of images whose first concept by contribution speaks by being
        absent, "S+", "S-", "recital", "accuracy after interventions", "CEM", "CEM gain", "CLM", "part specificity",
        CLM less CLM at the other parts for the smallest l (`functional.part_specificity`), "CGIM", "CGIM
        correlation" or "CAV accuracy", of a fitted bank's directions on images held back); ``explanation`` (of
        interventions their order), ``baseline``, ``set`` ("all" or "correct" images), ``l`` (of interventions how many)
        and ``alpha``; ``item_kind`` ("concept" or "class", of CGIM) and ``item``, empty in the row of their mean;
        ``value`` with its 95 % interval ``low`` to ``high``, over the predicted classes as clusters (for S+, S- and
        recital pairs of class and concept put in; for interventions and class recital the true classes;
        CGIM and the commonest concept have none: compare CGIM with the range of random banks); ``n`` defined scores and
        ``undefined`` ones; ``chance``, the labels' density for CEM, 0 for CEM gain, alpha / 12 for CLM (more where a
        part has several places, see `CLM`), 1/2 for S+ and S-; ``reason``, the commonest one why scores are undefined,
        with its count, of the models; ``convention``, what importance is counted from: by effect "absent level" or
        "training mean", else what a value of 0 means, such as "zero at the margin" or "probability". Rows of different
        conventions are not comparable.

        With `per_image` a row for each image and score: ``model``, ``image`` (from 0), ``label``, ``predicted``,
        ``metric`` ("density" is the share of concepts that the image shows), ``explanation``, ``l``, ``alpha``,
        ``baseline``, ``convention``, ``item``, ``value``. CGIM has no score of an image: with `class_concepts` there
        are rows, of image -1, from which `quantus_concepts.compare` computes it. "class importance" is the mean
        importance for a class (``label``) of a concept (``item``), NaN for a class without a correctly predicted image;
        "class concepts", of no model, is the truth.

    Raises
    ------
    TypeError
        If a model is not a concept model, or a mapping or array has the wrong type.
    ValueError
        If an argument is out of its range, shapes do not go together, a metric's truth is missing, or an image is not
        finite.

    Examples
    --------
    >>> import torch
    >>> from torch import nn
    >>> from captum_concepts import BottleneckCBM
    >>> from quantus_concepts import CEM, score_concepts
    >>> cbm = BottleneckCBM(nn.Conv2d(3, 4, 3), nn.Linear(4, 4), nn.Linear(4, 2))
    >>> images, labels = torch.rand(6, 3, 16, 16), torch.tensor([0, 1, 0, 1, 0, 1])
    >>> concept_labels = torch.eye(4)[[0, 1, 0, 1, 2, 3]]
    >>> table = score_concepts(cbm, [(images, labels, concept_labels)], [CEM(), CEM(gain=True)])
    >>> table[["metric", "explanation", "baseline"]].values.tolist()
    [['CEM', 'effect', ''], ['CEM', '', 'commonest concept'], ['CEM gain', 'effect', '']]
    """
    several = model if isinstance(model, Mapping) and not controls and not per_image else {}
    banks = {f"{RANDOM_BANKS} of {name}": models_of_random_banks(own) for name, own in several.items()}
    banks = {name: own for name, own in banks.items() if own}
    if banks:
        controls = {RANDOM_BANKS: [bank for own in banks.values() for bank in own]}
        control_stride = _bank_stride(getattr(loader, "dataset", None), control_stride)
    state = concept_state(
        model,
        loader,
        metrics,
        class_concepts=class_concepts,
        truth=truth,
        value_threshold=value_threshold,
        baselines=baselines,
        # Scores of the images are those of the models alone.
        controls=None if per_image and not controls else controls,
        control_stride=control_stride,
        seed=seed,
        display_progressbar=display_progressbar,
    )
    if per_image:
        return state.images()
    if banks:
        controls_of = iter(state.controls)
        groups = {name: list(itertools.islice(controls_of, len(own))) for name, own in banks.items()}
        table = concept_table(state.models, groups, state.class_names, state.concept_names)
    else:
        table = state.table()
    if has_seen_truth(check_concept_models("model", model).values(), state):
        warnings.warn(SEEN_TRUTH, UserWarning, stacklevel=3)
        table = without_cgim_range(table)
    rows = [row for name, own in check_concept_models("model", model).items() for row in direction_rows(name, own)]
    return pd.concat([table, score_table(rows)], ignore_index=True) if rows else table


def has_seen_truth(models: Iterable[ConceptModel], state: ConceptState) -> bool:
    """Whether CGIM's truth is what a model saw when its directions were fitted."""
    tables = {id(own.class_concepts): own.class_concepts for own in state.columns[0].metrics if isinstance(own, CGIM)}
    seen = [table for own in models if (table := getattr(own, "training_concepts", None)) is not None]
    return any(
        truth.shape == fitted.shape and np.allclose(truth, fitted, atol=1e-6)
        for truth in tables.values()
        for fitted in seen
    )


def _bank_stride(data: object, stride: int) -> int:
    """Return the stride of random banks: scores vary more between banks than images, and maps take most of the time."""
    return max(stride, len(data) // RANDOM_MAPS if isinstance(data, Sized) else 0)


@refusing_moved
def concept_state(
    model: ConceptModel | Mapping[str, ConceptModel],
    loader: Iterable[object],
    metrics: Metrics = None,
    *,
    start: int | None = None,
    class_concepts: Numbers | pd.DataFrame | None = None,
    truth: Mapping[str, Any] | None = None,
    value_threshold: Thresholds = None,
    baselines: bool = True,
    controls: Controls | None = (),
    control_stride: int = 1,
    seed: int = 0,
    display_progressbar: bool = False,
) -> ConceptState:
    """Score concept models on some images of a data set, for `score_concepts` over ranges or processes.

    The states of ranges that follow one another merge into that of one pass: `ConceptState.merge`, then
    `ConceptState.table`. A state becomes tensors and comes back from them. Arguments that are not listed are those of
    `score_concepts`.

    Parameters
    ----------
    model : ConceptModel or dict
        The models, which `score_concepts` describes, like all that is not said here.
    loader : iterable
        Batches; of a range, a `torch.utils.data.DataLoader` over ``torch.utils.data.Subset(data, range(start, stop))``
        without shuffling, where ``start`` is a multiple of the batch size. What `data` knows of all images is read
        from it.
    metrics : sequence, dict or str, optional
        The metrics of the table.
    start : int, optional
        Number of a range's first image in the data set, 0 for the first range; None for no range.
    class_concepts : array_like, optional
        (K, L) in [0, 1].
    truth : dict, optional
        Arrays with a row for each image of this loader, by name.
    value_threshold : float or dict, optional
        Value from which on a concept counts as predicted present.
    baselines : bool
        Whether baselines are measured too.
    controls : iterable, dict or None
        As in `score_concepts`; None for no baseline models, those that a model was fitted with included.
    control_stride : int
        The CLM of a control is computed on every `control_stride`-th image.
    seed : int
        Random seed of the other-image baseline.
    display_progressbar : bool
        Whether a bar shows the batches.

    Returns
    -------
    ConceptState
        What tables are made of: 4 bytes for each image and number, and sums by class.

    Raises
    ------
    TypeError
        As `score_concepts`.
    ValueError
        As `score_concepts`, or if `start` is not that of the loader's range.
    """
    models = check_concept_models("model", model)
    check_whole("control_stride", control_stride, 1)
    check_whole("seed", seed, 0)
    given = dict(truth or {})
    if class_concepts is not None:
        if given.get("class_concepts") is not None:
            raise ValueError("Expected either argument `class_concepts` or `truth` with it but got both.")
        given["class_concepts"] = class_concepts
    if value_threshold is None and {"added", "removed"} & given.keys():
        raise ValueError("Expected argument `value_threshold` with `added` and `removed` but it is None.")

    data: Any = getattr(loader, "dataset", None)
    number = 0
    if start is not None:
        data, number = whole_data(loader, start), start
    control, control_models = ("", []) if controls is None else check_controls(controls, model)
    if controls is not None and not control_models and not isinstance(model, Mapping):
        control_models = models_of_random_banks(model)
        if control_models:
            control, control_stride = RANDOM_BANKS, _bank_stride(data, control_stride)
    named = controls if isinstance(controls, Mapping) else [control]
    check_threshold("value_threshold", value_threshold, [*models, *named])

    names = {name: given.get(name) for name in ("class_names", "concept_names")}
    truth_of = TruthLookup(loader, [*models.values(), *control_models], **names)

    @cache
    def find(name: str) -> Any:
        tables = dict.fromkeys(("class_concepts", "training_concepts"), to_class_concepts)
        check = (tables | {"part_of_concept": to_parts}).get(name)
        return truth_of(name, given.get(name), check)

    observing = chosen_metrics(metrics, lambda usual: Known(usual, find, baselines))
    for metric in observing:
        metric.match_names(truth_of.names)
    table, parts = find("class_concepts"), find("part_of_concept")
    n_concepts = len(parts) if table is None and parts is not None and len(parts) else None
    n_classes, n_concepts = (None, n_concepts) if table is None else table.shape
    if parts is not None and len(parts):
        check_shape("part_of_concept", parts, ("L",), (n_concepts,))
    readers = {name: metric for metric in observing for name in metric.sample_truth}
    checks: dict[str, Any] = {name: CHECKS.get(name) or metric.check_truth for name, metric in readers.items()}
    known = [*dict.fromkeys([*CHECKS, *checks, *ABOUT_ALL])]
    if unread := sorted(given.keys() - {*known, "class_concepts"}):
        raise ValueError(
            f"Expected argument `truth` to hold what a metric reads, {', '.join(known)}, but got {', '.join(unread)}."
        )
    checks["labels"] = to_classes
    of_samples = {name: truth_of.argument(name, given.get(name), check) for name, check in checks.items()}
    if given.get("points") is not None and parts is not None:
        check_parts(parts, to_points("points", given["points"]))
    batches = ConceptBatches(
        loader,
        truth_of,
        of_samples,
        checks,
        n_classes=n_classes,
        n_concepts=n_concepts,
        last_part=_last_part(observing),
        elsewhere=EarlierPoints(seed, number, None if start is None else points_lookup(data)) if baselines else None,
        of_metrics=[pair for metric in observing for pair in metric.bound_truth.items()],
    )
    watched = watched_models(models, (control, control_models), observing, value_threshold, stride=control_stride)
    states = watch(watched, batches, start=number, display_progressbar=display_progressbar)
    return ConceptState([*models], control, states, truth_of.class_names, truth_of.concept_names)


def watched_models(
    models: Mapping[str, ConceptModel],
    controls: tuple[str, Sequence[ConceptModel]],
    metrics: Sequence[Any],
    threshold: Thresholds,
    *,
    default: float | None = None,
    stride: int = 1,
) -> list[Watched]:
    """Return what is watched: models and, after them, baseline models of one name, of which there are no baselines."""

    def threshold_of(name: str) -> float | None:
        return threshold.get(name, default) if isinstance(threshold, Mapping) else threshold

    watched = [
        Watched(
            name, model, [own for each in metrics if (own := each.for_model(name, model, None))], threshold_of(name)
        )
        for name, model in models.items()
    ]
    control, control_models = controls
    plain = [metric for metric in metrics if metric.in_table and not metric.baseline]
    for number, model in enumerate(control_models):
        own_metrics = [own for each in plain if (own := each.for_model(control, model, number))]
        watched.append(Watched(control, model, own_metrics, threshold_of(control), stride, len(models) + number))
    return watched


def check_threshold(name: str, threshold: Thresholds, models: Sequence[str]) -> None:
    """Raise for a threshold that is not finite, or is of none of the models of these names."""
    if isinstance(threshold, Mapping) and (unknown := [model for model in threshold if model not in models]):
        known = ", ".join(repr(model) for model in models if model)
        raise ValueError(f"Expected argument `{name}` to name models, {known}, but got {unknown[0]!r}.")
    for number in threshold.values() if isinstance(threshold, Mapping) else [threshold]:
        if number is not None:
            check_range(name, number, -math.inf, math.inf, open_low=True, open_high=True)


def _last_part(metrics: Sequence[Any]) -> int:
    """Return the largest part that a concept is about; -1 for none, with which points are not read."""
    of_metrics = (getattr(metric, "part_of_concept", None) for metric in metrics)
    return max((int(parts.max(initial=-1)) for parts in of_metrics if parts is not None), default=-1)
