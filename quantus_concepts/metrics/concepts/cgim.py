"""The concept global importance metric: do classes rest on the concepts that people give them?"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Unpack, cast

import numpy as np
import pandas as pd
import torch
from quantus.helpers.enums import EvaluationCategory, ScoreDirection
from torch import Tensor, nn

from captum_concepts.support.checks import check_choice
from quantus_concepts.functional.arguments import Numbers
from quantus_concepts.functional.concepts.cgim import NO_CLASS, cgim, cgim_reasons, class_sums
from quantus_concepts.functional.statistics.jackknife import cgim_interval
from quantus_concepts.metrics.concepts import names as col
from quantus_concepts.metrics.host.checks import SELECT, Truth, check_classes, to_class_concepts, to_classes
from quantus_concepts.metrics.host.concept_metric import ConceptMetric
from quantus_concepts.metrics.host.explanations import Explanations
from quantus_concepts.metrics.host.model import IMPORTANCES
from quantus_concepts.metrics.host.predictions import ConceptPredictions
from quantus_concepts.metrics.host.record import AsPrinted, QuantusArguments
from quantus_concepts.metrics.host.scores import Counted, Counts, MetricScores, count_reasons


class CGIM(AsPrinted, ConceptMetric):
    """Concept global importance metric: agreement of concept importance with what people say of the classes.

    Aysel et al. (2025), Equations 3 to 8: the cosine between A and V, for every concept over the classes or
    for every class over the concepts. V is what annotators say; A(k, :) is the mean of the explanations of the
    *correctly predicted* samples of class k. With a linear head the paper's three types are three explanation
    methods: Gradient gives theta (type 1), the concept values give U* (type 2), InputXGradient gives the
    elementwise product of the two (type 3). Type 1 with a linear head takes *all* classes, for its weights need no
    image; types 2 and 3, and other heads, leave out the classes without such a sample and say how many.

    - **At the bottleneck** ``model`` is the head, ``x_batch`` the concept values (N, L). Explanations that are the
      weights of a linear head in every sample (Gradient) are type 1. Concept models of tables and of texts are
      evaluated here too, as ``cbm.head`` and ``cbm.concept_predictor(inputs)``.
    - **On images** ``model`` is a concept model and the metric computes values and importance itself; the
      explanation method then plays no role.

    A sample enters if it is predicted as its true class and explained for it. Only sums and counts of the
    classes are kept.

    Parameters
    ----------
    class_concepts : array_like
        (K, L) in [0, 1]: how far each concept belongs to each class, the paper's V transposed. The rows and columns
        of a DataFrame are matched by name with ``model.class_names`` and ``model.bank.names``, where it has these. Not
        the shares of the images that the directions were fitted to: noise would be above random banks.
    per : str
        "concept" for L scores or "class" for K scores.
    labels : array_like, optional
        (N,) true classes, aligned with ``x_batch``; ``y_batch`` if None, with a warning where it is the
        predicted class of all.
    importance : str
        On images: "effect" (see the notes of `CEM`), or, as the paper has it, "contribution" (type 3), "value" (type 2)
        or "weight" (type 1).
    centred : bool
        Whether to correlate A and V, in place of the paper's cosine: means over the classes (per class: over the
        concepts) are subtracted first. Only there 0 is no relation; an importance that is the same for every class has
        a large cosine, and no correlation (NaN).
    only_correct : bool
        Whether only correctly predicted samples enter the means A, as in the paper. Without it every sample enters that
        of its true class: the choice of the correct ones alone makes values of noise correlate with V (.64 where it was
        measured; .00 over all).
    **quantus : Unpack[QuantusArguments]
        `abs`, `normalise` and what else every Quantus metric takes, by keyword. Off by default: with ``abs`` or
        ``normalise`` the three types are not exact. The default aggregate is the mean of the defined scores.

    Raises
    ------
    ValueError
        If `class_concepts` is not (K, L) in [0, 1], or `per` is neither "concept" nor "class".

    Notes
    -----
    ``CGIM.as_printed(...)`` is the paper's type 3: ``importance="contribution"``, cosine, correct images.

    Scores are in [-1, 1], higher is better. There is no chance value (``records[-1].chance`` is NaN): 0 is not what
    random directions reach. Type 3 is positive for any fitted head, random directions had .32 where it was
    measured; compare a score with its own distribution over random concept banks. NaN, counted in
    ``records[-1].reasons``: a class without a correctly predicted sample (it is left out of the concepts' scores), and
    a concept or class whose row is zero, or with `centred` does not vary, on either side. The scores of the last
    call are for concepts or classes, not for samples, so their number differs from ``len(x_batch)``.

    Examples
    --------
    >>> import torch
    >>> from quantus_concepts import CGIM
    >>> head = torch.nn.Linear(2, 2, bias=False)  # concept values to class logits
    >>> head.weight.data = torch.eye(2)
    >>> values = 3 * torch.eye(2)  # each image shows the concept of its class
    >>> metric = CGIM(class_concepts=[[1, 0], [0, 1]], labels=[0, 1])
    >>> metric(head, values, y_batch=torch.tensor([0, 1]), a_batch=values)
    [1.0, 1.0]
    """

    name = "CGIM"
    score_direction = ScoreDirection.HIGHER
    evaluation_category = EvaluationCategory.NONE
    bounds = (-1.0, 1.0)
    of_samples = False
    sample_truth = ("labels",)
    class_concepts: np.ndarray
    printed: ClassVar[Mapping[str, Any]] = {"importance": "contribution", "centred": False, "only_correct": True}

    def __init__(
        self,
        class_concepts: Numbers | pd.DataFrame,
        per: str = "concept",
        labels: Numbers | None = None,
        importance: str = "effect",
        centred: bool = False,
        only_correct: bool = True,
        **quantus: Unpack[QuantusArguments],
    ) -> None:
        """Bind what people say of classes. A score of 1 says that importance is proportional to it.

        A negative score says that they are opposed. A correlation of 0 says that they are unrelated; a cosine of 0 does
        not, see the notes.
        """
        super().__init__(**quantus)
        check_choice("per", per, ("concept", "class"))
        check_choice("importance", importance, IMPORTANCES)
        self.per, self.importance, self.centred, self.only_correct = per, importance, centred, only_correct
        self._bind(class_concepts=class_concepts)
        self._bind(labels=labels)

    def check_truth(self, name: str, value: Numbers | pd.DataFrame) -> np.ndarray:
        """Return a table (K, L), or classes (N,); raise where `class_concepts` has no such row."""
        if name == "class_concepts":
            return to_class_concepts(name, value)
        labels, n_classes = to_classes(name, value), len(self.class_concepts)
        if (labels >= n_classes).any():
            raise ValueError(
                f"Expected argument `{name}` to hold classes 0 to {n_classes - 1}, the rows of `class_concepts`, but "
                f"got {labels.max()}. Classes are counted from 0."
            )
        return labels

    def check_call(
        self, model: nn.Module | None, x_batch: np.ndarray, y_batch: np.ndarray, truth: Truth, explain: Explanations
    ) -> Truth:
        """Raise without a model, or for classes that the table does not have."""
        if model is None:
            raise ValueError("CGIM needs argument `model`, to know which samples are correctly predicted.")
        check_classes("y_batch", y_batch, len(self.class_concepts))
        return truth

    @property
    def reads_correctness(self) -> bool:  # type: ignore[override]
        """Whether scores depend on which samples are classified correctly."""
        return self.only_correct

    def concepts_of(self, x_batch: Any, truth: Mapping[str, Any]) -> tuple[int, str]:
        """Return how many concepts the table is about, and its name."""
        return self.class_concepts.shape[1], "class_concepts"

    def score_rows(self, rows: ConceptPredictions) -> MetricScores:
        """Compare the class means of all samples with what people say."""
        settings = {"centred": self.centred, "only_correct": self.only_correct}
        return global_importance(rows, self.class_concepts, [self.importance], self.per, **settings)

    def baselines(self, rows: ConceptPredictions) -> Sequence[MetricScores]:
        """Return the score of an importance that is the same everywhere, which has no correlation."""
        return [] if self.centred else [same_importance(self.class_concepts, self.per)]


def check_class_concepts(class_concepts: np.ndarray, n_classes: int, n_concepts: int) -> None:
    """Raise where a table (K, L) is about other classes or concepts than a model's."""
    shape = class_concepts.shape
    if (n_classes, n_concepts) == shape:
        return
    wrong = f"L = {n_concepts} concepts" if n_concepts != shape[1] else f"K = {n_classes} classes"
    turned = " Transpose it: a row is a class." if (n_concepts, n_classes) == shape else f" {SELECT}"
    raise ValueError(
        f"Expected argument `class_concepts` to have shape (K, L) with the model's {wrong} but got {shape}.{turned}"
    )


def global_importance(
    rows: ConceptPredictions,
    class_concepts: np.ndarray,
    kinds: Sequence[str],
    per: str,
    *,
    centred: bool = False,
    only_correct: bool = True,
) -> MetricScores:
    """Score CGIM of E importances."""
    if rows.theta is not None or rows.about.get("n_classes"):
        check_class_concepts(class_concepts, *rows.shape)
    truth, n = torch.as_tensor(class_concepts), len(rows)
    every, broken = zip(*(class_means(rows, kind, len(truth), only_correct) for kind in kinds), strict=True)
    scores = cgim(torch.stack(every), truth, per, centred).flatten(1).numpy().T
    # Of several models nobody asks why a score is undefined.
    means = [of_models[0] for of_models in every]
    without = [int(mean.isnan().any(1).sum()) for mean in means]
    unit = {"class": "classes", "concept": "concepts"}[per]

    def reasons(variant: int) -> Counts:
        mean, counts = means[variant], dict[str, Counted]()
        if without[variant]:
            reason = f"a class has no {'correctly predicted ' * only_correct}sample with an explanation"
            counts[reason] = Counted(without[variant], len(truth), "classes")
        whys = Counter(cgim_reasons(mean, truth, per, centred) if np.isnan(scores[:, variant]).any() else ())
        counts |= {why: Counted(number, len(scores), unit) for why, number in whys.items() if why not in ("", NO_CLASS)}
        if broken[variant] and rows.given is None:
            counts["the model's importances are not finite"] = Counted(broken[variant], n)
        return counts | ({} if rows.reason is None else count_reasons(rows.reason, n))

    fewer = per == "concept" and any(0 < each < len(truth) for each in without)
    fields = {
        "metric": col.CGIM_CORRELATION if centred else col.CGIM,
        "item_kind": per,
        "set": "correct" if only_correct else "all",
    }
    return MetricScores(
        [fields | {"explanation": kind, "convention": rows.convention(kind)} for kind in kinds],
        scores,
        bounds=(-1.0, 1.0),
        reasons=reasons,
        outcome="scores are over fewer classes, or NaN," if fewer else "scores are NaN",
        by_class=None if centred or rows.models or per == "class" or not only_correct else (means, truth),
        mean_interval=(lambda variant: cgim_interval(means[variant], truth, per)) if centred else None,
    )


def same_importance(class_concepts: np.ndarray, per: str) -> MetricScores:
    """Score CGIM of an importance that is the same everywhere."""
    truth = torch.as_tensor(class_concepts)
    scores = cgim(torch.ones_like(truth), truth, per).numpy()[:, None]
    fields = {"metric": col.CGIM, "item_kind": per, "set": "correct", "baseline": col.SAME_IMPORTANCE}
    return MetricScores([fields], scores, bounds=(-1.0, 1.0))


def class_means(rows: ConceptPredictions, kind: str, n_classes: int, only_correct: bool = True) -> tuple[Tensor, int]:
    """Return the mean importance (M, K, L) over the (correct) samples of each class, and how many are not finite."""
    return cast(
        "tuple[Tensor, int]",
        rows.once(
            ("class means", kind, n_classes, only_correct), lambda: _class_means(rows, kind, n_classes, only_correct)
        ),
    )


def _class_means(rows: ConceptPredictions, kind: str, n_classes: int, only_correct: bool) -> tuple[Tensor, int]:
    labels, broken, models = rows.labels, 0, rows.models or (rows,)
    theta = models[0].theta
    if theta is not None and rows.given is None and kind == "weight":
        # Type 1 takes all classes, for its weights need no image.
        thetas = torch.stack([cast(Tensor, of.theta) for of in models])
        finite = thetas.abs().amax(2) < torch.inf
        return thetas.double(), int((~finite)[rows.of_model, rows.classes].sum())
    # A(k, :) is the mean over the samples that are explained for their class k and predicted as it. A sample whose
    # explanation failed is left out; otherwise it would void its whole class.
    enters, sums = torch.ones(len(rows), dtype=torch.bool), None
    if only_correct:
        enters = rows.correct & (labels == rows.classes)
    # Classes of several models are as many classes as there are of all.
    numbers = labels.long() + n_classes * rows.of_model
    for part in rows.chunks():
        importance = rows.importance(kind, part)
        finite = importance.abs().amax(1) < torch.inf
        broken += int((~finite).sum())
        sums = class_sums(importance, numbers[part], enters[part] & finite, n_classes * len(models), sums)
    if theta is not None and rows.given is not None and broken < len(rows):
        # Explanations that are theta in every sample are type 1, too.
        finite = rows.given.abs().amax(1) < torch.inf
        own = theta.double()[rows.classes][finite]
        if torch.allclose(rows.given[finite].double(), own, rtol=1e-5):
            return theta.double()[None], broken
    total, counts = cast("tuple[Tensor, Tensor]", sums)
    return (total / counts[:, None]).view(len(models), n_classes, -1), broken
