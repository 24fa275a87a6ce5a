"""A model and the images it is explained on."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.utils.data import Dataset, IterableDataset, RandomSampler

from captum_concepts.checks import check_module, check_shape, check_whole, to_array, to_tensor
from captum_concepts.running import evaluation_mode, floating_images, predict_logits
from captum_concepts.shown import one_line
from quantus_concepts.metrics.row_buffer import RowBuffer
from quantus_concepts.metrics.truth import class_labels


@dataclass(frozen=True, eq=False)
class Subject:
    """A model, and the images and classes it is explained for; one object is explained once.

    Parameters
    ----------
    model : nn.Module
        A classifier; it stays on its device, and in its mode.
    images : array_like, callable or iterable
        (N, C, H, W) as the model takes them. Or, so that memory does not grow with their number, a function from a list
        of n rows to such images (n, C, H, W), or batches of them, or of tuples that begin with them, in the order of
        `labels`: a `torch.utils.data.DataLoader`, whose workers read while others are explained, or anything else that
        can be gone through again and again. Images of uint8 are divided by 255, and no more: what the model wants
        normalised has to come so.
    labels : array_like
        (N,) of int: the classes to find and to explain.

    Raises
    ------
    TypeError
        If `model` is no module, an array holds no numbers, or `images` can be gone through only once.
    ValueError
        If images have another rank, a loader shuffles them, labels are no classes, or there is not one for each image.
    """

    model: nn.Module
    images: Any
    labels: Any

    def __repr__(self) -> str:
        return one_line(self)

    def __post_init__(self) -> None:
        """Take arrays as tensors."""
        check_module("model", self.model)
        object.__setattr__(self, "labels", torch.as_tensor(class_labels("labels", self.labels)).long())
        if not callable(self.images) and not gives_batches("images", self.images):
            images = torch.as_tensor(to_array("images", self.images))
            check_shape("images", images, ("N", "C", "H", "W"), (None,) * 4)
            object.__setattr__(self, "images", images)
            if len(self.images) != len(self.labels):
                raise ValueError(
                    f"Expected argument `labels` to have shape (N,) = ({len(self.images)},), a class for each image, "
                    f"but got {tuple(self.labels.shape)}."
                )

    def __len__(self) -> int:
        """Return N."""
        return len(self.labels)

    def batch(self, rows: list[int]) -> Tensor:
        """Return some images in floating point.

        Parameters
        ----------
        rows : list of int
            n of 0 to N - 1.

        Returns
        -------
        Tensor
            (n, C, H, W).

        Raises
        ------
        TypeError
            If the images come in batches of their own.
        """
        if not callable(self.images) and not isinstance(self.images, Tensor):
            raise TypeError(
                "Expected argument `images` to be an array or a function of rows, of which some can be asked for, but "
                f"got {type(self.images).__name__}, which gives batches."
            )
        return floating_images(taken(self.images, rows))

    def batches(self, batch_size: int = 64) -> Iterator[tuple[list[int], Tensor]]:
        """Go through all images.

        Parameters
        ----------
        batch_size : int
            Images in a batch, where they do not come in batches of their own.

        Yields
        ------
        tuple of list and Tensor
            Rows, from 0 to N - 1 in their order, and images (n, C, H, W) in floating point.

        Raises
        ------
        ValueError
            If there are more or fewer images than labels.
        """
        check_whole("batch_size", batch_size, 1)
        if callable(self.images) or isinstance(self.images, Tensor):
            for rows in batches(len(self), batch_size):
                yield rows, self.batch(rows)
            return
        count = 0
        for batch in self.images:
            images = to_tensor("images", batch[0] if isinstance(batch, tuple | list) else batch)
            check_shape("images", images, ("n", "C", "H", "W"), (None,) * 4)
            if not len(images):
                continue
            rows = list(range(count, count + len(images)))
            count += len(images)
            self._check_count(count, count > len(self))
            yield rows, floating_images(images)
        self._check_count(count, count < len(self))

    def _check_count(self, count: int, wrong: bool) -> None:
        if wrong:
            raise ValueError(
                f"Expected argument `labels` to hold a class for each image that `images` gives, {count} so far, but "
                f"got {len(self)}."
            )

    def logits(self, batch_size: int = 64) -> Tensor:
        """Return what the model answers.

        Parameters
        ----------
        batch_size : int
            Images that are run together.

        Returns
        -------
        Tensor
            (N, K), on the CPU.
        """
        logits = RowBuffer()
        with evaluation_mode(self.model):
            for _, images in self.batches(batch_size):
                logits.add(predict_logits(self.model, images).cpu())
        return logits.rows

    def correct(self, batch_size: int = 64) -> Tensor:
        """Tell which images the model classifies correctly.

        Parameters
        ----------
        batch_size : int
            Images that are run together.

        Returns
        -------
        Tensor
            (N,) of bool.
        """
        return self.logits(batch_size).argmax(1) == self.labels


def gives_batches(name: str, images: Any) -> bool:
    """Tell whether images come in batches; raise where they come in no order, or only once."""
    if isinstance(images, list | tuple):
        # Of numbers it is an array.
        first = images[0] if len(images) else None
        first = first[0] if isinstance(first, list | tuple) and len(first) else first
        return isinstance(first, Tensor | np.ndarray) and first.ndim == 4
    # Of a data set single images come, of a generator batches only once.
    if isinstance(images, Dataset | Iterator) and not isinstance(images, IterableDataset):
        raise TypeError(
            f"Expected argument `{name}` to give batches each time it is gone through but got "
            f"{type(images).__name__}. Pass a DataLoader, or a function of rows."
        )
    if isinstance(images, Tensor | np.ndarray | str | bytes) or not isinstance(images, Iterable):
        return False
    if isinstance(getattr(images, "sampler", None), RandomSampler):
        raise ValueError(
            f"Expected argument `{name}` to give images in the order of `labels` but the loader shuffles them. Make it "
            "with shuffle=False."
        )
    return True


def taken(array: Tensor | Callable[[list[int]], Tensor], rows: list[int]) -> Tensor:
    """Return rows of a tensor, or of what a function gives for them."""
    return array(rows) if callable(array) else array[rows]


def batches(count: int, batch_size: int) -> list[list[int]]:
    """Split rows into consecutive batches."""
    check_whole("batch_size", batch_size, 1)
    return [list(range(start, min(start + batch_size, count))) for start in range(0, count, batch_size)]
