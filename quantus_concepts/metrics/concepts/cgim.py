"""The concept global importance metric: do classes rest on the concepts that people give them?"""

from __future__ import annotations

from typing import Any, NamedTuple, Unpack

import numpy as np
import torch
from quantus.helpers.enums import EvaluationCategory, ScoreDirection
from torch import Tensor

from captum_concepts._support.constraints import Choice, check_arguments
from captum_concepts._support.running import predict_logits
from quantus_concepts.functional.cgim import ClassSums, agreement
from quantus_concepts.metrics.host.base import UpdatedMetric
from quantus_concepts.metrics.host.call import Call, QuantusArguments
from quantus_concepts.metrics.host.checks import (
    CLASS_CONCEPTS,
    CLASSES,
    SELECT,
    check_concept_order,
    check_concept_values,
    checked_classes,
    concepts_of,
)
from quantus_concepts.metrics.host.model import IMPORTANCES, concept_importances, is_concept_model, linear_weights


class _State(NamedTuple):
    """Sums over the samples so far, the weights of a linear head, and whether explanations are these weights."""

    sums: ClassSums | None
    theta: Tensor | None
    explained: bool


class CGIM(UpdatedMetric):
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
    a concept or class whose row is zero on either side. The scores of the last
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
    sample_truth = ("labels",)
    settings = ("class_concepts", "per", "importance")

    @check_arguments(
        class_concepts=CLASS_CONCEPTS,
        labels=CLASSES,
        per=Choice(("concept", "class")),
        importance=Choice(IMPORTANCES),
    )
    def __init__(
        self,
        class_concepts: Any,
        per: str = "concept",
        labels: Any = None,
        importance: str = "contribution",
        **quantus: Unpack[QuantusArguments],
    ) -> None:
        """Bind what people say of classes. A score of 1 says that importance is proportional to it.

        A score of 0 says that the two have nothing in common, a negative one that they are opposed.
        """
        super().__init__(**quantus)
        self.class_concepts = np.array(class_concepts, dtype=float)
        self._columns = concepts_of(class_concepts)
        self.per = per
        self.importance = importance
        self._bind(labels=labels)
        self._sums: ClassSums | None = None
        # Weights of a linear head; None for other heads, and as soon as an explanation is something else.
        self._theta: Tensor | None = None
        self._explained = False

    def _truth_array(self, name: str, value: Any) -> np.ndarray:
        n_classes = len(self.class_concepts)
        if (value >= n_classes).any():
            raise ValueError(
                f"Expected argument `{name}` to hold classes 0 to {n_classes - 1}, the rows of `class_concepts`, but "
                f"got {value.max()}. Classes are counted from 0."
            )
        return np.asarray(value, order="C")

    def _works_on_images(self, model: Any, x_batch: np.ndarray) -> bool:
        return x_batch.ndim in (2, 4) and is_concept_model(model)

    def _check_call(
        self, model: Any, x_batch: np.ndarray, y_batch: np.ndarray, s_batch: np.ndarray | None
    ) -> dict[str, np.ndarray]:
        if model is None:
            raise ValueError("CGIM needs argument `model`, to know which samples are correctly predicted.")
        if not self.call.on_images:
            check_concept_values("class_concepts", self.class_concepts.shape[1], x_batch)
        if "labels" not in self.call.truth:
            self._truth_array("y_batch", y_batch)
        check_concept_order("class_concepts", self._columns, model)
        self._sums = None
        head = model.head if self.call.on_images else model
        theta = None if self.call.on_images and self.importance != "weight" else linear_weights(head)
        self._theta = None if theta is None else theta.to("cpu", torch.float64)
        self._explained = self.call.on_images
        return {}

    def evaluate_batch(
        self,
        model: Any,
        x_batch: np.ndarray,
        y_batch: np.ndarray,
        a_batch: np.ndarray,
        rows_batch: np.ndarray,
        labels_batch: np.ndarray | None = None,
        **kwargs: Any,
    ) -> list[float]:
        """Add some samples to the sums of their classes; the scores are made when all samples are in."""
        module = model.get_model()
        if self.call.on_images:
            _, values, logits = self.concept_outputs(module, x_batch, rows_batch)
            self._check_sizes(logits.shape[1], values.shape[1])
            classes = checked_classes(y_batch, logits)
            importance = concept_importances(module, values, classes, (self.importance,))[self.importance]
        else:
            importance = self.concept_attributions(module, x_batch, a_batch, self.class_concepts.shape[1])
            logits = predict_logits(module, x_batch, **model.model_predict_kwargs)
            checked_classes(y_batch, logits)
            self._check_sizes(logits.shape[1], importance.shape[1])
            self._compare_with_theta(importance, y_batch)
        truth = y_batch if labels_batch is None else labels_batch
        # A(k, :) is the mean over the samples that are explained for their class k and predicted as it. A sample whose
        # explanation failed is left out; otherwise it would void its whole class.
        device = importance.device
        classes = torch.as_tensor(np.where(y_batch == truth, truth, -1), dtype=torch.int64, device=device)
        correct = logits.argmax(1).to(device) == classes
        finite = torch.linalg.vector_norm(importance, torch.inf, 1) < torch.inf
        if self._sums is None:
            n_classes, n_concepts = self.class_concepts.shape
            self._sums = ClassSums(n_classes, n_concepts, device)
            if self.call.is_update and self._updates:
                # Added to a copy, in case this update fails.
                self._sums.add_sums(self._updates[-1].state.sums)
        self._sums.add(importance, classes, correct & finite)
        return []

    def _compare_with_theta(self, importance: Tensor, y_batch: np.ndarray) -> None:
        """Note whether the explanations of a linear head are its weights."""
        usable = importance.isfinite().all(1)
        if self._theta is not None and usable.any():
            self._explained = True
            if not torch.allclose(importance[usable].double(), self._theta[y_batch][usable], rtol=1e-5):
                self._theta = None

    def _check_sizes(self, n_classes: int, n_concepts: int) -> None:
        shape = self.class_concepts.shape
        if (n_classes, n_concepts) == shape:
            return
        wrong = f"L = {n_concepts} concepts" if n_concepts != shape[1] else f"K = {n_classes} classes"
        turned = " Transpose it: a row is a class." if (n_concepts, n_classes) == shape else f" {SELECT}"
        raise ValueError(
            f"Expected argument `class_concepts` to have shape (K, L) with the model's {wrong} but got {shape}.{turned}"
        )

    def _collect_scores(self, scores: np.ndarray) -> np.ndarray:
        """Compare the class means with what people say, once all samples are in."""
        # The one transfer from the device.
        sums = None if self._sums is None else self._sums.on_host()
        state, self._sums, self._theta = _State(sums, self._theta, self._explained), None, None
        if not self.call.is_update:
            return self._compare(state)
        if self._updates:
            self._updates[-1].state = self._updates[-1].state._replace(sums=None)
        self.call.state = state
        return np.empty(0)

    def _scores_of_updates(self, calls: list[Call]) -> np.ndarray:
        sums = ClassSums(*self.class_concepts.shape)
        for call in calls:
            if call.state.sums is not None:
                sums.add_sums(call.state.sums)
        weights = [call.state.theta for call in calls if call.state.explained]
        same = all(theta is not None and torch.equal(theta, weights[0]) for theta in weights)
        return self._compare(_State(sums, weights[0] if weights and same else None, bool(weights)))

    def _compare(self, state: _State) -> np.ndarray:
        sums = state.sums or ClassSums(*self.class_concepts.shape)
        means = state.theta if state.theta is not None and state.explained else sums.compute()
        compared = agreement(means, torch.as_tensor(self.class_concepts), self.per)
        n_classes, n_concepts = means.shape
        scores, without = compared.numpy(), int(np.isnan(means.numpy()).any(1).sum())
        number, unit = (n_classes, "classes") if self.per == "class" else (n_concepts, "concepts")
        zero = int(np.isnan(scores).sum()) - (without if self.per == "class" else 0)
        if self.per == "concept" and 0 < without < n_classes:
            self.call.outcome = "scores are over fewer classes, or NaN,"
        reason = "a class has no correctly predicted sample with an explanation"
        if without:
            self.leave_out(reason, without, n_classes, "classes")
        if zero and without < n_classes:
            self.leave_out("importance or truth is zero throughout", zero, number, unit)
        return scores
