"""Settings of the patches that `IIR` makes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from captum_concepts.support.checks import check_finite, check_normalisation, to_array, to_numpy
from captum_concepts.support.running import to_host, to_model
from captum_concepts.texts import in_one_line
from quantus_concepts.functional.arguments import Numbers, as_tensor
from quantus_concepts.metrics.contrast.checks import check_same_shape
from quantus_concepts.metrics.contrast.patch_optimisation import (
    ETA1,
    PatchResult,
    check_pixel_range,
    check_settings,
    optimise_patch,
)

#: Fields that describe the images, not the descent.
OF_IMAGES = ("init", "mean", "std")


@in_one_line
@dataclass(frozen=True, eq=False)
class Patch:
    """How `IIR` makes its patches: arguments of `optimise_patch` for images that are already normalised.

    Parameters
    ----------
    init : array_like
        (N, C, H, W) aligned with ``x_batch``, or (C, H, W) for all: images that show the object inside the mask, in the
        same units as ``x_batch``.
    mean : sequence of float, optional
        Mean of the normalisation of ``x_batch``, for each channel; undone for the range of the pixels.
    std : sequence of float, optional
        Standard deviation of the normalisation.
    pixel_range : tuple of float
        Lowest and highest value of a pixel before normalisation.
    steps, step_size, eta1, eta2, squared, tolerance, early_stop, chunk_size
        As in `optimise_patch`, which says how long it takes.

    Raises
    ------
    TypeError
        If an argument is of the wrong kind.
    ValueError
        If only one of `mean` and `std` is given, a deviation is not above 0, `init` is no image, or an argument is out
        of its range.
    """

    init: Numbers
    mean: Sequence[float] | None = None
    std: Sequence[float] | None = None
    pixel_range: tuple[float, float] = (0.0, 1.0)
    steps: int = 300
    step_size: float | None = None
    eta1: float = ETA1
    eta2: float = 0.01
    squared: bool = False
    tolerance: float = 0.05
    early_stop: bool = True
    chunk_size: int | None = None

    def __post_init__(self) -> None:
        check_normalisation(self.mean, self.std)
        settings = self._settings
        del settings["early_stop"]
        check_settings(**settings)
        check_finite("init", self.init)
        shape = np.shape(self.init)
        if len(shape) not in (3, 4):
            raise ValueError(f"Expected argument `init` to have shape (N, C, H, W) or (C, H, W) but got {shape}.")

    @property
    def _settings(self) -> dict[str, Any]:
        """The arguments of `optimise_patch` that are fields here, by name."""
        return {setting.name: getattr(self, setting.name) for setting in fields(self) if setting.name not in OF_IMAGES}

    def objects(self, x_batch: np.ndarray) -> np.ndarray:
        """Return the objects, an image for each of ``x_batch``; raise where images cannot be what the settings say.

        Parameters
        ----------
        x_batch : np.ndarray
            (N, C, H, W) normalised images.

        Returns
        -------
        np.ndarray
            (N, C, H, W).

        Raises
        ------
        ValueError
            If shapes differ, the normalisation is of another number of channels, or the images contradict
            `pixel_range`.
        """
        init = to_array("init", self.init)
        init = np.broadcast_to(init, (len(x_batch), *init.shape)) if init.ndim == 3 else init
        check_same_shape("init", init, x_batch)
        for name, images in (("x_batch", x_batch), ("init", init)):
            mean, std = self._normalisation(torch.empty(0, images.shape[1], 1, 1, dtype=torch.float64))
            # The extremes of all, and one image to see whether pixels are whole numbers.
            extremes = np.stack([images.min((0, 2, 3)), images.max((0, 2, 3))])[:, :, None, None]
            parts = (torch.as_tensor(part.astype(float)) * std + mean for part in (extremes, images[:1]))
            check_pixel_range(torch.cat([part.flatten() for part in parts]), name, self.pixel_range)
        return init

    def _normalisation(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Return mean and deviation (1, C, 1, 1) for images of C channels."""
        if self.mean is None or self.std is None:
            return x.new_zeros(1, 1, 1, 1), x.new_ones(1, 1, 1, 1)
        by_channel = []
        for name, value in (("mean", self.mean), ("std", self.std)):
            numbers = torch.as_tensor(np.atleast_1d(to_numpy(value)), dtype=x.dtype, device=x.device)
            if numbers.shape not in ((1,), (x.shape[1],)):
                raise ValueError(
                    f"Expected argument `{name}` to hold a number for each of the {x.shape[1]} channels but got "
                    f"{len(numbers)}."
                )
            by_channel.append(numbers.view(1, -1, 1, 1))
        return by_channel[0], by_channel[1]

    def make(
        self,
        model: nn.Module,
        x_batch: Numbers,
        masks: Numbers,
        init: Numbers | None = None,
        display_progressbar: bool | None = None,
    ) -> PatchResult:
        """Optimise the patches of some images.

        Parameters
        ----------
        model : nn.Module
            Classifier of normalised images.
        x_batch : array_like
            (n, C, H, W) normalised images.
        masks : array_like
            (n, 1, H, W): where the patches go.
        init : array_like, optional
            The objects of these images; `self.init` if None.
        display_progressbar : bool, optional
            As in `optimise_patch`.

        Returns
        -------
        PatchResult
            With images normalised as `x_batch` is.

        Raises
        ------
        ValueError
            As in `optimise_patch`.
        """
        # Tensors made in inference mode cannot take part in a backward pass.
        with torch.inference_mode(False):
            x = to_model(model, as_tensor("x_batch", x_batch).detach())
            start = to_model(model, as_tensor("init", self.init if init is None else init).detach())
            mean, std = self._normalisation(x)
            # Its arguments are checked on the CPU, where they are read together.
            images, objects = to_host(
                x * std + mean, start * std + mean if start.ndim == 4 else start * std[0] + mean[0]
            )
            result = optimise_patch(
                model,
                images,
                masks,
                objects,
                preprocess=lambda pixels: (pixels - mean) / std,
                display_progressbar=display_progressbar,
                **self._settings,
            )
            region = torch.as_tensor(to_numpy(masks).astype(bool), device=x.device).view(len(x), 1, *x.shape[2:])
            return result._replace(images=torch.where(region, (result.images - mean) / std, x))
