"""Images in which one attribute is replaced, scored by attribute, group and class: `score_substitutions`."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial

import numpy as np
import pandas as pd

from captum_concepts.support.checks import to_presence
from quantus_concepts.functional.arguments import Numbers
from quantus_concepts.functional.concepts.substitution import pair_numbers
from quantus_concepts.metrics.concepts import names as col
from quantus_concepts.metrics.concepts.accuracy import seen_accuracies
from quantus_concepts.metrics.concepts.substitution import SCORES, Moves, recital_scores, substitution_scores
from quantus_concepts.metrics.host.alignment import TruthLookup
from quantus_concepts.metrics.host.checks import to_class_concepts, to_classes, to_numbers
from quantus_concepts.metrics.host.model import ConceptModel, Controls, check_concept_models, check_controls
from quantus_concepts.metrics.host.predictions import ConceptPredictions
from quantus_concepts.metrics.host.scores import MetricScores, Row
from quantus_concepts.metrics.streaming.api import check_threshold, subjects_of, threshold_of
from quantus_concepts.metrics.streaming.engine import Subject, predict_subjects
from quantus_concepts.metrics.streaming.loader import ADDED_REQUIRED, SEEN_REQUIRED, Check, ConceptBatches
from quantus_concepts.metrics.streaming.table import KEYS, draws_table, mean_row, model_rows, names_of, score_table


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
    models, (control, control_models, banks) = check_concept_models("model", model), check_controls(controls, model)
    check_threshold("threshold", threshold, [*models, control])
    named = {"class_names": class_names, "concept_names": concept_names}
    truth_of = TruthLookup(loader, [*models.values(), *control_models], **named)
    given = bound_substitutions(truth_of, added, removed, labels)
    table = truth_of("class_concepts", class_concepts, to_class_concepts)
    sizes = {} if table is None else dict(zip(("n_classes", "n_concepts"), table.shape, strict=True))
    subjects = subjects_of(models, control, control_models, banks)

    def predict(batches: ConceptBatches, metrics: Sequence[Moves]) -> list[tuple[str, bool, ConceptPredictions]]:
        looks = {look.name: look for look in (metric.look() for metric in metrics)}
        predict_subjects(subjects, batches, looks, (), display_progressbar=display_progressbar)
        return [*_predictions(subjects, control, threshold)]

    checks: dict[str, Check] = dict.fromkeys(("added", "removed"), to_numbers)
    batches = ConceptBatches(loader, truth_of, given, checks, required=ADDED_REQUIRED, **sizes)
    predicted = predict(batches, [Moves()])
    first = predicted[0][2]
    known = {"class_names": truth_of.class_names, "concept_names": truth_of.concept_names}
    items = names_of(first.knowing(about={**first.about, **known}))
    about = AboutImages(
        labels=first.labels.numpy(),
        added=first.truth["added"].numpy(),
        removed=first.truth["removed"].numpy(),
        pairs=truth_of("pairs", pairs, to_classes),
        class_names=items["class"],
        concept_names=items["concept"],
    )
    scores = [(name, is_model, rows, substitution_columns(rows, table)) for name, is_model, rows in predicted]
    of_seen: list[Sequence[MetricScores]] = []
    if seen is not None:
        of_seen_images = TruthLookup(seen, [*models.values(), *control_models])
        checks = {"concept_labels": to_presence}
        batches = ConceptBatches(seen, of_seen_images, {}, checks, required=SEEN_REQUIRED, **sizes)
        of_seen = [seen_accuracies(rows, about.put_in) for _, _, rows in predict(batches, [])]
    return partial(substitution_table, scores, about, of_seen), partial(substitution_images, scores, about)


#: Of each model or baseline model: its name, whether it is no baseline, its rows, and its scores by name.
Scores = Sequence[tuple[str, bool, ConceptPredictions, dict[str, np.ndarray]]]


def _predictions(
    subjects: Sequence[Subject], control: str, threshold: float | Mapping[str, float]
) -> list[tuple[str, bool, ConceptPredictions]]:
    """Return the rows of models and, after them, of baseline models and random banks."""
    found, of_banks = list[tuple[str, bool, ConceptPredictions]](), list[ConceptPredictions]()
    for subject in subjects:
        rows = subject.rows().knowing(threshold=threshold_of(threshold, subject.name, col.CHANCE))
        found.append((subject.name, subject.control is None, rows.knowing(banks=())))
        of_control = threshold_of(threshold, control, col.CHANCE)
        of_banks += rows.knowing(banks=tuple(subject.banks), threshold=of_control).of_banks()
    return found + [(control, False, rows) for rows in of_banks]


def substitution_columns(rows: ConceptPredictions, class_concepts: np.ndarray | None) -> dict[str, np.ndarray]:
    """Return the scores (n,) of images by name."""
    threshold = rows.threshold if rows.threshold is not None else col.CHANCE
    found = [substitution_scores(rows, score, threshold) for score in SCORES]
    found += [] if class_concepts is None else [recital_scores(rows, class_concepts, threshold)]
    moves = Moves()
    found += [] if moves.missing(rows) else [moves.score_rows(rows)]
    return {
        str(fields["metric"]): scores.values[:, place] for scores in found for place, fields in enumerate(scores.fields)
    }


def bound_substitutions(
    truth_of: TruthLookup, added: Numbers | None, removed: Numbers | None, labels: Numbers | None
) -> dict[str, np.ndarray | None]:
    """Return arrays with a row for each image that go before those of the loader's batches."""
    put_in = truth_of("added", added, to_numbers)
    if put_in is not None and not (put_in >= 0).any():
        raise ValueError(
            "Expected argument `added` to hold a concept of the model but all are -1: what was put in and the model's "
            "concepts have nothing in common. Name the concepts as the data set does."
        )
    return {
        "added": put_in,
        "removed": truth_of("removed", removed, to_numbers),
        "labels": truth_of.argument("labels", labels, to_classes),
    }


