"""Concept quality: average precision, F1, Brier score and calibration of concept values, and a plot of calibration."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Unpack, cast

import numpy as np
from matplotlib import pyplot as plt
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from quantus.helpers.enums import EvaluationCategory, ScoreDirection
from torch import Tensor

from captum_concepts.pictures.gallery import TextFigure, figure_of
from captum_concepts.support.checks import check_choice, check_kind, check_range, check_whole, to_presence
from quantus_concepts.functional import concept_quality, concept_quality_interval, interval
from quantus_concepts.functional.arguments import Numbers
from quantus_concepts.functional.bottleneck.concept_quality import F1, OF_PROBABILITIES, QUALITIES, chance_quality
from quantus_concepts.functional.bottleneck.leakage import discretise
from quantus_concepts.metrics.bottleneck.concept_auc import NOT_A_NUMBER, ONE_SIDED, seen_values
from quantus_concepts.metrics.concepts.oracle_head import known_threshold, present_from
from quantus_concepts.metrics.host.checks import to_classes
from quantus_concepts.metrics.host.concept_metric import ConceptMetric
from quantus_concepts.metrics.host.plotting import show_names_literally
from quantus_concepts.metrics.host.predictions import ConceptPredictions
from quantus_concepts.metrics.host.record import QuantusArguments
from quantus_concepts.metrics.host.scores import Counted, Counts, MetricScores

#: What each score is called in a table.
LABELS = {
    **{"average_precision": "concept average precision", "f1": "concept F1"},
    **{"brier": "concept Brier score", "calibration_error": "concept calibration error"},
}
NO_PROBABILITIES = "values are no probabilities"
#: Okabe and Ito's, which colour-blind readers tell apart.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9")


class ConceptQuality(ConceptMetric):
    """How well each concept value says whether an image shows its concept, by scores that the field knows.

    - ``score="average_precision"``: the area under the curve of precision and recall. Chance is the prevalence.
    - ``score="f1"``: F1 of "present", with images that show a concept and others weighted alike. Chance is that of a
      guess that says "present" as often.
    - ``score="brier"``: mean squared error of probabilities; lower is better. Chance is p (1 - p), p the prevalence.
    - ``score="calibration_error"``: expected calibration error of probabilities, in bins of equal frequency; lower is
      better. A value that is the prevalence for all images has 0, so that it stands beside another score.

    `functional.concept_quality` has the formulas. In tables of `score_concepts` with ``metrics="all"`` the rows
    "concept average precision", "concept F1", "concept Brier score" and "concept calibration error" are the mean over
    the concepts, with its interval by the jackknife over classes, and that of each concept.

    - **At the bottleneck** ``x_batch`` are the concept values (N, L), of any model; no explanation is read.
    - **On images** ``model`` is a concept model (`ConceptModel`), whose values it computes.

    Parameters
    ----------
    score : str
        One of the four.
    threshold : float, optional
        Value from which on a concept is present, for "f1". By default `value_threshold` of the call, else 0 of margins
        and 0.5 of probabilities.
    n_bins : int
        Bins of "calibration_error".
    concept_labels : array_like, optional
        (N, L) of 0 and 1, aligned with ``x_batch``. May be left out where every call passes
        ``custom_batch={"concept_labels": ...}``.
    labels : array_like, optional
        (N,) true classes, over which the interval of the mean is; ``y_batch`` if None.
    **quantus : Unpack[QuantusArguments]
        `abs`, `normalise` and what else every Quantus metric takes, by keyword. Explanations are not read. The default
        aggregate is the mean of the defined scores.

    Raises
    ------
    ValueError
        If `score`, `threshold` or `n_bins` is out of its range, labels are not 0 or 1, or for "f1" it is not known from
        which value on a concept is present, as with a head as ``model`` and no `threshold`.

    Notes
    -----
    Scores are in [0, 1], of concepts and not of samples. NaN, counted in ``records[-1].reasons``: of the first two a
    concept that all images show or none; of the last two all concepts of a model whose values are no probabilities,
    as margins: nothing is fitted to make them some. An image with a value that is NaN is left out.

    Examples
    --------
    >>> import numpy as np
    >>> from torch import nn
    >>> from quantus_concepts import ConceptQuality
    >>> values = np.array([[0.1, 0.2], [0.4, 0.1], [0.6, 0.3], [0.9, 0.0]], dtype="float32")
    >>> metric = ConceptQuality(
    ...     "f1", threshold=0.5, concept_labels=[[0, 0], [0, 0], [1, 1], [1, 0]]
    ... )
    >>> metric(nn.Linear(2, 2), values, y_batch=np.array([0, 0, 1, 1]), a_batch=values)
    [1.0, 0.0]
    """

    name = "ConceptQuality"
    score_direction = ScoreDirection.HIGHER
    evaluation_category = EvaluationCategory.NONE
    bounds = (0.0, 1.0)
    of_samples = False
    sample_truth = ("concept_labels", "labels")
    needed = ("concept_labels",)

    def __init__(
        self,
        score: str = "average_precision",
        threshold: float | None = None,
        n_bins: int = 15,
        concept_labels: Numbers | None = None,
        labels: Numbers | None = None,
        **quantus: Unpack[QuantusArguments],
    ) -> None:
        """Set the score. A score of 1 says that a value names its concept in all images without an error.

        A score of 0 says that it never does; of probabilities, that they are right.
        """
        super().__init__(**quantus)
        check_choice("score", score, QUALITIES)
        if threshold is not None:
            check_range("threshold", threshold, -np.inf, np.inf, open_low=True, open_high=True)
        self.score, self.threshold, self.n_bins = score, threshold, check_whole("n_bins", n_bins, 2)
        if score in OF_PROBABILITIES:
            self.score_direction = ScoreDirection.LOWER  # type: ignore[misc]
        self._bind(concept_labels=concept_labels, labels=labels)

    def check_truth(self, name: str, value: Any) -> np.ndarray:
        """Return labels of concepts (N, L) or of classes (N,), or raise."""
        return to_classes(name, value) if name == "labels" else to_presence(name, value)

    @classmethod
    def usual(cls, tables: Mapping[str, Any]) -> Sequence[ConceptQuality]:
        """Return the variants of a table of all metrics: all four."""
        return [cls(score) for score in QUALITIES]

    def for_model(self, name: str, rows: ConceptPredictions, control: int | None) -> ConceptQuality | None:
        """Return the same; nothing for probabilities of baseline models that have none, as random banks."""
        return None if control is not None and self._lacks_probabilities(rows) else self

    def missing(self, rows: ConceptPredictions) -> str:
        """Return the name of what rows have to have and lack, "" for nothing."""
        lacks_threshold = self.score == F1 and present_from(rows, self.threshold) is None
        return super().missing(rows) or ("threshold" if lacks_threshold else "")

    def score_rows(self, rows: ConceptPredictions) -> MetricScores:
        """Return the score of each concept in all rows."""
        fields = [{"metric": LABELS[self.score], "item_kind": "concept"}]
        n_concepts = rows.shape[1]
        if self._lacks_probabilities(rows):
            reasons: Counts = {NO_PROBABILITIES: Counted(n_concepts, n_concepts, "concepts")}
            return MetricScores(fields, np.full((n_concepts, 1), np.nan), reasons=lambda _: reasons)
        threshold = known_threshold(rows, self) if self.score == F1 else 0.5
        values, concepts, seen = seen_values(rows)
        if not len(values):
            reasons = {NOT_A_NUMBER: Counted(len(rows), len(rows))}
            return MetricScores(fields, np.full((n_concepts, 1), np.nan), reasons=lambda _: reasons)
        scores = concept_quality(values, concepts, self.score, threshold, self.n_bins).double().numpy()
        undefined, left_out = int(np.isnan(scores).sum()), len(rows) - len(values)
        reasons = {ONE_SIDED: Counted(undefined, n_concepts, "concepts")} if undefined else {}
        reasons |= {NOT_A_NUMBER: Counted(left_out, len(rows))} if left_out else {}
        return MetricScores(
            fields,
            scores[:, None],
            chance_quality(values, concepts, self.score, threshold).double().numpy()[:, None],
            reasons=lambda _: reasons,
            mean_interval=lambda _: concept_quality_interval(
                values, concepts, rows.labels[seen], self.score, threshold, self.n_bins
            ),
        )

    def _lacks_probabilities(self, rows: ConceptPredictions) -> bool:
        """Return whether a score of probabilities has none."""
        return self.score in OF_PROBABILITIES and not are_probabilities(rows)


def are_probabilities(rows: ConceptPredictions) -> bool:
    """Return whether concept values are probabilities: those of a model that says so, in [0, 1]."""
    values = cast(Tensor, rows.values)
    return bool(rows.about["bounded"]) and not bool(((values < 0) | (values > 1)).any())


def plot_calibration(
    rows: ConceptPredictions | Mapping[str, ConceptPredictions], n_bins: int = 15, ax: Axes | None = None
) -> tuple[Figure, Axes]:
    """Draw a reliability diagram: the share of images that show a concept, over the probability that the model gave.

    The probabilities of all concepts and images together are in bins of equal frequency, a point each, with the 95 %
    interval of its share over the true classes as clusters. A model that knows how sure it is lies on the diagonal; one
    that knows nothing can lie there too, in a single point at the dotted line, the share of all labels that are 1.

    Parameters
    ----------
    rows : ConceptPredictions or dict
        What `predict_concepts` gives, with concept labels, of one model, or of several by name.
    n_bins : int
        Number of bins. Equal probabilities share one.
    ax : matplotlib Axes, optional
        Axes to draw on; a new figure if None.

    Returns
    -------
    tuple
        Figure and axes. Nothing is shown or saved.

    Raises
    ------
    TypeError
        If `rows` holds something else, or `ax` is no Axes.
    ValueError
        If the rows have no concept labels, values that are no probabilities, or none that is a number.
    """
    models = rows if isinstance(rows, Mapping) else {"": rows}
    check_whole("n_bins", n_bins, 2)
    check_kind("ax", ax, Axes | None, "Axes of matplotlib")
    points = {name: _calibration(name, of, n_bins) for name, of in models.items()}
    if ax is None:
        _, ax = plt.subplots(figsize=(4.6, 4.2), layout="constrained", FigureClass=TextFigure)
    ax.plot([0, 1], [0, 1], color="#777777", linestyle="--", lw=1, label="calibrated")
    for number, (name, (mean, share, ends, prevalence)) in enumerate(points.items()):
        colour = COLOURS[number % len(COLOURS)]
        ax.plot(mean, share, color=colour, marker="o", markersize=4, lw=1.2, label=name or "model")
        ax.vlines(mean, *ends.T, color=colour, alpha=0.4, lw=2)
        ax.axhline(prevalence, color=colour, linestyle=":", lw=1)
    ax.set(xlim=(-0.02, 1.02), ylim=(-0.02, 1.02), xlabel="probability of the concept in the model")
    ax.set_ylabel("share of images that show it (dotted: of all)")
    ax.legend(frameon=False, fontsize=9)
    figure = figure_of(ax)
    show_names_literally(figure)
    return figure, ax


def _calibration(name: str, rows: ConceptPredictions, n_bins: int) -> tuple[np.ndarray, np.ndarray, np.ndarray, float]:
    """Return mean probability (B,), share of images with the concept (B,), its interval (B, 2), and that of all."""
    check_kind("rows", rows, ConceptPredictions, "ConceptPredictions")
    of = f" of {name!r}" if name else ""
    if "concept_labels" not in rows.truth:
        raise ValueError(f"Expected argument `rows`{of} to have concept labels but they have none. Predict with them.")
    if not are_probabilities(rows):
        raise ValueError(
            f"Expected argument `rows`{of} to hold probabilities but values of {rows.about['kind']} are none: those "
            "of a model with sigmoids are."
        )
    values, concepts, seen = seen_values(rows)
    if not len(values):
        raise ValueError(f"Expected argument `rows`{of} to hold values that are numbers but all are NaN.")
    flat, shown = values.double().flatten(), concepts.double().flatten()
    clusters, bins = rows.labels[seen].repeat_interleave(values.shape[1]), discretise(flat[None], n_bins)[0]
    members = [bins == each for each in bins.unique().tolist()]
    mean, share = (np.array([float(part[each].mean()) for each in members]) for part in (flat, shown))
    ends = [interval(shown[each], clusters=clusters[each]) for each in members]
    return mean, share, np.array(ends), float(shown.mean())
