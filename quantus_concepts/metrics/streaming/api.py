"""`score_concepts`, also by ranges, and `score_substitutions`: all concept metrics of a data set in one table."""

from __future__ import annotations

import importlib
import itertools
import math
import pkgutil
from collections.abc import Callable, Iterable, Mapping, Sequence, Sized
from dataclasses import replace
from functools import cache, partial
from typing import Any

import numpy as np
import pandas as pd
import torch

from captum_concepts.support.checks import (
    as_list,
    check_choice,
    check_range,
    check_shape,
    check_whole,
    to_points,
    to_presence,
)
from quantus_concepts.functional.arguments import Numbers
from quantus_concepts.metrics import concepts
from quantus_concepts.metrics.concepts import names as col
from quantus_concepts.metrics.concepts.accuracy import (
    Accuracy,
    ConceptAccuracy,
    Density,
    NegativeFirst,
    SeenAccuracy,
)
from quantus_concepts.metrics.concepts.cem import CEM
from quantus_concepts.metrics.concepts.cgim import CGIM
from quantus_concepts.metrics.concepts.clm import CLM
from quantus_concepts.metrics.concepts.interventions import InterventionAccuracy, Interventions, interventions_after
from quantus_concepts.metrics.concepts.substitution import Moves, Recital, SubstitutionScore
from quantus_concepts.metrics.host.alignment import TruthLookup
from quantus_concepts.metrics.host.checks import check_parts, to_class_concepts, to_classes, to_numbers, to_parts
from quantus_concepts.metrics.host.model import (
    IMPORTANCES,
    RANDOM_BANKS,
    ConceptModel,
    Controls,
    check_concept_models,
    check_controls,
    models_of_random_banks,
)
from quantus_concepts.metrics.host.observing import Known, Observer
from quantus_concepts.metrics.streaming.engine import watch
from quantus_concepts.metrics.streaming.loader import (
    ADDED_REQUIRED,
    SEEN_REQUIRED,
    EarlierPoints,
    points_lookup,
    whole_data,
)
from quantus_concepts.metrics.streaming.state import ConceptState
from quantus_concepts.metrics.streaming.stream import ModelLevels, Thresholds, watched_models
from quantus_concepts.metrics.streaming.substitutions import (
    about_images,
    bound_substitutions,
    substitution_images,
    substitution_table,
)
from quantus_concepts.metrics.streaming.table import concept_table

#: On how many images each random bank of a model is scored for CLM.
RANDOM_MAPS = 200


