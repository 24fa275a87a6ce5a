"""Objects cut out of photographs with the segmentations of COCO."""

from __future__ import annotations

import importlib
import math
from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from itertools import groupby, islice
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.path import Path as Outline

from captum_concepts._support.checks import check_choice, check_index
from captum_concepts._support.constraints import SHARE, Flag, Location, Whole, check_arguments
from captum_concepts._support.files import quote, read_json, reason_of
from captum_concepts._support.images import MAX_PIXELS, image_head, load_pixels, turn_upright
from captum_concepts._support.running import warn_user
from quantus_concepts.datasets.folders import check_there, inside, list_some
from quantus_concepts.datasets.scenes.sources import Cutout, ObjectSource, cut_out

#: The ten classes of the authors' release.
RELEASE_OBJECTS = ("backpack", "bird", "dog", "elephant", "kite", "pizza", "stop sign", "toilet", "truck", "zebra")
_BORDER = 1.0
#: Types of the fields by which entries are found.
_KINDS = {"id": int | str, "image_id": int | str, "category_id": int | str, "name": str}
#: Farther out no pixel is.
_FAR = 1e9
#: Pixels tested in one call.
_BAND = 1 << 20


class COCOObjects(ObjectSource):
    """Objects of COCO, or of any data set annotated in its format.

    Polygons need no further package; run-length encoded masks need pycocotools (``pip install
    "quantus-concepts[coco]"``). Crowds (``iscrowd``) are left out. The annotation file is read once, photographs when
    accessed. Objects are in the order of the classes, then of the numbers of the photographs and the annotations.

    The authors' release takes, from each photograph, the largest object of a class, whatever its size; so do the
    defaults here, but for objects of less than 1 % of the photograph, which would have to be magnified.

    Parameters
    ----------
    annotations : str or Path
        The JSON file with "images", "annotations" and "categories", ``instances_train2017.json`` for instance.
    images : str or Path
        Folder of the photographs. Links in it are followed, wherever they lead; a path in the file that leads out of
        it is refused.
    class_names : sequence of str
        Which categories; the order is that of the labels.
    min_area : float
        Smallest area of an object, as a share of the photograph, in [0, 1].
    largest_only : bool
        Whether to take only the largest object of a class in each photograph.
    truncated : bool
        Whether to take objects that touch the border of their photograph.
    max_per_class : int, optional
        The first so many of each class; None for all.
    min_photographs : int, optional
        Leave out classes with objects in fewer photographs with a warning, in place of an error for a class
        that the file lacks or that has no object: for a part of COCO. `ObjectsOnScenes` requires 2.

    Attributes
    ----------
    class_names : list of str
        The classes that are not left out.
    annotation_ids : np.ndarray
        (n,) of int64: the number of each object's annotation.
    paths : list of Path
        (n) The photograph of each object.

    Raises
    ------
    FileNotFoundError
        If the annotation file, the folder or photographs are missing.
    ImportError
        If there are run-length encoded masks and pycocotools is not installed.
    ValueError
        If the file is not in COCO's format, has no segmentations or names a photograph outside the folder, there is
        no such category, or a class has no object. On access to an object: if the photograph cannot be read or
        has not the size annotated.

    Examples
    --------
    >>> from quantus_concepts.datasets import COCOObjects
    >>> names = ["dog", "kite"]
    >>> objects = COCOObjects("instances_train2017.json", "train2017", class_names=names)
    >>> objects.class_names
    ['dog', 'kite']
    >>> pixels, mask = objects[0]  # one dog, without its background
    >>> pixels.shape[:2] == mask.shape
    True
    """

    @check_arguments(
        annotations=Location(),
        images=Location(),
        min_area=SHARE,
        largest_only=Flag(),
        truncated=Flag(),
        max_per_class=Whole(1),
        min_photographs=Whole(1),
    )
    def __init__(
        self,
        annotations: str | Path,
        images: str | Path,
        class_names: Sequence[str] = RELEASE_OBJECTS,
        *,
        min_area: float = 0.01,
        largest_only: bool = True,
        truncated: bool = True,
        max_per_class: int | None = None,
        min_photographs: int | None = None,
    ) -> None:
        is_list = isinstance(class_names, Collection) and not isinstance(class_names, str)
        if not is_list or not 0 < len(class_names) == len(set(class_names)):
            raise ValueError(f"Expected argument `class_names` to be different names but got {class_names!r}.")
        self.annotations, self.images = Path(annotations), Path(images)
        if not self.images.is_dir():
            raise FileNotFoundError(f"Expected argument `images` to be the folder of photographs but got {images}.")
        self.class_names = list(class_names)
        content = _read_annotations(self.annotations)
        categories = {category["name"]: category["id"] for category in content["categories"]}
        if min_photographs is None:
            for name in self.class_names:
                check_choice("class_names", name, categories)
        labels = _labels(categories, self.class_names)
        photographs = {image["id"]: image for image in content["images"]}
        annotated = [a for a in content["annotations"] if a["category_id"] in labels and not a.get("iscrowd")]
        _check_segmentations(annotated, photographs, self.annotations)
        annotated.sort(key=lambda a: (labels[a["category_id"]], a["image_id"], a["id"]))
        fitting = [a for a in annotated if _fits(a, photographs[a["image_id"]], min_area, truncated, self.annotations)]
        if min_photographs is not None:
            self._leave_out(fitting, categories, min_photographs)
            labels = _labels(categories, self.class_names)
            annotated, fitting = ([a for a in subset if a["category_id"] in labels] for subset in (annotated, fitting))
        if largest_only:
            fitting = [
                max(same, key=lambda a: _area(a, _size(photographs[a["image_id"]])))
                for _, same in groupby(fitting, lambda a: (a["category_id"], a["image_id"]))
            ]
        chosen = [a for _, same in groupby(fitting, lambda a: a["category_id"]) for a in islice(same, max_per_class)]
        self._check_counts(
            Counter(labels[a["category_id"]] for a in annotated), {labels[a["category_id"]] for a in chosen}
        )
        self.labels = np.array([labels[a["category_id"]] for a in chosen], dtype=np.int64)
        self.groups = np.unique([a["image_id"] for a in chosen], return_inverse=True)[1].astype(np.int64)
        self.annotation_ids = np.array([a["id"] for a in chosen], dtype=np.int64)
        self.paths = [
            inside(self.images, photographs[a["image_id"]]["file_name"], f"{self.annotations}, image {a['image_id']}")
            for a in chosen
        ]
        self._segmentations = [a["segmentation"] for a in chosen]
        self._sizes = [_size(photographs[a["image_id"]]) for a in chosen]
        check_there(
            self.paths,
            f"the photographs of the annotations in {self.images}",
            "Download them, or take the annotation file that belongs to this folder.",
        )

    def __getitem__(self, index: int) -> Cutout:
        """Return one object, cut out of its photograph."""
        index = check_index(index, len(self))
        pixels, size, head = load_pixels(self.paths[index]), self._sizes[index], image_head(self.paths[index])
        if head.stored != size:
            raise ValueError(
                f"Expected photograph {self.paths[index]} to have (H, W) = {size}, as annotated, but got "
                f"{head.stored}. Segmentations fit only the original files."
            )
        # Segmentations are in pixels as stored.
        with _name_annotation(self.annotation_ids[index], self.annotations):
            mask = turn_upright(_mask(self._segmentations[index], size), head.orientation)
        if not mask.any():
            raise ValueError(
                f"Expected annotation {self.annotation_ids[index]} in {self.annotations} to cover pixels of its "
                "photograph but it covers none. Remove it."
            )
        return cut_out(pixels, mask)

    def _leave_out(self, fitting: list[dict[str, Any]], categories: dict[str, Any], min_photographs: int) -> None:
        """Keep the classes with objects in enough photographs; warn of the others."""
        counts = Counter(category for category, _ in {(a["category_id"], a["image_id"]) for a in fitting})
        few = {name: counts[categories.get(name)] for name in self.class_names}
        few = {name: count for name, count in few.items() if count < min_photographs}
        if not few:
            return
        names = list_some([f"{name} ({count})" for name, count in few.items()])
        enough = [name for name in self.class_names if name not in few]
        if not enough:
            raise ValueError(
                f"Expected argument `min_photographs` to be at most {max(few.values())}, the most photographs with "
                f"objects of a class in {self.annotations}, but got {min_photographs}. Lower it or choose other "
                f"classes than {names}"
            )
        warn_user(
            f"{len(few)} of {len(self.class_names)} classes have objects in fewer than {min_photographs} photographs "
            f"of {self.annotations} and are left out (`min_photographs`): {names}"
        )
        self.class_names = enough

    def _check_counts(self, before: Counter[int], there: set[int]) -> None:
        for label, name in enumerate(self.class_names):
            if label not in there:
                raise ValueError(
                    f"Expected objects of class {name!r} in {self.annotations} but {before[label]} are annotated and 0 "
                    "are left after `min_area` and `truncated`. Lower `min_area`, or leave such classes out with "
                    "`min_photographs`."
                )


