"""The one interface of the data sets: images with a class, concept labels and part points."""

from __future__ import annotations

import operator
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.utils.data import Dataset

from captum_concepts.support.checks import check_choice, check_range, check_whole, find_names
from captum_concepts.texts import describe, in_one_line

SPLITS = ("train", "test")


def check_test_share(share: float) -> None:
    """Raise unless a share leaves something on both sides."""
    check_range("test_share", share, 0, 1, open_low=True, open_high=True)


def n_for_testing(count: int, share: float) -> int:
    """Return how many of several are for testing: at least one, and never all."""
    return min(max(round(count * share), 1), count - 1)


def mask_outside(points: Tensor, original: Tensor, image: Tensor) -> Tensor:
    """Return points with NaN where they lie outside of an image, or were not known."""
    height, width = image.shape[-2:]
    x, y = points[..., 0] + 0.5, points[..., 1] + 0.5
    inside = (x >= 0) & (x < width) & (y >= 0) & (y < height) & ~original.isnan().any(-1)
    return points.masked_fill(~inside.unsqueeze(-1), torch.nan)


def check_image_size(image_size: int | Sequence[int]) -> tuple[int, int]:
    """Return an image size, one number for a square, as (height, width)."""
    sides = image_size if isinstance(image_size, Sequence) else (image_size, image_size)
    size = tuple(map(operator.index, sides))
    if len(size) != 2 or min(size) < 1:
        raise ValueError(f"Expected argument `image_size` to be (height, width) in pixels but got {image_size!r}.")
    return size[0], size[1]


def position_of(argument: str, value: str | int, names: list[str]) -> int:
    """Return the position of one of several names, given by the name or the position."""
    if isinstance(value, str):
        check_choice(argument, value, names)
        return names.index(value)
    return check_whole(argument, value, 0, len(names) - 1)


def check_side(name: str, size: int | Sequence[int], low: int, high: int | None = None) -> int:
    """Return the side of a square image, given as one number or as (side, side)."""
    if isinstance(size, Sequence):
        if len(size) != 2 or size[0] != size[1]:
            raise ValueError(f"Expected argument `{name}` to be the side of square images in pixels but got {size!r}.")
        size = size[0]
    return check_whole(name, size, low, high)


@in_one_line
class ConceptSample(NamedTuple):
    """One image and what people said of it.

    Attributes
    ----------
    image : Tensor
        (C, H, W), in [0, 1] unless a transform of the user made something else of it.
    label : int
        Class, from 0.
    concepts : Tensor
        (L,) of 0 and 1: which concepts are present.
    points : Tensor
        (P, Q, 2): up to Q places (x, y) of each of the P parts, in pixels of `image`; NaN where not visible
        (Q is 2 where a part has a left and a right instance, else 1).
    """

    image: Tensor
    label: int
    concepts: Tensor
    points: Tensor


class ConceptDataset(Dataset[ConceptSample], ABC):
    """Images annotated with classes, concepts and, where there are any, parts.

    Everything but the images is there without loading an image.

    Attributes
    ----------
    class_names : list of str
        K names.
    concept_names : list of str
        L names.
    part_names : list of str
        P names; empty where no parts are known.
    part_of_concept : Tensor
        (L,) of int64: the part each concept is about, -1 for none.
    class_concepts : Tensor
        (K, L) in [0, 1]: how far each concept belongs to each class (the paper's V, transposed).
    training_concepts : Tensor or None
        (K, L), the same of the training images, if the data set knows them: what class recital names.
    labels : Tensor
        (N,) of int64: the class of each image.
    concept_labels : Tensor
        (N, L) of 0 and 1, float32.

    Examples
    --------
    >>> from quantus_concepts.datasets import ConceptDataset, PaintedBirds
    >>> birds = PaintedBirds(n_images=6, image_size=32, n_classes=3, n_concepts=12)
    >>> isinstance(birds, ConceptDataset)
    True
    >>> two = birds.select(birds.concept_names[:2])
    >>> two.concept_labels.shape, two.class_concepts.shape
    (torch.Size([6, 2]), torch.Size([3, 2]))
    """

    class_names: list[str]
    concept_names: list[str]
    part_names: list[str]
    part_of_concept: Tensor
    class_concepts: Tensor
    training_concepts: Tensor | None = None
    labels: Tensor
    concept_labels: Tensor

    def __len__(self) -> int:
        return len(self.labels)

    def __repr__(self) -> str:
        kinds = {"classes": self.class_names, "concepts": self.concept_names, "parts": self.part_names}
        facts = (f"{len(names)} {kind}" for kind, names in kinds.items() if names)
        settings = {name: getattr(self, name, None) for name in ("split", "image_size", "root")}
        return describe(self, f"{len(self)} images", *facts, **settings)

    @abstractmethod
    def __getitem__(self, index: int) -> ConceptSample:
        """Return one sample; raises IndexError past the end."""

    def select(self, concepts: str | Sequence[str | int]) -> ConceptDataset:
        """Return the same images with some of the concepts.

        The labels, parts and class table of a bank that leaves concepts out are those of ``select(bank.names)``.

        Parameters
        ----------
        concepts : str or sequence
            Names, patterns such as ``"has_wing_*"``, or indices; the concepts come in this order.

        Returns
        -------
        ConceptDataset
            It reads its images from this data set.

        Raises
        ------
        ValueError
            If a name is unknown, or none is given.
        """
        return _SelectedConcepts(self, find_names("concepts", self.concept_names, concepts))


class _SelectedConcepts(ConceptDataset):
    """Some of the concepts of a data set."""

    def __init__(self, dataset: ConceptDataset, columns: list[int]) -> None:
        self.dataset, self.columns = dataset, columns
        self.class_names, self.part_names, self.labels = dataset.class_names, dataset.part_names, dataset.labels
        self.concept_names = [dataset.concept_names[j] for j in columns]
        self.part_of_concept = dataset.part_of_concept[columns]
        self.class_concepts = dataset.class_concepts[:, columns]
        if dataset.training_concepts is not None:
            self.training_concepts = dataset.training_concepts[:, columns]
        self.concept_labels = dataset.concept_labels[:, columns]

    def __getitem__(self, index: int) -> ConceptSample:
        """Return one sample of the data set, with these concepts."""
        sample = self.dataset[index]
        return sample._replace(concepts=sample.concepts[self.columns])

    def __getattr__(self, name: str) -> Any:
        """Return what a data set may have of its images, which the choice of concepts leaves as it is."""
        # Whatever else a data set has may count concepts, as the argument `concept` of part masks does.
        if name in ("images", "load_mask", "regions"):
            return getattr(self.dataset, name)
        if name == "part_masks":
            part_masks = getattr(self.dataset, name)
            return lambda index, touched=False: part_masks(index, touched=touched)
        raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
