"""Explanations of painted birds by explainers of known quality, drawn on access."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from captum_concepts._support.checks import check_choice, check_whole
from quantus_concepts.datasets.birds.painted_birds import PaintedBirds
from quantus_concepts.datasets.ratings.explainers import EXPLAINERS, BirdView, GradedExplainer
from quantus_concepts.datasets.ratings.explanations import ConceptExplanation, Explanation, MapExplanation

# An explanation is made in three situations: as it is rated, once more after a light perturbation of the image, and
# after a strong one.
SITUATIONS = ("rated", "light", "strong")
_OTHER_STREAM, _DRAW_STREAM = 11, 12


class GradedExplanations:
    """What graded explainers say of painted birds."""

    # An explanation depends on the seed, the image, the explainer and the situation alone: the same to the bit in
    # any order. Images are painted and explanations drawn when asked for; only the places of the parts are kept.
    # Two perturbations are simulated by what they do to an explainer. A *light* one leaves the bird where and what
    # it is, and an explainer with a random element draws anew. A *strong* one puts another bird, of another class,
    # in its place.

    def __init__(self, birds: PaintedBirds, explainers: Sequence[GradedExplainer] = EXPLAINERS, seed: int = 0) -> None:
        self.seed = check_whole("seed", seed, 0)
        self.birds = birds
        self.explainers = tuple(explainers)
        names = [explainer.name for explainer in self.explainers]
        if len(set(names)) < len(names):
            raise ValueError("Expected argument `explainers` to have different names but some share one.")
        self.concept_names = [plain_name(name) for name in birds.concept_names]
        labels = birds.labels.numpy()
        if (labels == labels[0]).all():
            raise ValueError("Expected argument `birds` to be of at least two classes. Ask for more images or classes.")
        rng = np.random.default_rng([seed, _OTHER_STREAM])
        self.others = np.array([rng.choice(np.flatnonzero(labels != label)) for label in labels])
        self._parts = np.stack([_part_places(birds, index) for index in range(len(birds))])
        self._present = birds.concept_labels.numpy() > 0
        self._typical = np.stack([_class_concepts(birds, k) for k in range(len(birds.class_names))])
        self._last: tuple[int, Tensor] | None = None
        self._groups = birds.group_of_concept.numpy()

    def view(self, image: int) -> BirdView:
        """Return what explainers may look at."""
        other, labels = int(self.others[image]), self.birds.labels
        return BirdView(
            lambda: self._paint(image).numpy(),
            self._parts[image],
            self._parts[other],
            self._present[image],
            self._typical[labels[image]],
            self._typical[labels[other]],
            self._groups,
        )

    def draw(self, image: int, explainer: int, situation: str = "rated") -> np.ndarray:
        """Return the bare explanation."""
        check_choice("situation", situation, SITUATIONS)
        stream = [self.seed, _DRAW_STREAM, image, explainer, SITUATIONS.index(situation)]
        seen = int(self.others[image]) if situation == "strong" else image
        return self.explainers[explainer].rule(self.view(seen), np.random.default_rng(stream))

    def explanation(self, pair: Sequence[int]) -> Explanation:
        """Return the explanation of an image by an explainer, as it is rated."""
        image, explainer = pair
        drawn = self.draw(image, explainer)
        if self.explainers[explainer].modality == "map":
            return MapExplanation(self._paint(image), torch.from_numpy(drawn).float())
        names = (self.concept_names[place] for place in drawn.tolist())
        return ConceptExplanation({name: 1 - rank / len(drawn) for rank, name in enumerate(names)})

    def _paint(self, image: int) -> Tensor:
        # Items come image by image, so the last one is mostly the next.
        if self._last is None or self._last[0] != image:
            self._last = image, self.birds.images([image])[0]
        return self._last[1].clone()


def plain_name(concept: str) -> str:
    """Return a concept in plain words."""
    group, option = concept.split("::")
    words = group.removeprefix("has_").removesuffix("_color").removesuffix("_pattern").split("_")
    return " ".join([option, *words])


def _part_places(birds: PaintedBirds, index: int) -> np.ndarray:
    masks = birds.part_masks(index).numpy()
    return np.where(masks.any(0), masks.argmax(0) + 1, 0).astype(np.uint8)


def _class_concepts(birds: PaintedBirds, label: int) -> np.ndarray:
    typical = np.zeros(len(birds.concept_names), dtype=bool)
    for group, option in enumerate(birds.class_options[label].tolist()):
        typical[int((birds.group_of_concept == group).nonzero()[option])] = True
    return typical
