"""A model and the images it is explained on."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from captum_concepts.checks import check_module, check_shape, check_whole, to_array
from captum_concepts.running import evaluation_mode, predict_logits
from quantus_concepts.metrics.truth import class_labels


@dataclass(frozen=True, eq=False)
class Subject:
    """A model, and the images and classes it is explained for; one object is explained once.

    Parameters
    ----------
    model : nn.Module
        A classifier; it stays on its device, and in its mode.
    images : array_like or callable
        (N, C, H, W) as the model takes them, or a function from a list of n rows to such images (n, C, H, W), so that
        memory does not grow with their number. Images of uint8 are divided by 255.
    labels : array_like
        (N,) of int: the classes to find and to explain.

    Raises
    ------
    TypeError
        If `model` is no module, or an array holds no numbers.
    ValueError
        If images have another rank, labels are no classes, or there is not one for each image.
    """

    model: nn.Module
    images: Any
    labels: Any

    def __post_init__(self) -> None:
        """Take arrays as tensors."""
        check_module("model", self.model)
        object.__setattr__(self, "labels", torch.as_tensor(class_labels("labels", self.labels)).long())
        if not callable(self.images):
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
        """
        images = taken(self.images, rows)
        if images.dtype == torch.uint8:
            return images.float() / 255
        return images if images.is_floating_point() else images.float()

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
        with evaluation_mode(self.model):
            return torch.cat(
                [predict_logits(self.model, self.batch(rows)).cpu() for rows in batches(len(self), batch_size)]
            )

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


def taken(array: Tensor | Callable[[list[int]], Tensor], rows: list[int]) -> Tensor:
    """Return rows of a tensor, or of what a function gives for them."""
    return array(rows) if callable(array) else array[rows]


def batches(count: int, batch_size: int) -> list[list[int]]:
    """Split rows into consecutive batches."""
    check_whole("batch_size", batch_size, 1)
    return [list(range(start, min(start + batch_size, count))) for start in range(0, count, batch_size)]
