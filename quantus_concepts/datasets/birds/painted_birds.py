"""Birds drawn from a table of attributes: a data set in which every concept, part and image is known exactly."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from captum_concepts.support.checks import check_choice, check_index, check_range, check_whole
from quantus_concepts.datasets.base import SPLITS, ConceptDataset, ConceptSample, check_side, mask_outside, position_of
from quantus_concepts.datasets.birds.attributes import (
    MAX_CONCEPTS,
    MIN_CONCEPTS,
    PARTS,
    SPECIES,
    AttributeGroup,
    choose_groups,
    class_table,
)
from quantus_concepts.datasets.birds.painting import (
    Scene,
    draw_scene,
    locate_parts,
    map_parts,
    map_touches,
    paint_image,
    paint_values,
)

if TYPE_CHECKING:
    from quantus_concepts.datasets.transforms import Transform

# Numbers drawn for the attributes of an image, whatever the number of groups: the scene stays the same.
_ATTRIBUTE_NUMBERS = 64
_LABEL_STREAM = 3


class PaintedBirds(ConceptDataset):
    """Drawn birds with twelve parts, attributes in groups, and classes defined by tables of attributes.

    A class has one option of every group. An individual has the options of its class, except that each is
    with probability `deviation` another one of its group. Pose, position, facing, background and what
    covers the bird depend on neither. Two splits with the same `seed` share the classes and differ in the
    individuals. The same arguments give the same images to the bit, in any order of access, and
    the first images of a larger data set are those of a smaller one.

    Concept labels say what is to be seen: where a part is hidden (by grass, a trunk, leaves, or beyond the edge), all
    concepts of that part are 0. Otherwise exactly one concept of each group is 1.

    Images are painted on access, and not kept by default. Labels and part centres are found once, in the
    constructor.

    Parameters
    ----------
    n_images : int
        N, at least `n_classes`. The classes take turns, in random order.
    split : str
        "train" or "test".
    image_size : int or (int, int)
        Height and width H = W of the images in pixels, from 32 to 512.
    n_classes : int
        K, from 2 to 60.
    n_concepts : int
        L, from 4 to 104; `groups` shows which groups and options they make up.
    deviation : float
        Probability, in [0, 1], that an attribute of an individual is not that of its class.
    correlation : float
        From 0 (the groups of the class table are independent) to 1 (the colour groups of a class all have the colour
        at one place of their lists of colours, mostly the same colour); in between it is the probability
        that a group of a class takes part.
    seed : int
        Random seed of classes and individuals.
    transform : callable, optional
        A transform of ``torchvision.transforms.v2``, applied to image and points together.
    first : int
        Number of the first image: the images are those from `first` on of a data set of ``first + n_images``.
    keep : bool
        Paint all images in the constructor, which locates their parts anyway, and keep them in 8 bits.

    Attributes
    ----------
    groups : list of AttributeGroup
        The G groups.
    group_of_concept : Tensor
        (L,) of int64: which group each concept belongs to. The concepts of a group follow each other.
    class_options : Tensor
        (K, G) of int64: which option of each group defines a class.
    options : Tensor
        (N, G) of int64: which option each bird has, seen or not.
    points : Tensor
        (N, P, 1, 2): part centres (x, y) in pixels of the images before `transform`; NaN where not visible. A
        centre is the pixel of the part nearest to the mean of its pixels.
    class_concepts : Tensor
        (K, L): the share of the images of a class that are labelled with a concept.

    Raises
    ------
    ValueError
        If an argument is outside its range, or the concepts cannot tell the classes apart.

    Examples
    --------
    >>> from quantus_concepts.datasets import PaintedBirds
    >>> birds = PaintedBirds(n_images=6, image_size=32, n_classes=3, n_concepts=12)
    >>> image, label, concepts, points = birds[0]
    >>> image.shape, concepts.shape, points.shape
    (torch.Size([3, 32, 32]), torch.Size([12]), torch.Size([12, 1, 2]))
    >>> birds.class_concepts.shape
    torch.Size([3, 12])
    """

    def __init__(
        self,
        n_images: int = 600,
        split: str = "train",
        image_size: int | Sequence[int] = 96,
        n_classes: int = 20,
        n_concepts: int = 69,
        deviation: float = 0.1,
        correlation: float = 0.0,
        seed: int = 0,
        transform: Transform | None = None,
        first: int = 0,
        keep: bool = False,
    ) -> None:
        check_whole("n_classes", n_classes, 2, len(SPECIES))
        check_whole("n_images", n_images, n_classes)
        check_choice("split", split, SPLITS)
        check_whole("n_concepts", n_concepts, MIN_CONCEPTS, MAX_CONCEPTS)
        check_range("deviation", deviation, 0, 1)
        check_range("correlation", correlation, 0, 1)
        check_whole("first", first, 0)
        self.split = split
        self.image_size = image_size = check_side("image_size", image_size, 32, 512)
        self.deviation = float(deviation)
        self.correlation = float(correlation)
        self.seed = seed
        self.transform = transform
        self.first = first
        self.groups: list[AttributeGroup] = choose_groups(n_concepts)
        table = class_table(self.groups, n_classes, correlation, seed)
        self.class_options = torch.from_numpy(table)
        self._set_names(table)
        self._painted: Tensor | None = (
            torch.empty(n_images, 3, image_size, image_size, dtype=torch.uint8) if keep else None
        )
        self._populate(n_images, table)

    def __getitem__(self, index: int) -> ConceptSample:
        """Return one sample."""
        index = check_index(index, len(self), "images")
        return self._finish(self._paint(index), index, self.concept_labels[index].clone(), self.points[index].clone())

    def substitute(self, index: int, concept: str | int) -> ConceptSample:
        """Return an image with one attribute exchanged and all else as it was.

        Apart from whole-bird groups, only pixels in which the part of the concept has a share change, before
        or after (`part_masks` with ``touched=True``). A concept that the bird has anyway gives the sample
        itself. On a hidden part nothing is to be seen of the exchange, and its concepts stay 0.

        Parameters
        ----------
        index : int
            Which image.
        concept : str or int
            Concept to add, by name or index; the bird loses the other options of its group.

        Returns
        -------
        ConceptSample
            With labels and points of the new picture.

        Raises
        ------
        IndexError
            If there is no such image.
        ValueError
            If there is no such concept.
        """
        index = check_index(index, len(self), "images")
        options = self._options_with(index, concept)
        look, (_, scene, rng) = self._look(options), self._draw(index)
        values = paint_values(look, scene, self.image_size)
        points = locate_parts(map_parts(values))
        labels = self._label(options[None], ~np.isnan(points[None, :, 0]))[0]
        image = torch.from_numpy(paint_image(values, look, scene, rng)).permute(2, 0, 1).float() / 255
        return self._finish(image, index, labels, torch.from_numpy(points)[:, None])

    def without_part(self, index: int, part: str | int) -> Tensor:
        """Paint an image without one part of the bird, before `transform`; what is behind the part is then seen.

        Parameters
        ----------
        index : int
            Which image.
        part : str or int
            Name or index of the part.

        Returns
        -------
        Tensor
            (3, H, W) of float32 in [0, 1].

        Raises
        ------
        IndexError
            If there is no such image.
        ValueError
            If there is no such part.
        """
        index = check_index(index, len(self), "images")
        return self._paint(index, self.part_names[position_of("part", part, self.part_names)])

    def part_masks(self, index: int, concept: str | int | None = None, touched: bool = False) -> Tensor:
        """Return the pixels of each part as they are seen in the image before `transform`.

        A pixel belongs to the part at its middle, so that masks do not overlap. A part of which next to nothing is seen
        (less than one pixel in 2,304 of the image) is hidden.

        Parameters
        ----------
        index : int
            Which image.
        concept : str or int, optional
            Take the image with this concept substituted in.
        touched : bool
            Mark all pixels in which a part has a share, however small, instead.

        Returns
        -------
        Tensor
            (12, H, W) of bool; without `touched` all False where a part is hidden.

        Raises
        ------
        IndexError
            If there is no such image.
        ValueError
            If there is no such concept.
        """
        index = check_index(index, len(self), "images")
        options = self.options[index].numpy() if concept is None else self._options_with(index, concept)
        values = paint_values(self._look(options), self._draw(index)[1], self.image_size)
        if touched:
            return torch.from_numpy(map_touches(values))
        parts = map_parts(values)
        return torch.from_numpy(parts[None] == np.arange(1, len(PARTS) + 1)[:, None, None])

    def images(self, indices: Iterable[int] | None = None) -> Tensor:
        """Paint a batch of images, without `transform`.

        Parameters
        ----------
        indices : iterable of int, optional
            Which images; None for all.

        Returns
        -------
        Tensor
            (n, 3, H, W) of float32 in [0, 1].

        Raises
        ------
        IndexError
            If there is no such image.
        """
        chosen = [
            check_index(index, len(self), "images") for index in (range(len(self)) if indices is None else indices)
        ]
        stack = torch.empty(len(chosen), 3, self.image_size, self.image_size)
        for place, index in enumerate(chosen):
            stack[place] = self._paint(index)
        return stack

    def __repr__(self) -> str:
        return (
            f"PaintedBirds({self.split}: {len(self)} images of {self.image_size} px, {len(self.class_names)} classes, "
            f"{len(self.concept_names)} concepts in {len(self.groups)} groups, deviation {self.deviation:g}, "
            f"correlation {self.correlation:g}, seed {self.seed})"
        )

    def _set_names(self, table: np.ndarray) -> None:
        self.part_names = list(PARTS)
        pairs = [(g, group, option) for g, group in enumerate(self.groups) for option in group.options]
        self.concept_names = [f"{group.name}::{option}" for _, group, option in pairs]
        self.group_of_concept = torch.tensor([g for g, _, _ in pairs])
        self.part_of_concept = torch.tensor(
            [-1 if group.part is None else PARTS.index(group.part) for _, group, _ in pairs]
        )
        # The place of each group's first concept.
        self._starts = np.cumsum([0] + [len(group.options) for group in self.groups[:-1]])
        # The first group of the catalogue is always there.
        wings = [self.groups[0].options[option].capitalize() for option in table[:, 0]]
        self.class_names = [f"{wing}-winged {bird}" for wing, bird in zip(wings, SPECIES, strict=False)]

    def _populate(self, n_images: int, table: np.ndarray) -> None:
        stream = SPLITS.index(self.split)
        turns = [
            np.random.default_rng([self.seed, _LABEL_STREAM, stream, turn]).permutation(len(table))
            for turn in range(self.first // len(table), -(-(self.first + n_images) // len(table)))
        ]
        skipped = self.first % len(table)
        labels = np.concatenate(turns)[skipped : skipped + n_images]
        options = np.empty((n_images, len(self.groups)), dtype=np.int64)
        points = np.empty((n_images, len(PARTS), 2), dtype=np.float32)
        sizes = np.array([len(group.options) for group in self.groups])
        for index, label in enumerate(labels):
            numbers, scene, rng = self._draw(index)
            deviates, which = numbers[: len(sizes)] < self.deviation, numbers[-len(sizes) :]
            other = (table[label] + 1 + (which * (sizes - 1)).astype(np.int64)) % sizes
            options[index] = np.where(deviates, other, table[label])
            look = self._look(options[index])
            values = paint_values(look, scene, self.image_size)
            points[index] = locate_parts(map_parts(values))
            if self._painted is not None:
                self._painted[index] = torch.from_numpy(paint_image(values, look, scene, rng)).permute(2, 0, 1)
        self.labels = torch.from_numpy(labels)
        self.options = torch.from_numpy(options)
        self.points = torch.from_numpy(points)[:, :, None]
        self.concept_labels = self._label(options, ~np.isnan(points[..., 0]))
        members = torch.nn.functional.one_hot(self.labels, len(table)).float()
        self.class_concepts = (members.T @ self.concept_labels) / members.sum(0)[:, None]

    def _draw(self, index: int) -> tuple[np.ndarray, Scene, np.random.Generator]:
        rng = np.random.default_rng([self.seed, SPLITS.index(self.split), self.first + index])
        return rng.random(_ATTRIBUTE_NUMBERS), draw_scene(rng), rng

    def _look(self, options: np.ndarray) -> dict[str, str]:
        return {group.name: group.options[option] for group, option in zip(self.groups, options.tolist(), strict=True)}

    def _paint(self, index: int, without: str | None = None) -> Tensor:
        if self._painted is not None and without is None:
            return self._painted[index].float() / 255
        look = self._look(self.options[index].numpy())
        _, scene, rng = self._draw(index)
        painted = paint_image(paint_values(look, scene, self.image_size, without), look, scene, rng)
        return torch.from_numpy(painted).permute(2, 0, 1).float() / 255

    def _finish(self, image: Tensor, index: int, labels: Tensor, points: Tensor) -> ConceptSample:
        if self.transform is None:
            points = mask_outside(points, points, image)
        else:
            # Most have none, and loading torchvision takes longer than drawing hundreds of birds.
            from quantus_concepts.datasets.transforms import apply_transform

            image, points = apply_transform(image, points, self.transform)
        return ConceptSample(image, int(self.labels[index]), labels, points)

    def _label(self, options: np.ndarray, visible: np.ndarray) -> Tensor:
        labels = np.zeros((len(options), len(self.concept_names)), dtype=np.float32)
        np.put_along_axis(labels, self._starts + options, 1, axis=1)
        part = self.part_of_concept.numpy()
        return torch.from_numpy(labels * np.where(part < 0, True, visible[:, part]))

    def _options_with(self, index: int, concept: str | int) -> np.ndarray:
        place = position_of("concept", concept, self.concept_names)
        options = self.options[index].numpy().copy()
        group = int(self.group_of_concept[place])
        options[group] = place - self._starts[group]
        return options
