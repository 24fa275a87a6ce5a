"""Objects cut out of photographs with the segmentations of COCO."""

from __future__ import annotations

import importlib
import math
from collections import Counter
from collections.abc import Iterator, Sequence, Set
from contextlib import contextmanager
from itertools import groupby, islice
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from matplotlib.path import Path as Outline

from captum_concepts.lazy import check_extra
from captum_concepts.support.checks import (
    check_choice,
    check_file,
    check_folder,
    check_index,
    check_range,
    different_names,
)
from captum_concepts.support.files import read_json, reason_of
from captum_concepts.support.images import image_head, load_pixels, turn_upright
from captum_concepts.support.running import warn_user
from quantus_concepts.datasets.folders import check_there, inside, list_some
from quantus_concepts.datasets.scenes.sources import Cutout, ObjectSource, cut_out

#: The ten classes of the authors' release.
RELEASE_OBJECTS = ("backpack", "bird", "dog", "elephant", "kite", "pizza", "stop sign", "toilet", "truck", "zebra")
_BORDER = 1.0
#: Pixels tested in one call.
_BAND = 1 << 20


class COCOObjects(ObjectSource):
    """Objects of COCO, or of any data set annotated in its format.

    Polygons need no further package; run-length encoded masks need pycocotools (the extra ``coco``). Crowds
    (``iscrowd``) are left out. The annotation file is read once, photographs when accessed. Objects are in the order of
    the classes, then of the numbers of the photographs and the annotations.

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
        check_range("min_area", min_area, 0, 1)
        self.class_names = different_names("class_names", class_names)
        if not self.class_names or isinstance(class_names, Set):
            raise ValueError(f"Expected argument `class_names` to be a sequence of names but got {class_names!r}.")
        self.annotations = check_file("annotations", annotations, "a JSON file of COCO")
        self.images = check_folder("images", images, "the folder of photographs")
        content = read_json(self.annotations, "Annotation file")
        try:
            categories = {category["name"]: category["id"] for category in content["categories"]}
            photographs = {image["id"]: image for image in content["images"]}
            # Crowds are left out.
            annotations_of = [(item["category_id"], item) for item in content["annotations"] if not item.get("iscrowd")]
        except (AttributeError, KeyError, TypeError) as error:
            raise ValueError(
                f"Expected {self.annotations} to hold images, annotations and categories, as COCO's instances_*.json, "
                f"but got another content ({reason_of(error)})."
            ) from error
        if min_photographs is None:
            for name in self.class_names:
                check_choice("class_names", name, categories)
        labels = {categories[name]: label for label, name in enumerate(self.class_names) if name in categories}
        objects = [
            self._read(item, labels[category], photographs) for category, item in annotations_of if category in labels
        ]
        objects.sort(key=lambda item: item[:3])
        fitting = [
            item
            for item in objects
            if (truncated or item.inside) and item.area >= min_area * item.size[0] * item.size[1]
        ]
        if min_photographs is not None:
            fitting = self._leave_out(fitting, min_photographs)
        if largest_only:
            groups = (list(same) for _, same in groupby(fitting, lambda item: item[:2]))
            fitting = [max(same, key=lambda item: item.area) for same in groups]
        chosen = [item for _, same in groupby(fitting, lambda item: item.label) for item in islice(same, max_per_class)]
        if missing := set(range(len(self.class_names))) - {item.label for item in chosen}:
            label = min(missing)
            raise ValueError(
                f"Expected objects of class {self.class_names[label]!r} in {self.annotations} but "
                f"{sum(item.label == label for item in objects)} are annotated and 0 are left after `min_area` and "
                "`truncated`. Lower `min_area`, or leave such classes out with `min_photographs`."
            )
        self.labels = np.array([item.label for item in chosen], dtype=np.int64)
        self.groups = np.unique([item.photograph for item in chosen], return_inverse=True)[1].astype(np.int64)
        self.annotation_ids = np.array([item.annotation for item in chosen], dtype=np.int64)
        self.paths = [item.path for item in chosen]
        self._segmentations, self._sizes = [item.segmentation for item in chosen], [item.size for item in chosen]
        check_there(self.paths, f"the photographs of the annotations in {self.images}")

    def __getitem__(self, index: int) -> Cutout:
        """Return one object, cut out of its photograph."""
        index = check_index(index, len(self))
        pixels, size, head = load_pixels(self.paths[index]), self._sizes[index], image_head(self.paths[index])
        if head.stored != size:
            raise ValueError(
                f"Expected photograph {self.paths[index]} to have (H, W) = {size}, as annotated, but got {head.stored}."
            )
        # Segmentations are in pixels as stored.
        with _name_annotation(self.annotation_ids[index], self.annotations):
            mask = turn_upright(_mask(self._segmentations[index], size), head.orientation)
        if not mask.any():
            raise ValueError(
                f"Expected annotation {self.annotation_ids[index]} in {self.annotations} to cover pixels of its "
                "photograph but it covers none."
            )
        return cut_out(pixels, mask)

    def _read(self, annotation: dict[str, Any], label: int, photographs: dict[Any, Any]) -> _Object:
        number, segmentation = annotation.get("id"), annotation.get("segmentation")
        image: Any = annotation.get("image_id")
        with _name_annotation(number, self.annotations):
            if type(number) is not int:
                raise ValueError("its 'id' is no whole number")
            if image not in photographs:
                raise ValueError(f"its image {image} is not listed under 'images'")
            size = int(photographs[image]["height"]), int(photographs[image]["width"])
            if isinstance(segmentation, dict) and {"counts", "size"} <= segmentation.keys():
                if segmentation["size"] != list(size):
                    raise ValueError(f"its run lengths are of size {segmentation['size']} and not {size}")
            elif not _are_polygons(segmentation):
                raise ValueError(
                    "its segmentation is neither polygons [[x0, y0, x1, y1, x2, y2, ...], ...] nor run lengths "
                    "{counts, size}, as in instances_*.json"
                )
            x0, y0, x1, y1 = _extent(segmentation, size)
            return _Object(
                label,
                image,
                number,
                inside(self.images, photographs[image]["file_name"], f"image {image}"),
                size,
                segmentation,
                float(annotation["area"] if "area" in annotation else _mask(segmentation, size).sum()),
                x0 > _BORDER and y0 > _BORDER and x1 < size[1] - _BORDER and y1 < size[0] - _BORDER,
            )

    def _leave_out(self, objects: list[_Object], min_photographs: int) -> list[_Object]:
        """Keep the classes with objects in enough photographs, and number them anew; warn of the others."""
        counts = Counter(label for label, _ in {item[:2] for item in objects})
        few = [label for label in range(len(self.class_names)) if counts[label] < min_photographs]
        if not few:
            return objects
        names = list_some(f"{self.class_names[label]} ({counts[label]})" for label in few)
        if len(few) == len(self.class_names):
            raise ValueError(
                f"Expected argument `min_photographs` to be at most {max(counts.values(), default=0)}, the most "
                f"photographs with objects of a class in {self.annotations}, but got {min_photographs}: {names}"
            )
        warn_user(
            f"{len(few)} of {len(self.class_names)} classes have objects in fewer than {min_photographs} photographs "
            f"of {self.annotations} and are left out (`min_photographs`): {names}"
        )
        kept = [label for label in range(len(self.class_names)) if label not in few]
        self.class_names = [self.class_names[label] for label in kept]
        return [item._replace(label=kept.index(item.label)) for item in objects if item.label in kept]


class _Object(NamedTuple):
    """An annotation that was checked."""

    label: int
    photograph: int | str
    annotation: int
    path: Path
    size: tuple[int, int]
    segmentation: Any
    area: float
    inside: bool


def _are_polygons(segmentation: Any) -> bool:
    return (
        isinstance(segmentation, list)
        and segmentation != []
        and all(len(polygon) >= 6 and len(polygon) % 2 == 0 and np.isfinite(polygon).all() for polygon in segmentation)
    )


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
        if sum(segmentation["counts"]) != math.prod(size) or min(segmentation["counts"]) < 0:
            raise ValueError(f"its run lengths do not add up to {math.prod(size)} pixels")
        return _coco().frPyObjects(segmentation, *size)
    return segmentation


def _coco() -> Any:
    check_extra("pycocotools", "coco", "A run-length encoded mask")
    return importlib.import_module("pycocotools.mask")


@contextmanager
def _name_annotation(annotation: object, path: Path) -> Iterator[None]:
    """Say which annotation something is wrong with, whatever comes up."""
    try:
        yield
    except ImportError:
        raise
    except Exception as error:  # numbers of any kind, and a library that reads run lengths
        raise ValueError(f"Annotation {annotation} in {path} cannot be used: {reason_of(error)}.") from error
