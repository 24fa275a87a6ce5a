"""Where composed images come from: a source of cut-out objects and a source of scenes."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, NamedTuple

import numpy as np

from captum_concepts._support.shown import described, one_line


class Cutout(NamedTuple):
    """One object without its background.

    Attributes
    ----------
    pixels : np.ndarray
        (h, w, 3) of uint8; what is outside the mask plays no role.
    mask : np.ndarray
        (h, w) of bool, tight: it touches all four sides.
    """

    pixels: np.ndarray
    mask: np.ndarray

    def __repr__(self) -> str:
        return one_line(self)


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
    return described(source, f"{len(source)} {of}", f"{len(source.class_names)} classes", **settings)


def check_source(argument: str, source: Any, kind: type[ObjectSource] | type[SceneSource]) -> None:
    """Raise unless a source is of a kind, and its names, labels and groups fit each other."""
    if not isinstance(source, kind):
        raise TypeError(f"Expected argument `{argument}` to be {kind.__name__} but got {type(source).__name__}.")
    names, labels = source.class_names, np.asarray(source.labels)
    if not names or len(set(names)) != len(names):
        raise ValueError(f"Expected `{argument}.class_names` to be different names, at least one, but got {names}.")
    arrays = {"labels": labels} | ({"groups": np.asarray(source.groups)} if isinstance(source, ObjectSource) else {})
    for name, array in arrays.items():
        if array.shape != (len(source),) or array.dtype.kind not in "iu":
            raise ValueError(
                f"Expected `{argument}.{name}` to be whole numbers of shape (n,) = ({len(source)},) but got "
                f"{array.dtype} of shape {array.shape}."
            )
    if labels.size and not (labels.min() >= 0 and labels.max() < len(names)):
        raise ValueError(
            f"Expected `{argument}.labels` to lie in [0, {len(names) - 1}], one number per class name, but they "
            f"lie in [{labels.min()}, {labels.max()}]."
        )
