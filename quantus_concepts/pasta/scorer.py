"""The network that predicts ratings of an explanation from its embedding and the predicted class."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from itertools import pairwise
from typing import Any

import torch
from numpy.typing import ArrayLike
from torch import Tensor, nn
from torch.nn import functional

from captum_concepts.support.checks import check_whole
from captum_concepts.support.running import without_autocast
from captum_concepts.texts import describe
from quantus_concepts.datasets.ratings.explanations import QUESTIONS, Question, check_questions
from quantus_concepts.functional.statistics.votes import MAX_VOTE, MIN_VOTE
from quantus_concepts.pasta.encoders.encoder import Encoder
from quantus_concepts.pasta.encoders.open_clip_encoder import PRESETS
from quantus_concepts.pasta.labels import RELEASED_LABELS, Labels, label_indices

#: Sizes of the embeddings of the encoders that the released scorers were trained on.
RELEASED_ENCODERS = {name: preset.dim for name, preset in PRESETS.items()}
_ROWS_AT_ONCE = 4096


class Scorer(nn.Module):
    """A network of three layers for each question, from label and embedding to a rating.

    ReLU follows every layer, the last too, as in Kazmierczak et al. and their release. The weights of all questions
    are stacked, so that several questions are one pass. All questions start from the same draw: what a question
    learns does not depend on which others are trained with it.

    Parameters
    ----------
    dim : int
        d, size of an embedding.
    questions : sequence of str
        Q different names, "Q1" to "Q6" for the paper's questions.
    labels : sequence of str, optional
        The classes a scorer sees, in the order of the one-hot input that comes before the embedding; None for a
        scorer that sees none.
    hidden : sequence of int
        Sizes of the hidden layers.
    encoder : str, optional
        Name of the encoder the embeddings come from.
    settings : mapping, optional
        How explanations are embedded, of what JSON can hold.
    metadata : mapping, optional
        Other information about the scorer, such as the ids of its split and its figures; of what JSON can hold.
    seed : int
        Seed of the initial weights; the global random state does not change. The last bias starts at 0.5, and training
        begins with the mean of its targets.

    Attributes
    ----------
    weights : nn.ParameterList
        One (Q, out, in) for each layer.
    biases : nn.ParameterList
        One (Q, out) for each layer.

    Raises
    ------
    ValueError
        If a size is below 1, a question occurs twice, or labels are not different names.
    """

    def __init__(
        self,
        dim: int,
        questions: Sequence[str] = ("Q1",),
        labels: Sequence[str] | None = RELEASED_LABELS,
        hidden: Sequence[int] = (512, 64),
        *,
        encoder: str | None = None,
        settings: Mapping[str, Any] | None = None,
        metadata: Mapping[str, Any] | None = None,
        seed: int = 0,
    ) -> None:
        super().__init__()
        self.dim = check_whole("dim", dim, 1)
        self.questions = check_questions(questions)
        self.labels = None if labels is None else _check_labels(labels)
        self.hidden = tuple(check_whole("hidden", size, 1) for size in hidden)
        self.encoder = encoder
        self.settings = None if settings is None else dict(settings)
        self.metadata = dict(metadata or {})
        sizes = [len(self.labels or ()) + self.dim, *self.hidden, 1]
        generator = torch.Generator().manual_seed(int(seed))
        self.weights, self.biases = nn.ParameterList(), nn.ParameterList()
        for n_in, n_out in pairwise(sizes):
            bound = 1 / math.sqrt(n_in)
            for parameters, shape in ((self.weights, (n_out, n_in)), (self.biases, (n_out,))):
                start = torch.empty(shape).uniform_(-bound, bound, generator=generator)
                parameters.append(nn.Parameter(start.repeat(len(self.questions), *([1] * start.ndim))))
        # A start at 0 leaves a third of the seeds with an output that is 0 everywhere and never learns.
        nn.init.constant_(self.biases[-1], 0.5)

    @property
    def labelled_by(self) -> str:
        """Source of the labels it was trained on: "predicted" (the class explained) or "image-name"."""
        return str(self.metadata.get("labels_from", "predicted"))

    @property
    def device(self) -> torch.device:
        """Device of the weights."""
        return self.biases[0].device

    def __repr__(self) -> str:
        n_labels = len(self.labels or ())
        return describe(self, dim=self.dim, questions=self.questions, n_labels=n_labels, encoder=self.encoder)

    def inputs(self, embeddings: Tensor | ArrayLike, labels: Labels = None) -> Tensor:
        """Put one-hot labels before embeddings.

        Parameters
        ----------
        embeddings : Tensor or array_like
            (N, d), on any device.
        labels : Tensor, array or sequence, optional
            N names, or indices into `labels`; -1, or None among names, where there is none. None for no labels.

        Returns
        -------
        Tensor
            (N, n_labels + d), on the device and in the dtype of the weights.

        Raises
        ------
        ValueError
            If the embeddings are of another size than the scorer's, a label is unknown, or labels are given to a
            scorer that was trained without.
        """
        embeddings = torch.as_tensor(embeddings)
        if embeddings.ndim != 2 or embeddings.shape[1] != self.dim:
            raise self._size_error(f"`embeddings` to have shape (N, d) = (*, {self.dim})", tuple(embeddings.shape))
        first = self.biases[0]
        embeddings = embeddings.to(first)
        if not self.labels:
            if labels is not None:
                raise ValueError("This scorer was trained without labels. Leave the argument `labels` out.")
            return embeddings
        values = embeddings.new_zeros(len(embeddings), len(self.labels) + self.dim)
        values[:, len(self.labels) :] = embeddings
        if labels is not None:
            places = label_indices(self.labels, labels, len(embeddings)).to(first.device)
            # A missing label, -1, equals no index: all 0.
            values[:, : len(self.labels)] = places[:, None] == torch.arange(len(self.labels), device=first.device)
        return values

    def check_encoder(self, encoder: Encoder) -> None:
        """Raise unless an encoder gives embeddings of the size the scorer takes.

        Parameters
        ----------
        encoder : Encoder
            Something with a ``dim`` and a ``name``.

        Raises
        ------
        ValueError
            If the size is another.
        """
        if encoder.dim != self.dim:
            expected = f"`encoder` to give embeddings of {self.dim} numbers"
            raise self._size_error(expected, f"{encoder.name!r} with {encoder.dim}")

    def _size_error(self, expected: str, received: object) -> ValueError:
        sizes = ", ".join(f"{name} {dim}" for name, dim in RELEASED_ENCODERS.items())
        return ValueError(
            f"Expected argument {expected}, which the scorer takes, but got {received}. Use the encoder it was trained "
            f"on{f', {self.encoder!r}' if self.encoder else ''} (of the release: {sizes}), or another scorer."
        )

    def output(self, inputs: Tensor) -> Tensor:
        """Return the outputs of all questions.

        Parameters
        ----------
        inputs : Tensor
            (N, n_labels + d), as `inputs` gives them.

        Returns
        -------
        Tensor
            (Q, N), at least 0.
        """
        # All questions have the same input, so the first layer is one product.
        first = functional.linear(inputs, self.weights[0].flatten(0, 1), self.biases[0].flatten()).relu_()
        values = first.view(len(inputs), *self.biases[0].shape).transpose(0, 1)
        for weight, bias in zip(self.weights[1:], self.biases[1:], strict=True):
            values = torch.baddbmm(bias[:, None], values, weight.transpose(1, 2)).relu_()
        return values[..., 0]

    def forward(self, embeddings: Tensor | ArrayLike, labels: Labels = None) -> Tensor:
        """Return outputs before they are made votes.

        Parameters
        ----------
        embeddings : Tensor or array_like
            (N, d), as in `inputs`.
        labels : Tensor, array or sequence, optional
            As in `inputs`.

        Returns
        -------
        Tensor
            (N, Q), at least 0: 0 for a vote of 1, 1 for a vote of 5.
        """
        return self.output(self.inputs(embeddings, labels)).T

    @torch.no_grad()
    def score(
        self,
        embeddings: Tensor | ArrayLike,
        labels: Labels = None,
        *,
        clip: bool = True,
    ) -> Tensor:
        """Predict ratings.

        Parameters
        ----------
        embeddings : Tensor or array_like
            (N, d), as in `inputs`.
        labels : Tensor, array or sequence, optional
            As in `inputs`.
        clip : bool
            Whether what exceeds the scale becomes 5; the release leaves it.

        Returns
        -------
        Tensor
            (N, Q), in [1, 5], or at least 1 where not clipped; NaN where an embedding is. Without gradient, which
            `forward` has.
        """
        inputs = self.inputs(embeddings, labels)
        # Lower precision would round ratings to a hundredth, and make ties.
        with without_autocast(inputs.device):
            return torch.cat([as_votes(self.output(rows), clip) for rows in inputs.split(_ROWS_AT_ONCE)], dim=1).T

    def select(self, questions: str | Sequence[str]) -> Scorer:
        """Return a scorer of some of the questions.

        Parameters
        ----------
        questions : str or sequence of str
            Questions of this scorer.

        Returns
        -------
        Scorer
            A copy.

        Raises
        ------
        ValueError
            If this scorer does not answer one of them.
        """
        names = check_questions([questions] if isinstance(questions, str) else questions)
        unknown = [name for name in names if name not in self.questions]
        if unknown:
            raise ValueError(f"The scorer does not answer {unknown}, only {list(self.questions)}.")
        rows = [self.questions.index(name) for name in names]
        return self._with_weights(
            names, {name: value[rows] for name, value in self.state_dict().items()}, self.metadata
        )

    @classmethod
    def join(cls, scorers: Sequence[Scorer]) -> Scorer:
        """Make one scorer of several that answer different questions.

        Parameters
        ----------
        scorers : sequence of Scorer
            With the same sizes, labels, encoder and settings, and no question in two of them.

        Returns
        -------
        Scorer
            On the device of the first. Of the metadata, what is the same in all stays; the rest is given by question.

        Raises
        ------
        ValueError
            If there is none, or they do not belong together.
        """
        if not scorers:
            raise ValueError("Expected argument `scorers` to hold scorers, at least 1, but got 0.")
        first = scorers[0]
        for other in scorers[1:]:
            for name in ("dim", "labels", "hidden", "encoder", "settings"):
                ours, theirs = getattr(first, name), getattr(other, name)
                if ours != theirs:
                    raise ValueError(
                        f"Cannot join scorers of {first.questions} and {other.questions}: `{name}` is {ours!r} of one "
                        f"and {theirs!r} of the other. Load them as two scorers."
                    )
        states = [scorer.state_dict() for scorer in scorers]
        state = {name: torch.cat([tensors[name].to(first.device) for tensors in states]) for name in states[0]}
        questions = [name for scorer in scorers for name in scorer.questions]
        return first._with_weights(check_questions(questions), state, _join_metadata(scorers))

    def _with_weights(
        self, questions: Sequence[str], state: Mapping[str, Tensor], metadata: Mapping[str, Any]
    ) -> Scorer:
        scorer = Scorer(
            self.dim,
            questions,
            self.labels,
            self.hidden,
            encoder=self.encoder,
            settings=self.settings,
            metadata=metadata,
        ).to(self.biases[0])
        scorer.load_state_dict(state)
        return scorer.train(self.training)


def question_of(scorer: Any, name: str) -> Question:
    """Return a question that a scorer answers: as its study asked it, else the paper's of this name.

    Of other names the wording is not known, and high is good.
    """
    if (known := getattr(scorer, "metadata", {}).get("asked", {}).get(name)) is not None:
        return Question(name, **known)
    return QUESTIONS.get(name, Question(name))


def as_votes(outputs: Tensor, clip: bool = True) -> Tensor:
    """Turn outputs of a scorer, 0 for the lowest vote and 1 for the highest, into votes, clipped to [1, 5] or not."""
    votes = MIN_VOTE + (MAX_VOTE - MIN_VOTE) * outputs
    return votes.clamp(MIN_VOTE, MAX_VOTE) if clip else votes


def _join_metadata(scorers: Sequence[Scorer]) -> dict[str, Any]:
    joined: dict[str, Any] = {}
    for key in dict.fromkeys(key for scorer in scorers for key in scorer.metadata):
        by_question: dict[str, Any] = {}
        is_by_question = False
        for scorer in scorers:
            value = scorer.metadata.get(key)
            # What a scorer says of each of its questions, such as their wording.
            if isinstance(value, Mapping) and set(scorer.questions) <= set(value):
                by_question |= {name: value[name] for name in scorer.questions}
                is_by_question = True
            else:
                by_question |= dict.fromkeys(scorer.questions, value)
        values = list(by_question.values())
        is_same = not is_by_question and all(value == values[0] for value in values)
        joined[key] = values[0] if is_same else by_question
    return joined


def _check_labels(labels: Sequence[str]) -> list[str]:
    # A set has no order, and the one-hot input has one.
    listed = [] if isinstance(labels, str | set | frozenset) or not isinstance(labels, Collection) else list(labels)
    if not listed or not all(isinstance(name, str) for name in listed) or len(set(listed)) < len(listed):
        raise ValueError(
            f"Expected argument `labels` to hold different names, or to be None for a scorer without labels, "
            f"but got {labels!r}."
        )
    # NumPy's strings would show their type in messages.
    return [str(name) for name in listed]
