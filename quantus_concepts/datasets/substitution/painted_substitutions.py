"""Painted birds of which one attribute is replaced, before and after: nothing else in the picture changes."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import Dataset

from captum_concepts.support.checks import check_index, check_kind, check_whole, find_names
from captum_concepts.texts import describe, in_one_line
from quantus_concepts.datasets.birds.painted_birds import PaintedBirds


@in_one_line
class SubstitutionSample(NamedTuple):
    """One image in which an attribute is replaced, and the same image without.

    Attributes
    ----------
    image : Tensor
        (C, H, W), with the substitution.
    label : int
        Class, from 0.
    concepts : Tensor
        (L,) of 0 and 1: the concepts of `image`.
    points : Tensor
        (P, 1, 2): places (x, y) of the parts, in pixels of `image`; NaN where not visible.
    before : Tensor
        (C, H, W), without the substitution.
    """

    image: Tensor
    label: int
    concepts: Tensor
    points: Tensor
    before: Tensor


class PaintedSubstitutions(Dataset[SubstitutionSample]):
    """Painted birds with one attribute replaced by another of its group, and all else as it was.

    Bader et al. (2025), "SUB", as photographs cannot offer it: what was taken out is what the bird has of its class's
    own attributes, what was put in is not its class's, and the labels of exactly these two concepts change. So what
    reads the picture scores S+ = S- = 1, and what recites the class 0 and 0. Birds that have none such are left out.

    Only labels are kept; images are painted on access. The same arguments give the same substitutions, in any
    order of access.

    Parameters
    ----------
    birds : PaintedBirds
        The images before. Its transform is applied to both images, each by itself.
    per_bird : int
        How many substitutions of each bird, as far as it has as many: different concepts, drawn evenly from all that
        can be put in.
    concepts : str or sequence, optional
        Which concepts may be put in: names, patterns such as ``"has_wing_*"``, or indices; all if None.
    seed : int
        Random seed of the draw.

    Attributes
    ----------
    added, removed : Tensor
        (N,) of int64: the concept put in and the one taken out.
    group : Tensor
        (N,) of int64: their group, of `group_names`.
    pairs : Tensor
        (N,) of int64: which pair of class and concept put in; images of one pair are no independent samples.
    bird : Tensor
        (N,) of int64: which image of `birds` it is made of.
    labels : Tensor
        (N,) of int64: the class of each bird.
    concept_labels, concept_labels_before : Tensor
        (N, L) of 0 and 1, after and before.
    class_concepts : Tensor
        (K, L) of 0 and 1: the concepts that define each class.
    class_names, concept_names, group_names, part_names : list of str
        Names and groups of the birds.
    part_of_concept, group_of_concept : Tensor
        (L,) of int64, of the birds.

    Raises
    ------
    TypeError
        If `birds` are no `PaintedBirds`, a selection of their concepts for instance.
    ValueError
        If there is no such concept, `per_bird` is below 1, or no bird has a substitution.

    Examples
    --------
    >>> from quantus_concepts.datasets import PaintedBirds, PaintedSubstitutions
    >>> birds = PaintedBirds(n_images=8, image_size=32, n_classes=4, n_concepts=20)
    >>> images = PaintedSubstitutions(birds)
    >>> images[0].image.shape, images[0].before.shape
    (torch.Size([3, 32, 32]), torch.Size([3, 32, 32]))
    >>> labels, before = images.concept_labels, images.concept_labels_before
    >>> (labels - before).abs().sum(1).unique().tolist()  # one in and one out
    [2.0]
    """

    def __init__(
        self,
        birds: PaintedBirds,
        per_bird: int = 1,
        concepts: Iterable[str | int] | None = None,
        seed: int = 0,
    ) -> None:
        check_kind("birds", birds, PaintedBirds, "PaintedBirds with all concepts (`concepts` says which are put in)")
        check_whole("per_bird", per_bird, 1)
        self.birds = birds
        self.class_names, self.concept_names, self.part_names = birds.class_names, birds.concept_names, birds.part_names
        self.part_of_concept, self.group_of_concept = birds.part_of_concept, birds.group_of_concept
        self.group_names = [group.name for group in birds.groups]
        all_names = self.concept_names
        allowed = np.sort(find_names("concepts", all_names, range(len(all_names)) if concepts is None else concepts))
        # The place of each group's first concept.
        starts = torch.searchsorted(self.group_of_concept, torch.arange(len(birds.groups)))
        # (K, G): the concept that a class has of each group.
        class_options = starts + birds.class_options
        substitutions: list[tuple[int, int, int]] = []
        for index in range(len(birds)):
            order = np.random.default_rng([seed, index]).permutation(allowed)
            substitutions += self._substitutions_of(index, class_options[birds.labels[index]].numpy(), order, per_bird)
        if not substitutions:
            raise ValueError(
                "Expected argument `birds` to hold a bird of which one attribute can be replaced so that two labels "
                "change but there is none."
            )
        self.bird, self.added, self.removed = torch.tensor(substitutions).T.contiguous()
        self.group = self.group_of_concept[self.added]
        self.labels = birds.labels[self.bird]
        self.concept_labels_before = birds.concept_labels[self.bird]
        self.concept_labels = self.concept_labels_before.clone()
        rows = torch.arange(len(substitutions))
        self.concept_labels[rows, self.added] = 1
        self.concept_labels[rows, self.removed] = 0
        self.class_concepts = torch.zeros(len(class_options), len(self.concept_names)).scatter_(1, class_options, 1)
        self.pairs = torch.unique(self.labels * len(self.concept_names) + self.added, return_inverse=True)[1]

    def __len__(self) -> int:
        return len(self.added)

    def __getitem__(self, index: int) -> SubstitutionSample:
        """Return one sample."""
        index = check_index(index, len(self), "substitutions")
        bird = int(self.bird[index])
        after = self.birds.substitute(bird, int(self.added[index]))
        return SubstitutionSample(*after, self.birds[bird].image)

    def __repr__(self) -> str:
        return describe(self, f"{len(self)} of {int(self.pairs.max()) + 1} pairs, of {self.birds!r}")

    def _substitutions_of(
        self, index: int, class_options: np.ndarray, order: np.ndarray, count: int
    ) -> list[tuple[int, int, int]]:
        """Return up to `count` substitutions of a bird: itself, what is put in and what is taken out."""
        present = self.birds.concept_labels[index].numpy() > 0
        visible = ~self.birds.points[index, :, 0, 0].isnan().numpy()
        parts = np.unique(self.part_of_concept[self.part_of_concept >= 0].numpy())
        substitutions: list[tuple[int, int, int]] = []
        for added in order.tolist():
            removed = int(class_options[self.group_of_concept[added]])
            if len(substitutions) == count:
                break
            # Only an option of the class that is visible can be taken out.
            if added == removed or not present[removed]:
                continue
            after = self.birds.part_masks(index, added).flatten(1).any(1).numpy()
            # If another part appears or disappears, its labels change, too.
            if (after == visible)[parts].all():
                substitutions.append((index, added, removed))
        return substitutions
