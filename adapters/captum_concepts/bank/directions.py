"""Concept directions from labelled embeddings: linear SVM, and mean difference (FastCAV)."""

from __future__ import annotations

import math
import warnings
from collections.abc import Sequence
from typing import NamedTuple, TypedDict

import numpy as np
import torch
from numpy.typing import ArrayLike
from torch import Tensor, nn

from captum_concepts.support.checks import check_axes, check_choice, check_finite, check_range, check_whole, to_tensor
from captum_concepts.support.files import printable
from captum_concepts.support.running import import_sklearn, progress, warn_user

METHODS = ("svm", "mean")
HOLD_BACK = 0.2
"""Share of the images of either side that directions are not fitted on."""

WEAK = 0.6
"""Balanced accuracy on held-out images below which a direction is called weak."""

SIGNIFICANT = 0.05
"""P-value from which on a direction is called weak."""

#: Steps of the SVM's solver; it takes some thousands where it converges, and none are enough for huge embeddings.
_MOST_STEPS = 1_000_000
#: Images of a concept up to which all their inner products are held at once, 134 MB.
_MOST_PRODUCTS = 4096


class FitSettings(TypedDict, total=False):
    """The settings of `ConceptBank.fit` that other functions hand on to it."""

    method: str
    n_pos: int
    n_neg: int
    C: float
    hold_back: float


class Fitting(NamedTuple):
    """How directions are drawn and fitted; None draws all images but those held back, or as many of the other side."""

    method: str = "svm"
    n_pos: int | None = 100
    n_neg: int | None = 100
    C: float = 1.0
    seed: int = 0
    hold_back: float = HOLD_BACK

    def check(self) -> Fitting:
        """Return the settings as they are, or raise."""
        check_choice("method", self.method, METHODS)
        for name, number in (("n_pos", self.n_pos), ("n_neg", self.n_neg)):
            if number is not None:
                check_whole(name, number, 1)
        check_range("C", self.C, 0, math.inf, open_low=True, open_high=True)
        check_whole("seed", self.seed, 0)
        check_range("hold_back", self.hold_back, 0, 1, open_high=True)
        return self

    def settings(self) -> dict[str, object]:
        """Return how a bank was fitted, as its settings hold it."""
        settings: dict[str, object] = {
            "method": self.method,
            "n_pos": "all" if self.n_pos is None else int(self.n_pos),
            "n_neg": "as many" if self.n_neg is None else int(self.n_neg),
            "seed": int(self.seed),
            "hold_back": float(self.hold_back),
            "accuracy": "balanced",
        }
        return settings | ({"C": float(self.C)} if self.method == "svm" else {})


class Directions(NamedTuple):
    """Fitted directions of L concepts."""

    cavs: Tensor
    intercepts: Tensor
    train_accuracy: Tensor
    test_accuracy: Tensor


def draw_samples(
    labels: np.ndarray, n_pos: int | None, n_neg: int | None, seed: int, hold_back: float = HOLD_BACK
) -> tuple[np.ndarray, np.ndarray]:
    """Draw images with and without each concept, without replacement, and leave some of either kind."""
    # The images are put into one random order, and each concept takes the first of either kind. Each concept's draw
    # is a fair one, and does not change when concepts are added to the bank. Returned are two (N, L) of bool: the
    # images drawn with and without each concept.
    n_images = len(labels)
    order = np.random.default_rng(seed).permutation(n_images)
    shuffled = labels[order]
    # The 1-based rank of each image among those with the concept; the others' follows by subtraction.
    rank = np.cumsum(shuffled, axis=0, dtype=np.int32)
    rank_without = np.arange(1, n_images + 1, dtype=np.int32)[:, None] - rank
    positive = np.empty_like(shuffled)
    negative = np.empty_like(shuffled)
    counts = shuffled.sum(axis=0)
    with_it = count_drawn(counts, n_pos or n_images, hold_back)
    positive[order] = shuffled & (rank <= with_it)
    negative[order] = ~shuffled & (rank_without <= count_drawn(n_images - counts, n_neg or with_it, hold_back))
    return positive, negative


def count_drawn(counts: np.ndarray, most: int | np.ndarray, hold_back: float) -> np.ndarray:
    """Return how many of a side's images are drawn: at least one is held back, but a single image is drawn."""
    held_back = np.maximum((counts * hold_back).astype(int), 1) if hold_back else 0
    return np.minimum(most, np.maximum(counts - held_back, 1))


