"""Where objects and scenes come from, how scenes are mixed, and how an object is pasted on a scene."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections import OrderedDict
from collections.abc import Callable
from typing import Any, Generic, NamedTuple, TypeVar

import numpy as np
from numpy.typing import ArrayLike
from PIL import Image, ImageOps

from captum_concepts.support.checks import check_index
from captum_concepts.texts import describe, in_one_line
from quantus_concepts.datasets.scenes.composed import Box

_MIXING_STREAM = 71


@in_one_line
class Cutout(NamedTuple):
    """One object without its background.

    Attributes
    ----------
    pixels : np.ndarray
        (h, w, 3) of uint8; what is outside the mask plays no role.
    mask : np.ndarray
        (h, w) of bool, tight: it touches all four sides. 0 and 255, or three equal channels, are accepted.
    """

    pixels: np.ndarray
    mask: np.ndarray


class ObjectSource(ABC):
    """Cut-out objects by class.

    Attributes
    ----------
    class_names : list of str
        K names.
    labels : np.ndarray
        (n,) of int64: the class of each cut-out.
    groups : np.ndarray
        (n,) of int64: cut-outs of one photograph share a group, and a group is never split.

    Examples
    --------
    >>> import numpy as np
    >>> from quantus_concepts.datasets import Cutout, ObjectSource
    >>> class Squares(ObjectSource):
    ...     class_names, labels, groups = ["dark", "light"], np.arange(2), np.arange(2)
    ...
    ...     def __getitem__(self, index):
    ...         pixels = np.full((24, 24, 3), (50, 200)[index], np.uint8)
    ...         return Cutout(pixels, np.ones((24, 24), bool))
    >>> len(Squares()), Squares()[1].mask.shape
    (2, (24, 24))
    """

    class_names: list[str]
    labels: np.ndarray
    groups: np.ndarray

    def __len__(self) -> int:
        return len(self.labels)

    def __repr__(self) -> str:
        return _source(self, "cut-outs")

    @abstractmethod
    def __getitem__(self, index: int) -> Cutout:
        """Return one cut-out; the same bits every time."""


class SceneSource(ABC):
    """Scenes by class, of any size.

    Attributes
    ----------
    class_names : list of str
        K names.
    labels : np.ndarray
        (n,) of int64: the class of each scene.

    Examples
    --------
    >>> import numpy as np
    >>> from quantus_concepts.datasets import SceneSource
    >>> class Greys(SceneSource):
    ...     class_names, labels = ["dark", "light"], np.arange(2)
    ...
    ...     def __getitem__(self, index):
    ...         return np.full((32, 32, 3), (50, 200)[index], np.uint8)
    >>> len(Greys()), Greys()[0].shape
    (2, (32, 32, 3))
    """

    class_names: list[str]
    labels: np.ndarray

    def __len__(self) -> int:
        return len(self.labels)

    def __repr__(self) -> str:
        return _source(self, "scenes")

    @abstractmethod
    def __getitem__(self, index: int) -> np.ndarray:
        """Return one scene, (h, w, 3) of uint8; the same bits every time."""


def _source(source: ObjectSource | SceneSource, of: str) -> str:
    settings = {name: getattr(source, name, None) for name in ("root", "annotations", "size", "share", "seed")}
    return describe(source, f"{len(source)} {of}", f"{len(source.class_names)} classes", **settings)


def check_image_source(argument: str, source: ObjectSource | SceneSource) -> None:
    """Raise unless the names, labels and groups of a source fit each other."""
    names = source.class_names
    if not names or len(set(names)) != len(names):
        raise ValueError(f"Expected `{argument}.class_names` to be different names, at least one, but got {names}.")
    for name in ("labels", "groups"):
        array = np.asarray(getattr(source, name, source.labels))
        if array.shape != (len(source),) or array.dtype.kind not in "iu":
            raise ValueError(
                f"Expected `{argument}.{name}` to be whole numbers of shape (n,) = ({len(source)},) but got "
                f"{array.dtype} of shape {array.shape}."
            )
    labels = np.asarray(source.labels)
    if labels.size and not (labels.min() >= 0 and labels.max() < len(names)):
        raise ValueError(
            f"Expected `{argument}.labels` to lie in [0, {len(names) - 1}], one number per class name, but they "
            f"lie in [{labels.min()}, {labels.max()}]."
        )


def plain_mask(name: str, mask: ArrayLike) -> np.ndarray:
    """Return a mask (h, w) of bool; its levels may be 0 and 1 or 0 and 255, and its channels three equal ones."""
    array = np.asarray(mask)
    if array.ndim == 3 and array.shape[2] in (1, 3) and (array == array[..., :1]).all():
        array = array[..., 0]
    binary = array.dtype == bool or any(np.isin(array, (0, high)).all() for high in (1, 255))
    if array.ndim != 2 or not binary:
        raise ValueError(
            f"Expected {name} to be (h, w) of 0 and 1, or 0 and 255, but got {array.dtype} of {array.shape}."
        )
    return array > 0


T = TypeVar("T")


class Pasted(NamedTuple):
    """A cut-out in its final size and place."""

    pixels: np.ndarray
    mask: np.ndarray
    row: int
    col: int

    @property
    def box(self) -> Box:
        """Row0, col0, row1, col1, the ends exclusive."""
        return self.row, self.col, self.row + self.mask.shape[0], self.col + self.mask.shape[1]

    def onto(self, background: np.ndarray) -> np.ndarray:
        """Return a copy of a background with the object on it, without blending."""
        image = background.copy()
        row0, col0, row1, col1 = self.box
        np.copyto(image[row0:row1, col0:col1], self.pixels, where=self.mask[..., None])
        return image

    def full_mask(self, size: int) -> np.ndarray:
        """Return the mask in the whole image."""
        mask = np.zeros((size, size), dtype=bool)
        row0, col0, row1, col1 = self.box
        mask[row0:row1, col0:col1] = self.mask
        return mask


class RecentCache(Generic[T]):
    """What was used last, up to a number of bytes; a copy sent to another process starts empty."""

    def __init__(self, max_bytes: int) -> None:
        self.max_bytes = max_bytes
        self._bytes = 0
        self._entries: OrderedDict[int, tuple[T, int]] = OrderedDict()

    def get(self, key: int, make: Callable[[int], tuple[T, int]]) -> T:
        """Return a value, made if it is not there."""
        entry = self._entries.pop(key, None)
        if entry is None:
            entry = make(key)
            self._bytes += entry[1]
        self._entries[key] = entry
        while self._bytes > self.max_bytes:
            self._bytes -= self._entries.popitem(last=False)[1][1]
        return entry[0]

    def __getstate__(self) -> dict[str, Any]:
        return {"max_bytes": self.max_bytes, "_bytes": 0, "_entries": OrderedDict()}


def fit_scene(pixels: np.ndarray, size: int) -> np.ndarray:
    """Bring a scene to size: the middle square, scaled so that the short side fits."""
    if pixels.shape[:2] == (size, size):
        return pixels
    return np.asarray(ImageOps.fit(Image.fromarray(pixels), (size, size), Image.Resampling.BILINEAR))


def premultiply(cutout: Cutout) -> Image.Image:
    """Return a cut-out as an image of premultiplied colours, ready to be scaled."""
    alpha = np.where(cutout.mask, np.uint8(255), np.uint8(0))
    return Image.fromarray(np.dstack([cutout.pixels, alpha])).convert("RGBa")


def place(cutout: Image.Image, size: int, scale: tuple[float, float], rng: np.random.Generator) -> Pasted:
    """Draw size and place of a cut-out, and scale it."""
    # The longer side gets a length drawn uniformly from the whole numbers in ``[scale[0] * size, scale[1] * size]``
    # (the nearest to its middle where there is none), the other side keeps the proportions. What is at least half
    # covered is the object; thin tips can thereby get lost, and the box is tight around what is left. The place is
    # uniform among those where all of it is inside.
    low, high = math.ceil(scale[0] * size - 1e-9), math.floor(scale[1] * size + 1e-9)
    if low > high:
        low = high = max(1, round((scale[0] + scale[1]) / 2 * size))
    longest = int(rng.integers(low, high + 1))
    factor = longest / max(cutout.size)
    new_size = (max(1, round(cutout.width * factor)), max(1, round(cutout.height * factor)))
    rgba = np.asarray(cutout.resize(new_size, Image.Resampling.BILINEAR).convert("RGBA"))
    alpha = rgba[..., 3]
    # Half of the highest cover, not of 255: an object of thin lines alone would otherwise vanish.
    mask = alpha >= (int(alpha.max()) + 1) // 2
    pixels, mask = cut_out(rgba[..., :3], mask)
    row = int(rng.integers(0, size - mask.shape[0] + 1))
    col = int(rng.integers(0, size - mask.shape[1] + 1))
    return Pasted(pixels, mask, row, col)


def cut_out(pixels: np.ndarray, mask: np.ndarray) -> Cutout:
    """Crop an object to its mask."""
    row0, col0, row1, col1 = tight_box(mask)
    box = slice(row0, row1), slice(col0, col1)
    return Cutout(np.ascontiguousarray(pixels[box]), np.ascontiguousarray(mask[box]))


def tight_box(mask: np.ndarray) -> Box:
    """Return the box around a mask."""
    rows, cols = np.flatnonzero(mask.any(1)), np.flatnonzero(mask.any(0))
    return int(rows[0]), int(cols[0]), int(rows[-1]) + 1, int(cols[-1]) + 1


class MixedScenes(SceneSource):
    """Scenes blended with scenes of other classes, so that an object which goes with a scene helps to tell it.

    If scenes are always recognised, no classifier needs a common feature, and its importance cannot fall as it
    becomes more common. Each scene of `others` is blended into one scene only: where a split parts the scenes, their
    admixtures are parted too.

    Parameters
    ----------
    scenes : SceneSource
        Scenes to recognise, with as many scenes in each class.
    others : SceneSource
        Other scenes of the same classes, at least as many of each, of the same sizes.
    share : (float, float)
        Limits of the share of the other scene, each in [0, 0.5): less than half, so that the label stays right.
    seed : int
        Random seed of the classes and the shares.

    Raises
    ------
    ValueError
        If classes or numbers of the two sources differ, there is only one class, or `share` is out of its range.
        On access to a scene: if the two have different sizes.

    Examples
    --------
    >>> from quantus_concepts.datasets import MixedScenes, PaintedScenes
    >>> scenes = PaintedScenes(n_per_class=2, size=32, seed=0)
    >>> others = PaintedScenes(n_per_class=2, size=32, seed=1)
    >>> mixed = MixedScenes(scenes, others, share=(0.3, 0.4))
    >>> len(mixed), mixed[0].shape
    (20, (32, 32, 3))
    >>> (mixed.labels == scenes.labels).all().item()
    True
    """

    def __init__(
        self, scenes: SceneSource, others: SceneSource, share: tuple[float, float] = (0.2, 0.4), seed: int = 0
    ) -> None:
        check_image_source("scenes", scenes)
        check_image_source("others", others)
        if not 0 <= share[0] <= share[1] < 0.5:
            raise ValueError(
                f"Expected argument `share` to be (low, high) with 0 <= low <= high < 0.5 but got {share}."
            )
        n_classes = len(scenes.class_names)
        counts, available = (np.bincount(source.labels, minlength=n_classes) for source in (scenes, others))
        if others.class_names != scenes.class_names or n_classes < 2 or (counts != counts[0]).any():
            raise ValueError(
                "Expected arguments `scenes` and `others` to have the same two classes or more, with as many scenes in "
                f"each, but got {dict(zip(scenes.class_names, counts.tolist(), strict=True))} and {others.class_names}."
            )
        if (available < counts).any():
            raise ValueError(
                f"Expected argument `others` to have {counts[0]} scenes of each class, as `scenes`, but got "
                f"{available.min()} of one."
            )
        self.scenes, self.others, self.share, self.seed = scenes, others, share, seed
        self.class_names, self.labels = scenes.class_names, scenes.labels
        members, partners = (
            [np.flatnonzero(source.labels == k) for k in range(n_classes)] for source in (scenes, others)
        )
        # Number r of each class is blended with number r of the class so many further on: no scene twice.
        further = np.random.default_rng([seed, _MIXING_STREAM]).integers(1, n_classes, counts[0])
        self._partner = np.empty(len(self.labels), dtype=np.int64)
        for label in range(n_classes):
            for number, shift in enumerate(further):
                self._partner[members[label][number]] = partners[(label + shift) % n_classes][number]

    def __getitem__(self, index: int) -> np.ndarray:
        """Return one scene."""
        index = check_index(index, len(self))
        scene, other = self.scenes[index], self.others[int(self._partner[index])]
        if scene.shape != other.shape:
            raise ValueError(f"Expected scenes of one size but got {scene.shape} and {other.shape}.")
        share = np.random.default_rng([self.seed, _MIXING_STREAM, index]).uniform(*self.share)
        return np.rint((1 - share) * scene + share * other).astype(np.uint8)
