"""Images listed in one table, CSV or Parquet, with their classes and concepts."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

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
from quantus_concepts.datasets.folders import as_number, check_there, inside
from quantus_concepts.datasets.tables import TextTable, read_table
from quantus_concepts.datasets.transforms import Transform

IMAGE_NAMES = ("image", "image_path", "img_path", "filename", "file", "path", "derm")
CLASS_NAMES = ("class", "label", "diagnosis")
SPLIT_NAMES = ("split",)
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
    is 1. A cell that is empty or "nan" is *unknown*. Metrics need every label, so that unknown cells are refused,
    unless `unknown` says what to leave out; they never become 0.

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
    image, label, split_column : str, optional
        Columns of the image files, of the classes and of the splits. Default: the one that is there of "image",
        "image_path", "img_path", "filename", "file", "path", "derm"; of "class", "label", "diagnosis"; and "split"
        if it is there.
    concepts : str or sequence, optional
        Columns of the concepts: names, patterns such as ``"has_*"``, or indices among the columns. Default: all
        columns that are nothing else.
    split : str, optional
        None for all images. With a column of splits, one of its texts. Without, "train" or "test": a share
        `test_share` of each class, drawn with `seed` from the images, is for testing. Several images of one patient
        then lie on both sides; give the table a column of splits instead.
    unknown : str, optional
        "images" leaves out images with unknown cells, "concepts" columns with unknown cells; a warning says how many.
        Both look at the whole table, so that all splits have the same concepts.
    box : sequence of str, optional
        The columns of x, y, width and height, such as ``("x", "y", "width", "height")``, to which each image is cut:
        pixels of the file, (0, 0) its top left corner; whole numbers. One image may then be in several rows.
    mask : str, optional
        Column of mask images, with paths as the images; see `load_mask`.
    transform : callable, optional
        Any callable on images, such as a transform of ``torchvision.transforms.v2``.
    image_size : int or (int, int), optional
        Height and width to which each image is scaled before the transform.
    test_share, seed : float, int
        See `split`.

    Attributes
    ----------
    image_paths : list of Path
        The N image files.
    rows : list of int
        The N rows of the table, from 0: ``pandas.read_csv(table).iloc[data.rows]`` has the other columns.

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
    >>> from pathlib import Path
    >>> from quantus_concepts.datasets import ConceptCSV
    >>> rows = [
    ...     "image,class,ground,tree",
    ...     "beach/0.png,beach,sand,0",
    ...     "forest/0.png,forest,moss,1",
    ... ]
    >>> _ = Path("images.csv").write_text("\\n".join(rows))
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
        mask: str | None = None,
        transform: Transform | None = None,
        image_size: int | Sequence[int] | None = None,
        test_share: float = 0.25,
        seed: int = 0,
    ) -> None:
        check_test_share(test_share)
        if unknown is not None:
            check_choice("unknown", unknown, UNKNOWN)
        if box is not None and (isinstance(box, str) or len(box) != 4):
            raise ValueError(f"Expected argument `box` to name the columns of x, y, width and height but got {box!r}.")
        super().__init__(transform, image_size)
        path = check_file("table", table, "a CSV or Parquet file")
        self.root = path.parent if images is None else check_folder("images", images, "the folder of the images")
        self.split = split
        others = [*(box or ()), *([mask] if mask is not None else [])]
        roles: dict[str, str | None] = {}
        names: list[str] = []

        def choose(header: list[str]) -> list[str]:
            roles["image"] = _find_column("image", image, IMAGE_NAMES, header)
            roles["label"] = _find_column("label", label, CLASS_NAMES, header)
            optional = split_column is None and not any(name in header for name in SPLIT_NAMES)
            roles["split"] = None if optional else _find_column("split_column", split_column, SPLIT_NAMES, header)
            for name in others:
                check_choice("mask" if name == mask else "box", name, header)
            used = [name for name in (*roles.values(), *others) if name is not None]
            if concepts is None:
                names.extend(name for name in header if name not in used)
            else:
                names.extend(header[j] for j in find_names("concepts", header, concepts))
            if not names or set(names) & set(used):
                raise ValueError(
                    f"Expected argument `concepts` to name columns of {path} that are not of images, classes, splits, "
                    f"boxes or masks but got {list_some(map(quote, names)) or 'none'}."
                )
            return [*dict.fromkeys([*used, *names])]

        cells = read_table(path, choose)
        values = ConceptTable(*_spread(cells, names), per_class=False)
        kept, columns = _known(cells, values, names, unknown)
        cells = cells.select(kept)
        values = ConceptTable([values.names[j] for j in columns], values.values[np.ix_(kept, columns)], False)
        boxes = None if box is None else _read_boxes(cells, box)
        files = _read_paths(cells, str(roles["image"]), self.root)
        _check_once(cells, files, boxes)
        self.class_names, classes = _read_classes(cells, str(roles["label"]))
        if roles["split"] is None:
            if split is not None:
                check_choice("split", split, SPLITS)
            is_training = draw_training(classes, len(self.class_names), test_share, seed)
            of_split = is_training == (split == "train")
        else:
            splits = cells.columns[roles["split"]]
            _refuse_empty(cells, roles["split"])
            if split is not None:
                check_choice("split", split, sorted(set(splits)))
            is_training = np.array([text.lower() in TRAINING for text in splits])
            of_split = np.array([text == split for text in splits])
        chosen = np.arange(len(files)) if split is None else np.flatnonzero(of_split)
        if not chosen.size:
            raise ValueError(f"Expected images for split {split!r} in {path} but there are none.")

        self.rows = [kept[i] for i in chosen]
        self.image_paths = [files[i] for i in chosen]
        check_there(self.image_paths, f"the images that {path} names in {self.root}")
        self.concept_names = values.names
        self.labels = torch.from_numpy(classes[chosen])
        self.concept_labels = torch.from_numpy(values.values[chosen].astype(np.float32))
        self.class_concepts = torch.from_numpy(class_shares(values, classes, chosen).astype(np.float32))
        if split is not None and is_training.any():
            of_training = class_shares(values, classes, np.flatnonzero(is_training))
            self.training_concepts = torch.from_numpy(of_training.astype(np.float32))
        self.part_names = []
        self.part_of_concept = torch.full((len(values.names),), -1)
        self.points = torch.zeros(len(chosen), 0, 1, 2)
        self.mask_paths: list[Path] | None = None
        if mask is not None:
            masks = _read_paths(cells, mask, self.root)
            self.mask_paths = [masks[i] for i in chosen]
            check_there(self.mask_paths, f"the masks that {path} names in {self.root}")
        self._boxes = None if boxes is None else [boxes[i] for i in chosen]
        self._check_boxes(cells.select(chosen.tolist()))
        self._check_sizes()

    def load_mask(self, index: int) -> Tensor:
        """Read the mask of an image, cut, scaled and transformed as the image.

        Parameters
        ----------
        index : int
            Which image.

        Returns
        -------
        Tensor
            (1, H, W) of 0 and 1: where the mask image is at least half white. ``torch.stack`` of them is what metrics
            take as `masks`.

        Raises
        ------
        IndexError
            If the index is past the end.
        TypeError
            If `transform` is not of torchvision v2, so that it is not known where it moves the mask.
        ValueError
            If the table has no column of masks, or the mask cannot be read or has another size than its image.
        """
        index = check_index(index, len(self), "images")
        if self.mask_paths is None:
            raise ValueError("Expected argument `mask` to name a column of the table but the data set has none.")
        if self.transform is not None and not isinstance(self.transform, v2.Transform):
            raise TypeError(
                "Expected argument `transform` to be of torchvision.transforms.v2, which moves masks along, but got "
                f"{type(self.transform).__name__}."
            )
        path = self.mask_paths[index]
        pixels = torch.from_numpy(load_pixels(path, "L", "Mask") >= 128)[None]
        expected = image_size(self.image_paths[index])
        if pixels.shape[1:] != expected:
            raise ValueError(
                f"Expected mask {path} to have (H, W) = {expected}, as its image, but got {pixels.shape[1:]}."
            )
        mask = tv_tensors.Mask(self._cut(pixels, index).to(torch.uint8))
        for transform in (self._scale, self.transform):
            mask = mask if transform is None else transform(mask)
        return mask.as_subclass(Tensor)

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

    def _check_boxes(self, cells: TextTable) -> None:
        for i, (x, y, width, height) in enumerate(self._boxes or ()):
            (rows, columns), orientation = image_head(self.image_paths[i])
            box = f"x, y, width, height = {x}, {y}, {width}, {height}"
            if orientation != 1:
                raise cells.bad_row(i, "a box on an image that is stored upright, not turned by EXIF,", box)
            if min(x, y) < 0 or min(width, height) < 1 or x + width > columns or y + height > rows:
                raise cells.bad_row(i, f"a box inside the image, {columns} wide and {rows} high,", box)


def _find_column(argument: str, name: str | None, usual: Sequence[str], header: list[str]) -> str:
    """Return a column by its name, or the one that bears a usual name."""
    if name is not None:
        check_choice(argument, name, header)
        return name
    there = [column for column in usual if column in header]
    if len(there) != 1:
        got = f"several: {there}" if there else f"none among {list_some(map(quote, header))}"
        raise ValueError(
            f"Expected one column of the table to be named one of {[*usual]} but got {got}. Pass `{argument}`."
        )
    return there[0]


def _spread(table: TextTable, columns: Sequence[str]) -> tuple[list[str], np.ndarray]:
    """Return the concepts of columns and their labels (N, L), NaN where unknown."""
    names, labels = [], []
    for column in columns:
        cells = table.columns[column]
        texts = sorted(set(cells) - {""})
        truth = {text: _TRUTH.get(text.lower(), as_number(text)) for text in texts}
        numbers = [text for text in texts if not np.isnan(truth[text])]
        if not texts:
            raise ValueError(f"{table.path}: expected labels in column {quote(column)} but all its cells are empty.")
        if numbers:
            for row, cell in enumerate(cells):
                if cell and truth[cell] not in (0, 1):
                    expected = (
                        f"0, 1 or nothing in column {quote(column)}, or texts alone (else leave it out of `concepts`),"
                    )
                    raise table.bad_row(row, expected, cell)
            names.append(column)
            labels.append([truth.get(cell, np.nan) for cell in cells])
            continue
        if len(texts) > MAX_VALUES or max(map(len, texts)) > MAX_LENGTH:
            raise ValueError(
                f"{table.path}: expected at most {MAX_VALUES} different texts of at most {MAX_LENGTH} characters in "
                f"column {quote(column)} but got {len(texts)}, such as {quote(max(texts, key=len))}. Name the columns of "
                "concepts in `concepts`."
            )
        for text in texts:
            names.append(f"{column}::{text}")
            labels.append([float(cell == text) if cell else np.nan for cell in cells])
    if twice := sorted({name for name in names if names.count(name) > 1}):
        raise ValueError(f"{table.path}: expected concepts of different names but got {list_some(twice)} twice.")
    return names, np.array(labels).T


def _known(
    table: TextTable, values: ConceptTable, columns: Sequence[str], unknown: str | None
) -> tuple[list[int], list[int]]:
    """Return the rows and the concepts of which all labels are known."""
    missing = np.isnan(values.values)
    rows, concepts = missing.any(1), missing.any(0)
    empty = [name for name in columns if "" in table.columns[name]]
    what = f"{int(rows.sum())} of {len(rows)} images have empty cells, in {len(empty)} of {len(columns)} columns"
    if rows.any() and unknown is None:
        raise ValueError(
            f"{table.path}: expected a label in each cell, since metrics need them, but {what}: "
            f"{list_some(map(quote, empty))}; the first is {table.unit} {table.numbers[int(rows.argmax())]}. Pass "
            "`unknown='images'` or `unknown='concepts'` to leave those images or those concepts out."
        )
    no_rows, no_concepts = (np.zeros_like(some) for some in (rows, concepts))
    rows, concepts = (rows, no_concepts) if unknown == "images" else (no_rows, concepts)
    if rows.all() or concepts.all():
        raise ValueError(f"{table.path}: expected {unknown} with all labels but none is left: {what}.")
    if rows.any() or concepts.any():
        left_out = (
            f"{int(rows.sum())} of {len(rows)} images"
            if rows.any()
            else (f"{int(concepts.sum())} of {len(concepts)} concepts ({list_some(map(quote, empty))})")
        )
        warn_user(f"{table.path}: {left_out} are left out, since labels are unknown.")
    return np.flatnonzero(~rows).tolist(), np.flatnonzero(~concepts).tolist()


def _refuse_empty(table: TextTable, column: str) -> None:
    cells = table.columns[column]
    if "" in cells:
        raise table.bad_row(cells.index(""), f"a text in column {quote(column)}", "")


def _read_paths(table: TextTable, column: str, root: Path) -> list[Path]:
    return [inside(root, name, table.place(row)) for row, name in enumerate(table.columns[column])]


def _check_once(table: TextTable, files: Sequence[Path], boxes: Sequence[tuple[int, ...]] | None) -> None:
    first: dict[tuple[Path, tuple[int, ...]], int] = {}
    for row, file in enumerate(files):
        before = first.setdefault((file, boxes[row] if boxes else ()), row)
        if before != row:
            number = f"{table.unit} {table.numbers[before]}"
            raise table.bad_row(row, f"one row for each image (this one is on {number} too)", file.name)


def _read_boxes(table: TextTable, columns: Sequence[str]) -> list[tuple[int, int, int, int]]:
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
    _refuse_empty(table, column)
    names = sorted(set(table.columns[column]))
    numbers = [as_number(name) for name in names]
    if np.isfinite(numbers).all():
        names = [names[i] for i in np.argsort(numbers, kind="stable")]
    position = {name: i for i, name in enumerate(names)}
    return names, np.array([position[name] for name in table.columns[column]], dtype=np.int64)