def svm_directions(
    features: Tensor,
    labels: np.ndarray,
    positive: np.ndarray,
    negative: np.ndarray,
    C: float,
    display_progressbar: bool = False,
) -> Directions:
    """Fit one linear SVM for each concept, as scikit-learn's ``SVC(kernel="linear")``."""
    # A seed, which the solver does not use, since without one it draws from NumPy's global generator.
    # libsvm computes in float64 on the CPU: converted once for all concepts.
    array = features.detach().cpu().double().numpy()
    n_concepts = labels.shape[1]
    normals = np.empty((n_concepts, array.shape[1]))
    offsets = np.empty(n_concepts)
    unfinished = 0
    concepts = progress(range(n_concepts), "Concept SVMs", show=display_progressbar, leave=True)
    for j in concepts:
        rows = np.flatnonzero(positive[:, j] | negative[:, j])
        drawn = array[rows]
        # One matrix product has all inner products that the solver would compute one by one.
        known = len(rows) <= _MOST_PRODUCTS
        svm = import_sklearn("svm").SVC(
            kernel="precomputed" if known else "linear", C=C, random_state=0, max_iter=_MOST_STEPS
        )
        with warnings.catch_warnings():
            # One warning for all concepts.
            warnings.simplefilter("ignore", import_sklearn("exceptions").ConvergenceWarning)
            svm.fit(drawn @ drawn.T if known else drawn, labels[rows, j])
        unfinished += svm.fit_status_
        normals[j], offsets[j] = svm.dual_coef_[0] @ drawn[svm.support_], svm.intercept_[0]
    if unfinished:
        warn_user(
            f"The SVMs of {unfinished} of {n_concepts} concepts did not converge; embeddings reach "
            f"{np.abs(array).max():.3g}. Are the images normalised as the backbone wants them? Else scale the "
            "embeddings, or lower `C`."
        )
    cavs = torch.from_numpy(normals).to(features)
    intercepts = torch.from_numpy(offsets).to(features)
    scores = torch.addmm(intercepts, features, cavs.T)
    return Directions(cavs, intercepts, *_accuracies(scores, labels, positive | negative))


def mean_directions(features: Tensor, labels: np.ndarray, positive: np.ndarray, negative: np.ndarray) -> Directions:
    """Take the mean difference of each concept (FastCAV), all concepts in one matrix product."""
    n_pos = positive.sum(axis=0)
    n_neg = negative.sum(axis=0)
    # With m the means: m_pos - m_drawn = n_neg / (n_pos + n_neg) * (m_pos - m_neg).
    share = n_neg / (n_pos + n_neg)
    is_drawn = positive | negative
    rows = np.flatnonzero(is_drawn.any(axis=1))
    weights = positive[rows] * (share / n_pos) - negative[rows] * (share / n_neg)
    selected = features[torch.from_numpy(rows).to(features.device)]
    cavs = torch.from_numpy(weights).to(features).T @ selected
    scores = features @ cavs.T
    halves = torch.from_numpy(positive[rows] * (0.5 / n_pos) + negative[rows] * (0.5 / n_neg)).to(features)
    intercepts = -(scores[torch.from_numpy(rows).to(features.device)] * halves).sum(dim=0)
    return Directions(cavs, intercepts, *_accuracies(scores + intercepts, labels, is_drawn))


def _accuracies(scores: Tensor, labels: np.ndarray, is_drawn: np.ndarray) -> tuple[Tensor, Tensor]:
    """Return balanced accuracies (L,) among the images drawn and among those left, NaN where a side is empty."""
    correct = (scores >= 0).cpu().numpy() == labels

    def balanced_accuracy(chosen: np.ndarray) -> Tensor:
        sides = np.stack([chosen & labels, chosen & ~labels])
        counts = sides.sum(axis=1)
        shares = np.where(counts > 0, (sides & correct).sum(axis=1) / np.maximum(counts, 1), np.nan)
        return torch.from_numpy(shares.mean(axis=0)).to(scores)

    return balanced_accuracy(is_drawn), balanced_accuracy(~is_drawn)


def fit_directions(
    features: Tensor, present: np.ndarray, names: list[str], fitting: Fitting, display_progressbar: bool
) -> Directions:
    """Draw and fit, of samples and with settings that are checked, and warn of concepts that are fitted badly."""
    warn_of_same_labels(present, names)
    positives = present.sum(axis=0)
    warn_of_few_images(names, positives, len(present) - positives, fitting)
    fitted = fit_drawn(features, present, fitting, display_progressbar)
    warn_of_weak(fitted.test_accuracy, names)
    return fitted


def fit_drawn(features: Tensor, present: np.ndarray, fitting: Fitting, display_progressbar: bool = False) -> Directions:
    """Draw and fit, of samples and with settings that are checked."""
    positive, negative = draw_samples(present, fitting.n_pos, fitting.n_neg, fitting.seed, fitting.hold_back)
    if fitting.method == "svm":
        return svm_directions(features, present, positive, negative, fitting.C, display_progressbar)
    return mean_directions(features, present, positive, negative)