def _read_annotations(path: Path) -> dict[str, Any]:
    if not path.is_file():
        raise FileNotFoundError(f"Expected argument `annotations` to be a JSON file of COCO but got {path}.")
    content = read_json(path, "Annotation file")
    needed = {
        "images": ("id", "file_name", "height", "width"),
        "annotations": ("id", "image_id", "category_id"),
        "categories": ("id", "name"),
    }
    for part, keys in needed.items():
        entries = content.get(part) if isinstance(content, dict) else None
        if not isinstance(entries, list):
            raise ValueError(
                f"Expected annotation file {path} to have a list {part!r}, as COCO's instances_*.json, but it has none."
            )
        for number, entry in enumerate(entries):
            missing = [key for key in keys if not isinstance(entry, dict) or key not in entry]
            if missing:
                raise ValueError(f"Expected entry {number} of {part!r} in {path} to have {missing} but it has not.")
            odd = [key for key in keys if key in _KINDS and not isinstance(entry[key], _KINDS[key])]
            if odd:
                raise ValueError(
                    f"Expected entry {number} of {part!r} in {path} to have a number or a text as {odd[0]!r} but got "
                    f"{quote(entry[odd[0]])}."
                )
    return content


def _labels(categories: dict[str, Any], class_names: list[str]) -> dict[Any, int]:
    """Return the label of each category wanted that the file has."""
    return {categories[name]: label for label, name in enumerate(class_names) if name in categories}


