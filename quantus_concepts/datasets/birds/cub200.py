"""CUB-200-2011: photographs of birds with attributes and part locations."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple, NoReturn

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from captum_concepts.support.checks import check_choice, check_path, find_names
from captum_concepts.support.files import printable, shorten
from captum_concepts.support.images import image_head, turn_points
from captum_concepts.support.running import warn_user
from quantus_concepts.datasets.base import SPLITS
from quantus_concepts.datasets.birds.annotated_images import AnnotatedImages
from quantus_concepts.datasets.birds.attributes import PARTS
from quantus_concepts.datasets.folders import as_number, bad_line, check_there, inside, text_lines
from quantus_concepts.datasets.transforms import Transform

LABELS = ("image", "majority")
CLASS_CONCEPTS = ("continuous", "majority")

# The lowest certainty of the annotators.
_NOT_VISIBLE = 1
# Bounds for pixel coordinates: only what no image can have is an error.
_FAR = 1e6
CHUNK = 400_000
"""Rows read at a time: of the 3.7 million lines of the largest file only two small numbers each are kept."""
N_ATTRIBUTES = 312
_GROUPS = (
    "bill_shape 9, wing_color 15, upperparts_color 15, underparts_color 15, breast_pattern 4, back_color 15, "
    "tail_shape 6, upper_tail_color 15, head_pattern 11, breast_color 15, throat_color 15, eye_color 14, bill_length "
    "3, forehead_color 15, under_tail_color 15, nape_color 15, belly_color 15, wing_shape 5, size 5, shape 14, "
    "back_pattern 4, tail_pattern 4, belly_pattern 4, primary_color 15, leg_color 15, bill_color 15, crown_color 15, "
    "wing_pattern 4"
)
ATTRIBUTE_GROUPS = tuple((f"has_{name}", int(size)) for name, size in map(str.split, _GROUPS.split(", ")))
"""Groups of the 312 attributes in the order of the official ``attributes.txt``, with their sizes."""
GROUP_OF_ATTRIBUTE = [name for name, size in ATTRIBUTE_GROUPS for _ in range(size)]
# fmt: off
CBM_ATTRIBUTES = (
    1, 4, 6, 7, 10, 14, 15, 20, 21, 23, 25, 29, 30, 35, 36, 38, 40, 44, 45, 50, 51, 53, 54, 56, 57, 59,
    63, 64, 69, 70, 72, 75, 80, 84, 90, 91, 93, 99, 101, 106, 110, 111, 116, 117, 119, 125, 126, 131,
    132, 134, 145, 149, 151, 152, 153, 157, 158, 163, 164, 168, 172, 178, 179, 181, 183, 187, 188, 193,
    194, 196, 198, 202, 203, 208, 209, 211, 212, 213, 218, 220, 221, 225, 235, 236, 238, 239, 240, 242,
    243, 244, 249, 253, 254, 259, 260, 262, 268, 274, 277, 283, 289, 292, 293, 294, 298, 299, 304, 305,
    308, 309, 310, 311,
)
# fmt: on
"""The 112 attributes, from 0, that concept bottleneck models use: present in the majority of the training
images of at least ten classes (Koh et al., 2020)."""
OFFICIAL_PARTS = (
    *("back", "beak", "belly", "breast", "crown", "forehead", "left eye", "left leg", "left wing", "nape"),
    *("right eye", "right leg", "right wing", "tail", "throat"),
)
"""The 15 parts in the order of the official ``parts.txt``."""
# Prefixes of the group names, without "has_"; what is not here (upperparts, underparts, primary, size,
# shape) is about no part.
_PART_OF_GROUP = {part: part for part in PARTS if part != "beak"} | {
    "bill": "beak",
    "head": "forehead",
    "under_tail": "tail",
    "upper_tail": "tail",
}


class CUB200(AnnotatedImages):
    """Caltech-UCSD Birds-200-2011 in its official layout, with the 112 concepts and 12 parts of the paper.

    Concepts are the 112 of the 312 attributes that concept bottleneck models use, under their official names.
    Each belongs to the part its name speaks of (the paper's Tables 4 and 5): 89 to one of 12 parts, 23 to
    none. Left and right eye, leg and wing are one part with two places each, so that Q = 2; the other parts
    have one place and NaN as the second. Only the tables are kept in memory; images are read on access.

    Parameters
    ----------
    root : str or Path
        The folder ``CUB_200_2011``, or the one around it. Links in it are followed, wherever they lead; a path in its
        lists that leads out of it is refused.
    split : str
        "train" or "test", as in ``train_test_split.txt``.
    concept_labels : str
        "image": the marks of each image, where an attribute that was not visible counts as absent.
        "majority": of its class, the majority of the marks of the class's training images, as the original
        concept bottleneck models do (Koh et al., 2020): marks "absent" with certainty "not visible" do not
        count, and a tie is present. That release lets vote the four fifths of the training images that it
        does not keep for validation; here all vote. A concept that no training image of a class shows or visibly
        lacks has no vote, which is a tie to the release; here the official table of the class decides, and a share of
        at least a half is present. Marks without a certainty (0, or a file without that column) count.
    transform : callable, optional
        A transform of ``torchvision.transforms.v2``; it moves the parts too. See `default_transform`.
    class_concepts : str
        "continuous": the official table of shares of marks, divided by 100. "majority": the vote above.
    concepts : str or sequence, optional
        Which of the 112 concepts: names, patterns such as ``"has_wing_*"``, or indices.
    classes : str or sequence, optional
        Which of the classes, likewise; they are numbered anew, from 0, in this order, and only their images are there.
    image_size : int or (int, int), optional
        Height and width to which each image is scaled before the transform.

    Attributes
    ----------
    image_paths : list of Path
        The N image files.
    attribute_names : list of str
        The 312, "group::option", of which 112 are concepts.
    points : Tensor
        (N, 12, 2, 2), (x, y) in pixels of the original images, the right way up; NaN where not visible, or where the
        table puts the part outside its image, with a warning.

    Raises
    ------
    FileNotFoundError
        If a file or images are missing; the first of them are named.
    ValueError
        If an argument is none of the choices, or a file is empty, cut off, in another order or malformed, or names an
        image outside the folder; file and line are named.

    Examples
    --------
    >>> from quantus_concepts.datasets import CUB200, default_transform
    >>> cub = CUB200("CUB_200_2011", split="test", transform=default_transform(224))
    >>> len(cub.concept_names), len(cub.part_names), len(cub.attribute_names)
    (112, 12, 312)
    >>> cub[0].image.shape
    torch.Size([3, 224, 224])
    >>> wings = CUB200("CUB_200_2011", concepts="has_wing_pattern*")
    >>> wings.concept_names[0]
    'has_wing_pattern::solid'
    """

    def __init__(
        self,
        root: str | Path,
        split: str = "train",
        concept_labels: str = "image",
        transform: Transform | None = None,
        class_concepts: str = "continuous",
        concepts: str | Sequence[str | int] | None = None,
        classes: str | Sequence[str | int] | None = None,
        image_size: int | Sequence[int] | None = None,
    ) -> None:
        check_choice("split", split, SPLITS)
        check_choice("concept_labels", concept_labels, LABELS)
        check_choice("class_concepts", class_concepts, CLASS_CONCEPTS)
        super().__init__(transform, image_size)
        self.root = find_cub(root)
        self.split = split
        self.class_names = read_names(self.root / "classes.txt")
        self.part_names = list(PARTS)
        self.attribute_names = read_attribute_names(self.root)
        names = [self.attribute_names[i] for i in CBM_ATTRIBUTES]
        columns = list(range(len(names))) if concepts is None else find_names("concepts", names, concepts)
        rows = range(len(self.class_names)) if classes is None else find_names("classes", self.class_names, classes)
        self.concept_names = [names[j] for j in columns]
        self.part_of_concept = torch.tensor([part_of_attribute(name) for name in self.concept_names])

        listed = self.root / "images.txt"
        images = [
            inside(self.root / "images", name, f"{listed}, line {number}")
            for number, name in enumerate(read_names(listed), start=1)
        ]
        label = self._per_image("image_class_labels.txt", len(images), "class", 1, len(self.class_names)) - 1
        training = self._per_image("train_test_split.txt", len(images), "training", 0, 1) == 1
        chosen = np.flatnonzero((training == (split == "train")) & np.isin(label, rows))
        if not chosen.size:
            of = "" if classes is None else f" and one of the {len(rows)} classes chosen"
            raise ValueError(f"{self.root / 'train_test_split.txt'} marks no image as part of split {split!r}{of}.")
        self.image_paths = [images[i] for i in chosen]
        check_there(self.image_paths, f"the images of split {split!r} named in {listed}")
        self.points = self._turn_points(self._read_points(len(images))[chosen])
        table = read_class_table(
            self.root / "attributes" / "class_attribute_labels_continuous.txt", len(self.class_names)
        )
        attributes = np.array(CBM_ATTRIBUTES)[columns]
        by_class = table[list(rows)][:, attributes] / 100
        present, counted = self._read_marks(len(images), attributes)
        # The new number of each class, for images chosen.
        numbers = np.full(len(self.class_names), -1)
        numbers[rows] = np.arange(len(rows))
        self.class_names = [self.class_names[k] for k in rows]
        label = numbers[label]
        self.labels = torch.from_numpy(label[chosen])
        by_image = present[chosen]
        if "majority" in (concept_labels, class_concepts):
            majority = self._vote(present[training], counted[training], label[training], by_class)
            by_image = by_image if concept_labels == "image" else majority[label[chosen]]
            by_class = by_class if class_concepts == "continuous" else majority
        self.concept_labels = torch.from_numpy(by_image.astype(np.float32))
        self.class_concepts = torch.from_numpy(by_class.astype(np.float32))

    def _per_image(self, name: str, n_images: int, what: str, low: int, high: int) -> np.ndarray:
        values = read_rows(self.root / name, [("image", n_images)], [Column(what, low, high)])
        return values[:, 0].astype(np.int64)

    def _read_points(self, n_images: int) -> np.ndarray:
        read_names(self.root / "parts" / "parts.txt", OFFICIAL_PARTS)
        rows = read_rows(
            self.root / "parts" / "part_locs.txt",
            [("image", n_images), ("part", len(OFFICIAL_PARTS))],
            [Column("x", -_FAR, _FAR, whole=False), Column("y", -_FAR, _FAR, whole=False), Column("visible", 0, 1)],
        ).reshape(n_images, len(OFFICIAL_PARTS), 3)
        official = np.where(rows[..., 2:] == 1, rows[..., :2], np.nan).astype(np.float32)
        points = np.full((n_images, len(PARTS), 2, 2), np.nan, dtype=np.float32)
        for part, name in enumerate(PARTS):
            # Left and right are one part of two places.
            places = [i for i, other in enumerate(OFFICIAL_PARTS) if other in (name, f"left {name}", f"right {name}")]
            points[:, part, : len(places)] = official[:, places]
        return points

    def _turn_points(self, points: np.ndarray) -> Tensor:
        """Turn points with their images; those more than half a pixel outside are not visible."""
        outside = np.zeros(points.shape[:-1], dtype=bool)
        for i, path in enumerate(self.image_paths):
            head = image_head(path)
            limits = np.array(head.stored[::-1])
            outside[i] = ((points[i] < -1) | (points[i] > limits)).any(-1)
            points[i] = turn_points(points[i], head)
        if outside.any():
            image, part, place = np.argwhere(outside)[0]
            x, y = points[image, part, place]
            first = printable(f"the {self.part_names[part]} of {self.image_paths[image]}")
            warn_user(
                f"{self.root / 'parts' / 'part_locs.txt'} puts {int(outside.sum())} visible parts outside their "
                f"images: taken as not visible. The first is {first} at (x, y) = ({x:g}, {y:g})."
            )
            points[outside] = np.nan
        return torch.from_numpy(points)

    def _read_marks(self, n_images: int, attributes: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return of each image and attribute whether it is present and whether its mark counts in the vote."""
        path = self.root / "attributes" / "image_attribute_labels.txt"
        keys = [("image", n_images), ("attribute", N_ATTRIBUTES)]
        columns = [Column("present", 0, 1), Column("certainty", 0, 4)]
        width = len(next((text for _, text in text_lines(path)), "").split())
        rows = read_rows(path, keys, columns[: max(width - len(keys), 1)])
        marks = rows.reshape(n_images, N_ATTRIBUTES, -1)[:, attributes]
        present = marks[..., 0] == 1
        return present, present | (marks[..., -1] != _NOT_VISIBLE if marks.shape[2] > 1 else True)

    def _vote(self, present: np.ndarray, counted: np.ndarray, classes: np.ndarray, shares: np.ndarray) -> np.ndarray:
        majority = np.empty((len(self.class_names), present.shape[1]), dtype=bool)
        for label, name in enumerate(self.class_names):
            mine = classes == label
            if not mine.any():
                raise ValueError(
                    f"{self.root / 'train_test_split.txt'} marks no image of class {name!r} for training, so "
                    "it has no majority."
                )
            yes = present[mine].sum(0)
            votes = counted[mine].sum(0)
            majority[label] = np.where(votes > 0, 2 * yes >= votes, shares[label] >= 0.5)
        return majority


class Column(NamedTuple):
    """One column of values: what it is called in messages, and between which numbers it lies."""

    name: str
    low: float
    high: float
    whole: bool = True


def find_cub(root: str | Path) -> Path:
    """Return the folder that holds ``images.txt``."""
    folder = check_path("root", root)
    places = [folder, folder / "CUB_200_2011"]
    for place in places:
        if (place / "images.txt").is_file():
            return place
    looked = " nor ".join(str(place / "images.txt") for place in places)
    raise FileNotFoundError(f"Expected argument `root` to be the folder of CUB-200-2011 but found neither {looked}.")


def read_names(path: Path, expected: Sequence[str] = ()) -> list[str]:
    """Read a file whose lines are a number, counted from 1, and a name; before ``::`` it is as expected."""
    names: list[str] = []
    for line, text in text_lines(path):
        if expected and len(names) == len(expected):
            raise bad_line(path, line, f"the end of the file after {len(names)} names", text)
        wanted = expected[len(names)] if expected else "NAME"
        number, _, name = (part.strip() for part in text.partition(" "))
        if number != str(len(names) + 1) or not name or (expected and name.partition("::")[0] != wanted):
            raise bad_line(path, line, f"'{len(names) + 1} {wanted}'", text)
        names.append(name)
    if not names:
        raise ValueError(f"{path}, line 1: expected '1 NAME' but the file is empty.")
    _check_count(path, len(names), len(expected) or len(names), "names")
    return names


def read_attribute_names(root: Path) -> list[str]:
    """Read ``attributes.txt``, in ``attributes/``, next to that folder, or next to ``CUB_200_2011``."""
    places = [root / "attributes" / "attributes.txt", root / "attributes.txt", root.parent / "attributes.txt"]
    return read_names(next((place for place in places if place.is_file()), places[0]), GROUP_OF_ATTRIBUTE)


def read_rows(path: Path, keys: Sequence[tuple[str, int]], columns: Sequence[Column]) -> np.ndarray:
    """Read a file of numbers whose first columns count through all combinations of keys, in order."""
    # Further columns are ignored, also where only some lines have them.
    next(text_lines(path), None)
    sizes = [size for _, size in keys]
    n_rows, width = math.prod(sizes), len(keys) + len(columns)
    small = all(column.whole and column.high < 256 for column in columns)
    values = np.empty((n_rows, len(columns)), dtype=np.uint8 if small else np.float64)
    done, bad_row = 0, None
    try:
        with pd.read_csv(
            path, sep=r"\s+", header=None, usecols=range(width), dtype=np.float64, chunksize=CHUNK
        ) as reader:
            for chunk in reader:
                cells, rows = chunk.to_numpy(), np.arange(done, done + len(chunk))
                # Past the last row the wrapped value does not matter: the row is refused as such.
                good = rows < n_rows
                for cell, key in zip(cells.T, np.unravel_index(rows % n_rows, sizes), strict=False):
                    good &= cell == key + 1
                for cell, column in zip(cells.T[len(keys) :], columns, strict=True):
                    # NaN fails the comparison.
                    good &= (cell >= column.low) & (cell <= column.high) & (not column.whole or cell == np.rint(cell))
                if not good.all():
                    bad_row = done + int(good.argmin())
                    break
                values[rows] = cells[:, len(keys) :]
                done += len(chunk)
    except ValueError as error:
        raise ValueError(f"{path} cannot be read: {shorten(error)}") from error
    if bad_row is not None:
        _raise_bad_row(path, keys, columns, bad_row)
    _check_count(path, done, n_rows, "rows")
    return values


def _raise_bad_row(path: Path, keys: Sequence[tuple[str, int]], columns: Sequence[Column], row: int) -> NoReturn:
    line, text = next(itertools.islice(text_lines(path), row, None))
    sizes = [size for _, size in keys]
    if row >= math.prod(sizes):
        raise bad_line(path, line, f"the end of the file after {row} rows", text)
    expected = [f"{name} {value + 1}" for (name, _), value in zip(keys, np.unravel_index(row, sizes), strict=True)]
    expected += [f"{column.name} from {column.low:g} to {column.high:g}" for column in columns]
    raise bad_line(path, line, ", ".join(expected), text)


def read_class_table(path: Path, n_classes: int) -> np.ndarray:
    """Read ``class_attribute_labels_continuous.txt``: how many per cent of a class's marks say present."""
    table = np.empty((n_classes, N_ATTRIBUTES))
    done = 0
    for done, (line, text) in enumerate(text_lines(path), start=1):
        percent = np.array([as_number(cell) for cell in text.split()])
        if done > n_classes or percent.shape != (N_ATTRIBUTES,) or not ((percent >= 0) & (percent <= 100)).all():
            expected = f"one of {n_classes} lines of {N_ATTRIBUTES} numbers from 0 to 100"
            raise bad_line(path, line, expected, text)
        table[done - 1] = percent
    _check_count(path, done, n_classes, "rows, one per class,")
    return table


def _check_count(path: Path, count: int, expected: int, what: str) -> None:
    if count != expected:
        raise ValueError(f"{path}, line {count + 1}: expected {expected} {what} but the file ends after {count}.")


def part_of_attribute(name: str) -> int:
    """Return the part an attribute is about."""
    region = name.split("::", 1)[0].removeprefix("has_").rsplit("_", 1)[0]
    return PARTS.index(_PART_OF_GROUP[region]) if region in _PART_OF_GROUP else -1
