"""The substitution score: does a model see the concept put in, or recite its class?"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Unpack, cast

import numpy as np
import torch
from quantus.helpers.enums import EvaluationCategory, ScoreDirection
from torch import Tensor, nn

from captum_concepts.support.checks import check_choice, check_range
from captum_concepts.support.running import predict_logits
from quantus_concepts.functional import substitution
from quantus_concepts.functional.arguments import Numbers
from quantus_concepts.functional.concepts.substitution import MAJORITY, NO_CONCEPT, movement, recital
from quantus_concepts.metrics.concepts import names as col
from quantus_concepts.metrics.host.checks import Truth, to_classes, to_numbers
from quantus_concepts.metrics.host.concept_metric import ConceptMetric
from quantus_concepts.metrics.host.explanations import Explanations
from quantus_concepts.metrics.host.looks import Look, Looked, Looking
from quantus_concepts.metrics.host.model import is_concept_model, share
from quantus_concepts.metrics.host.predictions import ConceptPredictions
from quantus_concepts.metrics.host.record import QuantusArguments
from quantus_concepts.metrics.host.scores import Counts, MetricScores, counted

SCORES = ("added", "removed")
CHANCE = 0.5


class SubstitutionScore(ConceptMetric):
    """Substitution score: is the concept put into an image predicted present, or the one taken out absent?

    Bader et al. (2025), "SUB: Benchmarking CBM Generalization via Synthetic Attribute Substitutions", Section 5.5: the
    mean of ``score="added"`` is their S+, of ``score="removed"`` their S-. Each image shows a bird of which one
    attribute is replaced by another of its group (`quantus_concepts.datasets.PaintedSubstitutions`,
    `quantus_concepts.datasets.SUB`).

    - **On images** ``model`` is a concept model (`ConceptModel`), and the metric
      computes the concept values itself.
      Any other module on images is taken to map them to concept values (N, L).
    - **At the bottleneck** ``model`` is the head, and ``x_batch`` holds the concept values (N, L).

    The explanation method plays no role in either: every row of ``quantus.evaluate`` shows the same scores.

    Parameters
    ----------
    added : array_like, optional
        (N,) of int, aligned with ``x_batch``: the concept put into each image, 0 to L - 1, or -1 where it is none of
        the model's. May be left out where every call passes ``custom_batch={"added": ...}``.
    removed : array_like, optional
        (N,) of int: the concept taken out, -1 where there is none. Needed for ``score="removed"``, likewise.
    score : str
        "added" (S+) or "removed" (S-).
    threshold : float
        Value from which on a concept counts as present: 0.5 of probabilities, 0 of margins and logits.
    pairs : array_like, optional
        (N,) of int: which images share a recipe (class and concept put in) and are no independent samples. By default
        from ``y_batch`` and `added`, which is right where ``y_batch`` is the bird's class.
    **quantus : Unpack[QuantusArguments]
        `abs`, `normalise` and what else every Quantus metric takes, by keyword; they have no effect here, where no
        attribution enters. The default aggregate is the mean of the defined scores.

    Raises
    ------
    TypeError
        If the threshold is no number.
    ValueError
        If concepts are no whole numbers of at least -1, `score` is none of the two, or the threshold is not finite.

    Notes
    -----
    Higher is better. Chance, in ``records[-1].chance``, is 1/2. A model that recites the concepts of the class has S+
    and S- of 0, one that sees them of 1; one that calls everything present has 1 and 0: read the two together.
    ``records[-1].clusters`` holds the pairs, for intervals. NaN, counted by reason in ``records[-1].reasons``: images
    whose `added` is -1, of S+ and S-, as in the authors' release; of S- also images whose `removed` is -1 or equal to
    `added`; and values that are NaN. The paper's Table 1: a concept bottleneck model trained jointly 34.3 and 54.0 %, a
    concept embedding model 45.7 and 87.2 %, people 94.0 and 96.8 %.

    Examples
    --------
    >>> import numpy as np
    >>> from torch import nn
    >>> from quantus_concepts import SubstitutionScore
    >>> values = np.array([[0.9, 0.2], [0.4, 0.8]], dtype="float32")
    >>> metric = SubstitutionScore(added=[0, 0], threshold=0.5)
    >>> metric(nn.Linear(2, 2), values, y_batch=np.array([0, 1]))
    [1.0, 0.0]
    """

    name = "SubstitutionScore"
    score_direction = ScoreDirection.HIGHER
    evaluation_category = EvaluationCategory.NONE
    bounds = (0.0, 1.0)
    sample_truth = ("added", "removed", "pairs")
    needed = ("added",)

    def __init__(
        self,
        added: Numbers | None = None,
        removed: Numbers | None = None,
        score: str = "added",
        threshold: float = 0.5,
        pairs: Numbers | None = None,
        **quantus: Unpack[QuantusArguments],
    ) -> None:
        """Bind the concepts. A score of 1 says that the model sees the concept put in, or the other gone.

        A score of 0 says that it does not.
        """
        super().__init__(**quantus)
        check_choice("score", score, SCORES)
        check_range("threshold", threshold, -math.inf, math.inf, open_low=True, open_high=True)
        self.score, self.threshold = score, float(threshold)
        self._bind(added=added, removed=removed, pairs=pairs)

    def check_truth(self, name: str, value: Numbers) -> np.ndarray:
        """Return concepts or pairs (N,), or raise."""
        return to_classes(name, value) if name == "pairs" else to_numbers(name, value)

    def check_call(
        self, model: nn.Module | None, x_batch: np.ndarray, y_batch: np.ndarray, truth: Truth, explain: Explanations
    ) -> Truth:
        """Raise unless there are concepts and something that values come from."""
        if self.score not in truth:
            raise self.missing_error(self.score)
        if x_batch.ndim != 2 and (x_batch.ndim != 4 or model is None):
            raise ValueError(
                f"{self.name} needs images (N, C, H, W) with argument `model`, a concept model or a module that maps "
                f"images to concept values, or concept values (N, L) as `x_batch`, but got `x_batch` of shape "
                f"{x_batch.shape} and {'no model' if model is None else type(model).__name__}."
            )
        return truth

    def rows_of(
        self,
        model: Any,
        x_batch: np.ndarray,
        y_batch: np.ndarray,
        explain: Explanations,
        truth: Mapping[str, Any],
        *,
        banks: Sequence[Any] = (),
    ) -> Any:
        """Return concept values of some samples, given or computed from images, beside their truth."""
        if x_batch.ndim == 2:
            values = torch.as_tensor(x_batch.astype(np.promote_types(x_batch.dtype, np.float32)))
        elif not is_concept_model(model):
            values = _values(model, x_batch)
        else:
            return super().rows_of(model, x_batch, y_batch, explain, truth, banks=banks)
        kept = {name: torch.as_tensor(truth[name]) for name in self.sample_truth if name in truth}
        return ConceptPredictions(classes=torch.as_tensor(y_batch), values=values, truth=kept)

    def missing(self, rows: ConceptPredictions) -> str:
        """Return the name of what rows have to have and lack, "" for nothing."""
        return super().missing(rows) or (self.score if self.score not in rows.truth else "")

    def score_rows(self, rows: ConceptPredictions) -> MetricScores:
        """Return the scores by the threshold of the model or of the metric."""
        threshold = self.threshold if rows.threshold is None else rows.threshold
        return substitution_scores(rows, self.score, threshold)


def substitution_scores(rows: ConceptPredictions, score: str, threshold: float) -> MetricScores:
    """Score S+ or S-."""
    added, removed = rows.truth["added"], rows.truth.get("removed")
    removed = torch.full_like(added, NO_CONCEPT) if removed is None else removed
    both = torch.stack(substitution(cast(Tensor, rows.values), added, removed, threshold), 1)
    scores, unknown = both[:, SCORES.index(score)].double().cpu().numpy(), (added < 0).numpy()
    unchanged = ((removed < 0) | (removed == added)).numpy() & ~unknown & (score == "removed")

    def reasons(variant: int) -> Counts:
        masks = {
            "no concept was taken out": unchanged,
            "the concept put in is none of the model's": unknown,
            "the model's values are NaN": np.isnan(scores) & ~unknown & ~unchanged,
        }
        return counted(masks, len(rows))

    name = col.PLUS if score == SCORES[0] else col.MINUS
    return MetricScores([{"metric": name}], scores[:, None], CHANCE, pairs_of(rows), reasons=reasons)


def recital_scores(rows: ConceptPredictions, class_concepts: np.ndarray, threshold: float) -> MetricScores:
    """Score whether all of the class's concepts are predicted, also the one taken out."""
    of_class = torch.as_tensor(class_concepts >= MAJORITY)[rows.labels]
    scores = recital(cast(Tensor, rows.values), of_class, threshold).double().numpy()
    return MetricScores([{"metric": col.RECITAL}], scores[:, None], clusters=pairs_of(rows))


