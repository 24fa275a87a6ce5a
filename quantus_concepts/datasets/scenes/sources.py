"""Where composed images come from: a source of cut-out objects and a source of scenes."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import NamedTuple

import numpy as np


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

    @abstractmethod
    def __getitem__(self, index: int) -> np.ndarray:
        """Return one scene, (h, w, 3) of uint8; the same bits every time."""
