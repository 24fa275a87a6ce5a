"""The one interface of data sets of objects on scenes: image, two labels, mask and box."""

from __future__ import annotations

import copy
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import NamedTuple, Self

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import Dataset

from captum_concepts.support.checks import check_choice, check_index, to_numpy
from captum_concepts.texts import describe, in_one_line

#: The object on its scene, the object on grey, the scene alone.
VIEWS = ("os", "og", "0s")
GREY = 128
NO_BOX = (-1, -1, -1, -1)

Box = tuple[int, int, int, int]
Indices = Sequence[int] | np.ndarray | Tensor


@in_one_line
class ComposedSample(NamedTuple):
    """One image of an object on a scene.

    The labels, the mask and the box are those of the object and the scene that belong together, whichever of the
    two the image shows: the same mask serves the image with the object and the one without.

    Attributes
    ----------
    image : Tensor
        (3, H, W), float32 in [0, 1] unless a transform of the user made something else of it.
    object_label : int
        Class of the object, from 0; -1 where there is none in any view.
    scene_label : int
        Class of the scene, from 0.
    mask : Tensor
        (1, H, W) of bool: the pixels of the object, or those it would have.
    box : Tensor
        (4,) of int64: row0, col0, row1, col1 of the object in pixels, the ends exclusive; -1 without an object.
    """

    image: Tensor
    object_label: int
    scene_label: int
    mask: Tensor
    box: Tensor


class ComposedDataset(Dataset[ComposedSample], ABC):
    """Images of objects on scenes, in one of three views.

    The views are those of Yang and Kim: "os" shows the object on the scene (X_os), "og" the object on grey 128
    (X_og), "0s" the scene alone (X_0s). The same index is the same object, scene, size and place in all of them.

    Attributes
    ----------
    object_names, scene_names : list of str
        Names of the classes.
    object_labels : Tensor
        (N,) of int64, -1 for none; the same in all views.
    scene_labels : Tensor
        (N,) of int64.
    view : str
        "os", "og" or "0s".
    split : str
        "train" or "test".
    image_size : int
        Height and width H = W in pixels.
    transform : callable or None
        From image (3, H, W) to image.

    Examples
    --------
    >>> from quantus_concepts.datasets import ComposedDataset, ObjectsOnScenes
    >>> from quantus_concepts.datasets import PaintedObjects, PaintedScenes
    >>> sources = PaintedObjects(n_per_class=4, size=24), PaintedScenes(n_per_class=4, size=32)
    >>> data = ObjectsOnScenes(*sources, n_per_pair=1, image_size=32)
    >>> isinstance(data, ComposedDataset), data.view
    (True, 'os')
    >>> data.object_labels.shape, data.scene_labels.shape
    (torch.Size([100]), torch.Size([100]))
    """

    object_names: list[str]
    scene_names: list[str]
    object_labels: Tensor
    scene_labels: Tensor
    view: str
    split: str
    image_size: int
    transform: Callable[[Tensor], Tensor] | None

    def __len__(self) -> int:
        return len(self.object_labels)

    def __repr__(self) -> str:
        facts = (f"{len(self)} images of {self.image_size} px", f"{len(self.object_names)} objects")
        settings = {name: getattr(self, name, None) for name in ("view", "split", "root", "commonality", "seed")}
        return describe(self, *facts, f"{len(self.scene_names)} scenes", **settings)

    def __getitem__(self, index: int) -> ComposedSample:
        """Return one sample."""
        position = check_index(index, len(self), "images")
        pixels, mask, box = self._parts(position)
        image = torch.from_numpy(pixels).permute(2, 0, 1).contiguous().float().div_(255)
        if self.transform is not None:
            image = self.transform(image)
            if not isinstance(image, Tensor) or tuple(image.shape[-2:]) != mask.shape:
                kind = f"shape {tuple(image.shape)}" if isinstance(image, Tensor) else type(image).__name__
                raise ValueError(
                    f"Expected argument `transform` to return a tensor (C, H, W) = (C, {mask.shape[0]}, "
                    f"{mask.shape[1]}), since the mask does not move along, but got {kind}. Sizes are set with "
                    "`image_size`."
                )
        return ComposedSample(
            image,
            int(self.object_labels[position]),
            int(self.scene_labels[position]),
            torch.from_numpy(mask).unsqueeze(0),
            torch.tensor(box),
        )

    def images(self, indices: Indices | None = None) -> Tensor:
        """Return a batch of images, without `transform`.

        Parameters
        ----------
        indices : sequence of int, optional
            Which n; None for all N.

        Returns
        -------
        Tensor
            (n, 3, H, W) of uint8.

        Raises
        ------
        IndexError
            If an index is past the end.
        """
        positions = self._positions(indices)
        pixels = np.empty((len(positions), self.image_size, self.image_size, 3), dtype=np.uint8)
        for row, position in enumerate(positions):
            pixels[row] = self._image(position)
        return torch.from_numpy(pixels).permute(0, 3, 1, 2).contiguous()

    def masks(self, indices: Indices | None = None) -> Tensor:
        """Return a batch of masks.

        Parameters
        ----------
        indices : sequence of int, optional
            Which n; None for all N.

        Returns
        -------
        Tensor
            (n, 1, H, W) of bool.

        Raises
        ------
        IndexError
            If an index is past the end.
        """
        positions = self._positions(indices)
        masks = np.empty((len(positions), 1, self.image_size, self.image_size), dtype=bool)
        for row, position in enumerate(positions):
            masks[row, 0] = self._mask_and_box(position)[0]
        return torch.from_numpy(masks)

    def boxes(self, indices: Indices | None = None) -> Tensor:
        """Return a batch of boxes.

        Parameters
        ----------
        indices : sequence of int, optional
            Which n; None for all N.

        Returns
        -------
        Tensor
            (n, 4) of int64: row0, col0, row1, col1, the ends exclusive; -1 without an object.

        Raises
        ------
        IndexError
            If an index is past the end.
        """
        positions = self._positions(indices)
        return torch.tensor([self._mask_and_box(position)[1] for position in positions]).reshape(-1, 4).long()

    def with_view(self, view: str) -> Self:
        """Return the same data set in another view.

        Parameters
        ----------
        view : str
            "os", "og" or "0s".

        Returns
        -------
        ComposedDataset
            With the same object, scene, size and place at each index, and the same transform.

        Raises
        ------
        ValueError
            If there is no such view.
        """
        check_choice("view", view, VIEWS)
        other = copy.copy(self)
        other.view = view
        return other

    def _positions(self, indices: Indices | None) -> list[int]:
        if indices is None:
            return list(range(len(self)))
        return [check_index(index, len(self), "images") for index in to_numpy(indices)]

    @abstractmethod
    def _image(self, index: int) -> np.ndarray:
        """Return (H, W, 3) of uint8 in the present view."""

    @abstractmethod
    def _mask_and_box(self, index: int) -> tuple[np.ndarray, Box]:
        """Return (H, W) of bool, and row0, col0, row1, col1."""

    def _parts(self, index: int) -> tuple[np.ndarray, np.ndarray, Box]:
        return self._image(index), *self._mask_and_box(index)
