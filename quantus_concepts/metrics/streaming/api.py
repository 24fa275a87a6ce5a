"""`predict_concepts`, `score_predictions`, and both in one: `score_concepts`."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Sized
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
import torch

from captum_concepts.support.checks import (
    check_range,
    check_shape,
    check_whole,
    to_array,
    to_numpy,
    to_points,
    to_presence,
)
from captum_concepts.support.running import warn_user
from quantus_concepts.functional.arguments import Numbers
from quantus_concepts.metrics.concepts.cgim import CGIM
from quantus_concepts.metrics.host.alignment import ModelNames, TruthLookup, in_order
from quantus_concepts.metrics.host.checks import check_parts, to_class_concepts, to_classes, to_numbers, to_parts
from quantus_concepts.metrics.host.looks import Look
from quantus_concepts.metrics.host.model import (
    RANDOM_BANKS,
    ConceptModel,
    Controls,
    check_concept_models,
    check_controls,
    random_banks_of,
)
from quantus_concepts.metrics.host.predictions import ConceptPredictions
from quantus_concepts.metrics.streaming.choice import (
    Chosen,
    Metrics,
    chosen_metrics,
    looks_of,
    scores_of,
    scores_of_banks,
)
from quantus_concepts.metrics.streaming.engine import Subject, predict_subjects
from quantus_concepts.metrics.streaming.loader import ConceptBatches, EarlierPoints, points_lookup, whole_data
from quantus_concepts.metrics.streaming.table import (
    class_tables,
    direction_rows,
    image_table,
    model_rows,
    names_of,
    range_table,
    score_table,
    without_cgim_range,
)
from quantus_concepts.metrics.streaming.usual import UsualMetrics

#: On how many images each random bank of a model is scored for CLM.
RANDOM_MAPS = 200
#: A value at or above which a concept is present: of all models, or by name.
Thresholds = float | Mapping[str, float | None] | None
#: How truth of samples is checked that several metrics read.
CHECKS: dict[str, Callable[[str, Any], Any]] = {
    **{"labels": to_classes, "concept_labels": to_presence, "points": to_points},
    **{"added": to_numbers, "removed": to_numbers, "pairs": to_classes},
}
#: What is said of CGIM whose truth fitted the directions.
SEEN_TRUTH = (
    "`class_concepts` are the shares of the images that the model's directions were fitted to: directions of noise are "
    "above random banks then, in 83 to 93 % of runs, so CGIM has no range here. Pass the shares of other images, or "
    "people's table of the classes."
)
#: Tables that metrics read, and how they are checked.
TABLES: dict[str, Callable[[str, Any], np.ndarray]] = {
    **{"class_concepts": to_class_concepts, "training_concepts": to_class_concepts},
    "part_of_concept": to_parts,
}
#: Truth of images that is kept for metrics that are chosen later.
OF_IMAGES = ("concept_labels", "added", "removed", "pairs")
#: Truth that is not about samples.
ABOUT_ALL = ("part_of_concept", "training_concepts", "concept_names", "class_names")


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
    pass_ = _prepare(
        *(model, loader, metrics, class_concepts, truth, baselines, control_stride, None, seed),
        # Scores of the images are those of the models alone.
        controls=None if per_image and not controls else controls,
    )
    known = [each.name for each in pass_.subjects]
    known += [pass_.banks_name] if any(each.banks for each in pass_.subjects) else []
    check_threshold("value_threshold", value_threshold, [*known, *(controls if isinstance(controls, Mapping) else ())])
    if value_threshold is None and {"added", "removed"} & {*(truth or {})}:
        raise ValueError("Expected argument `value_threshold` with `added` and `removed` but it is None.")

    def check() -> None:
        """Score two samples, so that what is wrong is known before the pass."""
        for each in pass_.subjects:
            first = pass_.about(each, each.parts[0][:2].kept())
            settings: dict[str, Any] = {"control": each.control, "dry": True}
            known = first.knowing(threshold=threshold_of(value_threshold, each.name))
            scores_of(each.name, known, pass_.chosen, baselines=baselines and each.control is None, **settings)
            if each.banks:
                bank = first.knowing(threshold=threshold_of(value_threshold, pass_.banks_name)).of_bank(each.banks[0])
                scores_of(pass_.banks_name, bank, pass_.chosen, baselines=False, control=0, dry=True)

    pass_.run(baselines=baselines, check=check, display_progressbar=display_progressbar)
    models, of_controls = pass_.predictions()
    if per_image:
        return _images(models, pass_.chosen, value_threshold, baselines=baselines)
    by_name = {pass_.control: of_controls} if of_controls else {}
    return _table(models, pass_.chosen, value_threshold, by_name, baselines=baselines)


def predict_concepts(
    model: ConceptModel | Mapping[str, ConceptModel],
    loader: Iterable[object],
    metrics: Metrics = None,
    *,
    start: int | None = None,
    class_concepts: Numbers | pd.DataFrame | None = None,
    truth: Mapping[str, Any] | None = None,
    baselines: bool = True,
    random_banks: bool = True,
    control_stride: int = 1,
    seed: int = 0,
    display_progressbar: bool = False,
) -> Any:
    """Return what concept models predict for images, of which `score_predictions` makes tables without the models.

    The first of the two steps of `score_concepts`: the backbone runs once for each image, and rows of numbers are kept.
    They are saved (`ConceptPredictions.save`), selected, and merged with those of other parts of a data set. What has
    to see the model is asked for here: name `CLM`, `UsualMetrics` or `Locality` in `metrics`, by default the usual
    ones. Every other metric can be chosen later.

    Parameters
    ----------
    model : ConceptModel or dict
        As in `score_concepts`, like all that is not said here.
    loader : iterable
        Batches; of a range, a `torch.utils.data.DataLoader` over ``torch.utils.data.Subset(data, range(start, stop))``
        without shuffling. What `data` knows of all images is read from it.
    metrics : sequence, dict or str, optional
        Metrics that will be asked for, of which some have to see the model, or the gradient of a head that is not
        linear.
    start : int, optional
        Number of a range's first image in the data set, 0 for the first range; None for no range.
    class_concepts : array_like, optional
        (K, L) in [0, 1], kept with the rows.
    truth : dict, optional
        Arrays with a row for each image of this loader, by name, kept with the rows.
    baselines : bool
        Whether what is seen of models is seen of baselines, too.
    random_banks : bool
        Whether embeddings (N, d) are kept, from which the random banks that a model was fitted with predict.
    control_stride : int
        The maps of a random bank are made for every `control_stride`-th image.
    seed : int
        Random seed of the other-image baseline.
    display_progressbar : bool
        Whether a bar shows the batches.

    Returns
    -------
    ConceptPredictions or dict
        The rows of the model; of several by name. Of an image 4 (L + 1) bytes and its truth, 4 d with random banks.

    Raises
    ------
    TypeError
        As `score_concepts`.
    ValueError
        As `score_concepts`, or if `start` is not that of the loader's range.

    Examples
    --------
    >>> import torch
    >>> from torch import nn
    >>> from captum_concepts import BottleneckCBM
    >>> from quantus_concepts import CEM, ConceptSetCeiling, predict_concepts, score_predictions
    >>> model = BottleneckCBM(nn.Identity(), nn.Linear(3, 2), nn.Linear(2, 2))
    >>> images, labels = torch.rand(4, 3), torch.tensor([0, 1, 0, 1])
    >>> rows = predict_concepts(model, [(images, labels, torch.eye(2)[labels])])
    >>> table = score_predictions(rows, [ConceptSetCeiling()])
    >>> table.set_index("metric")["value"]["concept-set ceiling"].item()
    1.0
    """
    models, _ = predict_with_controls(
        *(model, loader, metrics, () if random_banks else None),
        start=start,
        class_concepts=class_concepts,
        truth=truth,
        baselines=baselines,
        control_stride=control_stride,
        seed=seed,
        display_progressbar=display_progressbar,
    )
    return models if isinstance(model, Mapping) else next(iter(models.values()))


def predict_with_controls(
    model: ConceptModel | Mapping[str, ConceptModel],
    loader: Iterable[object],
    metrics: Metrics,
    controls: Controls | None,
    *,
    start: int | None = None,
    class_concepts: Numbers | pd.DataFrame | None = None,
    truth: Mapping[str, Any] | None = None,
    baselines: bool = True,
    control_stride: int = 1,
    seed: int = 0,
    display_progressbar: bool = False,
) -> tuple[dict[str, ConceptPredictions], list[ConceptPredictions]]:
    """Return what models predict, by name, and what baseline models do; random banks stay beside their model."""
    pass_ = _prepare(
        *(model, loader, metrics, class_concepts, truth, baselines, control_stride, start, seed),
        controls=controls,
        keeps_all=True,
    )
    pass_.run(baselines=baselines, display_progressbar=display_progressbar)
    return pass_.predictions()


def score_predictions(
    rows: ConceptPredictions | Mapping[str, ConceptPredictions],
    metrics: Metrics = None,
    *,
    class_concepts: Numbers | pd.DataFrame | None = None,
    truth: Mapping[str, Any] | None = None,
    value_threshold: Thresholds = None,
    baselines: bool = True,
    controls: Mapping[str, Sequence[ConceptPredictions]] | None = None,
    per_image: bool = False,
) -> pd.DataFrame:
    """Return the table of metrics of predictions: no model runs, and no image is read.

    The second of the two steps of `score_concepts`, which gives the same table.

    Parameters
    ----------
    rows : ConceptPredictions or dict
        Result of `predict_concepts`, or several by the name of their model.
    metrics : sequence, dict or str, optional
        As in `score_concepts`. A metric that has to see the model needs to have been among those of
        `predict_concepts`.
    class_concepts : array_like, optional
        (K, L) in [0, 1], in place of the one that is kept with the rows.
    truth : dict, optional
        More truth by name, arrays with a row for each image, "class_names" and "concept_names".
    value_threshold : float or dict, optional
        As in `score_concepts`.
    baselines : bool
        As in `score_concepts`.
    controls : dict, optional
        Predictions of baseline models, by one name. Random banks are scored by themselves.
    per_image : bool
        As in `score_concepts`.

    Returns
    -------
    DataFrame
        As of `score_concepts`.

    Raises
    ------
    TypeError
        If `rows` are no predictions.
    ValueError
        If truth is missing, or shapes do not go together.

    Examples
    --------
    >>> import torch
    >>> from torch import nn
    >>> from captum_concepts import BottleneckCBM
    >>> from quantus_concepts import CEM, predict_concepts, score_predictions
    >>> model = BottleneckCBM(nn.Identity(), nn.Linear(3, 2), nn.Linear(2, 2))
    >>> images, labels = torch.rand(4, 3), torch.tensor([0, 1, 0, 1])
    >>> rows = predict_concepts(model, [(images, labels, torch.eye(2)[labels])])
    >>> score_predictions(rows, [CEM(top_l=2)], baselines=False)["value"].tolist()
    [0.5]
    """
    given = rows if isinstance(rows, Mapping) else {"model": rows}
    for each in given.values():
        if not isinstance(each, ConceptPredictions):
            raise TypeError(f"Expected argument `rows` to be ConceptPredictions but got {type(each).__name__}.")
    more = {**(truth or {}), **({} if class_concepts is None else {"class_concepts": class_concepts})}
    models = {str(name): _knowing(of, more) for name, of in given.items()}
    of_banks = {str(of.about.get("banks_name") or RANDOM_BANKS) for of in models.values()}
    check_threshold("value_threshold", value_threshold, [*models, *(controls or {}), *of_banks])
    if not models:
        raise ValueError("Expected argument `rows` to hold at least one model but it is empty.")
    first = next(iter(models.values()))
    chosen = chosen_metrics(metrics, first.tables, _names(first))
    if per_image:
        return _images(models, chosen, value_threshold, baselines=baselines)
    of_controls = {title: [_knowing(each, more) for each in own] for title, own in (controls or {}).items()}
    return _table(models, chosen, value_threshold, of_controls, baselines=baselines)


@dataclass
class Pass:
    """Models that predict the images of a loader, the metrics that will score them, and what is known of all images."""

    subjects: list[Subject]
    batches: ConceptBatches
    chosen: list[Chosen]
    looks: Mapping[str, Look]
    tables: Mapping[str, np.ndarray]
    truth_of: TruthLookup
    #: Names of baseline models, and of the random banks beside models.
    control: str
    banks_name: str
    start: int = 0

    def run(self, *, baselines: bool, check: Callable[[], None] | None = None, display_progressbar: bool) -> None:
        """Go through the loader once."""
        kinds = {kind for each in self.chosen for kind in each.kinds}
        predict_subjects(
            *(self.subjects, self.batches, self.looks, kinds),
            start=self.start,
            baselines=baselines,
            check=check,
            display_progressbar=display_progressbar,
        )

    def predictions(self) -> tuple[dict[str, ConceptPredictions], list[ConceptPredictions]]:
        """Return the rows of the models by name, and those of baseline models."""
        models, controls, truth = dict[str, ConceptPredictions](), list[ConceptPredictions](), None
        for each in self.subjects:
            rows = self.about(each, each.rows(truth))
            truth = rows.truth
            if each.control is None:
                models[each.name] = rows
            else:
                controls.append(rows)
        return models, controls

    def about(self, subject: Subject, rows: ConceptPredictions) -> ConceptPredictions:
        """Return rows with what is known of all images, and of the model."""
        model, names = subject.model, self.truth_of.names
        bank = getattr(model, "bank", None)
        known = {
            **self.tables,
            "fitted_concepts": getattr(model, "training_concepts", None),
            "accuracy_of_directions": getattr(bank, "test_accuracy", None),
        }
        tables = {name: to_numpy(value) for name, value in known.items() if value is not None}
        tables |= {name: value for name, value in rows.tables.items() if name == "level"}
        about = {
            **rows.about,
            "class_names": self.truth_of.class_names,
            "concept_names": self.truth_of.concept_names,
            "model_concepts": None if names.concepts is None else [*map(str, names.concepts)],
            "bank_names": None if bank is None else [*map(str, bank.names)],
            "banks_name": self.banks_name,
            "looks": sorted(self.looks),
        }
        return rows.knowing(tables=tables, about=about, banks=tuple(subject.banks))


def _prepare(
    model: ConceptModel | Mapping[str, ConceptModel],
    loader: Iterable[object],
    metrics: Metrics,
    class_concepts: Any,
    truth: Mapping[str, Any] | None,
    baselines: bool,
    control_stride: int,
    start: int | None,
    seed: int,
    *,
    controls: Controls | None,
    keeps_all: bool = False,
) -> Pass:
    """Check the arguments of a pass, which keeps the truth that its metrics read, or all that there is."""
    models = check_concept_models("model", model)
    check_whole("control_stride", control_stride, 1)
    check_whole("seed", seed, 0)
    given = dict(truth or {})
    if class_concepts is not None:
        if given.get("class_concepts") is not None:
            raise ValueError("Expected either argument `class_concepts` or `truth` with it but got both.")
        given["class_concepts"] = class_concepts
    data: Any = getattr(loader, "dataset", None)
    number = 0
    if start is not None:
        data, number = whole_data(loader, start), start
    control, control_models, banks = ("", [], []) if controls is None else check_controls(controls, model)
    subjects = subjects_of(models, control, control_models, banks, _bank_stride(data, control_stride))
    if controls is not None and not control:
        # The random banks that models were fitted with.
        offset = len(models)
        for subject in subjects:
            subject.banks, subject.bank_offset = random_banks_of(subject.model), offset
            offset += len(subject.banks)
    names = {name: given.get(name) for name in ("class_names", "concept_names")}
    truth_of = TruthLookup(loader, [*models.values(), *control_models], **names)
    found = {name: truth_of(name, given.get(name), check) for name, check in TABLES.items()}
    tables = {name: value for name, value in found.items() if value is not None}
    chosen = chosen_metrics(metrics, tables, truth_of.names)
    looks = looks_of(chosen, tables)
    table, parts = tables.get("class_concepts"), tables.get("part_of_concept")
    n_concepts = len(parts) if table is None and parts is not None and len(parts) else None
    n_classes, n_concepts = (None, n_concepts) if table is None else table.shape
    if parts is not None and len(parts):
        check_shape("part_of_concept", parts, ("L",), (n_concepts,))
    readers = {name: each for each in chosen for name in each.sample_truth}
    checks: dict[str, Any] = {
        name: CHECKS.get(name) or each.metric.check_truth  # type: ignore[union-attr]
        for name, each in readers.items()
    }
    if keeps_all:
        of_images = given.keys() - {*TABLES, *ABOUT_ALL}
        checks = {name: CHECKS[name] for name in OF_IMAGES} | dict.fromkeys(of_images, to_array) | checks
    known = [*dict.fromkeys([*CHECKS, *checks, *ABOUT_ALL])]
    if unread := sorted(given.keys() - {*known, "class_concepts"}):
        raise ValueError(
            f"Expected argument `truth` to hold what a metric reads, {', '.join(known)}, but got {', '.join(unread)}."
        )
    checks["labels"] = to_classes
    if given.get("points") is not None and parts is not None:
        check_parts(parts, to_points("points", given["points"]))
    batches = ConceptBatches(
        loader,
        truth_of,
        {name: truth_of.argument(name, given.get(name), check) for name, check in checks.items()},
        checks,
        n_classes=n_classes,
        n_concepts=n_concepts,
        last_part=max(
            (int(look.parts.max(initial=-1)) for look in looks.values() if hasattr(look, "parts")), default=-1
        ),
        elsewhere=EarlierPoints(seed, number, None if start is None else points_lookup(data)) if baselines else None,
        of_metrics=[pair for each in chosen for pair in each.bound_truth.items()],
    )
    return Pass(subjects, batches, chosen, looks, tables, truth_of, control, control or RANDOM_BANKS, number)


def subjects_of(
    models: Mapping[str, ConceptModel],
    control: str,
    control_models: Sequence[ConceptModel],
    banks: Sequence[Any],
    stride: int = 1,
) -> list[Subject]:
    """Return the models that predict and, after them, baseline models of one name; random banks beside the first."""
    subjects = [Subject(name, model, stride=stride) for name, model in models.items()]
    subjects[0].banks, subjects[0].bank_offset = tuple(banks), len(models) + len(control_models)
    return subjects + [
        Subject(control, model, control=number, stride=stride, offset=len(models) + number)
        for number, model in enumerate(control_models)
    ]


def _bank_stride(data: object, stride: int) -> int:
    """Return the stride of baseline models: scores vary more between them than images, and maps take long."""
    return max(stride, len(data) // RANDOM_MAPS if isinstance(data, Sized) else 0)


def _table(
    models: Mapping[str, ConceptPredictions],
    chosen: Sequence[Chosen],
    threshold: Thresholds,
    controls: Mapping[str, Sequence[ConceptPredictions]],
    *,
    baselines: bool,
) -> pd.DataFrame:
    """Return a row for each number: models in their order, baseline models after them, directions last."""
    items = names_of(next(iter(models.values())))
    tables = []
    for name, rows in models.items():
        known = rows.knowing(threshold=threshold_of(threshold, name))
        tables.append(score_table(model_rows(scores_of(name, known, chosen, baselines=baselines), items, name)))
    for title, name, first, own, of_banks in _draws(models, controls):
        of_draws = threshold_of(threshold, name)
        scored = (
            scores_of(name, rows.knowing(threshold=of_draws), chosen, baselines=False, control=number)
            for number, rows in enumerate(own, first)
        )
        banks = [] if of_banks is None else [of_banks.knowing(threshold=of_draws)]
        of_each = (scores_of_banks(name, rows, chosen, first + len(own)) for rows in banks)
        tables.append(range_table(itertools.chain(scored, *of_each), items, title))
    # A table without rows would make the columns of all tables ones of objects.
    table = pd.concat([table for table in tables if len(table)] or tables, ignore_index=True)
    if has_seen_truth(models.values(), chosen):
        warn_user(SEEN_TRUTH)
        table = without_cgim_range(table)
    directions = [
        row
        for name, rows in models.items()
        for row in direction_rows(name, rows.tables.get("accuracy_of_directions"), rows.about.get("bank_names") or [])
    ]
    return pd.concat([table, score_table(directions)], ignore_index=True) if directions else table


def _draws(
    models: Mapping[str, ConceptPredictions], controls: Mapping[str, Sequence[ConceptPredictions]]
) -> Iterator[tuple[str, str, int, Sequence[ConceptPredictions], ConceptPredictions | None]]:
    """Yield groups of baseline models: names in the table and in arguments, first number, rows, those with banks."""
    number, left = 0, dict(controls)
    for name, rows in models.items():
        if rows.banks:
            of_banks = str(rows.about.get("banks_name") or RANDOM_BANKS)
            own = left.pop(of_banks, ())
            title = of_banks if len(models) == 1 else f"{of_banks} of {name}"
            yield title, of_banks, number, own, rows
            number += len(own) + len(rows.banks)
    for title, own in left.items():
        yield title, title, 0, own, None


def threshold_of(threshold: Thresholds, name: str, default: float | None = None) -> float | None:
    """Return the threshold of a model of this name."""
    return threshold.get(name, default) if isinstance(threshold, Mapping) else threshold


def _images(
    models: Mapping[str, ConceptPredictions], chosen: Sequence[Chosen], threshold: Thresholds, *, baselines: bool
) -> pd.DataFrame:
    """Return a row for each image and score of the models, and those about classes by which CGIM is compared."""
    concepts, scores = names_of(next(iter(models.values())))["concept"], {}
    for name, rows in models.items():
        known = rows.knowing(threshold=threshold_of(threshold, name))
        scores[name] = scores_of(name, known, chosen, baselines=baselines)
    tables = [image_table(name, models[name], own) for name, own in scores.items()]
    return pd.concat([*tables, *class_tables(scores, concepts)], ignore_index=True)


def _names(rows: ConceptPredictions) -> ModelNames:
    """Return the names by which tables are brought into the order of a model."""
    return ModelNames(rows.about.get("class_names"), rows.about.get("model_concepts"))


def _knowing(rows: ConceptPredictions, more: Mapping[str, Any]) -> ConceptPredictions:
    """Return rows with more truth, checked."""
    names = _names(rows)
    tables, samples, about = dict(rows.tables), dict(rows.truth), dict(rows.about)
    for name, value in more.items():
        if name in ("class_names", "concept_names"):
            about[name] = None if value is None else [*map(str, value)]
        elif name in TABLES:
            tables[name] = TABLES[name](name, in_order(name, value, names))
        else:
            value, check = in_order(name, value, names), CHECKS.get(name)
            samples[name] = torch.as_tensor(np.asarray(value) if check is None else check(name, value))
            check_shape(name, samples[name], ("N",), (len(rows),), more=True)
    return rows.knowing(tables=tables, truth=samples, about=about) if more else rows


def has_seen_truth(rows: Iterable[ConceptPredictions], chosen: Sequence[Chosen]) -> bool:
    """Whether CGIM's truth is what a model saw when its directions were fitted."""
    own = [each.metric.class_concepts for each in chosen if isinstance(each.metric, CGIM)]
    usual = any(isinstance(each.metric, UsualMetrics) for each in chosen)
    return any(
        truth is not None and truth.shape == fitted.shape and np.allclose(truth, fitted, atol=1e-6)
        for of_model in rows
        if (fitted := of_model.tables.get("fitted_concepts")) is not None
        for truth in (*own, *([of_model.tables.get("class_concepts")] if usual else []))
    )


def check_threshold(name: str, threshold: Thresholds, models: Sequence[str]) -> None:
    """Raise for a threshold that is not finite, or is of none of the models of these names."""
    if isinstance(threshold, Mapping) and (unknown := [model for model in threshold if model not in models]):
        known = ", ".join(repr(model) for model in dict.fromkeys(models) if model)
        raise ValueError(f"Expected argument `{name}` to name models, {known}, but got {unknown[0]!r}.")
    for number in threshold.values() if isinstance(threshold, Mapping) else [threshold]:
        if number is not None:
            check_range(name, number, -math.inf, math.inf, open_low=True, open_high=True)
