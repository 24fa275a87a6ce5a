"""Concept directions from labelled embeddings: drawing samples, linear SVM, mean difference."""

from __future__ import annotations

import math
import warnings
from typing import Any, NamedTuple

import numpy as np
import torch
from sklearn.svm import SVC
from torch import Tensor
from tqdm.auto import tqdm

from captum_concepts.checks import check_binary, check_choice, check_finite, check_shape

METHODS = ("svm", "mean")


class Directions(NamedTuple):
    """Fitted directions of L concepts.

    Attributes
    ----------
    cavs : Tensor
        (L, d).
    intercepts : Tensor
        (L,).
    train_accuracy : Tensor
        (L,), on the samples drawn.
    test_accuracy : Tensor
        (L,), on the samples left; NaN where none are.
    """

    cavs: Tensor
    intercepts: Tensor
    train_accuracy: Tensor
    test_accuracy: Tensor


def draw_samples(labels: np.ndarray, n_pos: int, n_neg: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Draw images with and without each concept, without replacement.

    The images are put into one random order, and each concept takes the first of either kind. Each concept's
    draw is a fair one, and does not change when concepts are added to the bank.

    Parameters
    ----------
    labels : np.ndarray
        (N, L) of bool.
    n_pos : int
        How many images with each concept; all there are where there are fewer.
    n_neg : int
        How many without it, likewise.
    seed : int
        Seed of the order.

    Returns
    -------
    positive, negative : np.ndarray
        (N, L) of bool each: which images were drawn.
    """
    n_images = len(labels)
    order = np.random.default_rng(seed).permutation(n_images)
    shuffled = labels[order]
    # The 1-based rank of each image among those with the concept; the others' follows by subtraction.
    rank = np.cumsum(shuffled, axis=0, dtype=np.int32)
    rank_without = np.arange(1, n_images + 1, dtype=np.int32)[:, None] - rank
    positive = np.empty_like(shuffled)
    negative = np.empty_like(shuffled)
    positive[order] = shuffled & (rank <= n_pos)
    negative[order] = ~shuffled & (rank_without <= n_neg)
    return positive, negative


def svm_directions(
    features: Tensor,
    labels: np.ndarray,
    positive: np.ndarray,
    negative: np.ndarray,
    C: float,
    display_progressbar: bool = False,
) -> Directions:
    """Fit one linear SVM for each concept (scikit-learn's ``SVC(kernel="linear")``).

    Parameters
    ----------
    features : Tensor
        (N, d).
    labels : np.ndarray
        (N, L) of bool: the concepts.
    positive : np.ndarray
        (N, L) of bool: the images drawn that show them.
    negative : np.ndarray
        (N, L) of bool: the images drawn that do not.
    C : float
        Inverse of the regularisation's strength.
    display_progressbar : bool
        Whether to show progress over the concepts.

    Returns
    -------
    Directions
        On the device and in the type of `features`; normals point to the images with the concept.
    """
    # A seed, which the solver does not use, since without one it draws from NumPy's global generator.
    # libsvm computes in float64 on the CPU: converted once for all concepts.
    array = features.detach().cpu().double().numpy()
    n_concepts = labels.shape[1]
    normals = np.empty((n_concepts, array.shape[1]))
    offsets = np.empty(n_concepts)
    concepts = tqdm(range(n_concepts), desc="Concept SVMs", disable=not display_progressbar)
    for j in concepts:
        rows = np.flatnonzero(positive[:, j] | negative[:, j])
        svm = SVC(kernel="linear", C=C, random_state=0).fit(array[rows], labels[rows, j])
        normals[j], offsets[j] = svm.coef_[0], svm.intercept_[0]
    cavs = torch.from_numpy(normals).to(features)
    intercepts = torch.from_numpy(offsets).to(features)
    scores = torch.addmm(intercepts, features, cavs.T)
    return Directions(cavs, intercepts, *_accuracies(scores, labels, positive | negative))


def mean_directions(features: Tensor, labels: np.ndarray, positive: np.ndarray, negative: np.ndarray) -> Directions:
    """Take the mean difference of each concept (FastCAV), all concepts in one matrix product.

    Parameters
    ----------
    features : Tensor
        (N, d).
    labels : np.ndarray
        (N, L) of bool: the concepts.
    positive : np.ndarray
        (N, L) of bool: the images drawn that show them.
    negative : np.ndarray
        (N, L) of bool: the images drawn that do not.

    Returns
    -------
    Directions
        On the device and in the type of `features`.
    """
    n_pos = positive.sum(axis=0)
    n_neg = negative.sum(axis=0)
    # With m the means: m_pos - m_drawn = n_neg / (n_pos + n_neg) * (m_pos - m_neg).
    share = n_neg / (n_pos + n_neg)
    drawn = positive | negative
    rows = np.flatnonzero(drawn.any(axis=1))
    weights = positive[rows] * (share / n_pos) - negative[rows] * (share / n_neg)
    selected = features[torch.from_numpy(rows).to(features.device)]
    cavs = torch.from_numpy(weights).to(features).T @ selected
    scores = features @ cavs.T
    halves = torch.from_numpy(positive[rows] * (0.5 / n_pos) + negative[rows] * (0.5 / n_neg)).to(features)
    intercepts = -(scores[torch.from_numpy(rows).to(features.device)] * halves).sum(dim=0)
    return Directions(cavs, intercepts, *_accuracies(scores + intercepts, labels, drawn))


def _accuracies(scores: Tensor, labels: np.ndarray, drawn: np.ndarray) -> tuple[Tensor, Tensor]:
    """Return the share of right signs (L,) among the images drawn and among those left."""
    correct = (scores > 0).cpu().numpy() == labels
    n_drawn = drawn.sum(axis=0)
    n_left = len(drawn) - n_drawn
    right_drawn = (correct & drawn).sum(axis=0)
    right_left = correct.sum(axis=0) - right_drawn
    left = np.where(n_left > 0, right_left / np.maximum(n_left, 1), np.nan)
    return torch.from_numpy(right_drawn / n_drawn).to(scores), torch.from_numpy(left).to(scores)


def fit_directions(
    features: Any,
    labels: Any,
    names: list[str] | None,
    method: str,
    n_pos: int,
    n_neg: int,
    C: float,
    seed: int,
    display_progressbar: bool,
) -> Directions:
    """Check all, draw and fit; parameters as in `ConceptBank.fit`.

    Parameters
    ----------
    features : Tensor or array
        (N, d).
    labels : Tensor or array
        (N, L) of 0 and 1.
    names : list of str, optional
        Of the concepts, for messages.
    method : str
        "svm" or "mean".
    n_pos : int
        How many images with each concept; all there are where there are fewer.
    n_neg : int
        How many without it, likewise.
    C : float
        Of the SVM.
    seed : int
        Of the draw.
    display_progressbar : bool
        Whether to show progress over the SVMs.

    Returns
    -------
    Directions
        Of all concepts.

    Raises
    ------
    ValueError
        If a shape, a setting or an entry is wrong, or a concept has no image on one of the sides.
    """
    check_choice("method", method, METHODS)
    for name, count in (("n_pos", n_pos), ("n_neg", n_neg)):
        if not isinstance(count, int | np.integer) or isinstance(count, bool) or count < 1:
            raise ValueError(f"Expected argument `{name}` to be a whole number of at least 1 but got {count}.")
    if not (math.isfinite(C) and C > 0):
        raise ValueError(f"Expected argument `C` to be positive and finite but got {C}.")
    x, present = _check_samples(features, labels)
    _check_counts(present, names or [f"concept {j}" for j in range(present.shape[1])], n_pos, n_neg)
    positive, negative = draw_samples(present, n_pos, n_neg, seed)
    if method == "svm":
        return svm_directions(x, present, positive, negative, C, display_progressbar)
    return mean_directions(x, present, positive, negative)


def as_embeddings(value: Any) -> Tensor:
    """Return a tensor in float32 or float64: half precision is too coarse to fit or normalise in."""
    tensor = torch.as_tensor(value).detach()
    return tensor if tensor.dtype in (torch.float32, torch.float64) else tensor.float()


def _check_samples(features: Any, labels: Any) -> tuple[Tensor, np.ndarray]:
    x = as_embeddings(features)
    check_shape("features", x, ("N", "d"), (None, None))
    y = labels.detach().cpu().numpy() if isinstance(labels, Tensor) else np.asarray(labels)
    check_shape("labels", y, ("N", "L"), (len(x), None))
    if x.numel() == 0 or y.size == 0:
        raise ValueError(
            f"Expected arguments `features` and `labels` to hold samples and concepts but got shapes "
            f"{tuple(x.shape)} and {y.shape}."
        )
    # A sum is finite only if all its terms are: one pass, and no copy to the CPU unless something is wrong.
    if not torch.isfinite(x.sum()):
        check_finite("features", x)
    check_binary("labels", y)
    return x, y.astype(bool)


def _check_counts(present: np.ndarray, names: list[str], n_pos: int, n_neg: int) -> None:
    positives = present.sum(axis=0)
    negatives = len(present) - positives
    for kind, counts in (("with", positives), ("without", negatives)):
        none = [names[j] for j in np.flatnonzero(counts == 0)]
        if none:
            raise ValueError(
                f"No image is {kind} {_listed(none)}. A direction needs images with and without its concept: "
                f"leave these concepts out, or add images."
            )
    short = [
        f"{names[j]!r} ({positives[j]} with, {negatives[j]} without)"
        for j in np.flatnonzero((positives < n_pos) | (negatives < n_neg))
    ]
    if short:
        more = f" and {len(short) - 3} more" if len(short) > 3 else ""
        warnings.warn(
            f"{len(short)} of {len(names)} concepts have fewer images than n_pos={n_pos} with and "
            f"n_neg={n_neg} without; all there are were used: {', '.join(short[:3])}{more}.",
            stacklevel=4,
        )


def _listed(names: list[str]) -> str:
    more = f" and {len(names) - 5} more concepts" if len(names) > 5 else ""
    return ", ".join(repr(name) for name in names[:5]) + more