def _check_segmentations(annotations: list[dict[str, Any]], photographs: dict[Any, Any], path: Path) -> None:
    bare = [annotation["id"] for annotation in annotations if not annotation.get("segmentation")]
    if bare:
        raise ValueError(
            f"Expected every object in {path} to have a segmentation but {len(bare)} of {len(annotations)} of the "
            f"chosen classes have none, the first is annotation {bare[0]}. Boxes alone do not cut objects out: take "
            "the instances_*.json of COCO, or remove these annotations."
        )
    for annotation in annotations:
        segmentation = annotation["segmentation"]
        # They are sorted by, and kept as numbers.
        kinds = [type(entry["image_id"]) for entry in (annotation, annotations[0])]
        if type(annotation["id"]) is not int or abs(annotation["id"]) >> 62 or kinds[0] is not kinds[1]:
            raise ValueError(
                f"Expected annotation {quote(annotation['id'])} in {path} to have a whole number as its 'id', "
                "and an 'image_id' of the same kind as the others."
            )
        if annotation["image_id"] not in photographs:
            raise ValueError(
                f"Expected the image of annotation {annotation['id']} in {path} to be listed under 'images' but "
                f"{annotation['image_id']} is not."
            )
        with _name_annotation(annotation["id"], path):
            size = _size(photographs[annotation["image_id"]])
        if isinstance(segmentation, dict) and {"counts", "size"} <= segmentation.keys():
            if segmentation["size"] != list(size):
                raise ValueError(
                    f"Expected the run lengths of annotation {annotation['id']} in {path} to be of size {size}, that "
                    f"of the photograph, but got {quote(segmentation['size'])}."
                )
        elif not _are_polygons(segmentation):
            raise ValueError(
                f"Expected the segmentation of annotation {annotation['id']} in {path} to be polygons "
                "[[x0, y0, x1, y1, x2, y2, ...], ...] or run lengths {counts, size} but it is neither."
            )


def _are_polygons(segmentation: Any) -> bool:
    return isinstance(segmentation, list) and all(
        isinstance(polygon, list)
        and len(polygon) >= 6
        and len(polygon) % 2 == 0
        and all(isinstance(number, int | float) and -_FAR < number < _FAR for number in polygon)
        for polygon in segmentation
    )


