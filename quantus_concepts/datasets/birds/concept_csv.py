"""Images listed in one table, CSV or Parquet, with their classes and concepts."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path, PurePosixPath
from typing import cast

import numpy as np
import torch
from torch import Tensor
from torchvision import tv_tensors
from torchvision.transforms import v2

from captum_concepts.support.checks import check_choice, check_file, check_folder, check_index, find_names
from captum_concepts.support.files import list_some, quote
from captum_concepts.support.images import image_head, image_size, load_image, load_pixels
from captum_concepts.support.running import warn_user
from quantus_concepts.datasets.base import SPLITS, check_test_share
from quantus_concepts.datasets.birds.annotated_images import AnnotatedImages
from quantus_concepts.datasets.birds.concept_folder import ConceptTable, class_shares, draw_training
from quantus_concepts.datasets.folders import IMAGE_SUFFIXES, as_number, check_there, inside
from quantus_concepts.datasets.tables import MAX_CELLS, TextTable, read_columns, read_header
from quantus_concepts.datasets.transforms import Transform

#: Names by which a column is found that no argument names.
USUAL = {
    "image": ("image", "image_path", "img_path", "filename", "file", "path", "derm"),
    "label": ("class", "label", "diagnosis"),
    "split_column": ("split",),
}
SIDES = ("x", "y", "width", "height")
#: x, y, width and height.
Box = tuple[int, int, int, int]
UNKNOWN = ("images", "concepts")
TRAINING = ("train", "training")
#: A column of more different texts, or of longer ones, holds notes or numbers of patients.
MAX_VALUES, MAX_LENGTH = 100, 100
_TRUTH = {"true": 1.0, "false": 0.0}


class ConceptCSV(AnnotatedImages):
    """Images listed in one table, a row for each: its file, its class, its concepts.

    The table is a CSV file in UTF-8 with a header (separated by commas, semicolons or tabs), or a Parquet file (its
    name ends in .parquet; extra ``sub``)::

        image,diagnosis,pigment_network,blue_whitish_veil,ulcer,split
        a/001.jpg,melanoma,atypical,present,1,train
        a/002.jpg,blue nevus,absent,present,0,test

    A column of 0 and 1 (or true and false) is one concept. A column of texts is spread into one concept for each of
    its texts, in alphabetical order: ``pigment_network::absent``, ``pigment_network::atypical``; exactly one of them
    is 1. A cell that is empty, "nan", "NA" or "N/A" is *unknown*. Metrics need every label, so that unknown cells are
    refused, unless `unknown` says what to leave out; they never become 0.

    Classes are in alphabetical order, or by number if all are numbers. `class_concepts` are the shares among the
    images of each class in this split (all its images where the split has none). Images are read on access, as RGB and
    the right way up where EXIF turns them.

    Parameters
    ----------
    table : str or Path
        The table.
    images : str or Path, optional
        Folder from which the paths in the table count, with forward slashes; default: the folder of the table. Links
        in it are followed, wherever they lead; a path in the table that leads out of it is refused.
    image : str, optional
        Column of the image files; default: the one that is there of "image", "image_path", "img_path", "filename",
        "file", "path" and "derm".
    label : str, optional
        Column of the classes; default: the one that is there of "class", "label" and "diagnosis".
    concepts : str or sequence, optional
        Columns of the concepts: names, patterns such as ``"has_*"``, or indices among the columns. Default: all
        columns that are nothing else.
    split : str, optional
        None for all images. With a column of splits, one of its texts. Without, "train" or "test", drawn for
        each row: those of one patient or one image may then lie on both sides. Give the table a column of splits then.
    split_column : str, optional
        Column of the splits; default: "split", if it is there.
    unknown : str, optional
        "images" leaves out images with unknown cells, "concepts" columns with unknown cells; a warning says how many.
        Both look at the whole table, so that all splits have the same concepts.
    box : sequence of str, optional
        The columns of x, y, width and height, such as ``("x", "y", "width", "height")``, to which each image is cut:
        pixels of the file, (0, 0) its top left corner; whole numbers. One image may then be in several rows.
    mask : str or sequence of str, optional
        Where the object is, on which all concepts are then (`regions`): a column of mask images, with paths as the
        images, or the columns of the x, y, width and height of a box, which is a mask that is 1 inside. See
        `load_mask`.
    transform : callable, optional
        Any callable on images, such as a transform of ``torchvision.transforms.v2``.
    image_size : int or (int, int), optional
        Height and width to which each image is scaled before the transform.
    test_share : float
        Share of each class for testing, in (0, 1), where the table does not say. At least one image of each class goes
        to each side if there are two.
    seed : int
        Seed of that choice.

    Attributes
    ----------
    image_paths : list of Path
        The N image files.
    mask_paths : list of Path or None
        Their mask images, with a column `mask` of them.
    regions : Tensor or None
        (N, 1, H, W) of bool, with `mask`: the masks of all images, read anew on each access, for
        `quantus_concepts.ConceptRegions`.

    Raises
    ------
    FileNotFoundError
        If the table, the folder or images of the split are missing; the first of them are named.
    ImportError
        If a Parquet file is given and pyarrow is not installed.
    ValueError
        If an argument or a cell is not as said (file and line are named), if an image is listed twice, or if images
        differ in size and neither `transform` nor `image_size` is given. On access to an image: if it cannot be read.

    Examples
    --------
    >>> import pandas as pd
    >>> from quantus_concepts.datasets import ConceptCSV
    >>> table = pd.DataFrame(
    ...     {"image": ["beach/0.jpg", "forest/0.jpg"], "class": ["beach", "forest"]}
    ... )
    >>> table.assign(ground=["sand", "moss"], tree=[0, 1]).to_csv("images.csv", index=False)
    >>> data = ConceptCSV("images.csv", images="scenes", image_size=32)
    >>> data.class_names, data.concept_names
    (['beach', 'forest'], ['ground::moss', 'ground::sand', 'tree'])
    >>> data[0].image.shape, data[0].concepts.tolist()
    (torch.Size([3, 32, 32]), [0.0, 1.0, 0.0])
    """

    def __init__(
        self,
        table: str | Path,
        images: str | Path | None = None,
        *,
        image: str | None = None,
        label: str | None = None,
        concepts: str | Sequence[str | int] | None = None,
        split: str | None = None,
        split_column: str | None = None,
        unknown: str | None = None,
        box: Sequence[str] | None = None,
        mask: str | Sequence[str] | None = None,
        transform: Transform | None = None,
        image_size: int | Sequence[int] | None = None,
        test_share: float = 0.25,
        seed: int = 0,
    ) -> None:
        check_test_share(test_share)
        if unknown is not None:
            check_choice("unknown", unknown, UNKNOWN)
        super().__init__(transform, image_size)
        path = check_file("table", table, "a CSV or Parquet file")
        self.root = path.parent if images is None else check_folder("images", images, "the folder of the images")
        self.split = split
        header = read_header(path)
        roles = _find_roles(path, header, image=image, label=label, split_column=split_column, box=box, mask=mask)
        columns = _find_concepts(path, header, concepts, roles)
        cells = read_columns(path, [*dict.fromkeys([*roles.values(), *columns])])
        cells, values = _leave_unknown_out(cells, *_spread(cells, columns), columns, unknown)

        self.class_names, classes = _read_classes(cells, roles["label"])
        if split_column := roles.get("split_column"):
            splits = _filled(cells, split_column)
            is_training = np.array([text.lower() in TRAINING for text in splits])
            kinds, of_split = sorted(set(splits)), np.array(splits) == split
        else:
            is_training = draw_training(classes, len(self.class_names), test_share, seed)
            kinds, of_split = [*SPLITS], is_training == (split == "train")
        if split is not None:
            check_choice("split", split, kinds)
        chosen = np.arange(len(classes)) if split is None else np.flatnonzero(of_split)
        if not chosen.size:
            raise ValueError(f"Expected images for split {split!r} in {path} but there are none.")

        self.concept_names = values.names
        self.labels = torch.from_numpy(classes[chosen])
        self.concept_labels = torch.from_numpy(values.values[chosen].astype(np.float32))
        self.class_concepts = torch.from_numpy(class_shares(values, classes, chosen).astype(np.float32))
        if split is not None and is_training.any():
            of_training = class_shares(values, classes, np.flatnonzero(is_training))
            self.training_concepts = torch.from_numpy(of_training.astype(np.float32))
        self.part_names = [] if mask is None else ["object"]
        self.part_of_concept = torch.full((len(values.names),), len(self.part_names) - 1)
        self.points = torch.zeros(len(chosen), 0, 1, 2)
        # Paths and boxes of the whole table are checked, and that files are there in this split.
        boxes = None if box is None else _read_boxes(cells, box)
        masks = _read_boxes(cells, mask) if mask is not None and not isinstance(mask, str) else None
        self.image_paths = self._find_files(cells, roles["image"], chosen)
        _check_once(cells, cells.columns[roles["image"]], boxes)
        self.mask_paths = self._find_files(cells, mask, chosen) if isinstance(mask, str) else None
        self._boxes, self._mask_boxes = (None if of is None else [of[i] for i in chosen] for of in (boxes, masks))
        for of_images in (self._boxes, self._mask_boxes):
            self._check_boxes(cells.select(chosen.tolist()), of_images or ())
        self._check_sizes()

    def _find_files(self, cells: TextTable, column: str, chosen: np.ndarray) -> list[Path]:
        paths = [inside(self.root, name, cells.place(row)) for row, name in enumerate(cells.columns[column])]
        paths = [paths[i] for i in chosen]
        check_there(
            paths, f"the files that column {quote(column)} of {cells.path} names in {self.root}", root=self.root
        )
        return paths

    @property
    def regions(self) -> Tensor | None:
        """(N, 1, H, W) of bool: the masks of all images; None without `mask`."""
        if self.mask_paths is None and self._mask_boxes is None:
            return None
        return torch.stack([self.load_mask(index).bool() for index in range(len(self))])

    def load_mask(self, index: int) -> Tensor:
        """Read the mask of an image, cut, scaled and transformed as the image.

        In a mask image of two values the brighter one marks the object. One of more values is black and white but for
        grey edges, as smoothing and JPEG leave them: pixels that are at least half white mark the object. A `transform`
        that draws at random draws for the mask anew: use none with masks.

        Parameters
        ----------
        index : int
            Which image.

        Returns
        -------
        Tensor
            (1, H, W) of 0 and 1.

        Raises
        ------
        IndexError
            If the index is past the end.
        TypeError
            If `transform` is not of torchvision v2, so that it is not known where it moves the mask.
        ValueError
            If the table has no masks, or a mask image cannot be read, has another size than its image, or is a
            photograph or numbers several labels.
        """
        index = check_index(index, len(self), "images")
        if self.mask_paths is None and self._mask_boxes is None:
            raise ValueError("Expected argument `mask` to name a column of the table but the data set has none.")
        if self.transform is not None and not isinstance(self.transform, v2.Transform):
            raise TypeError(
                "Expected argument `transform` to be of torchvision.transforms.v2, which moves masks along, but got "
                f"{type(self.transform).__name__}."
            )
        mask = tv_tensors.Mask(self._cut(self._whole_mask(index), index).to(torch.uint8))
        for transform in (self._scale, self.transform):
            mask = mask if transform is None else transform(mask)
        return mask.as_subclass(Tensor)

    def _whole_mask(self, index: int) -> Tensor:
        """Return the mask (1, H, W) of an image as it is stored."""
        expected = image_size(self.image_paths[index])
        if self.mask_paths is None:
            x, y, width, height = cast(list[Box], self._mask_boxes)[index]
            marked = torch.zeros(1, *expected, dtype=torch.bool)
            marked[:, y : y + height, x : x + width] = True
            return marked
        path = self.mask_paths[index]
        marked = torch.from_numpy(_marked(path, load_pixels(path, "L", "Mask")))[None]
        if marked.shape[1:] != expected:
            raise ValueError(
                f"Expected mask {path} to have (H, W) = {expected}, as its image, but got {tuple(marked.shape[1:])}."
            )
        return marked

    def _load(self, index: int) -> Tensor:
        return self._cut(load_image(self.image_paths[index]), index)

    def _cut(self, image: Tensor, index: int) -> Tensor:
        if self._boxes is None:
            return image
        x, y, width, height = self._boxes[index]
        return image[:, y : y + height, x : x + width]

    def _size(self, index: int) -> tuple[int, int]:
        if self._boxes is None:
            return super()._size(index)
        return self._boxes[index][3], self._boxes[index][2]

    def _check_boxes(self, cells: TextTable, boxes: Sequence[Box]) -> None:
        for i, (x, y, width, height) in enumerate(boxes):
            (rows, columns), orientation = image_head(self.image_paths[i])
            box = f"x, y, width, height = {x}, {y}, {width}, {height}"
            if orientation != 1:
                raise cells.bad_row(i, "a box on an image that is stored upright, not turned by EXIF,", box)
            if min(x, y) < 0 or min(width, height) < 1 or x + width > columns or y + height > rows:
                raise cells.bad_row(i, f"a box inside the image, {columns} wide and {rows} high,", box)


def _marked(path: Path, pixels: np.ndarray) -> np.ndarray:
    """Return which pixels (H, W) a mask image marks, or raise for what is no mask."""
    values = np.unique(pixels)
    if len(values) <= 2:
        return pixels == values[-1] if values[-1] > 0 else np.zeros(pixels.shape, dtype=bool)
    grey = (pixels >= 64) & (pixels < 192)
    dark, white = (pixels < 64).sum(), (pixels >= 192).sum()
    # A smoothed disc of radius 2 has fewer grey pixels than white ones; labels are numbers near 0.
    if grey.sum() >= min(dark, white):
        raise ValueError(
            f"Expected mask {path} to be of two values, or black and white with grey edges, but {grey.mean():.0%} of "
            f"its pixels are grey and {white / pixels.size:.0%} white. Is it a photograph? Of an image of labels, "
            "write the mask of one of them: 255 where it is, else 0."
        )
    return pixels >= 128


def _find_roles(
    path: Path,
    header: list[str],
    box: Sequence[str] | None,
    mask: str | Sequence[str] | None,
    **named: str | None,
) -> dict[str, str]:
    """Return the columns of a table by what they are, all but the concepts."""
    roles = {}
    for argument, usual in USUAL.items():
        name = named[argument]
        there = [column for column in usual if column in header] if name is None else [name]
        if name is not None:
            check_choice(argument, name, header)
        elif argument == "split_column" and not there:
            continue
        elif len(there) != 1:
            got = f"several: {there}" if there else f"none among {list_some(map(quote, header))}"
            raise ValueError(
                f"Expected argument `{argument}` to name a column of {path}, or one to be named one of {[*usual]}, but "
                f"got {got}."
            )
        roles[argument] = there[0]
    if isinstance(mask, str):
        check_choice("mask", mask, header)
        roles["mask"] = mask
    for argument, names in (("box", box), ("mask", None if isinstance(mask, str) else mask)):
        if names is None:
            continue
        if isinstance(names, str) or len(names) != len(SIDES):
            raise ValueError(
                f"Expected argument `{argument}` to name the columns of {', '.join(SIDES)} but got {names!r}."
            )
        for side, name in zip(SIDES, names, strict=True):
            check_choice(argument, name, header)
            roles[f"{argument} {side}"] = name
    return roles


def _find_concepts(
    path: Path, header: list[str], concepts: str | Sequence[str | int] | None, roles: dict[str, str]
) -> list[str]:
    taken = set(roles.values())
    if concepts is None:
        names = [name for name in header if name not in taken]
    else:
        names = [header[j] for j in find_names("concepts", header, concepts)]
    if not names or taken & set(names):
        raise ValueError(
            f"Expected argument `concepts` to name columns of {path} other than {sorted(taken)}, which are something "
            f"else, but got {list_some(map(quote, names)) or 'none'}."
        )
    return names


def _spread(table: TextTable, columns: Sequence[str]) -> tuple[list[str], np.ndarray]:
    """Return the concepts of columns and their labels (N, L), NaN where unknown."""
    names: list[str] = []
    labels: list[np.ndarray] = []
    for column in columns:
        cells = table.columns[column]
        texts = sorted(set(cells) - {""})
        if len(names) * len(cells) > MAX_CELLS:
            raise ValueError(
                f"{table.path}: expected at most {MAX_CELLS:,} labels but got more. Give fewer `concepts`."
            )
        truth = {text: _TRUTH.get(text.lower(), as_number(text)) for text in texts}
        numbers = [text for text in texts if not np.isnan(truth[text])]
        if numbers or not texts:
            for row, cell in enumerate(cells):
                if cell and truth[cell] not in (0, 1):
                    expected = (
                        f"0, 1 or nothing in column {quote(column)}, or texts alone (else leave it out of `concepts`, "
                        "or of the table),"
                    )
                    raise table.bad_row(row, expected, cell)
            names.append(column)
            labels.append(np.array([truth.get(cell, np.nan) for cell in cells]))
            continue
        if len(texts) > MAX_VALUES or max(map(len, texts)) > MAX_LENGTH:
            raise ValueError(
                f"{table.path}: expected at most {MAX_VALUES} different texts of at most {MAX_LENGTH} characters in "
                f"column {quote(column)} but got {len(texts)}, such as {quote(max(texts, key=len))}. Name the columns "
                "of concepts in `concepts`."
            )
        if all(text.lower().endswith(IMAGE_SUFFIXES) for text in texts):
            raise ValueError(
                f"{table.path}: expected texts that describe images in column {quote(column)} but got names of images, "
                f"such as {quote(texts[0])}. Name the columns of concepts in `concepts`, or leave it out of the table."
            )
        for text in texts:
            names.append(f"{column}::{text}")
            labels.append(np.array([float(cell == text) if cell else np.nan for cell in cells]))
    if twice := sorted({name for name in names if names.count(name) > 1}):
        raise ValueError(f"{table.path}: expected concepts of different names but got {list_some(twice)} twice.")
    return names, np.stack(labels, 1)


def _leave_unknown_out(
    table: TextTable, names: list[str], labels: np.ndarray, columns: Sequence[str], unknown: str | None
) -> tuple[TextTable, ConceptTable]:
    """Return the rows and the concepts of which all labels are known."""
    missing = np.isnan(labels)
    if not missing.any():
        return table, ConceptTable(names, labels, per_class=False)
    bad_rows, bad_concepts = missing.any(1), missing.any(0)
    empty = list_some(quote(name) for name in columns if "" in table.columns[name])
    what = f"{int(bad_rows.sum())} of {len(bad_rows)} images have empty cells, in the columns {empty}"
    if unknown is None:
        raise ValueError(
            f"{table.path}: expected a label in each cell, since metrics need them, but {what}; the first is "
            f"{table.unit} {table.numbers[int(bad_rows.argmax())]}. Pass `unknown='images'` or `unknown='concepts'` to "
            "leave those images or those concepts out."
        )
    bad = bad_rows if unknown == "images" else bad_concepts
    if bad.all():
        raise ValueError(f"{table.path}: expected {unknown} of which all labels are known but none is left: {what}.")
    warn_user(f"{table.path}: {int(bad.sum())} of {len(bad)} {unknown} are left out (`unknown`): {what}.")
    if unknown == "concepts":
        kept = np.flatnonzero(~bad)
        return table, ConceptTable([names[j] for j in kept], labels[:, kept], per_class=False)
    rows = np.flatnonzero(~bad).tolist()
    return table.select(rows), ConceptTable(names, labels[rows], per_class=False)


def _filled(table: TextTable, column: str) -> list[str]:
    """Return the cells of a column, of which none may be empty."""
    cells = table.columns[column]
    if "" in cells:
        raise table.bad_row(cells.index(""), f"a text in column {quote(column)}", "")
    return cells


def _check_once(table: TextTable, names: Sequence[str], boxes: Sequence[Box] | None) -> None:
    first: dict[tuple[PurePosixPath, tuple[int, ...]], int] = {}
    for row, name in enumerate(names):
        before = first.setdefault((PurePosixPath(name), boxes[row] if boxes else ()), row)
        if before != row:
            number = f"{table.unit} {table.numbers[before]}"
            raise table.bad_row(row, f"one row for each image (this one is on {number} too)", name)


def _read_boxes(table: TextTable, columns: Sequence[str]) -> list[Box]:
    boxes = []
    for row in range(len(table.numbers)):
        numbers = [as_number(table.columns[name][row]) for name in columns]
        for name, number in zip(columns, numbers, strict=True):
            if not number.is_integer():
                raise table.bad_row(row, f"a whole number in column {quote(name)}", table.columns[name][row])
        x, y, width, height = map(int, numbers)
        boxes.append((x, y, width, height))
    return boxes


def _read_classes(table: TextTable, column: str) -> tuple[list[str], np.ndarray]:
    """Return names of classes, and the class of each image."""
    cells = _filled(table, column)
    names = sorted(set(cells))
    numbers = [as_number(name) for name in names]
    if np.isfinite(numbers).all():
        names = [names[i] for i in np.argsort(numbers, kind="stable")]
    position = {name: i for i, name in enumerate(names)}
    return names, np.array([position[name] for name in cells], dtype=np.int64)
