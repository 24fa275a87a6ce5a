"""From a scorer of explanations to the score of a mask, as an attribution method that is steered by it needs."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import torch
from torch import Tensor

from captum_concepts.support.checks import check_choice, check_shape, to_numpy
from quantus_concepts.functional.statistics.votes import MAX_VOTE, MIN_VOTE
from quantus_concepts.pasta.embedder import Embedder
from quantus_concepts.pasta.encoders.encoder import Denormalisation
from quantus_concepts.pasta.labels import label_indices
from quantus_concepts.pasta.regressors import Regressor
from quantus_concepts.pasta.scorer import Scorer, question_of


def score_masks(
    scorer: Scorer | Regressor,
    embedder: Embedder,
    *,
    question: str = "Q1",
    labels: str | int | Sequence[str | int | None] | None = None,
    mean: Sequence[float] | None = None,
    std: Sequence[float] | None = None,
    clip: bool = False,
) -> Callable[[Tensor, Tensor, Tensor | None], Tensor]:
    """Return the function by which `captum_concepts.SteeredRISE` is steered.

    S_PASTA of Kazmierczak et al., "PASTA", Eq. 4: a mask is laid over the image like any other map, embedded
    and scored; the rating r becomes (r - 1) / 4, or (5 - r) / 4 where low is good (Q5), so that 1 is
    always best. A constant mask shows nothing and scores 0; as a constant it does not change the order of a map's
    pixels either.

    Parameters
    ----------
    scorer : Scorer
        Anything with `questions` and ``score(embeddings, labels) -> (n, Q)`` from 1 to 5.
    embedder : Embedder
        Anything with ``embed_maps(images, maps) -> (n, dim)`` for images (n, 3, H, W) in [0, 1] and maps
        (n, H, W); the one that `scorer` was trained with. Its cache is left alone.
    question : str
        One that the scorer answers, such as "Q1".
    labels : str, int or sequence, optional
        Label of the explained class in the scorer: a name or index among its labels for all classes of the
        model, or a sequence of one for each of the K classes, None among them where it knows none. None scores without
        label; a scorer that was trained with labels has never seen such input.
    mean : sequence of float, optional
        Mean of the normalisation of the images, a number for each channel, to be undone.
    std : sequence of float, optional
        Likewise.
    clip : bool
        Whether to cut off what is outside [0, 1], for images that noise was added to (`NoiseTunnel`,
        `sensitivity_max`). Otherwise it raises, for the normalisation may not be undone.

    Returns
    -------
    callable
        ``(images (n, C, H, W), masks (n, H, W), targets (n,) or None) -> (n,)`` in [0, 1], on the device of the
        images and without gradient. NaN where the scorer gives NaN.

    Raises
    ------
    ValueError
        If the scorer does not answer `question`, a label is unknown or the scorer has none, or `mean` and `std` do not
        fit. When called: if images are not in [0, 1], or targets lie outside `labels`.

    Examples
    --------
    Given a model, a scorer and an embedder::

        steered = SteeredRISE(
            model, score_masks(scorer, embedder, labels=class_names, mean=MEAN, std=STD)
        )
        maps = steered.attribute(images, target, lam=0.7)
    """
    check_choice("question", question, tuple(scorer.questions))
    if getattr(embedder, "cache", None) is not None:
        # Masks come by the thousand and never again.
        embedder = type(embedder).from_settings(embedder.encoder, embedder.settings, batch_size=embedder.batch_size)
    sign = question_of(scorer, question).sign
    worst = MIN_VOTE if sign > 0 else MAX_VOTE
    column = tuple(scorer.questions).index(question)
    undo = Denormalisation(mean, std, clip=clip)
    shared = np.ndim(labels) == 0  # type: ignore[arg-type]
    indices = None if labels is None else _indices(scorer, labels)

    @torch.no_grad()
    def score(images: Tensor, masks: Tensor, targets: Tensor | None = None) -> Tensor:
        check_shape("masks", masks, ("n", "H", "W"), (len(images), *images.shape[2:]))
        pixels = undo(images, "images")
        numbers = None if indices is None else _labels_of_masks(indices, targets, len(images), shared)
        ratings = scorer.score(embedder.embed_maps(pixels, masks), numbers)
        chosen = torch.as_tensor(ratings)[:, column].to(images.device)
        scores = sign * (chosen - worst) / (MAX_VOTE - MIN_VOTE)
        return scores.masked_fill(masks.amax((1, 2)) == masks.amin((1, 2)), 0)

    return score


def _indices(scorer: Scorer | Regressor, labels: str | int | Sequence[str | int | None]) -> Tensor:
    names = scorer.labels
    if not names:
        raise ValueError("Expected argument `labels` to be None, since the scorer was trained without, but got some.")
    listed = list(labels) if isinstance(labels, list | tuple) else np.atleast_1d(to_numpy(labels)).tolist()
    return label_indices(names, listed, len(listed)).cpu()


def _labels_of_masks(indices: Tensor, targets: Tensor | None, n: int, shared: bool) -> Tensor:
    """Return the label (n,) of each mask's class."""
    if shared:
        return indices.expand(n)
    if targets is None:
        raise ValueError(
            f"Expected argument `targets` to give the class of each mask, since `labels` has one for each of "
            f"{len(indices)} classes, but got None. Pass a target, or one label for all."
        )
    classes = targets.detach().cpu()
    if n and not 0 <= int(classes.min()) <= int(classes.max()) < len(indices):
        raise ValueError(
            f"Expected argument `labels` to have a label for each class that is a target but got {len(indices)}, and "
            f"targets from {int(classes.min())} to {int(classes.max())}."
        )
    return indices[classes]