def _fits(annotation: dict[str, Any], photograph: dict[str, Any], min_area: float, truncated: bool, path: Path) -> bool:
    with _name_annotation(annotation["id"], path):
        height, width = _size(photograph)
        x0, y0, x1, y1 = _extent(annotation["segmentation"], (height, width))
        inside = x0 > _BORDER and y0 > _BORDER and x1 < width - _BORDER and y1 < height - _BORDER
        return (truncated or inside) and _area(annotation, (height, width)) >= min_area * height * width


def _area(annotation: dict[str, Any], size: tuple[int, int]) -> float:
    """Return the area in pixels, counted where the file does not tell."""
    if "area" in annotation:
        return float(annotation["area"])
    return float(_mask(annotation["segmentation"], size).sum())


def _extent(segmentation: Any, size: tuple[int, int]) -> tuple[float, float, float, float]:
    """Return x0, y0, x1, y1 of the outline."""
    if isinstance(segmentation, dict):
        x, y, width, height = (float(value) for value in _coco().toBbox(_run_lengths(segmentation, size)))
        return x, y, x + width, y + height
    points = np.concatenate([np.reshape(polygon, (-1, 2)) for polygon in segmentation])
    return (*points.min(0).tolist(), *points.max(0).tolist())


def _mask(segmentation: Any, size: tuple[int, int]) -> np.ndarray:
    """Return (H, W) of bool: the pixels whose centres lie in a polygon, or those of the run lengths."""
    if isinstance(segmentation, dict):
        return np.asarray(_coco().decode(_run_lengths(segmentation, size)), dtype=bool)
    mask = np.zeros(size, dtype=bool)
    for polygon in segmentation:
        points = np.reshape(np.asarray(polygon, dtype=float), (-1, 2))
        # Only the pixels around the polygon: a photograph has a hundred times as many.
        col0, row0 = np.clip(np.floor(points.min(0)), 0, size[::-1]).astype(int)
        col1, row1 = np.clip(np.ceil(points.max(0)), 0, size[::-1]).astype(int)
        # In bands, for the coordinates of a pixel take sixty times its own room.
        step = max(1, _BAND // max(1, col1 - col0))
        for start in range(row0, row1, step):
            end = min(start + step, row1)
            rows, cols = np.mgrid[start:end, col0:col1]
            centres = np.stack([cols.ravel(), rows.ravel()], axis=1) + 0.5
            mask[start:end, col0:col1] |= Outline(points).contains_points(centres).reshape(rows.shape)
    return mask


def _run_lengths(segmentation: dict[str, Any], size: tuple[int, int]) -> Any:
    """Return run lengths in the compressed form, which pycocotools decodes."""
    if isinstance(segmentation["counts"], list):
        if not all(type(count) is int for count in segmentation["counts"]):
            raise ValueError("its run lengths are no whole numbers")
        if sum(segmentation["counts"]) != math.prod(size) or min(segmentation["counts"]) < 0:
            raise ValueError(f"its run lengths do not add up to {math.prod(size)} pixels")
        return _coco().frPyObjects(segmentation, *size)
    return segmentation


def _coco() -> Any:
    try:
        return importlib.import_module("pycocotools.mask")
    except ImportError as error:
        raise ImportError(
            "Run-length encoded masks need pycocotools, which is not installed: "
            'pip install "quantus-concepts[coco]" (or pip install pycocotools).'
        ) from error


def _size(photograph: dict[str, Any]) -> tuple[int, int]:
    height, width = int(photograph["height"]), int(photograph["width"])
    if min(height, width) < 1 or height * width > MAX_PIXELS:
        raise ValueError(f"its image is said to have (H, W) = ({height}, {width}), of at most {MAX_PIXELS:,} pixels")
    return height, width


@contextmanager
def _name_annotation(annotation: int, path: Path) -> Iterator[None]:
    """Say which annotation something is wrong with, whatever comes up."""
    try:
        yield
    except ImportError:
        raise
    except Exception as error:  # numbers of any kind, and a library that reads run lengths
        raise ValueError(f"Annotation {annotation} in {path} cannot be used: {reason_of(error)}. Remove it.") from error
