"""The PASTA-score: how people would rate an explanation."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Unpack, cast

import numpy as np
import torch
from quantus.helpers.enums import EvaluationCategory, ScoreDirection
from torch import Tensor

from captum_concepts.support.checks import as_list, check_choice, different_names, to_numpy
from captum_concepts.support.files import shorten
from captum_concepts.support.running import floating_images, to_model
from quantus_concepts.metrics.host.explanations import FAILED, Explanations, add_reason, usable
from quantus_concepts.metrics.host.metric import AttributionMetric
from quantus_concepts.metrics.host.predictions import Scored
from quantus_concepts.metrics.host.record import QuantusArguments
from quantus_concepts.pasta.cache import EmbeddingCache
from quantus_concepts.pasta.embedder import Embedder, embedder_for
from quantus_concepts.pasta.encoders.encoder import Denormalisation, Encoder, Parts
from quantus_concepts.pasta.labels import UNLABELLED, Labels, label_indices
from quantus_concepts.pasta.scorer import Scorer, question_of
from quantus_concepts.pasta.scorer_files import ScorerSource, scorer_from

CONSTANT = "maps are constant, so that there is nothing to see"
#: Images whose range is checked together.
CHECKED_AT_ONCE = 64


@dataclass(frozen=True)
class Rated(Scored):
    """Scores with the answers (n, Q) to every question."""

    answers: np.ndarray = field(default_factory=partial(np.empty, (0, 0)))


class PASTAScore(AttributionMetric):
    """PASTA-score: the rating, from 1 to 5, that people would give an explanation.

    Kazmierczak et al., "Benchmarking XAI Explanations with Human-Aligned Evaluations" (PASTA), Eqs. 1 to 3. An
    explanation is embedded as a person sees it, a map laid over its image and encoded as a picture, concepts by
    their names in the order of importance and encoded as text, and a small network that was trained on people's
    ratings turns the embedding into a score. Maps and concepts are therefore on one scale.

    Scores attributions (N, 1, H, W) or (N, C, H, W) of images, summed over the channels, or attributions
    (N, L) of concepts, whose names are `concept_names`.

    Parameters
    ----------
    scorer : Scorer or path
        Trained by `quantus_concepts.pasta.train_scorer`, or a file of one, of the release too.
    encoder : Embedder, Encoder, str or object, optional
        Encoder: a preset ("siglip", "clip", "eva02"), an encoder, any object with `encode_image`,
        `encode_text`, `preprocess` and `tokenizer`, or an `Embedder` that settles how explanations are shown.
        Otherwise this is as the scorer was trained; with None so is the encoder.
    question : str, optional
        One that `scorer` answers, such as "Q1"; its first by default. The other answers cost nothing and are in
        `question_scores` after a call.
    labels : array_like, optional
        (N,) of str or int: the class each explanation is of, by its name or index among the scorer's labels.
    class_names : sequence of str, optional
        (K,): names of the model's classes, in place of `labels`: ``y_batch`` then tells the label. The names must be
        those the scorer knows.
    concept_names : sequence of str, optional
        (L,): names of the concepts, where concepts are scored.
    mean : sequence of float, optional
        Mean of the normalisation of the images of ``x_batch``, a number for each channel, to be undone.
    std : sequence of float, optional
        Standard deviation of the normalisation.
    denormalise : callable, optional
        In place of them: from a tensor (N, C, H, W) of model inputs to images in [0, 1].
    cache : EmbeddingCache or path, optional
        Cache of embeddings, so that the same explanation is never embedded twice.
    clip : bool
        Whether scores above 5 become 5; the release leaves them.
    **quantus : Unpack[QuantusArguments]
        `abs`, `normalise` and what else every Quantus metric takes, by keyword. Maps are brought to [0, 1] by the
        embedding anyway, by default between their minimum and maximum; with ``abs=True`` large negative values count as
        large. The default aggregate is the mean of the defined scores.

    Attributes
    ----------
    question_scores : dict
        By question (N,) scores of the last call.

    Raises
    ------
    TypeError
        If `scorer` or `encoder` is of a type that cannot be used.
    ValueError
        If encoder and scorer do not fit together, the scorer does not answer `question` or does not know a label.

    Notes
    -----
    Higher is better, but for Q5, which asks how much an explanation changed; `score_direction` is set accordingly.
    In [1, 5], or above where not clipped. NaN where a map is constant, is not finite or has another size than its
    image, and where a sample's concepts are not finite. A scorer with labels that is given none has never seen such
    input: that is warned of.

    Examples
    --------
    >>> import numpy as np
    >>> from torch import nn
    >>> from quantus_concepts import PASTAScore
    >>> from quantus_concepts.pasta import Embedder, Scorer
    >>> embedder = Embedder("embedded")  # random weights, in place of "siglip"
    >>> metric = PASTAScore(Scorer(embedder.encoder.dim, labels=None), embedder)
    >>> images = np.full((2, 3, 32, 32), 0.5, dtype="float32")
    >>> maps = np.random.default_rng(0).random((2, 1, 32, 32))
    >>> scores = metric(nn.Identity(), images, y_batch=np.array([0, 0]), a_batch=maps)
    >>> [1 <= score <= 5 for score in scores]
    [True, True]
    """

    name = "PASTA-score"
    score_direction = ScoreDirection.HIGHER
    evaluation_category = EvaluationCategory.NONE
    bounds = (1.0, 5.0)
    sample_truth = ("labels",)
    settings = ("question", "encoder", "clip", "class_names", "concept_names")
    results = ("question_scores",)

    question_scores: dict[str, np.ndarray]

    def __init__(
        self,
        scorer: Scorer | ScorerSource,
        encoder: Encoder | Parts | Embedder | str | None = None,
        question: str | None = None,
        labels: Labels = None,
        class_names: Sequence[str] | None = None,
        concept_names: Sequence[str] | None = None,
        mean: Sequence[float] | None = None,
        std: Sequence[float] | None = None,
        denormalise: Callable[[Tensor], Tensor] | None = None,
        cache: EmbeddingCache | str | Path | None = None,
        clip: bool = True,
        **quantus: Unpack[QuantusArguments],
    ) -> None:
        """Bind scorer and encoder. A score of 1 says that people reject the explanation, one of 5 that they agree.

        With question Q5 a score of 1 says that it did not change, one of 5 that it changed much.
        """
        super().__init__(**quantus)
        self.scorer: Scorer = scorer_from(scorer)
        self.embedder: Embedder = embedder_for(self.scorer, encoder, cache=cache)
        if question is not None:
            check_choice("question", question, self.scorer.questions)
        self.question = self.scorer.questions[0] if question is None else question
        if question_of(self.scorer, self.question).low_is_good:
            # Quantus declares it for the class, but reads it from the object.
            self.score_direction = ScoreDirection.LOWER  # type: ignore[misc]
        self.encoder = self.embedder.name
        self.clip = clip
        raters = ", simulated raters" if self.scorer.metadata.get("simulated") else ""
        self.name = f"PASTA-score {self.question} ({self.encoder}{raters})"  # type: ignore[misc]
        self.concept_names = None if concept_names is None else different_names("concept_names", concept_names)
        self.denormalisation = Denormalisation(mean, std, denormalise)
        if labels is not None and class_names is not None:
            raise ValueError("Expected either argument `labels` or argument `class_names` but got both.")
        self.class_names = class_names
        self._class_labels = None if class_names is None else self.check_truth("class_names", class_names)
        self._bind(labels=labels)
        self.question_scores = {}

    @classmethod
    def own_settings(cls) -> list[str]:
        """Return the names of what scores depend on: among them how images are denormalised, and no cache."""
        others = ("mean", "std", "denormalise", "cache")
        return [*(name for name in super().own_settings() if name not in others), "denormalisation"]

    def check_truth(self, name: str, value: Any) -> np.ndarray:
        """Return labels, by name or index, as indices among the scorer's."""
        if self.scorer.labels is None:
            raise ValueError(
                f"Argument `{name}` has no effect on a scorer that was trained without labels: leave it out."
            )
        labels = to_numpy(value) if isinstance(value, Tensor) else as_list(name, value, "labels")
        try:
            return label_indices(self.scorer.labels, labels, len(labels)).numpy()
        except (TypeError, ValueError, RuntimeError) as error:
            raise ValueError(f"Expected argument `{name}` to hold labels of the scorer: {error}") from error

    def check_call(
        self, model: Any, x_batch: np.ndarray, y_batch: np.ndarray, truth: dict[str, Any], explain: Explanations
    ) -> dict[str, Any]:
        """Check all samples of a call together; return the label of each."""
        # Explanations that could not be used have two axes and no value.
        shape = (0, 0) if explain.given is None else explain.given.shape
        concepts = x_batch.ndim == 2 or (len(shape) == 2 and shape[1] > 0)
        if concepts and self.concept_names is None:
            raise ValueError(
                f"{self.name} needs argument `concept_names` to score attributions of concepts: the names it writes "
                "into the sentence that is embedded."
            )
        if x_batch.ndim == 2 and self.concept_names is not None and x_batch.shape[1] != len(self.concept_names):
            raise ValueError(
                f"Expected argument `concept_names` to have a name for each of {x_batch.shape[1]} concepts in "
                f"`x_batch` but got {len(self.concept_names)}."
            )
        if not concepts:
            # Check all ranges before anything is embedded; a few images at a time, for the memory.
            for start in range(0, len(x_batch), CHECKED_AT_ONCE):
                images = floating_images(torch.as_tensor(x_batch[start : start + CHECKED_AT_ONCE]))
                self.denormalisation.check(images)
        return {"labels": truth["labels"] if "labels" in truth else self._labels_of(y_batch)}

    def _labels_of(self, y_batch: np.ndarray) -> np.ndarray:
        """Return (N,) label indices by the names of the classes; -1 where there are none."""
        if self._class_labels is not None:
            if y_batch.min() < 0 or y_batch.max() >= len(self._class_labels):
                raise ValueError(
                    f"Expected argument `y_batch` to hold indices of the {len(self._class_labels)} `class_names` but "
                    f"got {y_batch.min()} to {y_batch.max()}."
                )
            return self._class_labels[y_batch]
        if self.scorer.labels is not None and not self._disable_warnings:
            warnings.warn(
                f"{self.name}: the scorer was trained with labels and gets none; pass `labels`, or `class_names` "
                f"for those of `y_batch`. It knows {shorten(', '.join(self.scorer.labels))}.",
                UserWarning,
                stacklevel=2,
            )
        return np.full(len(y_batch), UNLABELLED)

    def score_batch(
        self, model: Any, x_batch: np.ndarray, y_batch: np.ndarray, explain: Explanations, **truth: Any
    ) -> Rated:
        """Score some samples, with the answers to every question."""
        a_batch, failure = explain()
        embed: Callable[[np.ndarray], Tensor]
        # An explanation of an image that is not there has two axes too, and no value.
        if x_batch.ndim == 2 or (a_batch.ndim == 2 and a_batch.shape[1]):
            names = self.concept_names or []
            values, why, explained = usable(a_batch, failure, (len(names),), "concepts (L,)")

            def embed(good: np.ndarray) -> Tensor:
                return self.embedder.embed_concepts(torch.as_tensor(values[good]), names)
        else:
            maps = a_batch.sum(1) if a_batch.ndim == 4 and a_batch.shape[1] else a_batch
            values, why, explained = usable(maps, failure, x_batch.shape[2:], "a map (H, W) of the images' size")
            # NaN where a map is not finite, which has its reason already.
            with np.errstate(invalid="ignore"):
                why = add_reason(why, np.ptp(values, axis=(1, 2)) == 0, FAILED + CONSTANT)

            def embed(good: np.ndarray) -> Tensor:
                images = to_model(self.scorer if model is None else model, x_batch[good])
                heats = torch.as_tensor(values[good]).to(images.device)
                return self.embedder.embed_maps(self.denormalisation(images, checked=True), heats, checked=True)

        answers = np.full((len(x_batch), len(self.scorer.questions)), np.nan)
        good = why == ""
        if good.any():
            label_numbers = None if self.scorer.labels is None else torch.as_tensor(truth["labels"][good])
            answers[good] = self.scorer.score(embed(good), label_numbers, clip=self.clip).cpu().numpy()
        scores = answers[:, self.scorer.questions.index(self.question)]
        return Rated(scores, np.full(len(scores), np.nan), why, None, explained, answers)

    def keep_results(self, scored: Any) -> None:
        """Keep what else the samples have."""
        scored = cast(Rated, scored)
        self.question_scores = dict(zip(self.scorer.questions, scored.answers.T, strict=True))