def score_concepts(
    model: ConceptModel | Mapping[str, ConceptModel],
    loader: Iterable[object],
    metrics: Sequence[Observer] | None = None,
    *,
    class_concepts: Numbers | pd.DataFrame | None = None,
    concept_labels: Numbers | None = None,
    labels: Numbers | None = None,
    points: Numbers | None = None,
    added: Numbers | None = None,
    removed: Numbers | None = None,
    part_of_concept: Numbers | None = None,
    explanations: Sequence[str] = IMPORTANCES,
    top_l: Sequence[int] = (1, 3, 5),
    alphas: Sequence[float] = (1.0, 3.0, 6.0),
    value_threshold: Thresholds = None,
    baselines: bool = True,
    controls: Controls = (),
    control_stride: int = 1,
    interventions: Sequence[int] = (),
    levels: ModelLevels | None = None,
    concept_names: Sequence[str] | None = None,
    class_names: Sequence[str] | None = None,
    per_image: bool = False,
    seed: int = 0,
    display_progressbar: bool = False,
) -> pd.DataFrame:
    """Score concept models on images: every variant of CGIM, CEM and CLM in one pass, as one tidy table.

    Aysel et al. (2025), "Concept-Based Explainable AI: Metrics and Benchmarks", Equations 3 to 11. Each number is what
    the metric class gives for it on the same images, explained for the class the model predicts: `CEM` with this
    ``importance`` and ``top_l``, and ``only_correct`` for the set "correct"; `CLM` with this ``alpha``; `CGIM` per
    concept and per class. "CEM gain" is `CEM` with ``gain=True``, "CGIM correlation" is `CGIM` with ``centred=True``.
    The backbone runs once for each image, also if several models share it. Only the scores of the images are kept, with
    their concept labels until the pass ends, and for the baselines their part points.

    A metric is scored where its ground truth is known: CGIM needs `class_concepts`, CEM the concept labels, CLM points
    and `part_of_concept`. Missing values are read from the samples and from ``loader.dataset``
    (`quantus_concepts.datasets.ConceptDataset` has all of it). If the models' bank leaves concepts out
    (`PostHocCBM.fit`), what the data set says of the others is taken, by their names.

    Parameters
    ----------
    model : ConceptModel or dict
        A concept model (`captum_concepts.PostHocCBM`, or any with its members), or several by name. They run on their
        own devices and in eval mode, and are left as they were.
    loader : iterable
        Batches, each a tuple of images (B, C, H, W), or rows (B, F) of a table, classes (B,), concept labels (B, L)
        and part points (B, P, Q, 2) or (B, P, 2), of which the last ones may be missing, or a dict of them under
        "images", "labels", "concept_labels" and "points": a `torch.utils.data.DataLoader` over a data set of this
        package or over images and classes, a generator, a list. It is gone through once, and no batch is kept. Images
        are as the models take them; those of uint8 are divided by 255, and no more.
    metrics : sequence of metrics, optional
        The metrics of the table, as those that `quantus.evaluate` takes (``CEM(top_l=3)``); each explained for the
        class the model predicts. By default every one whose truth is known, in its usual variants.
    class_concepts : array_like, optional
        (K, L) in [0, 1]: how far each concept belongs to each class, for CGIM.
    concept_labels : array_like, optional
        (N, L) of 0 and 1, aligned with the images of the loader, in place of those of its batches; as `labels` (N,) and
        `points` (N, P, 2) or (N, P, Q, 2), which are (x, y) in pixels of the images with NaN where not visible.
    labels : array_like, optional
        True classes, see `concept_labels`.
    points : array_like, optional
        Places of the parts, see `concept_labels`.
    added : array_like, optional
        (N,) of int: the concept put into each image (`SubstitutionScore`), -1 for none; see `concept_labels`.
    removed : array_like, optional
        (N,) of int: the concept taken out, likewise.
    part_of_concept : array_like, optional
        (L,) of int: the part each concept is about, -1 for none.
    explanations : sequence of str
        Importance that ranks the concepts: "weight" (theta), "value" (u), "contribution" (theta times u).
    top_l : sequence of int
        How many concepts count. CLM leaves out those that not enough concepts have a part for.
    alphas : sequence of float
        Sizes of CLM's region in twelfths of the image.
    value_threshold : float or dict, optional
        Value above which a concept counts as predicted present, of all models or by name: adds "concept accuracy"
        and, where `added` is known, "S+", "S-" and "recital", for which the value itself is present, too
        (`score_substitutions` has these by attribute, group and class).
    baselines : bool
        Whether baselines are measured too, in the column ``baseline``. CLM: the same maps at the other visible parts of
        the same image and at the parts of another image, the norm of the backbone's features (undefined without
        ``feature_maps`` of the model), and a Gaussian at the centre of every image. CEM: "commonest concept", the
        concepts that most of the images show, named for all of them, and "class recital", the commonest concepts of the
        true class by `class_concepts`, which should then be that of the training images. CGIM: "the same importance
        everywhere", a matrix of ones, which has no correlation.
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
    interventions : sequence of int
        After how many answers of people the class is predicted again from the head, without a pass of the backbone:
        adds "accuracy after interventions" of the models (`intervention_curve` has groups of concepts, too). Needs
        concept labels.
    levels : Levels or dict, optional
        Values of an absent and a present concept if values are not bounded, of all models or by name:
        `captum_concepts.PostHocCBM.value_levels`. Elsewhere 0 and 1. Under the name of `controls` a list, one for each:
        these are then intervened on too, with right answers in random order.
    concept_names : sequence of str, optional
        L names; those of the loader's data set or of the model by default, and numbers where none are known.
    class_names : sequence of str, optional
        K names, likewise.
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
        A row for each number, models in their order and controls after them. ``model``; ``metric`` ("accuracy",
        "concept accuracy", "negative first", the share of images whose first concept by contribution speaks by being
        absent, "S+", "S-", "recital", "accuracy after interventions", "CEM", "CEM gain", "CLM", "part specificity",
        CLM less CLM at the other parts for the smallest l (`functional.part_specificity`), "CGIM" or "CGIM
        correlation"); ``explanation`` (of interventions their order), ``baseline``, ``set`` ("all" or "correct"
        images), ``l`` (of interventions how many) and ``alpha``; ``item_kind`` ("concept" or "class", of CGIM) and
        ``item``, empty in the row of their mean; ``value`` with its 95 % interval ``low`` to ``high``, over the
        predicted classes as clusters (for S+, S- and recital pairs of class and concept put in; for interventions and
        class recital the true classes;
        CGIM and the commonest concept have none: compare CGIM with the range of random banks); ``n`` defined scores and
        ``undefined`` ones; ``chance``, the labels' density for CEM, 0 for CEM gain, alpha / 12 for CLM (more where a
        part has several places, see `CLM`), 1/2 for S+ and S-.

        With `per_image` a row for each image and score: ``model``, ``image`` (from 0), ``label``, ``predicted``,
        ``metric`` ("density" is the share of concepts that the image shows), ``explanation``, ``l``, ``alpha``,
        ``baseline``, ``item``, ``value``. CGIM has no score of an image: with `class_concepts` there are rows, of image
        -1, from which `quantus_concepts.compare` computes it. "class importance" is the mean importance for a class
        (``label``) of a concept (``item``), NaN for a class without a correctly predicted image; "class concepts", of
        no model, is the truth.

    Raises
    ------
    TypeError
        If a model is not a concept model, or a mapping or array has the wrong type.
    ValueError
        If an argument is out of its range, shapes do not go together, or an image, a value or a map is not finite.

    Examples
    --------
    >>> import torch
    >>> from torch import nn
    >>> from captum_concepts import ConceptBank, PostHocCBM
    >>> from quantus_concepts import score_concepts
    >>> cbm = PostHocCBM(nn.Conv2d(3, 4, 3), ConceptBank(torch.eye(4)), nn.Linear(4, 2))
    >>> images, labels = torch.rand(6, 3, 16, 16), torch.tensor([0, 1, 0, 1, 0, 1])
    >>> concept_labels = torch.eye(4)[[0, 1, 0, 1, 2, 3]]
    >>> table = score_concepts(cbm, [(images, labels, concept_labels)], top_l=[1])
    >>> sorted(table["metric"].unique())
    ['CEM', 'CEM gain', 'accuracy', 'negative first']
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
        concept_labels=concept_labels,
        labels=labels,
        points=points,
        added=added,
        removed=removed,
        part_of_concept=part_of_concept,
        explanations=explanations,
        top_l=top_l,
        alphas=alphas,
        value_threshold=value_threshold,
        baselines=baselines,
        # Scores of the images are those of the models alone.
        controls=None if per_image and not controls else controls,
        control_stride=control_stride,
        interventions=interventions,
        levels=levels,
        concept_names=concept_names,
        class_names=class_names,
        seed=seed,
        display_progressbar=display_progressbar,
    )
    if per_image:
        return state.images()
    if not banks:
        return state.table()
    controls_of = iter(state.controls)
    groups = {name: list(itertools.islice(controls_of, len(own))) for name, own in banks.items()}
    return concept_table(state.models, groups, state.class_names, state.concept_names)


def _bank_stride(data: object, stride: int) -> int:
    """Return the stride of random banks: scores vary more between banks than images, and maps take most of the time."""
    return max(stride, len(data) // RANDOM_MAPS if isinstance(data, Sized) else 0)


def concept_state(
    model: ConceptModel | Mapping[str, ConceptModel],
    loader: Iterable[object],
    metrics: Sequence[Observer] | None = None,
    *,
    start: int | None = None,
    class_concepts: Numbers | pd.DataFrame | None = None,
    concept_labels: Numbers | None = None,
    labels: Numbers | None = None,
    points: Numbers | None = None,
    added: Numbers | None = None,
    removed: Numbers | None = None,
    part_of_concept: Numbers | None = None,
    explanations: Sequence[str] = IMPORTANCES,
    top_l: Sequence[int] = (1, 3, 5),
    alphas: Sequence[float] = (1.0, 3.0, 6.0),
    value_threshold: Thresholds = None,
    baselines: bool = True,
    controls: Controls | None = (),
    control_stride: int = 1,
    interventions: Sequence[int] = (),
    levels: ModelLevels | None = None,
    concept_names: Sequence[str] | None = None,
    class_names: Sequence[str] | None = None,
    seed: int = 0,
    display_progressbar: bool = False,
) -> ConceptState:
    """Score concept models on some images of a data set, for `score_concepts` over ranges or processes.

    The states of ranges that follow one another merge into that of one pass: `ConceptState.merge`, then
    `ConceptState.table`. A state becomes tensors and comes back from them.

    Parameters
    ----------
    model : ConceptModel or dict
        As in `score_concepts`.
    loader : iterable
        As in `score_concepts`; of a range, a `torch.utils.data.DataLoader` over
        ``torch.utils.data.Subset(data, range(start, stop))`` without shuffling, where ``start`` is a multiple of the
        batch size. What `data` knows of all images is read from it.
    metrics : sequence of metrics, optional
        As in `score_concepts`.
    start : int, optional
        Number of a range's first image in the data set, 0 for the first range; None for no range.
    class_concepts : array_like, optional
        As in `score_concepts`.
    concept_labels : array_like, optional
        As in `score_concepts`.
    labels : array_like, optional
        As in `score_concepts`.
    points : array_like, optional
        As in `score_concepts`.
    added : array_like, optional
        As in `score_concepts`.
    removed : array_like, optional
        As in `score_concepts`.
    part_of_concept : array_like, optional
        As in `score_concepts`.
    explanations : sequence of str
        As in `score_concepts`.
    top_l : sequence of int
        As in `score_concepts`.
    alphas : sequence of float
        As in `score_concepts`.
    value_threshold : float or dict, optional
        As in `score_concepts`.
    baselines : bool
        As in `score_concepts`.
    controls : iterable, dict or None
        As in `score_concepts`; None for no baseline models, those that a model was fitted with included.
    control_stride : int
        As in `score_concepts`.
    interventions : sequence of int
        As in `score_concepts`.
    levels : Levels or dict, optional
        As in `score_concepts`.
    concept_names : sequence of str, optional
        As in `score_concepts`.
    class_names : sequence of str, optional
        As in `score_concepts`.
    seed : int
        As in `score_concepts`.
    display_progressbar : bool
        As in `score_concepts`.

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
    for name, values, least in (("explanations", explanations, 1), ("top_l", top_l, 1), ("alphas", alphas, 1)):
        if len(as_list(name, values)) < least:
            raise ValueError(f"Expected argument `{name}` to hold at least one value but it is empty.")
    for explanation in explanations:
        check_choice("explanations", explanation, IMPORTANCES)
    tops = tuple(check_whole("top_l", top, 1) for top in top_l)
    for alpha in alphas:
        check_range("alphas", alpha, 0, 12, open_low=True)
    check_whole("control_stride", control_stride, 1)
    check_whole("seed", seed, 0)
    counts = [check_whole("interventions", count, 0) for count in as_list("interventions", interventions)]
    _check_threshold("value_threshold", value_threshold)
    if value_threshold is None and not (added is None and removed is None):
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

    names = {"class_names": class_names, "concept_names": concept_names}
    truth_of = TruthLookup(loader, [*models.values(), *control_models], **names)
    parts = truth_of("part_of_concept", part_of_concept, to_parts)
    table = truth_of("class_concepts", class_concepts, to_class_concepts)
    n_concepts = len(parts) if table is None and parts is not None and len(parts) else None
    n_classes, n_concepts = (None, n_concepts) if table is None else table.shape
    if parts is not None and len(parts):
        check_shape("part_of_concept", parts, ("L",), (n_concepts,))
    _check_tops(tops, n_concepts)
    insists = metrics is not None
    if metrics is None:
        known = Known(tuple(explanations), tops, tuple(map(float, alphas)), table, parts, baselines)
        metrics = usual_metrics(known, interventions_after(counts, seed))
    watched = watched_models(
        *(models, (control, control_models), metrics, value_threshold),
        stride=control_stride,
        levels=levels,
        insists=insists,
    )
    bound: dict[str, Any] = {
        "labels": truth_of.argument("labels", labels, to_classes),
        "concept_labels": truth_of.argument("concept_labels", concept_labels, to_presence),
        "points": truth_of.argument("points", points, to_points),
    }
    if points is not None:
        check_parts(np.empty(0, int) if parts is None else parts, bound["points"])
    if value_threshold is not None:
        bound |= {"added": truth_of("added", added, to_numbers), "removed": truth_of("removed", removed, to_numbers)}
    for metric in metrics:
        metric.match_names(truth_of.names)
        for name in {*metric.sample_truth} - {*bound, *metric.bound_truth, "added", "removed"}:
            check = partial(_check_truth, metric)
            bound[name] = truth_of(name, None, check, of_images=True)
    elsewhere = EarlierPoints(seed, number, None if start is None else points_lookup(data)) if baselines else None
    states = watch(
        *(watched, loader, bound, elsewhere),
        n_classes=n_classes,
        n_concepts=n_concepts,
        last_part=-1 if parts is None else int(parts.max(initial=-1)),
        start=number,
        order=truth_of.order,
        display_progressbar=display_progressbar,
    )
    return ConceptState(
        [*models],
        control,
        states,
        truth_of.class_names,
        truth_of.concept_names,
    )


