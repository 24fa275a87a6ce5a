"""A user's own images: a folder per class, and tables of concepts and parts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from captum_concepts.support.checks import check_choice, check_file, check_path
from captum_concepts.support.files import quote, subfolders
from captum_concepts.support.images import image_head
from quantus_concepts.datasets.base import SPLITS, check_test_share, n_for_testing
from quantus_concepts.datasets.birds.annotated_images import AnnotatedImages
from quantus_concepts.datasets.folders import (
    ANNOTATED_SUFFIXES,
    as_number,
    bad_line,
    csv_rows,
    list_classes,
    list_some,
    table_rows,
)
from quantus_concepts.datasets.transforms import Transform


class ConceptFolder(AnnotatedImages):
    """Images in folders named by class, with CSV files of concepts and, if wanted, of part points.

    Images lie in ``root/CLASS/*.jpg``, or ready split in ``root/train/CLASS`` and ``root/test/CLASS`` (jpg, jpeg or
    png, of at most 50 million pixels). Classes, and images within a class, are in lexicographic order of their names.
    Images are read on access, as RGB and the right way up where EXIF turns them; only the tables are kept in
    memory.

    The concept table has a header, ``class`` or ``image`` in its first column, and one column per concept::

        class,fur,wings             image,fur,wings
        cat,1,0                     cat/001.jpg,1,0
        bird,0,0.9                  bird/robin.jpg,0,1

    *Per class*: numbers in [0, 1], one row for each class. They are `class_concepts`; an image has the concepts of
    its class that are at least 0.5. *Per image*: 0 or 1, one row for each image, its path from `root` or from the
    folder of its split, with forward slashes. `class_concepts` are then the shares among the images of each class in
    this split (all its images where the split has none): those of the test images fitted no directions, so that CGIM
    of test images is not about labels that the model has seen.

    The table of parts has the columns ``image,part,x,y``: where a part is seen, in pixels of the image file, (0, 0)
    being the centre of the top left pixel; an image with points must not be turned by EXIF. Several rows for the same
    part of an image are several places of it; no row means not visible::

        image,part,x,y
        cat/001.jpg,ear,14,20
        cat/001.jpg,ear,31,19.5

    A concept is about the part that bears its name or the first half of it (``ear`` or ``ear::pointed``). Any other
    assignment is given as `part_of_concept`, a mapping or a CSV file with the columns ``concept,part``; concepts not
    in it are then about no part:

    .. code-block:: text

        concept,part
        pointed_ears,ear

    Parameters
    ----------
    root : str or Path
        Folder of the images.
    concepts : str or Path
        The concept table.
    parts : str or Path, optional
        The table of part points.
    split : str, optional
        "train" or "test"; None for all images. Without folders ``train`` and ``test``, a share `test_share` of each
        class, drawn with `seed`, is for testing.
    transform : callable, optional
        A transform of ``torchvision.transforms.v2``; it moves the points too. Without parts any callable on images.
    image_size : int or (int, int), optional
        Height and width to which each image is scaled before the transform.
    test_share : float
        Share of each class for testing, in (0, 1), where the folders do not say. At least one image of each class
        goes to each side if there are two.
    seed : int
        Seed of that choice.
    part_of_concept : mapping, str or Path, optional
        Part of each concept, by names.

    Attributes
    ----------
    image_paths : list of Path
        The N image files.
    points : Tensor
        (N, P, Q, 2), (x, y) in pixels of the image files; NaN where not visible. Q is the largest number of places
        of one part in one image. Parts are in the order in which the table first names them.

    Raises
    ------
    FileNotFoundError
        If a folder or a table is missing.
    ValueError
        If an argument or a row of a table is not as said (file and line are named), if there are no images, or if
        images differ in size and neither `transform` nor `image_size` is given. On access to an image: if it
        cannot be read.

    Examples
    --------
    >>> import pandas as pd
    >>> from quantus_concepts.datasets import ConceptFolder
    >>> table = pd.DataFrame({"class": ["beach", "forest"], "sand": [1, 0], "leaves": [0, 1]})
    >>> table.to_csv("concepts.csv", index=False)
    >>> data = ConceptFolder("scenes", "concepts.csv", image_size=32)
    >>> data.class_names, data.concept_names
    (['beach', 'forest'], ['sand', 'leaves'])
    >>> data[0].image.shape, data[0].concepts.tolist()
    (torch.Size([3, 32, 32]), [1.0, 0.0])
    """

    def __init__(
        self,
        root: str | Path,
        concepts: str | Path,
        parts: str | Path | None = None,
        split: str | None = None,
        transform: Transform | None = None,
        image_size: int | Sequence[int] | None = None,
        test_share: float = 0.25,
        seed: int = 0,
        part_of_concept: Mapping[str, str] | str | Path | None = None,
    ) -> None:
        if parts is None and part_of_concept is not None:
            raise ValueError("Expected argument `parts` with `part_of_concept`: without points no part has a place.")
        if split is not None:
            check_choice("split", split, SPLITS)
        check_test_share(test_share)
        super().__init__(transform, image_size)
        self.root, self.split = check_path("root", root), split
        concepts = check_file("concepts", concepts, "a CSV file")
        self.class_names, files, classes, trains = _find_images(self.root)
        keys = _image_keys(self.root, files, trains is not None)
        training = trains if trains is not None else draw_training(classes, len(self.class_names), test_share, seed)
        table = read_concepts(concepts, self.class_names, keys, len(files))
        chosen = np.arange(len(files)) if split is None else np.flatnonzero(training == (split == "train"))
        if not chosen.size:
            raise ValueError(f"Expected images for split {split!r} in {self.root} but there are none.")

        self.image_paths = [files[i] for i in chosen]
        self.concept_names = table.names
        self.labels = torch.from_numpy(classes[chosen])
        by_class = class_shares(table, classes, chosen)
        by_image = by_class[classes] >= 0.5 if table.per_class else table.values
        self.class_concepts = torch.from_numpy(by_class.astype(np.float32))
        if split is not None:
            of_training = class_shares(table, classes, np.flatnonzero(training))
            self.training_concepts = torch.from_numpy(of_training.astype(np.float32))
        self.concept_labels = torch.from_numpy(by_image[chosen].astype(np.float32))
        self.part_names: list[str] = []
        self.points = torch.zeros(len(chosen), 0, 1, 2)
        if parts is not None:
            self.part_names, points = read_points(check_file("parts", parts, "a CSV file"), keys, files)
            self.points = torch.from_numpy(points)[torch.from_numpy(chosen)]
        self.part_of_concept = self._assign_parts(parts, part_of_concept)
        self._check_sizes()

    def _assign_parts(self, parts: str | Path | None, part_of_concept: Mapping[str, str] | str | Path | None) -> Tensor:
        number = {name: i for i, name in enumerate(self.part_names)}
        if part_of_concept is not None:
            mapping = read_part_of_concept(part_of_concept, self.concept_names, self.part_names)
            return torch.tensor([number[mapping[name]] if name in mapping else -1 for name in self.concept_names])
        assigned = torch.tensor([number.get(name.split("::", 1)[0], -1) for name in self.concept_names])
        if parts is not None and not (assigned >= 0).any():
            raise ValueError(
                f"Expected concepts named after the parts in {parts}, {self.part_names}, as in 'PART' or 'PART::...', "
                f"but the concepts are {self.concept_names[:5]}... Pass `part_of_concept`."
            )
        return assigned


def _find_images(root: Path) -> tuple[list[str], list[Path], np.ndarray, np.ndarray | None]:
    """Return names of classes, files, class of each, and whether each is for training where folders say so."""
    folders = {split: subfolders(root / split) for split in SPLITS if (root / split).is_dir()}
    if not any(folders.values()):
        return *list_classes(root, ANNOTATED_SUFFIXES), None
    files = [path for split in SPLITS for path in list_classes(root / split, ANNOTATED_SUFFIXES)[1]]
    names, classes = np.unique([path.parent.name for path in files], return_inverse=True)
    return names.tolist(), files, classes, np.array([path.parents[1] == root / "train" for path in files])


def draw_training(classes: np.ndarray, n_classes: int, test_share: float, seed: int) -> np.ndarray:
    """Return which images are for training, drawn for each class."""
    rng = np.random.default_rng(seed)
    training = np.ones(len(classes), dtype=bool)
    for label in range(n_classes):
        members = np.flatnonzero(classes == label)
        n_test = n_for_testing(len(members), test_share) if len(members) > 1 else round(test_share)
        training[rng.permutation(members)[:n_test]] = False
    return training


def _image_keys(root: Path, files: Sequence[Path], prefixed: bool) -> dict[str, int | None]:
    """Map the paths a table may use to the number of the image; None where two images share a path."""
    keys: dict[str, int | None] = {path.relative_to(root).as_posix(): i for i, path in enumerate(files)}
    if prefixed:
        for i, path in enumerate(files):
            short = f"{path.parent.name}/{path.name}"
            keys[short] = None if short in keys else i
    return keys


def class_shares(table: ConceptTable, classes: np.ndarray, chosen: np.ndarray) -> np.ndarray:
    """Return the concepts of each class: those of a table by class, or the shares among the images chosen."""
    if table.per_class:
        return table.values
    rows = []
    for label in range(int(classes.max()) + 1):
        mine = classes == label
        voting = mine & np.isin(np.arange(len(mine)), chosen)
        rows.append(table.values[voting if voting.any() else mine].mean(0))
    return np.stack(rows)


class ConceptTable(NamedTuple):
    """Concepts of classes or of images."""

    names: list[str]
    values: np.ndarray
    per_class: bool


def read_concepts(
    path: Path, class_names: Sequence[str], image_keys: Mapping[str, int | None], n_images: int
) -> ConceptTable:
    """Read a concept table."""
    rows = csv_rows(path)
    line, header = next(rows, (1, []))
    kind = header[0] if header else ""
    if kind not in ("class", "image"):
        raise bad_line(path, line, "a header that starts with 'class' or 'image'", ",".join(header))
    names = header[1:]
    if not all(names) or not 0 < len(names) == len(set(names)):
        raise bad_line(path, line, f"one column for each concept, of another name, after {kind!r}", ",".join(names))
    per_class = kind == "class"
    keys: Mapping[str, int | None] = {name: i for i, name in enumerate(class_names)} if per_class else image_keys
    n_rows = len(class_names) if per_class else n_images
    expected = "a number from 0 to 1" if per_class else "0 or 1"
    row_lines: dict[int, int] = {}
    values = np.full((n_rows, len(names)), np.nan)
    for line, cells in rows:
        row = _look_up(path, line, kind, cells[0], keys)
        if row in row_lines:
            raise bad_line(path, line, f"one row for each {kind} (this one is on line {row_lines[row]} too)", cells[0])
        row_lines[row] = line
        for column, cell in enumerate(cells[1:]):
            value = values[row, column] = as_number(cell)
            if not 0 <= value <= 1 or (value % 1 and not per_class):
                raise bad_line(path, line, f"{expected} in column {names[column]!r}", cell)
    if len(row_lines) < n_rows:
        missing = {number: name for name, number in reversed(list(keys.items())) if number is not None}
        names_left = [quote(name) for number, name in sorted(missing.items()) if number not in row_lines]
        raise ValueError(
            f"{path}, line {line + 1}: expected a row for each {kind} but the file ends without "
            f"{list_some(names_left)}."
        )
    return ConceptTable(names, values, per_class)


def read_points(
    path: Path, image_keys: Mapping[str, int | None], files: Sequence[Path]
) -> tuple[list[str], np.ndarray]:
    """Read a table of part points."""
    places: dict[tuple[int, int], list[tuple[float, float]]] = {}
    numbers: dict[str, int] = {}
    sizes: dict[int, tuple[int, int]] = {}
    for line, row in table_rows(path, ("image", "part", "x", "y")):
        image = _look_up(path, line, "image", row["image"], image_keys)
        if not row["part"]:
            raise bad_line(path, line, "the name of a part", row["part"])
        if image not in sizes:
            sizes[image], orientation = image_head(files[image])
            if orientation != 1:
                raise ValueError(
                    f"{path}, line {line}: expected points on an image that is stored upright but {files[image]} is "
                    f"turned by its EXIF orientation {orientation}, so that it is not known which of the two the point "
                    "was marked on."
                )
        point = as_number(row["x"]), as_number(row["y"])
        for axis, place, size in zip("xy", point, reversed(sizes[image]), strict=True):
            if not -0.5 <= place < size - 0.5:
                raise bad_line(path, line, f"{axis} inside the image, from 0 to {size - 1},", row[axis])
        part = numbers.setdefault(row["part"], len(numbers))
        places.setdefault((image, part), []).append(point)
    shape = (len(files), len(numbers), max(map(len, places.values())), 2)
    points = np.full(shape, np.nan, dtype=np.float32)
    for (image, part), coordinates in places.items():
        points[image, part, : len(coordinates)] = coordinates
    return list(numbers), points


def read_part_of_concept(
    source: Mapping[str, str] | str | Path, concept_names: Sequence[str], part_names: Sequence[str]
) -> dict[str, str]:
    """Read which concept is about which part."""
    if isinstance(source, Mapping):
        rows = [("argument `part_of_concept`", *pair) for pair in source.items()]
    else:
        path = check_file("part_of_concept", source, "a CSV file")
        rows = [(f"{path}, line {n},", row["concept"], row["part"]) for n, row in table_rows(path, ("concept", "part"))]
    parts: dict[str, str] = {}
    for place, concept, part in rows:
        for what, name, names in (("concept", concept, concept_names), ("part", part, part_names)):
            if name not in names:
                known = list_some(map(quote, names))
                raise ValueError(f"Expected {place} to hold a known {what}, of {known}, but got {quote(name)}.")
        if concept in parts:
            raise ValueError(f"Expected {place} to name another concept but got {quote(concept)} again.")
        parts[concept] = part
    return parts


def _look_up(path: Path, line: int, kind: str, name: str, keys: Mapping[str, int | None]) -> int:
    if name not in keys:
        if kind == "class":
            raise bad_line(path, line, f"a class that has a folder, of {list_some(map(quote, keys))},", name)
        raise bad_line(path, line, f"the path of an image, with forward slashes, such as {next(iter(keys))!r},", name)
    number = keys[name]
    if number is None:
        raise bad_line(path, line, "a path from the root, since both splits have this one,", name)
    return number
