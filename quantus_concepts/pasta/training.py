"""Training of scorers: samples with their votes, and the loop."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike
from torch import Tensor

from captum_concepts.support.checks import (
    check_axes,
    check_choice,
    check_finite,
    check_numbers,
    check_range,
    check_shape,
    check_whole,
    to_tensor,
)
from captum_concepts.support.running import progress, warn_user
from captum_concepts.texts import in_one_line
from quantus_concepts.datasets.ratings.explanations import QUESTIONS, check_questions
from quantus_concepts.datasets.ratings.rated import item_indices
from quantus_concepts.functional.statistics.votes import MAX_VOTE, MIN_VOTE, check_scale
from quantus_concepts.pasta.agreement import quadratic_kappa
from quantus_concepts.pasta.labels import Labels, label_indices
from quantus_concepts.pasta.losses import LOSS_WEIGHTS, pasta_loss
from quantus_concepts.pasta.scorer import Scorer, as_votes


@dataclass(frozen=True)
class TrainingData:
    """Embeddings with their votes."""

    embeddings: Tensor
    votes: Tensor
    labels: Tensor | None
    label_names: Sequence[str] | None
    questions: tuple[str, ...]


def training_data(
    embeddings: Tensor | ArrayLike,
    targets: Tensor | ArrayLike,
    labels: Labels,
    questions: Sequence[str] | None,
    label_names: Sequence[str] | None,
) -> TrainingData:
    """Check embeddings, votes and labels."""
    embeddings = to_tensor("embeddings", embeddings)
    check_axes(embeddings=(embeddings, "N d"))
    # The message needs the values on the CPU; only a failure pays for that.
    if not embeddings.isfinite().all():
        check_finite("embeddings", embeddings)
    values = check_numbers("targets", targets)
    check_scale("targets", values)
    votes = torch.as_tensor(values[:, None] if values.ndim == 1 else values).float()
    names = tuple(QUESTIONS) if questions is None else check_questions(questions)
    check_shape("targets", votes, ("N", "Q"), (len(embeddings), len(names)))
    if (labels is None) != (label_names is None):
        raise ValueError(
            "Expected arguments `labels` and `label_names` together, or neither for a scorer without labels, but got "
            f"only `{'label_names' if labels is None else 'labels'}`."
        )
    places = None
    if labels is not None and label_names is not None:
        places = label_indices(label_names, labels, len(embeddings)).to(embeddings.device)
    return TrainingData(embeddings, votes.T.contiguous(), places, label_names, names)


def training_rows(data: TrainingData, train: Tensor | ArrayLike) -> np.ndarray:
    """Return the indices of the items to learn from; every question has a vote on some of them."""
    rows = _item_rows("train", train, len(data.embeddings))
    if not len(rows):
        raise ValueError("Expected argument `train` to hold at least one item but it is empty.")
    for name, votes in zip(data.questions, data.votes, strict=True):
        if votes[rows].isnan().all():
            raise ValueError(f"No item to learn from has a vote on {name}. Leave the question out of `questions`.")
    return rows


def _item_rows(name: str, items: Tensor | ArrayLike, n_items: int) -> np.ndarray:
    rows = item_indices(name, items, n_items)
    if len(np.unique(rows)) < len(rows):
        raise ValueError(f"Expected argument `{name}` to hold each item once but some occur twice.")
    return rows


_ROWS_AT_ONCE = 2048


@in_one_line
@dataclass(frozen=True)
class TrainingSettings:
    """How a scorer is trained; by default as Kazmierczak et al. did (Appendix D.1).

    Attributes
    ----------
    epochs : int
        Passes over the training items.
    batch_size : int
        Items in one step.
    learning_rate : float
        Learning rate (Adam).
    weight_decay : float
        Weight decay (Adam).
    loss : str
        "paper" or "release", see `pasta_loss`.
    weights : sequence of float, optional
        Weights of cosine, squared and ranking loss; (1, 0.001, 0.01) for "paper" and (0.01, 10, 0.01) for "release" by
        default.

    Raises
    ------
    TypeError
        If a number of passes or items is not whole.
    ValueError
        If a number is out of its range, there is no such loss, or there are not three finite weights of at least 0.
    """

    epochs: int = 600
    batch_size: int = 256
    learning_rate: float = 2e-6
    weight_decay: float = 1e-6
    loss: str = "paper"
    weights: Sequence[float] | None = None

    def __post_init__(self) -> None:
        check_range("learning_rate", self.learning_rate, 0, 1_000, open_low=True)
        check_range("weight_decay", self.weight_decay, 0, 1_000)
        check_choice("loss", self.loss, LOSS_WEIGHTS)
        # The only way to set a field of a frozen class.
        for name in ("epochs", "batch_size"):
            object.__setattr__(self, name, check_whole(name, getattr(self, name), 1))
        weights = tuple(map(float, LOSS_WEIGHTS[self.loss] if self.weights is None else self.weights))
        if len(weights) != 3 or not all(0 <= weight < float("inf") for weight in weights):
            raise ValueError(
                "Expected argument `weights` to hold three numbers of at least 0 (of cosine, squared and ranking "
                f"loss) but got {self.weights}."
            )
        object.__setattr__(self, "weights", weights)


@in_one_line
@dataclass(frozen=True)
class Training:
    """A trained scorer and how it came about.

    Attributes
    ----------
    scorer : Scorer
        In eval mode; each question with the weights of its best epoch.
    curve : list of dict
        For each epoch ``{"epoch": from 1, "loss": {question: float}, "qwk": {question: float}}``: the mean loss of
        its batches, and the quadratic weighted kappa on the validation items after it (NaN where all of them are
        predicted alike, or there is none).
    best_epoch : dict of str to int
        From 1, for each question.
    notes : tuple of str
        Remarks for the user, such as that no epoch of a question could be judged.
    """

    scorer: Scorer
    curve: list[dict[str, Any]]
    best_epoch: dict[str, int]
    notes: tuple[str, ...] = field(default=())


def train_scorer(
    embeddings: Tensor | ArrayLike,
    targets: Tensor | ArrayLike,
    labels: Labels = None,
    *,
    train: Tensor | ArrayLike,
    validation: Tensor | ArrayLike | None = None,
    keep: Mapping[str, int] | None = None,
    questions: Sequence[str] | None = None,
    label_names: Sequence[str] | None = None,
    settings: TrainingSettings | None = None,
    hidden: Sequence[int] = (512, 64),
    seed: int = 0,
    device: torch.device | str | None = None,
    encoder: str | None = None,
    embedding_settings: Mapping[str, Any] | None = None,
    display_progressbar: bool = False,
) -> Training:
    """Train a scorer of one or several questions, in one training.

    Each question has its own weights, its own loss and its own best epoch. All start from the same draw and see the
    same batches, in which a missing vote is masked for its question only: a question learns what it would learn
    alone from the same items. The same seed gives the same scorer on the same machine; the global random state is
    left as it was.

    Parameters
    ----------
    embeddings : Tensor or array_like
        (N, d), finite.
    targets : array or tensor
        (N, Q), or (N,) for one question: votes in [1, 5], NaN where one is missing.
    labels : Tensor, array or sequence, optional
        N names, or indices into `label_names`; -1, or None among names, for no label. None trains without labels.
    train : array or sequence
        Indices, or a mask (N,) of bool, of the items to learn from.
    validation : array or sequence, optional
        Items by which the best epoch of each question is found; without them the last is kept.
    keep : mapping of str to int, optional
        Epoch, from 1, whose weights are kept for each question, in place of the best on `validation`.
    questions : sequence of str, optional
        Q names; "Q1" to "Q6" by default, which needs six columns of targets.
    label_names : sequence of str, optional
        The classes the labels are of.
    settings : TrainingSettings, optional
        The paper's by default.
    hidden : sequence of int
        Sizes of the hidden layers.
    seed : int
        Random seed of the initial weights and of the order of the items.
    device : torch.device or str, optional
        Device for the training; that of the embeddings by default.
    encoder : str, optional
        Kept with the scorer: the name of the encoder the embeddings come from.
    embedding_settings : mapping, optional
        Kept with the scorer: how explanations were embedded.
    display_progressbar : bool
        Whether to show progress.

    Returns
    -------
    Training
        The scorer and its curve.

    Raises
    ------
    ValueError
        If an argument does not fit, a question has no vote to learn from, or its output is 0 for every item, so
        that it cannot learn.
    """
    settings = TrainingSettings() if settings is None else settings
    data = training_data(embeddings, targets, labels, questions, label_names)
    train_rows = training_rows(data, train)
    validation_rows = _item_rows("validation", [] if validation is None else validation, len(data.embeddings))
    common = np.intersect1d(train_rows, validation_rows)
    if len(common):
        raise ValueError(
            f"Expected arguments `train` and `validation` to share no item but {len(common)} are in both, the first is "
            f"{common[0]}."
        )
    scorer = Scorer(
        data.embeddings.shape[1],
        data.questions,
        data.label_names,
        hidden,
        encoder=encoder,
        settings=embedding_settings,
        seed=seed,
    )
    scorer.to(device or data.embeddings.device)
    run = _Run(scorer, data, train_rows, validation_rows, settings, seed, keep)
    return run.train(display_progressbar)


class _Run:
    """One training: its tensors, its network, and the best weights so far."""

    def __init__(
        self,
        scorer: Scorer,
        data: TrainingData,
        train: np.ndarray,
        validation: np.ndarray,
        settings: TrainingSettings,
        seed: int,
        keep: Mapping[str, int] | None,
    ) -> None:
        self.keep_epoch = None
        if keep is not None:
            epochs = [check_whole(f"keep[{name!r}]", keep.get(name), 1, settings.epochs) for name in data.questions]
            self.keep_epoch = torch.tensor(epochs)
        self.settings, self.questions, self.scorer = settings, data.questions, scorer
        self.weights = settings.weights or LOSS_WEIGHTS[settings.loss]
        self.generator = torch.Generator().manual_seed(int(seed))
        self.inputs, self.validation_inputs = (
            scorer.inputs(data.embeddings[rows], None if data.labels is None else data.labels[rows])
            for rows in (train, validation)
        )
        votes = data.votes[:, train].to(scorer.device)
        self.voted = ~votes.isnan()
        self.targets = (votes - MIN_VOTE) / (MAX_VOTE - MIN_VOTE)
        self.validation_votes = _round_votes(data.votes[:, validation].to(scorer.device))
        with torch.no_grad():
            scorer.biases[-1].copy_(self.targets.nanmean(1)[:, None])
        self.best = {name: value.clone() for name, value in scorer.state_dict().items()}
        self.best_qwk = torch.full((len(self.questions),), -np.inf, dtype=torch.float64)
        self.best_epoch = dict.fromkeys(self.questions, settings.epochs)
        self.curve: list[dict[str, Any]] = []

    def train(self, display_progressbar: bool) -> Training:
        # One kernel for all weights: two to ten times as fast as the default here.
        optimiser = torch.optim.Adam(
            self.scorer.parameters(),
            lr=self.settings.learning_rate,
            weight_decay=self.settings.weight_decay,
            fused=True,
        )
        epochs = range(1, self.settings.epochs + 1)
        bar = progress(epochs, "training", unit="epoch", show=display_progressbar)
        for epoch in bar:
            losses, largest = self._epoch(optimiser)
            largest = largest.masked_fill(~losses.isfinite(), torch.nan).cpu()
            # A question whose best weights are kept from an earlier epoch may fail now.
            self._check_outputs(largest.masked_fill(~self.best_qwk.isneginf(), 1), dict.fromkeys(self.questions, epoch))
            qwk = self._validate()
            self._keep(qwk, epoch)
            by_question = [dict(zip(self.questions, values.tolist(), strict=True)) for values in (losses, qwk)]
            self.curve.append({"epoch": epoch, "loss": by_question[0], "qwk": by_question[1]})
            bar.set_postfix(loss=f"{float(losses.mean()):.4f}", qwk=f"{float(qwk.nanmean()):.3f}", refresh=False)
        return self._result()

    def _epoch(self, optimiser: torch.optim.Optimizer) -> tuple[Tensor, Tensor]:
        """Learn from every item once; return the mean loss and the largest output of each question."""
        n_items = len(self.inputs)
        order = torch.randperm(n_items, generator=self.generator).to(self.inputs.device)
        total = self.targets.new_zeros(len(self.questions))
        largest = torch.zeros_like(total)
        for rows in order.split(self.settings.batch_size):
            optimiser.zero_grad()
            # The caller may have turned gradients off.
            with torch.enable_grad():
                outputs = self.scorer.output(self.inputs[rows])
                losses = pasta_loss(
                    outputs,
                    self.targets[:, rows],
                    self.voted[:, rows],
                    weights=self.weights,
                    form=self.settings.loss,
                )
                losses.sum().backward()
            optimiser.step()
            total += losses.detach() * len(rows)
            largest = torch.maximum(largest, outputs.detach().amax(1))
        return total / n_items, largest

    @torch.no_grad()
    def _validate(self) -> Tensor:
        """Return the kappa of each question, NaN where every item is predicted alike."""
        if not len(self.validation_inputs):
            return torch.full((len(self.questions),), torch.nan, dtype=torch.float64)
        predicted = _round_votes(as_votes(self._outputs(self.validation_inputs)))
        qwk = quadratic_kappa(predicted, self.validation_votes)
        # Formally 0, but a constant must not win over a network whose predictions begin to differ.
        missing = self.validation_votes.isnan()
        constant = ((predicted == predicted.masked_fill(missing, -1).amax(1, keepdim=True)) | missing).all(1)
        return qwk.masked_fill(constant, torch.nan).cpu()

    @torch.no_grad()
    def _keep(self, qwk: Tensor, epoch: int) -> None:
        better = qwk > self.best_qwk if self.keep_epoch is None else self.keep_epoch == epoch
        if epoch == self.settings.epochs and self.keep_epoch is None:
            better |= self.best_qwk.isneginf()
        for q in better.nonzero()[:, 0].tolist():
            if not qwk[q].isnan():
                self.best_qwk[q] = qwk[q]
            self.best_epoch[self.questions[q]] = epoch
            for name, value in self.scorer.state_dict().items():
                self.best[name][q] = value[q]

    @torch.no_grad()
    def _result(self) -> Training:
        self.scorer.load_state_dict(self.best)
        self._check_outputs(self._outputs(self.inputs).amax(1), self.best_epoch)
        unjudged = [self.questions[q] for q in self.best_qwk.isneginf().nonzero()[:, 0].tolist()]
        notes: tuple[str, ...] = ()
        if unjudged and len(self.validation_inputs):
            note = (
                f"The validation kappa of {', '.join(unjudged)} was never defined (all items predicted alike after "
                f"rounding, or no votes): the last epoch was kept. Train longer or with a higher learning rate."
            )
            notes = (note,)
            warn_user(note)
        self.scorer.eval().zero_grad()
        return Training(self.scorer, self.curve, self.best_epoch, notes)

    def _outputs(self, inputs: Tensor) -> Tensor:
        return torch.cat([self.scorer.output(rows) for rows in inputs.split(_ROWS_AT_ONCE)], dim=1)

    def _check_outputs(self, largest: Tensor, epochs: Mapping[str, int]) -> None:
        """Raise where the largest output of a question, in some epoch, is 0 or NaN."""
        for name, value in zip(self.questions, largest.tolist(), strict=True):
            if math.isnan(value):
                raise ValueError(
                    f"The output for {name} is no longer a number (epoch {epochs[name]}). Use a lower learning rate, "
                    "or scale embeddings that are very large."
                )
            if value == 0:
                raise ValueError(
                    f"The output for {name} is 0 for every item to learn from (epoch {epochs[name]}), so it has no "
                    "gradient and will never learn: the ReLU of the last layer is dead. Use another seed or a lower "
                    "learning rate, or scale embeddings that are very large; check that not all votes are the lowest."
                )


def _round_votes(votes: Tensor) -> Tensor:
    """Return votes as whole numbers, halves up, as the release rounds them."""
    return (votes + 0.5).floor()