def score_substitutions(
    model: ConceptModel | Mapping[str, ConceptModel],
    loader: Iterable[object],
    *,
    added: Numbers | None = None,
    removed: Numbers | None = None,
    labels: Numbers | None = None,
    pairs: Numbers | None = None,
    class_concepts: Numbers | pd.DataFrame | None = None,
    threshold: float | Mapping[str, float] = 0.5,
    seen: Iterable[object] | None = None,
    controls: Controls = (),
    concept_names: Sequence[str] | None = None,
    class_names: Sequence[str] | None = None,
    per_image: bool = False,
    display_progressbar: bool = False,
) -> pd.DataFrame:
    """Score concept models on images of which one attribute is replaced, in one pass, as one tidy table.

    Bader et al. (2025), "SUB: Benchmarking CBM Generalization via Synthetic Attribute Substitutions", Section 5.5 and
    Table 1. S+ and S- are what `SubstitutionScore` gives on the same images. The backbone runs once for each image,
    also where several models share it; what is kept of an image is its scores.

    Missing values are read from the samples and from ``loader.dataset``
    (`quantus_concepts.datasets.PaintedSubstitutions` and `quantus_concepts.datasets.SUB` have it).

    Parameters
    ----------
    model : ConceptModel or dict
        A concept model (`captum_concepts.PostHocCBM`, or any with its members), or several by name. They run on their
        own devices and in eval mode, and are left as they were.
    loader : iterable
        Batches, as `score_concepts` takes them; the images without their substitution come as ``batch.before`` or
        under "before", where there are any. It is gone through once, and no batch is kept.
    added : array_like, optional
        (N,) of int, aligned with the images of the loader: the concept put in, -1 where it is none of the model's.
    removed : array_like, optional
        (N,) of int: the concept taken out, -1 where there is none.
    labels : array_like, optional
        (N,) of int: the class of each bird.
    pairs : array_like, optional
        (N,) of int: which images share a recipe and are no independent samples; class and concept put in if None.
    class_concepts : array_like, optional
        (K, L) in [0, 1]: how far each concept belongs to each class, for the recital: from 1/2 on it is the class's.
    threshold : float or dict
        Value from which on a concept counts as present, of all models or by name: 0.5 of probabilities, 0 of margins.
    seen : iterable, optional
        Batches of images without substitution, of the kind models are trained on, with concept labels: a loader over
        the test set, for the paper's T_A and T.
    controls : iterable or dict
        Baseline models or random banks, as in `score_concepts`.
    concept_names : sequence of str, optional
        L names, "group::option"; the numbers of the concepts where none are known.
    class_names : sequence of str, optional
        K names, likewise.
    per_image : bool
        Whether to return the scores of the images, of the models alone, in place of their means.
    display_progressbar : bool
        Whether a bar shows the batches, where the output is a terminal or a notebook.

    Returns
    -------
    DataFrame
        The columns of `score_concepts`, a row for each number, models in their order and controls after them.
        ``metric``: "S+" and "S-"; "recital", the share of images of which all of the class's concepts are predicted;
        with images before, "added moves", "removed moves" and "others move", in units of the values, "rises", the
        share of images in which the value of the concept put in goes up, whatever the threshold, "selectivity"
        (`quantus_concepts.functional.movement`) and "class kept", the share of images of which the prediction stays;
        with `seen`, "T_A" and "T", the concept accuracy for the concepts that are put in anywhere, and for all.
        ``item_kind`` ("attribute", the one put in, its "group", or "class") and ``item``, empty in the row of all;
        ``value`` with its 95 % interval ``low`` to ``high``, clustered by pair (T_A and T by class); ``n`` defined
        scores and ``undefined`` ones; ``chance``, 1/2 of S+, S-, T_A and T.

        With `per_image` a row for each image and score: ``model``, ``image`` (from 0), ``pair``, ``class``, ``added``,
        ``removed``, ``predicted``, each by name, ``metric`` and ``value``.

    Raises
    ------
    TypeError
        If a model is not a concept model, or a mapping or array has the wrong type.
    ValueError
        If it is not known what was put in, no concept is the model's, an argument is out of its range, shapes do not go
        together, or an image or a value is not finite.
    """
    table, images = substitution_tables(
        model,
        loader,
        **{"added": added, "removed": removed, "labels": labels, "pairs": pairs, "class_concepts": class_concepts},
        concept_names=concept_names,
        class_names=class_names,
        controls=controls,
        threshold=threshold,
        seen=None if per_image else seen,
        display_progressbar=display_progressbar,
    )
    return images() if per_image else table()


