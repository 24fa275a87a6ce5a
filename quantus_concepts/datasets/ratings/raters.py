"""Explanations of painted birds by explainers of known quality, and simulated raters who vote on them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import ArrayLike
from torch import Tensor

from captum_concepts.support.checks import check_axes, check_range, check_whole, to_array
from quantus_concepts.datasets.birds.painted_birds import PaintedBirds
from quantus_concepts.datasets.ratings.explainers import EXPLAINERS, LIST_LENGTH, BirdView
from quantus_concepts.datasets.ratings.explanations import (
    QUESTIONS,
    ConceptExplanation,
    Explanation,
    LazyExplanations,
    MapExplanation,
)
from quantus_concepts.datasets.ratings.rated import RatedExplanations
from quantus_concepts.functional.statistics.votes import MAX_VOTE, MIN_VOTE

NAME = "painted birds, simulated raters"
#: Kinds of birds, and concepts that are listed of them.
N_CLASSES, N_CONCEPTS = 5, 30
_OTHER_STREAM, _DRAW_STREAM, _PAIR_STREAM, _NOISE_STREAM = 11, 12, 21, 22
# An explanation is made in three situations: as it is rated, once more after a light perturbation of the image, and
# after a strong one.
SITUATIONS = ("rated", "light", "strong")
# Being right counts more than being complete: the F-measure with beta = 1/2.
_BETA = 0.5


class GradedExplanations:
    """What graded explainers say of painted birds."""

    # An explanation depends on the seed, the image, the explainer and the situation alone: the same to the bit in
    # any order. Images are painted and explanations drawn on access; only the places of the parts are kept.
    # Two perturbations are simulated by what they do to an explainer. A *light* one leaves the bird where and what
    # it is, and an explainer with a random element draws anew. A *strong* one puts another bird, of another class,
    # in its place.

    def __init__(self, birds: PaintedBirds, seed: int = 0) -> None:
        self.seed, self.birds = seed, birds
        self.concept_names = [concept_words(name) for name in birds.concept_names]
        labels = birds.labels.numpy()
        rng = np.random.default_rng([seed, _OTHER_STREAM])
        self.others = np.array([rng.choice(np.flatnonzero(labels != label)) for label in labels])
        self._parts = np.stack([_part_places(birds, index) for index in range(len(birds))])
        self._present = birds.concept_labels.numpy() > 0
        self._last: tuple[int, Tensor] | None = None

    def view(self, image: int) -> BirdView:
        """Return what an explainer is given."""
        return BirdView(self._parts[image], self._parts[int(self.others[image])], self._present[image])

    def draw(self, image: int, explainer: int, situation: str = "rated") -> np.ndarray:
        """Return the bare explanation."""
        stream = [self.seed, _DRAW_STREAM, image, explainer, SITUATIONS.index(situation)]
        explained_image = int(self.others[image]) if situation == "strong" else image
        return EXPLAINERS[explainer].rule(self.view(explained_image), np.random.default_rng(stream))

    def explanation(self, pair: Sequence[int]) -> Explanation:
        """Return the explanation of an image by an explainer, as it is rated."""
        image, explainer = pair
        bare = self.draw(image, explainer)
        if EXPLAINERS[explainer].modality == "map":
            return MapExplanation(self._paint(image), torch.from_numpy(bare).float())
        names = (self.concept_names[place] for place in bare.tolist())
        return ConceptExplanation({name: 1 - rank / len(bare) for rank, name in enumerate(names)})

    def _paint(self, image: int) -> Tensor:
        # Items come image by image, so the last one is mostly the next.
        if self._last is None or self._last[0] != image:
            self._last = image, self.birds.images([image])[0]
        return self._last[1].clone()


def concept_words(concept: str) -> str:
    """Return a concept in plain words."""
    group, option = concept.split("::")
    words = group.removeprefix("has_").removesuffix("_color").removesuffix("_pattern").split("_")
    return " ".join([option, *words])


def _part_places(birds: PaintedBirds, index: int) -> np.ndarray:
    masks = birds.part_masks(index).numpy()
    return np.where(masks.any(0), masks.argmax(0) + 1, 0).astype(np.uint8)


@dataclass(frozen=True)
class SimulatedRaters:
    """Raters who vote around what `expected_votes` says.

    Rater a of A votes on question q of an item: clip(round(expected + bias_a + noise), 1, 5), where the biases are
    spread evenly from -`bias` (strict) to `bias` (lenient) and the noise is Gaussian, drawn for each vote.
    With the defaults one rater agrees with the mode of the five about as well as the annotators of Kazmierczak et al.
    do on Q1 (Spearman 0.84).

    Attributes
    ----------
    n_raters : int
        A.
    bias : float
        In points, of the most lenient rater.
    noise : float
        Standard deviation, in points.

    Examples
    --------
    >>> from quantus_concepts.datasets import SimulatedRaters, simulated_ratings
    >>> agreeing = SimulatedRaters(n_raters=3, bias=0, noise=0)
    >>> size = {"n_images": 2, "n_per_image": 2, "image_size": 32, "n_classes": 2}
    >>> votes = simulated_ratings(**size, raters=agreeing).votes
    >>> votes.shape, bool((votes.max(1) == votes.min(1)).all())
    ((4, 3, 6), True)
    """

    n_raters: int = 5
    bias: float = 0.35
    noise: float = 0.6

    def __post_init__(self) -> None:
        """Check the settings."""
        check_whole("n_raters", self.n_raters, 1)
        check_range("bias", self.bias, 0, MAX_VOTE)
        check_range("noise", self.noise, 0, MAX_VOTE)

    def vote(self, expected: ArrayLike, seed: int = 0) -> np.ndarray:
        """Let everyone vote on everything.

        Parameters
        ----------
        expected : np.ndarray
            (N, Q) votes without bias and noise.
        seed : int
            Random seed of the noise.

        Returns
        -------
        np.ndarray
            (N, A, Q) of float: 1 to 5.
        """
        expected = to_array("expected", expected)
        check_axes(expected=(expected, "N Q"))
        rng = np.random.default_rng([seed, _NOISE_STREAM])
        shape = (len(expected), self.n_raters, expected.shape[1])
        biases = np.linspace(-self.bias, self.bias, self.n_raters) if self.n_raters > 1 else np.zeros(1)
        meant = expected[:, None] + biases[:, None] + self.noise * rng.standard_normal(shape)
        return np.clip(np.rint(meant), MIN_VOTE, MAX_VOTE)


def expected_votes(graded: GradedExplanations, items: np.ndarray) -> np.ndarray:
    """Return what raters without bias and noise would say: 1 + 4 v, with v in [0, 1] for each question."""
    # With p (how much of what is marked or listed is right), r (how much of what is right is marked or listed), c
    # (clarity) and s (likeness of two explanations):
    # - Q1, consistent: v = 1.25 p r / (0.25 p + r), the F-measure that counts p double; 0 where p or r is.
    # - Q2, trusted: v = p.
    # - Q3, easy: v = 0.7 c + 0.3 v1.
    # - Q4, understood by many: v = 0.4 c + 0.3 v1 + 0.3 w; w is 1 for maps, 0.5 for lists, which need words of birders.
    # - Q5, change with a light perturbation: v = 1 - s(explanation, that of the same bird drawn anew). Low is good.
    # - Q6, change with a strong one: v = 1 - s(explanation, that of the same explainer for another bird).
    # Of a map m, scaled to [0, 1] by its least and largest value, and the bird's mask b: p = sum(m b) / sum(m), r =
    # mean of m on the bird, c = (1 - mean m) max(0, 1 - 2 t) with t the mean absolute difference of neighbours, down
    # and across, s = max(0, correlation). A constant map shows nothing: p = r = c = 0; two of them are alike, s = 1.
    # Of a list with weights 1 / log2(1 + place): p = share of the weight on concepts to be seen in the picture, r =
    # right concepts over those to be seen, at most 15, c = 1 / (1 + (n - 1) / 10) for n concepts, s = sum of the
    # smaller weights over sum of the larger ones, each concept's two compared.
    values = np.empty((len(items), len(QUESTIONS)))
    for place, (image, explainer) in enumerate(items.tolist()):
        rated, light, strong = (graded.draw(image, explainer, situation) for situation in ("rated", "light", "strong"))
        view = graded.view(image)
        if EXPLAINERS[explainer].modality == "map":
            right, complete, clear = rate_map(rated, view.parts > 0)
            plain, changes = 1.0, [1 - map_likeness(rated, other) for other in (light, strong)]
        else:
            right, complete, clear = rate_list(rated, view.present)
            plain, changes = 0.5, [1 - list_likeness(rated, other) for other in (light, strong)]
        values[place] = [*first_answers(right, complete, clear, plain), *changes]
    return MIN_VOTE + (MAX_VOTE - MIN_VOTE) * values


def first_answers(right: float, complete: float, clear: float, plain: float = 1.0) -> tuple[float, ...]:
    """Return v of Q1 to Q4 of `expected_votes`; `plain` is its w, 1 for maps."""
    overlap = f_measure(right, complete)
    return overlap, right, 0.7 * clear + 0.3 * overlap, 0.4 * clear + 0.3 * overlap + 0.3 * plain


def rate_map(relevance: np.ndarray, mask: np.ndarray) -> tuple[float, float, float]:
    """Compare a map with the bird: p, r and c of `expected_votes`."""
    m = _unit(relevance)
    total = m.sum()
    if not total:
        return 0.0, 0.0, 0.0
    rough = float(np.abs(np.diff(m, axis=0)).mean() + np.abs(np.diff(m, axis=1)).mean())
    return float(m[mask].sum() / total), float(m[mask].mean()), float((1 - m.mean()) * max(0.0, 1 - 2 * rough))


def rate_list(listed: np.ndarray, present: np.ndarray) -> tuple[float, float, float]:
    """Compare a list of concepts with those in the picture: p, r and c of `expected_votes`."""
    weights, true = _weights(len(listed)), present[listed]
    to_be_seen = max(min(LIST_LENGTH, int(present.sum())), 1)
    return (
        float(weights[true].sum() / weights.sum()),
        min(float(true.sum()) / to_be_seen, 1.0),
        1 / (1 + (len(listed) - 1) / 10),
    )


def f_measure(right: float, complete: float) -> float:
    """Return the F-measure that counts what is right double: 0 where either is 0."""
    if not right * complete:
        return 0.0
    return (1 + _BETA**2) * right * complete / (_BETA**2 * right + complete)


def map_likeness(first: np.ndarray, second: np.ndarray) -> float:
    """Return the correlation of two maps (H, W), 0 where it is negative; constant maps are like each other."""
    a, b = (_unit(value).ravel() for value in (first, second))
    if not a.any() or not b.any():
        return float(a.any() == b.any())
    return float(np.clip(np.corrcoef(a, b)[0, 1], 0, 1))


def list_likeness(first: np.ndarray, second: np.ndarray) -> float:
    """Return how far two lists of places agree in concepts and order: smaller over larger weights, from 0 to 1."""
    n = int(max(first.max(), second.max())) + 1
    a, b = np.zeros(n), np.zeros(n)
    a[first], b[second] = _weights(len(first)), _weights(len(second))
    return float(np.minimum(a, b).sum() / np.maximum(a, b).sum())


def simulated_ratings(
    n_images: int = 240,
    n_per_image: int = 21,
    image_size: int | Sequence[int] = 64,
    seed: int = 0,
    *,
    n_classes: int = N_CLASSES,
    n_concepts: int = N_CONCEPTS,
    raters: SimulatedRaters | None = None,
) -> RatedExplanations:
    """Let simulated raters rate graded explanations of painted birds.

    Every image gets a random choice of the explainers, so that not every pair is rated.

    Parameters
    ----------
    n_images : int
        How many birds.
    n_per_image : int
        How many explanations of each are rated, at most as many as there are explainers.
    image_size : int or (int, int)
        Height and width in pixels, from 32 to 512.
    seed : int
        Random seed of birds, explanations, choice and noise.
    n_classes : int
        K: how many kinds of birds.
    n_concepts : int
        L, at least 26: from there on every bird shows at least one concept, its size.
    raters : SimulatedRaters, optional
        Five by default.

    Returns
    -------
    RatedExplanations
        ``n_images * n_per_image`` items, image by image; `simulated` is True, `expected` known, and labels are the
        names of the classes.

    Raises
    ------
    ValueError
        If an argument is out of its range.

    Examples
    --------
    >>> from quantus_concepts.datasets import simulated_ratings
    >>> size = {"n_images": 3, "n_per_image": 2, "image_size": 32, "n_classes": 2}
    >>> ratings = simulated_ratings(**size)
    >>> len(ratings), ratings.simulated, ratings.votes.shape
    (6, True, (6, 5, 6))
    """
    check_whole("n_per_image", n_per_image, 1, len(EXPLAINERS))
    check_whole("n_concepts", n_concepts, 26)
    raters = SimulatedRaters() if raters is None else raters
    birds = PaintedBirds(n_images, image_size=image_size, n_classes=n_classes, n_concepts=n_concepts, seed=seed)
    graded = GradedExplanations(birds, seed=seed)
    items = _choose_pairs(n_images, len(EXPLAINERS), n_per_image, seed)
    expected = expected_votes(graded, items)
    chosen = [EXPLAINERS[explainer] for explainer in items[:, 1]]
    return RatedExplanations(
        LazyExplanations(graded.explanation, items.tolist()),
        raters.vote(expected, seed),
        image_ids=np.array([f"bird {image:04d}" for image in items[:, 0]]),
        explainer_ids=np.array([explainer.name for explainer in chosen]),
        labels=np.array(birds.class_names)[birds.labels.numpy()[items[:, 0]]],
        datasets=np.full(len(items), "painted birds"),
        modalities=np.array([explainer.modality for explainer in chosen]),
        name=NAME,
        simulated=True,
        notes=(
            f"No person voted: {raters.n_raters} simulated raters vote by a stated function of the overlap with the "
            f"bird in the picture, with a bias of up to {raters.bias:g} points each and noise of {raters.noise:g} "
            f"points; {len(EXPLAINERS)} explainers of graded quality, {n_per_image} of them on each of {n_images} "
            "painted birds. Grades are fine: an explainer that a split holds back often lies between two it trains on.",
        ),
        raters=tuple(f"rater {number + 1}" for number in range(raters.n_raters)),
        expected=expected,
    )


def _choose_pairs(n_images: int, n_explainers: int, n_per_image: int, seed: int) -> np.ndarray:
    pairs = []
    for image in range(n_images):
        rng = np.random.default_rng([seed, _PAIR_STREAM, image])
        pairs.append([(image, int(e)) for e in np.sort(rng.permutation(n_explainers)[:n_per_image])])
    return np.array(pairs, dtype=np.int64).reshape(-1, 2)


def _unit(relevance: np.ndarray) -> np.ndarray:
    low, high = relevance.min(), relevance.max()
    return (relevance - low) / (high - low) if high > low else np.zeros_like(relevance)


def _weights(length: int) -> np.ndarray:
    return 1 / np.log2(np.arange(length) + 2)
