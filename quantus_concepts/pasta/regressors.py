"""Ridge, lasso and support vector regression in place of the network."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike
from sklearn.linear_model import Lasso, Ridge
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVR
from torch import Tensor

from captum_concepts.support.checks import check_choice, to_numpy
from captum_concepts.support.running import keep_numpy_state
from captum_concepts.texts import describe
from quantus_concepts.functional.statistics.votes import MAX_VOTE, MIN_VOTE
from quantus_concepts.pasta.labels import Labels
from quantus_concepts.pasta.scorer import Scorer
from quantus_concepts.pasta.training import training_data, training_rows

#: Estimator of each kind and its parameters, for inputs of mean 0 and deviation 1 and votes of 1 to 5.
KINDS: dict[str, tuple[Callable[..., Any], Mapping[str, Any]]] = {
    "ridge": (Ridge, {"alpha": 1000.0}),
    "lasso": (Lasso, {"alpha": 0.03, "max_iter": 2000}),
    "svm": (SVR, {"kernel": "rbf", "C": 1.0, "epsilon": 0.1}),
}


class Regressor:
    """A fitted regression for each question, with the `score` of a `Scorer`.

    Parameters
    ----------
    kind : str
        "ridge", "lasso" or "svm".
    template : Scorer
        Tells sizes, labels and questions, and makes the inputs.
    models : sequence of Pipeline
        One for each question.

    Attributes
    ----------
    kind : str
        As given.
    questions : tuple of str
        Q names.
    labels : list of str or None
        The classes it sees.
    dim : int
        d, size of an embedding.
    """

    def __init__(self, kind: str, template: Scorer, models: Sequence[Pipeline]) -> None:
        self.kind = kind
        self.questions, self.labels, self.dim = template.questions, template.labels, template.dim
        self._template = template
        self._models = list(models)

    def __repr__(self) -> str:
        return describe(self, self.kind, dim=self.dim, questions=self.questions, n_labels=len(self.labels or ()))

    def score(self, embeddings: Tensor | ArrayLike, labels: Labels = None) -> Tensor:
        """Predict ratings.

        Parameters
        ----------
        embeddings : Tensor or array_like
            (N, d).
        labels : Tensor, array or sequence, optional
            N names or indices; -1, or None among names, for no label. None for no labels.

        Returns
        -------
        Tensor
            (N, Q) in [1, 5], float32, on the device of the embeddings; NaN where an embedding is not finite.

        Raises
        ------
        ValueError
            If embeddings or labels do not fit.
        """
        embeddings = torch.as_tensor(embeddings)
        inputs = to_numpy(self._template.inputs(embeddings, labels))
        scores = np.full((len(inputs), len(self.questions)), np.nan, dtype=np.float32)
        finite = np.isfinite(inputs).all(1)
        if finite.any():
            scores[finite] = np.stack([model.predict(inputs[finite]) for model in self._models], axis=1)
        return torch.as_tensor(scores.clip(MIN_VOTE, MAX_VOTE)).to(embeddings.device)


def fit_regressor(
    kind: str,
    embeddings: Tensor | ArrayLike,
    targets: Tensor | ArrayLike,
    labels: Labels = None,
    *,
    train: Tensor | ArrayLike | None = None,
    questions: Sequence[str] | None = None,
    label_names: Sequence[str] | None = None,
) -> Regressor:
    """Fit a regression from scikit-learn on the input of a scorer: Kazmierczak et al., PASTA, Table 17.

    The paper does not say how they were set. Here one-hot label and embedding are standardised, and votes of 1 to 5
    are predicted: ridge with alpha = 1000, lasso with alpha = 0.03, a support vector machine with a Gaussian kernel,
    C = 1 and epsilon = 0.1. These suit some thousand items of a thousand numbers.

    Parameters
    ----------
    kind : str
        "ridge", "lasso" or "svm".
    embeddings : Tensor or array_like
        (N, d), finite.
    targets : array or tensor
        (N, Q), or (N,) for one question: votes in [1, 5], NaN where one is missing.
    labels : Tensor, array or sequence, optional
        As in `train_scorer`.
    train : array or sequence, optional
        Indices, or a mask (N,) of bool, of the items to learn from; all by default.
    questions : sequence of str, optional
        Q names; "Q1" to "Q6" by default, which needs six columns of targets.
    label_names : sequence of str, optional
        The classes the labels are of.

    Returns
    -------
    Regressor
        Fitted.

    Raises
    ------
    ValueError
        If there is no such kind, an argument does not fit, or a question has no vote to learn from.
    """
    check_choice("kind", kind, KINDS)
    data = training_data(embeddings, targets, labels, questions, label_names)
    rows = training_rows(data, np.arange(len(data.embeddings)) if train is None else train)
    template = Scorer(data.embeddings.shape[1], data.questions, data.label_names, hidden=(1,))
    inputs = to_numpy(template.inputs(data.embeddings, data.labels))[rows]
    estimator, parameters = KINDS[kind]
    models = []
    for votes in data.votes.numpy()[:, rows]:
        voted = ~np.isnan(votes)
        # The wrapper of libsvm and Lasso draw a seed that changes nothing here.
        with keep_numpy_state():
            model = make_pipeline(StandardScaler(), estimator(**parameters))
            models.append(model.fit(inputs[voted], votes[voted]))
    return Regressor(kind, template, models)