def substitution_tables(
    model: ConceptModel | Mapping[str, ConceptModel],
    loader: Iterable[object],
    *,
    added: Numbers | None = None,
    removed: Numbers | None = None,
    labels: Numbers | None = None,
    pairs: Numbers | None = None,
    class_concepts: Numbers | pd.DataFrame | None = None,
    threshold: float | Mapping[str, float] = 0.5,
    seen: Iterable[object] | None = None,
    controls: Controls = (),
    concept_names: Sequence[str] | None = None,
    class_names: Sequence[str] | None = None,
    display_progressbar: bool = False,
) -> tuple[Callable[[], pd.DataFrame], Callable[[], pd.DataFrame]]:
    """Run `score_substitutions` once, and return what makes its table, and that of the images."""
    models, control = check_concept_models("model", model), check_controls(controls, model)
    _check_threshold("threshold", threshold)
    names = {"class_names": class_names, "concept_names": concept_names}
    truth_of = TruthLookup(loader, [*models.values(), *control[1]], **names)
    bound = bound_substitutions(truth_of, added, removed, labels)
    class_table = truth_of("class_concepts", class_concepts, to_class_concepts)
    metrics: list[Observer] = [*SubstitutionScore.usual(Known()), Moves()]
    metrics[2:2] = Recital.usual(Known(class_concepts=class_table))
    show = display_progressbar
    sizes = {} if class_table is None else dict(zip(("n_classes", "n_concepts"), class_table.shape, strict=True))
    watched = watched_models(models, control, metrics, threshold, default=col.CHANCE)
    required, order = ADDED_REQUIRED, truth_of.order
    states = watch(watched, loader, bound, required=required, order=order, display_progressbar=show, **sizes)
    state = ConceptState([*models], control[0], states)
    shown = truth_of.class_names, truth_of.concept_names
    about = about_images(state, truth_of("pairs", pairs, to_classes), *shown)
    of_seen = []
    if seen is not None:
        of_images = [
            SeenAccuracy(col.ACCURACY_ADDED.metric, torch.as_tensor(about.put_in)),
            SeenAccuracy(col.ACCURACY_ALL.metric),
        ]
        watched = [replace(each, metrics=of_images) for each in watched]
        required, order = SEEN_REQUIRED, TruthLookup(seen, [*models.values(), *control[1]]).order
        of_seen = watch(watched, seen, {}, required=required, order=order, display_progressbar=show, **sizes)
    return partial(substitution_table, state, about, of_seen), partial(substitution_images, state, about)