def draw_directions(n_concepts: int, mean: Tensor, seed: int | Sequence[int]) -> tuple[Tensor, Tensor]:
    """Draw directions (L, d) evenly from the sphere, with boundaries (L,) through the mean embedding (d,)."""
    directions = np.random.default_rng(seed).standard_normal((n_concepts, len(mean)))
    cavs = nn.functional.normalize(torch.as_tensor(directions).to(mean), dim=1)
    return cavs, -cavs @ mean


def random_directions(
    n_concepts: int, n_features: int, seed: int, mean: Tensor | ArrayLike | None
) -> tuple[Tensor, Tensor]:
    """Validate the arguments of `ConceptBank.random`, and draw; boundaries go through the origin without a mean."""
    check_whole("n_concepts", n_concepts, 1)
    check_whole("n_features", n_features, 1)
    centre = torch.zeros(n_features) if mean is None else as_embeddings(mean, "mean")
    check_axes(mean=(centre, f"{n_features}"))
    check_finite("mean", centre)
    return draw_directions(n_concepts, centre, seed)


def as_embeddings(value: Tensor | ArrayLike, name: str = "features") -> Tensor:
    """Return a tensor in float32 or float64: half precision is too coarse to fit or normalise in."""
    tensor = to_tensor(name, value)
    return tensor if tensor.dtype in (torch.float32, torch.float64) else tensor.float()


def warn_of_same_labels(present: np.ndarray, names: list[str]) -> None:
    """Warn of concepts with the same labels on all images."""
    groups: dict[bytes, list[str]] = {}
    for name, column in zip(names, np.packbits(present, axis=0).T, strict=True):
        groups.setdefault(column.tobytes(), []).append(name)
    twins = [group for group in groups.values() if len(group) > 1]
    if twins:
        listed = [" = ".join(map(repr, group)) for group in twins]
        warn_user(
            f"{sum(map(len, twins))} of {len(names)} concepts have the labels of another one on all images, so that "
            f"nothing tells them apart and their directions are the same: {list_first(listed)}. Keep one of each."
        )


def warn_of_few_images(names: list[str], positives: np.ndarray, negatives: np.ndarray, fitting: Fitting) -> None:
    """Warn of concepts with fewer images than requested."""
    n_pos, n_neg, hold_back = fitting.n_pos or 1, fitting.n_neg or 1, fitting.hold_back
    too_few = (count_drawn(positives, n_pos, hold_back) < n_pos) | (count_drawn(negatives, n_neg, hold_back) < n_neg)
    short = np.flatnonzero(too_few)
    if len(short):
        listed = [f"{names[j]!r} ({positives[j]} with, {negatives[j]} without)" for j in short]
        warn_user(
            f"{len(short)} of {len(names)} concepts have fewer images than n_pos={n_pos} with and n_neg={n_neg} "
            f"without, beside the share of {hold_back:g} that is held back; what there is was used: "
            f"{list_first(listed)}."
        )


def weak_concepts(test_accuracy: Tensor, names: list[str]) -> list[str]:
    """Return the names of concepts that are hardly distinguishable from chance on images held back."""
    return [names[j] for j in torch.nonzero(test_accuracy < WEAK).flatten().tolist()]


def describe_weak(p_values: Tensor, test_accuracy: Tensor) -> list[str]:
    """Return "weak direction (...)" for each direction that cannot be distinguished from random images, else "".

    A p-value decides if there is one, otherwise the accuracy on images held back.
    """
    texts = []
    for p, accuracy in zip(p_values.tolist(), test_accuracy.tolist(), strict=True):
        if p >= SIGNIFICANT:
            texts.append(f"weak direction (p = {p:.2f})")
        elif math.isnan(p) and accuracy < WEAK:
            texts.append(f"weak direction (held-out accuracy {accuracy:.2f})")
        else:
            texts.append("")
    return texts


def warn_of_weak(test_accuracy: Tensor, names: list[str]) -> None:
    """Warn of concepts that are hardly distinguishable from chance."""
    weak = weak_concepts(test_accuracy, names)
    if weak:
        warn_user(
            f"{len(weak)} of {len(names)} concepts have a balanced accuracy below {WEAK} on images held back (chance "
            f"is 0.5), so that their directions say little: {list_first([*map(repr, weak)])}. See `bank.weak`."
        )


def list_first(items: list[str]) -> str:
    """Write out the first few."""
    more = f" and {len(items) - 5} more" if len(items) > 5 else ""
    return ", ".join(map(printable, items[:5])) + more
