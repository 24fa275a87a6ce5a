"""The substitution score: does a model see the concept put in, or recite its class?"""

from __future__ import annotations

import math
from collections.abc import Sequence
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
from quantus_concepts.functional.concepts.substitution import MAJORITY, movement, recital
from quantus_concepts.metrics.concepts import names as col
from quantus_concepts.metrics.host.batch import Batch
from quantus_concepts.metrics.host.checks import Truth, to_classes, to_numbers
from quantus_concepts.metrics.host.explanations import Explanations
from quantus_concepts.metrics.host.metric import ConceptMetric
from quantus_concepts.metrics.host.model import is_concept_model, share
from quantus_concepts.metrics.host.observing import Known, Observed, Observer, Result, Scored, counted
from quantus_concepts.metrics.host.record import QuantusArguments

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
    family = ("threshold",)

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

    def score_batch(
        self,
        model: nn.Module,
        x_batch: np.ndarray,
        y_batch: np.ndarray,
        explain: Explanations,
        **truth: np.ndarray,
    ) -> Observed:
        """Score some samples by their concept values, given or computed from images."""
        if x_batch.ndim == 2:
            values = torch.as_tensor(x_batch.astype(np.promote_types(x_batch.dtype, np.float32)))
        elif not is_concept_model(model):
            values = _values(model, x_batch)
        else:
            return super().score_batch(model, x_batch, y_batch, explain, **truth)
        return self.observe([self], Batch(None, values, y_batch, truth))

    @property
    def label(self) -> str:
        """What it is called in a table."""
        return (col.PLUS if self.score == SCORES[0] else col.MINUS).metric

    @classmethod
    def usual(cls, known: Known) -> Sequence[SubstitutionScore]:
        """Return the usual variants for a table."""
        return [cls(score=score).vary(threshold=None) for score in SCORES]

    def missing(self, batch: Batch) -> str:
        """Return the name of what a batch has to have and lacks, "" for nothing."""
        return "value_threshold" if self.threshold is None and batch.threshold is None else super().missing(batch)

    @classmethod
    def observe(cls, metrics: Sequence[SubstitutionScore], batch: Batch) -> Substituted:
        """Look at the values of the concepts put in and taken out, by the threshold of the model or of the metric."""
        # Concepts stay on the host, where they are checked without waiting for the device.
        added = torch.as_tensor(batch.truth["added"])
        removed = torch.as_tensor(batch.truth["removed"]) if "removed" in batch.truth else torch.full_like(added, -1)
        threshold = metrics[0].threshold if batch.threshold is None else batch.threshold
        return Substituted(
            scores=torch.stack(substitution(batch.values, added, removed, threshold), 1).float(),
            added=added.int(),
            removed=removed.int(),
            clusters=pairs_of(batch),
        )

    def finish(self, observed: Substituted) -> Result:
        """Return the scores of all batches, and why some are undefined."""
        scores = observed.scores[:, SCORES.index(self.score)].double().numpy()
        added, removed = observed.added.numpy(), observed.removed.numpy()
        unknown = added < 0
        unchanged = ((removed < 0) | (removed == added)) & ~unknown & (self.score == "removed")
        reasons = {
            "no concept was taken out": unchanged,
            "the concept put in is none of the model's": unknown,
            "the model's values are NaN": np.isnan(scores) & ~unknown & ~unchanged,
        }
        return Result(scores, counted(reasons, len(added)), chance=CHANCE, clusters=observed.clusters.numpy())


@dataclass(frozen=True, kw_only=True)
class Substituted(Observed):
    """Scores (n, 2) of the concepts put in and taken out (n,), and which images share a recipe."""

    scores: Tensor
    added: Tensor
    removed: Tensor
    clusters: Tensor


class Recital(Observer):
    """Whether all of the class's concepts are predicted, also the one taken out."""

    name = col.RECITAL.metric
    sample_truth = needed = ("added",)

    def __init__(self, class_concepts: np.ndarray) -> None:
        self._class_concepts = torch.as_tensor(class_concepts >= MAJORITY)

    def missing(self, batch: Batch) -> str:
        """Return the name of what a batch has to have and lacks, "" for nothing."""
        return "value_threshold" if batch.threshold is None else super().missing(batch)

    @classmethod
    def observe(cls, metrics: Sequence[Recital], batch: Batch) -> Scored:
        """Compare the predicted concepts of some samples with those of their classes."""
        of_class = metrics[0]._class_concepts[batch.labels.cpu()]
        return Scored(recital(batch.values, of_class, cast(float, batch.threshold)), clusters=pairs_of(batch))


class Moves(Observer):
    """Changes of values and prediction from the image before a substitution to the one after it."""

    name = "moves"
    sample_truth = needed = ("added", "removed")

    def missing(self, batch: Batch) -> str:
        """Return the name of what a batch has to have and lacks, "" for nothing."""
        return "before" if batch.before is None else super().missing(batch)

    @classmethod
    def observe(cls, metrics: Sequence[Moves], batch: Batch) -> Scored:
        """Compare the outputs of some samples, whatever the threshold."""
        moved = movement(batch.before.values, batch.values, batch.truth["added"], batch.truth["removed"])
        rises = (moved.added > 0).float().masked_fill(moved.added.isnan(), torch.nan)
        class_kept = (batch.predicted == batch.before.logits.argmax(1)).to(rises)
        columns = (moved.added, moved.removed, moved.others, rises, moved.selectivity, class_kept)
        return Scored(torch.stack(columns, 1).float(), clusters=pairs_of(batch))

    def numbers(self, observed: Scored) -> list[tuple[dict[str, Any], Result]]:
        """Return the fields of each row of a table, and its numbers."""
        columns = observed.scores.T.double().numpy()
        return [
            ({"metric": score.metric}, Result(column, {}, clusters=observed.clusters))
            for score, column in zip(col.MOVES, columns, strict=True)
        ]


def pairs_of(batch: Batch) -> Tensor:
    """Return which samples share a recipe: a number for each pair of class and concept that is the same everywhere."""
    if "pairs" in batch.truth:
        return torch.as_tensor(batch.truth["pairs"])
    labels = torch.as_tensor(batch.truth["labels"] if batch.given is None else batch.given)
    return (labels.cpu().long() << 32) + torch.as_tensor(batch.truth["added"]).cpu()


def _values(model: nn.Module, images: np.ndarray) -> Tensor:
    """Return the concept values (n, L) that a plain module gives for images."""
    values = share("logits", model, images, lambda: predict_logits(model, images))
    if values.ndim != 2 or len(values) != len(images):
        raise ValueError(
            f"Expected argument `model` to map images to concept values (N, L) = ({len(images)}, *) but "
            f"{type(model).__name__} gives {tuple(values.shape)}."
        )
    return values