def usual_metrics(known: Known, interventions: Interventions | None = None) -> list[Observer]:
    """Return the usual variants of every metric of concept models, in the order of their rows."""
    metrics = [metric for kind in observers() for metric in kind.usual(known)]
    if interventions is not None:
        place = next(place for place, metric in enumerate(metrics) if metric.name == col.CEM)
        metrics.insert(place, InterventionAccuracy(interventions))
    return metrics


@cache
def observers() -> list[type[Observer]]:
    """Return what observes concept models: what is in the files of `metrics/concepts`, the four of the paper last."""
    first = [Accuracy, ConceptAccuracy, NegativeFirst, Density, SubstitutionScore, Recital, CEM, CLM, CGIM]
    for module in pkgutil.iter_modules(concepts.__path__):
        members = vars(importlib.import_module(f"{concepts.__name__}.{module.name}")).values()
        first += [
            kind for kind in members if isinstance(kind, type) and issubclass(kind, Observer) and kind not in first
        ]
    return first


def _check_truth(metric: Any, name: str, value: Any) -> Any:
    return metric.check_truth(name, value)


def _check_tops(tops: Sequence[int], n_concepts: int | None) -> None:
    """Raise for an l that is larger than the number of concepts."""
    most = max(tops, default=1)
    if n_concepts is not None and most > n_concepts:
        fitting = [top for top in tops if top <= n_concepts] or [n_concepts]
        raise ValueError(
            f"Expected argument `top_l` to lie in [1, {n_concepts}] but got {most}. Pass top_l={fitting}: left out "
            "it is (1, 3, 5)."
        )


def _check_threshold(name: str, threshold: Thresholds) -> None:
    for number in threshold.values() if isinstance(threshold, Mapping) else [threshold]:
        if number is not None:
            check_range(name, number, -math.inf, math.inf, open_low=True, open_high=True)