@dataclass(frozen=True)
class Before(Look):
    """Predictions of the images before a substitution, beside those after it."""

    reads: tuple[str, ...] = ("before",)

    def see(self, looking: Looking) -> Looked:
        """Compare the outputs of some samples, whatever the threshold."""
        values, logits = looking.ask(self.name, lambda _: looking.truth["before"])
        rows = looking.rows
        moved = movement(values, cast(Tensor, rows.values), looking.truth["added"], looking.truth["removed"])
        rises = (moved.added > 0).float().masked_fill(moved.added.isnan(), torch.nan)
        class_kept = (rows.predicted == logits.argmax(1)).to(rises)
        columns = (moved.added, moved.removed, moved.others, rises, moved.selectivity, class_kept)
        return Looked({"moves": torch.stack(columns, 1).float()})

    def missing(self, truth: Mapping[str, Any]) -> str:
        """Return the name of what a batch lacks, "" for nothing."""
        return next((name for name in ("before", "added", "removed") if name not in truth), "")


class Moves(ConceptMetric):
    """Changes of values and prediction from the image before a substitution to the one after it, in tables."""

    name = "moves"
    sample_truth = ("added", "removed", "pairs")

    def look(self) -> Look:
        """Return what has to be seen of the model while it is there."""
        return Before()

    def score_rows(self, rows: ConceptPredictions) -> MetricScores:
        """Return a column for each kind of change."""
        fields = [{"metric": metric} for metric in col.MOVES]
        columns = rows.looks[Before().name].columns["moves"].double().numpy()
        return MetricScores(fields, columns, clusters=pairs_of(rows), bounds=(-math.inf, math.inf))


def pairs_of(rows: ConceptPredictions) -> np.ndarray:
    """Return which samples share a recipe: a number for each pair of class and concept that is the same everywhere."""
    pairs = rows.truth.get("pairs")
    return ((rows.labels.long() << 32) + rows.truth["added"] if pairs is None else pairs).numpy()


def _values(model: nn.Module, images: np.ndarray) -> Tensor:
    """Return the concept values (n, L) that a plain module gives for images."""
    values = share("logits", model, images, lambda: predict_logits(model, images))
    if values.ndim != 2 or len(values) != len(images):
        raise ValueError(
            f"Expected argument `model` to map images to concept values (N, L) = ({len(images)}, *) but "
            f"{type(model).__name__} gives {tuple(values.shape)}."
        )
    return values
