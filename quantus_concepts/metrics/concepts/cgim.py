"""The concept global importance metric: do classes rest on the concepts that people give them?"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self, Unpack, cast

import numpy as np
import pandas as pd
import torch
from quantus.helpers.enums import EvaluationCategory, ScoreDirection
from torch import Tensor, nn

from captum_concepts._support.checks import check_choice
from captum_concepts._support.running import predict_logits, to_host
from quantus_concepts.functional.arguments import Numbers
from quantus_concepts.functional.cgim import NO_CLASS, ClassSums, agreement, cgim_reasons
from quantus_concepts.metrics.host.checks import (
    SELECT,
    Truth,
    check_classes,
    check_concept_order,
    to_class_concepts,
    to_classes,
)
from quantus_concepts.metrics.host.explanations import Explain
from quantus_concepts.metrics.host.metric import ConceptMetric, Counted, Result, Scored, count_reasons
from quantus_concepts.metrics.host.model import IMPORTANCES, image_importance, is_concept_model, linear_weights
from quantus_concepts.metrics.host.record import QuantusArguments


def class_sums(importance: Tensor, classes: Tensor, enters: Tensor, n_classes: int) -> ClassSums:
    """Return the sums (K, E L) over the samples of each class that enter (n,), of importances (E, n, L)."""
    sums = ClassSums(n_classes, len(importance) * importance.shape[2], importance.device)
    sums.add(importance.transpose(0, 1).flatten(1), classes, enters)
    return sums


def global_importance(sums: ClassSums, theta: Tensor | None, kinds: Sequence[str]) -> Tensor:
    """Return A (E, K, L), Equations 3 to 8: the class means of the importances of E kinds, on the host.

    A row without a sample is NaN, except by weight: a linear head's theta needs no image of its class.
    """
    means = sums.compute().unflatten(1, (len(kinds), -1)).transpose(0, 1)
    if theta is not None and "weight" in kinds:
        means = means.contiguous()
        means[kinds.index("weight")] = theta.to(means)
    return means


@dataclass(frozen=True, kw_only=True)
class ClassScored(Scored):
    """Class sums of the samples of some batches, from which scores are made at the end."""

    sums: ClassSums
    #: Weights of a linear head, if the explanations so far are these or cannot be used.
    theta: Tensor | None
    #: Whether an explanation could be used.
    has_importance: bool
    n: int

    @property
    def n_samples(self) -> int:
        """How many samples there are."""
        return self.n

    def join(self, *others: Self) -> Self:
        """Return the sums over these samples and others."""
        joined = self
        for other in others:
            sums = joined.sums.to(joined.sums.sums.device)
            sums.add_sums(other.sums)
            joined = type(self)(
                scores=joined.scores,
                chance=joined.chance,
                why=np.concatenate([joined.why, other.why]),
                explained=other.explained if joined.explained is None else joined.explained or bool(other.explained),
                sums=sums,
                theta=_same(joined, other),
                has_importance=joined.has_importance or other.has_importance,
                n=joined.n + other.n,
            )
        return joined


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
        (K, L) in [0, 1]: how far each concept belongs to each class, the paper's V transposed. The columns of
        a DataFrame have to be in the order of the model's concepts, ``model.bank.names``.
    per : str
        "concept" for L scores or "class" for K scores.
    labels : array_like, optional
        (N,) true classes, aligned with ``x_batch``; ``y_batch`` if None.
    importance : str
        On images: "contribution" (type 3), "value" (type 2) or "weight" (type 1).
    centred : bool
        Whether to correlate A and V, in place of the paper's cosine: means over the classes (per class: over the
        concepts) are subtracted first. Only there 0 is no relation; an importance that is the same for every class has
        a large cosine, and no correlation (NaN).
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
    >>> metric = CGIM(class_concepts=[[1, 0], [0, 1]])
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
    settings = ("class_concepts", "per", "importance", "centred")

    def __init__(
        self,
        class_concepts: Numbers | pd.DataFrame,
        per: str = "concept",
        labels: Numbers | None = None,
        importance: str = "contribution",
        centred: bool = False,
        **quantus: Unpack[QuantusArguments],
    ) -> None:
        """Bind what people say of classes. A score of 1 says that importance is proportional to it.

        A negative score says that they are opposed. A correlation of 0 says that they are unrelated; a cosine of 0 does
        not, see the notes.
        """
        super().__init__(**quantus)
        check_choice("per", per, ("concept", "class"))
        check_choice("importance", importance, IMPORTANCES)
        self.class_concepts = to_class_concepts("class_concepts", class_concepts)
        self._columns = getattr(class_concepts, "columns", None)
        self.per, self.importance, self.centred = per, importance, centred
        self._bind(labels=labels)

    def check_truth(self, name: str, value: Numbers) -> np.ndarray:
        """Return classes (N,), or raise where `class_concepts` has no such row."""
        labels, n_classes = to_classes(name, value), len(self.class_concepts)
        if (labels >= n_classes).any():
            raise ValueError(
                f"Expected argument `{name}` to hold classes 0 to {n_classes - 1}, the rows of `class_concepts`, but "
                f"got {labels.max()}. Classes are counted from 0."
            )
        return labels

    def check_call(
        self, model: nn.Module | None, x_batch: np.ndarray, y_batch: np.ndarray, truth: Truth, explain: Explain
    ) -> Truth:
        """Raise without a model, or where the concepts are in another order."""
        if model is None:
            raise ValueError("CGIM needs argument `model`, to know which samples are correctly predicted.")
        if self._columns is not None:
            check_concept_order("class_concepts", self._columns, model)
        return truth if "labels" in truth else truth | {"labels": self.check_truth("y_batch", y_batch)}

    def score_batch(
        self,
        model: nn.Module,
        x_batch: np.ndarray,
        y_batch: np.ndarray,
        explain: Explain,
        *,
        labels: np.ndarray,
        **truth: np.ndarray,
    ) -> ClassScored:
        """Sum up the importances of some samples by class; `finish` compares the means with what people say."""
        n_classes, n_concepts = self.class_concepts.shape
        theta, explained, why = None, None, np.empty(0, dtype=object)
        if x_batch.ndim in (2, 4) and is_concept_model(model):
            importance, logits = image_importance(model, x_batch, y_batch, self.importance)
            predicted = logits.argmax(1)
            self._check_sizes(logits.shape[1], importance.shape[1])
            if self.importance == "weight":
                theta = linear_weights(model.head)
            has_importance = True
        else:
            attributions, why, explained = explain.of_concepts(n_concepts, "class_concepts")
            importance = torch.as_tensor(attributions)
            logits = predict_logits(model, x_batch, **explain.predict_kwargs)
            self._check_sizes(logits.shape[1], n_concepts)
            check_classes("y_batch", y_batch, n_classes)
            predicted, theta = logits.argmax(1), linear_weights(model)
            if theta is not None:
                predicted, theta = to_host(predicted, theta)
            usable = importance.isfinite().all(1)
            has_importance = bool(usable.any())
            if theta is not None and has_importance:
                expected = theta.to(importance.device, torch.float64)[y_batch]
                # Explanations that are theta in every sample are type 1.
                is_theta = torch.allclose(importance[usable].double(), expected[usable], rtol=1e-5)
                theta = theta if is_theta else None
        # A(k, :) is the mean over the samples that are explained for their class k and predicted as it. A sample whose
        # explanation failed is left out; otherwise it would void its whole class.
        classes = torch.as_tensor(np.where(y_batch == labels, labels, -1), dtype=torch.int64, device=importance.device)
        correct = predicted.to(classes) == classes
        finite = torch.linalg.vector_norm(importance, torch.inf, 1) < torch.inf
        none = np.empty(0)
        return ClassScored(
            scores=none,
            chance=none,
            why=why[why != ""],
            explained=explained,
            sums=class_sums(importance[None], classes, correct & finite, n_classes),
            # A copy: the model may be trained further before `compute`.
            theta=None if theta is None else theta.to("cpu", torch.float64, copy=True),
            has_importance=has_importance,
            n=len(x_batch),
        )

    def finish(self, scored: Scored) -> Result:
        """Compare the class means of all samples with what people say."""
        scored = cast(ClassScored, scored)
        # The one transfer from the device.
        theta = scored.theta if scored.has_importance else None
        means = global_importance(scored.sums.on_host(), theta, ["weight"])[0]
        truth = torch.as_tensor(self.class_concepts)
        scores = agreement(means, truth, self.per, self.centred).numpy()
        result = Result(scores, {})
        n_classes, n_concepts = means.shape
        without = int(np.isnan(means.numpy()).any(1).sum())
        number, unit = (n_classes, "classes") if self.per == "class" else (n_concepts, "concepts")
        if self.per == "concept" and 0 < without < n_classes:
            result.outcome = "scores are over fewer classes, or NaN,"
        if without:
            reason = "a class has no correctly predicted sample with an explanation"
            result.reasons[reason] = Counted(without, n_classes, "classes")
        whys = Counter(cgim_reasons(means, truth, self.per, self.centred) if np.isnan(scores).any() else ())
        result.reasons |= {why: Counted(n, number, unit) for why, n in whys.items() if why not in ("", NO_CLASS)}
        result.reasons |= count_reasons(scored.why, scored.n)
        return result

    def _check_sizes(self, n_classes: int, n_concepts: int) -> None:
        shape = self.class_concepts.shape
        if (n_classes, n_concepts) == shape:
            return
        wrong = f"L = {n_concepts} concepts" if n_concepts != shape[1] else f"K = {n_classes} classes"
        turned = " Transpose it: a row is a class." if (n_concepts, n_classes) == shape else f" {SELECT}"
        raise ValueError(
            f"Expected argument `class_concepts` to have shape (K, L) with the model's {wrong} but got {shape}.{turned}"
        )


def _same(first: ClassScored, second: ClassScored) -> Tensor | None:
    """Return the weights that the explanations of both are; None if one of them is something else."""
    if not (first.has_importance and second.has_importance):
        return first.theta if first.has_importance else second.theta
    both = first.theta is not None and second.theta is not None and torch.equal(first.theta, second.theta)
    return first.theta if both else None