class AboutImages:
    """Pair, class, and concepts put in and taken out of each image, by name."""

    def __init__(
        self,
        labels: np.ndarray,
        added: np.ndarray,
        removed: np.ndarray,
        pairs: np.ndarray | None,
        class_names: Sequence[str],
        concept_names: Sequence[str],
    ) -> None:
        self.labels, self.added, self.removed = (column.astype(np.int64) for column in (labels, added, removed))
        self.class_names, self._concept_names = np.array(class_names), np.array([*concept_names, ""])
        self._pairs = pair_numbers(self.labels, self.added) if pairs is None else pairs
        if len(self._pairs) != len(self.labels):
            raise ValueError(
                f"Expected argument `pairs` to have shape (N,) = ({len(self.labels)},), one for each image, but got "
                f"{self._pairs.shape}."
            )

    @property
    def put_in(self) -> np.ndarray:
        """The concepts that are put in anywhere."""
        return np.unique(self.added[self.added >= 0])

    def rows(
        self, scores: Mapping[str, np.ndarray], chances: Mapping[str, np.ndarray], *, intervals: bool = True
    ) -> list[Row]:
        """Return the rows of one model: of all images, and of those of one attribute, group or class."""
        attributes = self._concept_names[self.added]
        groups = np.array([name.partition("::")[0] if "::" in name else "" for name in attributes])
        kinds = (("attribute", attributes), ("group", groups), ("class", self.class_names[self.labels]))
        every, unknown = np.ones(len(self.labels), bool), np.full(len(self.labels), np.nan)
        parts = [("", "", every)]
        parts += [(kind, str(item), items == item) for kind, items in kinds for item in np.unique(items[items != ""])]
        return [
            mean_row(
                column[chosen],
                self._pairs[chosen],
                chances=chances.get(metric, unknown)[chosen],
                intervals=intervals,
                metric=metric,
                item_kind=kind,
                item=item,
            )
            for kind, item, chosen in parts
            for metric, column in scores.items()
        ]

    def images(self, scores: Mapping[str, np.ndarray], model: str, predicted: np.ndarray) -> pd.DataFrame:
        """Return the scores of one model, a row for each image and score."""
        about = pd.DataFrame(
            {
                "model": model,
                "image": np.arange(len(self.labels)),
                "pair": self._pairs,
                "class": self.class_names[self.labels],
                "added": self._concept_names[self.added],
                "removed": self._concept_names[self.removed],
                "predicted": predicted,
            }
        )
        tables = [about.assign(metric=metric, value=column) for metric, column in scores.items()]
        return pd.concat(tables, ignore_index=True)


def substitution_images(scores: Scores, about: AboutImages) -> pd.DataFrame:
    """Return a row for each image and score of the models."""
    tables = [
        about.images(columns, name, about.class_names[rows.classes.numpy()])
        for name, is_model, rows, columns in scores
        if is_model
    ]
    return pd.concat(tables, ignore_index=True)


def substitution_table(scores: Scores, about: AboutImages, of_seen: Sequence[Sequence[MetricScores]]) -> pd.DataFrame:
    """Return a row for each number, models in order and controls last.

    With `of_seen` also those of images without substitution.
    """
    half = dict.fromkeys((col.PLUS, col.MINUS), np.full(len(about.labels), col.CHANCE))
    frames, controls = list[pd.DataFrame](), list[list[Row]]()
    for place, (name, is_model, _, columns) in enumerate(scores):
        # Intervals of controls come from their spread, not from images.
        rows = [row | {"model": name} for row in about.rows(columns, half, intervals=is_model)]
        rows += model_rows(of_seen[place], {}, name) if of_seen else []
        if is_model:
            frames.append(score_table(rows))
        else:
            controls.append(rows)
    if controls:
        keys = [{name: row[name] for name in KEYS if name in row} for row in controls[0]]
        draws, chances = (
            np.array([[row.get(name, np.nan) for row in rows] for rows in controls], dtype=float)
            for name in ("value", "chance")
        )
        frames.append(draws_table(keys, draws, chances))
    return pd.concat(frames, ignore_index=True)
