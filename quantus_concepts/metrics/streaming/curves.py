"""Accuracy of a concept model while people correct its concepts, and with wrong answers."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import pandas as pd

from captum_concepts.support.checks import to_presence
from quantus_concepts.functional.arguments import Numbers
from quantus_concepts.functional.concepts.interventions import ORDERS
from quantus_concepts.metrics.concepts.interventions import CURVE_COLUMNS, InterventionAccuracy, ModelLevels
from quantus_concepts.metrics.concepts.names import INTERVENED
from quantus_concepts.metrics.host.alignment import TruthLookup
from quantus_concepts.metrics.host.checks import to_classes
from quantus_concepts.metrics.host.model import ConceptModel, check_concept_models
from quantus_concepts.metrics.streaming.api import Thresholds, check_threshold, subjects_of, threshold_of
from quantus_concepts.metrics.streaming.choice import Chosen, scores_of
from quantus_concepts.metrics.streaming.engine import predict_subjects
from quantus_concepts.metrics.streaming.loader import ConceptBatches
from quantus_concepts.metrics.streaming.table import model_rows, score_table

TRUE_LABELS = "true labels"


def intervention_curve(
    model: ConceptModel | Mapping[str, ConceptModel],
    loader: Iterable[object],
    *,
    concept_labels: Numbers | None = None,
    labels: Numbers | None = None,
    counts: Sequence[int] | None = None,
    orders: Sequence[str] = ORDERS,
    groups: Numbers | None = None,
    levels: ModelLevels | None = None,
    value_threshold: Thresholds = None,
    seed: int = 0,
    error_rate: float = 0.0,
    abstention_rate: float = 0.0,
    costs: Numbers | None = None,
    display_progressbar: bool = False,
) -> pd.DataFrame:
    """Return the class accuracy of concept models over the number of concepts that people correct.

    Test-time intervention of Koh et al. (2020), "Concept Bottleneck Models", section 5: concept values are set to what
    the concept labels say, more and more of them, and the head predicts the class again. The backbone runs once. The
    control is the same with every label turned into its opposite: a model that uses its concepts gets worse by it. A
    curve that rises with wrong answers, too, does not show that the model uses the answers. As in all concept metrics,
    the bottleneck of a `ResidualCBM` is scored without its residual.

    Parameters
    ----------
    model : ConceptModel or dict
        A concept model, or several by name; left as they were.
    loader : iterable
        Batches as of `score_concepts`, with concept labels.
    concept_labels : array_like, optional
        (N, L) of 0 and 1, in place of those of the batches.
    labels : array_like, optional
        (N,), likewise.
    counts : sequence of int, optional
        After how many answers; by default 0, 1, 2, 4, ... and all (`functional.intervention_counts`). With `costs`
        budgets: groups are asked about in order, until the next one costs more than is left.
    orders : sequence of str
        Order in which the concepts of an image are corrected: "random", "uncertainty" or "contribution"
        (`functional.intervention_ranks`; the last one needs the answers to choose, and is an upper bound).
    groups : array_like, optional
        (L,) of int from 0: concepts that are answered together, and counted as one.
    levels : Levels or dict, optional
        Values of an absent and a present concept if values are not bounded, of all models or by name:
        `captum_concepts.PostHocCBM.value_levels` of the training images. Elsewhere 0 and 1.
    value_threshold : float or dict, optional
        Value at which a concept is as likely there as not, for "uncertainty"; by default the middle of the levels.
        It is 0 for margins.
    seed : int
        Random seed of the random order, which is another one for each image, and of errors.
    error_rate : float
        Probability that an answer is wrong (`functional.simulate_answers`).
    abstention_rate : float
        Probability that there is no answer: the value stays, and the question is paid for.
    costs : array_like, optional
        (G,) of int from 1: the cost of each group, or concept without `groups`, in a unit of your choice.
    display_progressbar : bool
        Whether a bar shows the batches.

    Returns
    -------
    DataFrame
        A row for each ``model``, ``order``, ``labels`` ("true labels" or "wrong labels") and ``count``: the accuracy
        ``value`` with its 95 % interval ``low`` to ``high`` over the true classes as clusters, and ``n`` images.

    Raises
    ------
    TypeError
        If a model is not a concept model, or an argument has the wrong type.
    ValueError
        If concept labels or levels are missing, or an argument is out of its range or does not go with another.
    """
    models = check_concept_models("model", model)
    check_threshold("value_threshold", value_threshold, [*models])
    people: dict[str, Any] = {"error_rate": error_rate, "abstention_rate": abstention_rate, "costs": costs}
    metric = InterventionAccuracy(counts, orders, groups, levels, seed, **people)
    truth_of = TruthLookup(loader, models.values())
    given = {
        "labels": truth_of.argument("labels", labels, to_classes),
        "concept_labels": truth_of.argument("concept_labels", concept_labels, to_presence),
    }
    batches = ConceptBatches(loader, truth_of, given, {"concept_labels": to_presence})
    subjects, chosen = subjects_of(models, "", [], []), [Chosen(metric)]
    predict_subjects(subjects, batches, {}, chosen[0].kinds, display_progressbar=display_progressbar)
    rows = []
    for subject in subjects:
        own = subject.rows().knowing(threshold=threshold_of(value_threshold, subject.name))
        rows += model_rows(scores_of(subject.name, own, chosen, baselines=False), {}, subject.name)
    return curves_of(score_table(rows))


def curves_of(scores: pd.DataFrame) -> pd.DataFrame:
    """Return the intervention curves among the numbers of `score_concepts`."""
    rows = scores[scores["metric"] == INTERVENED]
    answers = rows["baseline"].where(rows["baseline"] != "", TRUE_LABELS)
    rows = rows.assign(labels=answers, order=rows["explanation"], count=rows["l"].astype(int))
    return rows[list(CURVE_COLUMNS)].reset_index(drop=True)
