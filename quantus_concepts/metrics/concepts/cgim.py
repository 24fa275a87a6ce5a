"""The concept global importance metric: do classes rest on the concepts that people give them?"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Unpack, cast

import numpy as np
import pandas as pd
import torch
from quantus.helpers.enums import EvaluationCategory, ScoreDirection
from torch import Tensor, nn

from captum_concepts.support.checks import check_choice
from captum_concepts.support.running import onto_device, to_host
from quantus_concepts.functional.arguments import Numbers
from quantus_concepts.functional.concepts.cgim import NO_CLASS, cgim, cgim_reasons, class_sums
from quantus_concepts.functional.statistics.jackknife import cgim_interval
from quantus_concepts.metrics.concepts import names as col
from quantus_concepts.metrics.host.batch import Batch
from quantus_concepts.metrics.host.checks import (
    SELECT,
    Truth,
    check_classes,
    to_class_concepts,
    to_classes,
)
from quantus_concepts.metrics.host.explanations import Explanations
from quantus_concepts.metrics.host.metric import ConceptMetric
from quantus_concepts.metrics.host.model import IMPORTANCES, linear_weights
from quantus_concepts.metrics.host.observing import (
    Counted,
    Known,
    Observed,
    Result,
    count_reasons,
    same,
    total,
)
from quantus_concepts.metrics.host.record import QuantusArguments


@dataclass(frozen=True, kw_only=True)
class OfClasses(Observed):
    """Sums (E, K, L) of the importances of E kinds over the samples (K,) of each class that enter."""

    kinds: tuple[str, ...] = same()
    sums: Tensor = total()
    counts: Tensor = total()
    #: Weights (K, L) of a linear head; how many explanations could be used, and are others than these weights.
    theta: Tensor | None = same()
    n_used: int = total()
    n_others: int = total()
    n_broken: Tensor = total()
    n: int = total()
    reason: np.ndarray | None = None
    explained: bool | None = None
    n_wrong: Tensor | None = total(default=None)

    @property
    def n_samples(self) -> int:
        """How many samples there are."""
        return self.n


class CGIM(ConceptMetric):
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
    asks_concept_models = True
    sample_truth = ("labels",)
    family = ("class_concepts", "only_correct")
    class_concepts: np.ndarray
    #: "", or in place of the model's importance one that is the same everywhere.
    baseline = ""

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
        """Raise without a model."""
        if model is None:
            raise ValueError("CGIM needs argument `model`, to know which samples are correctly predicted.")
        return truth

    @property
    def reads_correctness(self) -> bool:  # type: ignore[override]
        """Whether scores depend on which samples are classified correctly."""
        return self.only_correct

    @property
    def label(self) -> str:
        """What it is called in a table."""
        return col.CGIM_CORRELATION if self.centred else self.name

    @classmethod
    def usual(cls, known: Known) -> Sequence[CGIM]:
        """Return the usual variants for a table."""
        table, metrics = known.truth("class_concepts"), list[CGIM]()
        if table is None:
            return []
        for per in ("concept", "class"):
            metric = cls(table).vary(per=per)
            for centred in (False, True):
                metrics += [metric.vary(centred=centred, importance=kind) for kind in known.variants.explanations]
            if "value" in known.variants.explanations:
                metrics.append(metric.vary(centred=True, importance="value", only_correct=False))
            metrics += metric.baselines(known)
        return metrics

    def baselines(self, known: Known) -> Sequence[CGIM]:
        """Return one whose importance is the same everywhere, which has no correlation."""
        return [self.vary(importance="", baseline=col.SAME_IMPORTANCE)] if known.baselines and not self.centred else []

    @classmethod
    def observe(cls, metrics: Sequence[CGIM], batch: Batch) -> OfClasses:
        """Sum up the importances of some samples by class; `finish` compares the means with what people say."""
        metric = metrics[0]
        n_classes, n_concepts = metric.class_concepts.shape
        kinds = tuple(dict.fromkeys(metric.importance for metric in metrics if not metric.baseline)) or IMPORTANCES[:1]
        found = batch.importance(kinds, n_concepts, "class_concepts")
        importance, n_others = found.values, 0
        check_class_concepts(metric.class_concepts, batch.logits.shape[1], importance.shape[2])
        predicted, n_used = batch.predicted, len(batch)
        theta = linear_weights(batch.model.head if batch.has_concepts else batch.model)
        if batch.has_concepts and "weight" not in kinds:
            # Only the family that reads it keeps it: files may not hold the same memory twice.
            theta = None
        if not batch.has_concepts:
            # Explanations are on the host, and what they are compared with comes there in one transfer.
            given = cast(np.ndarray, batch.given)
            check_classes("y_batch", given, n_classes)
            usable = importance[0].isfinite().all(1)
            n_used = int(usable.sum())
            if theta is not None:
                predicted, theta = to_host(predicted, theta)
                expected = theta.to(importance.device, torch.float64)[given]
                # Explanations that are theta in every sample are type 1.
                is_theta = torch.allclose(importance[0][usable].double(), expected[usable], rtol=1e-5)
                n_others = 0 if is_theta else n_used
        # A(k, :) is the mean over the samples that are explained for their class k and predicted as it. A sample whose
        # explanation failed is left out; otherwise it would void its whole class.
        labels, predicted = onto_device(batch.true_classes, importance.device), predicted.to(importance.device)
        enters = batch.correct if batch.has_concepts else labels == predicted
        if not metric.only_correct:
            enters = torch.ones_like(enters)
        elif batch.given is not None:
            enters = enters & (labels == torch.as_tensor(batch.given, device=labels.device))
        finite = found.norms.amax(0) < torch.inf
        sums, counts = class_sums(importance.transpose(0, 1).flatten(1), labels, enters & finite, n_classes)
        return OfClasses(
            kinds=kinds,
            sums=sums.unflatten(1, (len(kinds), -1)).transpose(0, 1),
            counts=counts,
            theta=theta,
            n_used=n_used,
            n_others=n_others,
            n_broken=(~finite).sum() if batch.has_concepts else torch.zeros((), dtype=torch.int64),
            n=len(batch),
            reason=found.reason if found.reason is None else found.reason[found.reason != ""],
            explained=found.explained,
            n_wrong=batch.n_wrong,
        )

    def finish(self, observed: OfClasses) -> Result:
        """Compare the class means of all samples with what people say."""
        truth = torch.as_tensor(self.class_concepts)
        if self.baseline:
            same_everywhere = cgim(torch.ones_like(truth), truth, self.per).numpy()
            return Result(same_everywhere, {})
        means = (observed.sums / observed.counts[:, None])[observed.kinds.index(self.importance)]
        # Explanations of a call of Quantus are of one kind, whatever its name.
        by_weight = self.importance == "weight" if observed.explained is None else observed.n_used > 0
        if by_weight and observed.n_others == 0 and observed.theta is not None:
            means = observed.theta.double()
        scores = cgim(means, truth, self.per, self.centred).numpy()
        reasons: dict[str, Counted] = {}
        by_class = None if self.centred or self.per == "class" or not self.only_correct else (means, truth)
        result = Result(scores, reasons, by_class=by_class)
        if self.centred:
            result.interval = lambda: cgim_interval(means, truth, self.per)
        n_classes, n_concepts = means.shape
        without = int(np.isnan(means.numpy()).any(1).sum())
        number, unit = (n_classes, "classes") if self.per == "class" else (n_concepts, "concepts")
        if self.per == "concept" and 0 < without < n_classes:
            result.outcome = "scores are over fewer classes, or NaN,"
        if without:
            reason = f"a class has no {'correctly predicted ' * self.only_correct}sample with an explanation"
            reasons[reason] = Counted(without, n_classes, "classes")
        whys = Counter(cgim_reasons(means, truth, self.per, self.centred) if np.isnan(scores).any() else ())
        reasons |= {why: Counted(n, number, unit) for why, n in whys.items() if why not in ("", NO_CLASS)}
        if broken := int(observed.n_broken):
            reasons["the model's importances are not finite"] = Counted(broken, observed.n)
        if observed.reason is not None:
            reasons |= count_reasons(observed.reason, observed.n)
        return result


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
