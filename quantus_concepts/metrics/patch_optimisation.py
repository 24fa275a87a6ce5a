"""Patches that a model does not see, made by gradient descent."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn
from tqdm import tqdm

from captum_concepts.checks import check_binary, check_finite, check_range, check_shape, to_numpy
from captum_concepts.running import alone_with, evaluation_mode, to_model
from quantus_concepts.functional.patch_objective import patch_objective
from quantus_concepts.metrics.masks import listed

#: Of the release: step size and weight of the patch's size.
STEP_SIZE, ETA1 = 500.0, 0.01
#: The release works on pixels of 0 to 255; its step size and weights are meant for these.
LEVELS = 255.0
#: Images of a chunk times their pixels, on a CPU: what small networks' activations keep in the cache. Measured best in
#: `benchmarks/attribution.py patch`.
CACHED_PIXELS = 64 * 64 * 64
CHUNK_ON_ACCELERATOR = 64


class PatchResult(NamedTuple):
    """Patched images and how well the model overlooks the patches.

    Attributes
    ----------
    images : Tensor
        (N, C, H, W) patched images in image space, on the model's device; equal to the originals outside the masks.
    logit_distance : Tensor
        (N,), ||f(x + d) - f(x)||.
    relative_distance : Tensor
        (N,), the same divided by ||f(x)||.
    patch_size : Tensor
        (N,), ||d||, in units of 0 to 255.
    converged : Tensor
        (N,) of bool: the predicted class is unchanged and the relative distance at most `tolerance`.
    """

    images: Tensor
    logit_distance: Tensor
    relative_distance: Tensor
    patch_size: Tensor
    converged: Tensor


def optimise_patch(
    model: nn.Module,
    images: Any,
    masks: Any,
    init: Any,
    *,
    preprocess: Callable[[Tensor], Tensor] | None = None,
    pixel_range: tuple[float, float] = (0.0, 1.0),
    steps: int = 300,
    step_size: float | None = None,
    eta1: float = ETA1,
    eta2: float = 0.01,
    squared: bool = False,
    tolerance: float = 0.05,
    chunk_size: int | None = None,
    display_progressbar: bool = False,
) -> PatchResult:
    """Change an object inside each mask until the model's logits are those of the image without it.

    Gradient descent on `quantus_concepts.functional.patch_objective`: Yang and Kim (2019), "BIM", Section 4.3 and
    Appendix A, as released. It starts from the object, d_0 = (init - x) inside the mask, and d is multiplied by the
    mask after every step. All images of a chunk are optimised together, each for itself, on the model's device. At
    the end pixels out of range are clipped to it (the release leaves them), and the result is measured after that.

    Parameters
    ----------
    model : nn.Module
        Classifier; run in eval mode and put back as it was.
    images : array_like
        (N, C, H, W) in image space, that is before `preprocess`.
    masks : array_like
        (N, 1, H, W) or (N, H, W) of 0 and 1: where the patch goes.
    init : array_like
        (N, C, H, W), or (C, H, W) for all: images that show the object inside the mask.
    preprocess : callable, optional
        From image space to what the model takes, differentiable: a normalisation, for instance. None for none.
    pixel_range : tuple of float
        Lowest and highest value of a pixel in image space.
    steps : int
        Of gradient descent; the release takes 300.
    step_size : float, optional
        On pixels of 0 to 255, whatever `pixel_range` is; None for the release's 500, which suits norms that are
        not squared and networks like ResNet-50. Where few patches converge, smaller steps do.
    eta1 : float
        Weight of the patch's size. Where the logits hardly change with a pixel (small networks), less than the
        release's 0.01 lets more patches converge.
    eta2 : float
        Weight of pixels out of range.
    squared : bool
        Whether the norms of the objective are squared, as the paper prints them; needs a `step_size`.
    tolerance : float
        Logit distance, as a share of ||f(x)||, up to which a patch has converged.
    chunk_size : int, optional
        Images optimised together; None for as many as suit the device. No result depends on it.
    display_progressbar : bool
        Whether to show progress.

    Returns
    -------
    PatchResult
        On the model's device, in its precision.

    Raises
    ------
    ValueError
        If a shape is wrong, values are not finite or contradict `pixel_range`, a mask is empty, or an argument is
        out of its range.
    """
    check_settings(pixel_range, steps, step_size, squared, tolerance, chunk_size)
    x, inside, start = _checked(images, masks, init, pixel_range)
    step_size = STEP_SIZE if step_size is None else step_size
    if chunk_size is None:
        on_cpu = to_model(model, x[:0]).device.type == "cpu"
        chunk_size = max(1, CACHED_PIXELS // (x.shape[2] * x.shape[3])) if on_cpu else CHUNK_ON_ACCELERATOR
    low, high = pixel_range
    scale = (high - low) / LEVELS

    def logits_of(pixels: Tensor) -> Tensor:
        shown = low + pixels * scale
        # Not while another thread has hooks on the model.
        with alone_with(model):
            return model(shown if preprocess is None else preprocess(shown))

    results = []
    # Metrics may be called from within inference mode.
    with evaluation_mode(model), torch.inference_mode(False), torch.enable_grad():
        bar = tqdm(total=len(x), desc="optimising patches", unit="image", disable=not display_progressbar, leave=False)
        for first in range(0, len(x), chunk_size):
            rows = slice(first, first + chunk_size)
            shown, region, target = (to_model(model, part[rows]).clone() for part in (x, inside, start))
            pixels, target = (shown - low) / scale, (target - low) / scale
            delta = _descend(
                logits_of, pixels, (target - pixels) * region, region, steps, step_size, eta1, eta2, squared
            )
            result = _measure(logits_of, pixels, delta, region, tolerance)
            # Outside the masks to the bit: there and back again would round.
            results.append(result._replace(images=torch.where(region.bool(), low + result.images * scale, shown)))
            bar.update(len(pixels))
        bar.close()
    return PatchResult(*(torch.cat(parts) for parts in zip(*results, strict=True)))


def _descend(
    logits_of: Callable[[Tensor], Tensor],
    pixels: Tensor,
    delta: Tensor,
    region: Tensor,
    steps: int,
    step_size: float,
    eta1: float,
    eta2: float,
    squared: bool,
) -> Tensor:
    with torch.no_grad():
        logits = logits_of(pixels)
    for _ in range(steps):
        delta = delta.requires_grad_()
        objective = patch_objective(
            logits_of(pixels + delta), logits, pixels, delta, (0.0, LEVELS), eta1, eta2, squared
        )
        # Images are independent of each other, so the gradient of the sum holds that of each.
        (gradient,) = torch.autograd.grad(objective.sum(), delta)
        delta = ((delta.detach() - step_size * gradient) * region).detach()
    return delta


@torch.no_grad()
def _measure(
    logits_of: Callable[[Tensor], Tensor],
    pixels: Tensor,
    delta: Tensor,
    region: Tensor,
    tolerance: float,
) -> PatchResult:
    """Clip the patches and compare the logits with and without them; images are of 0 to 255 here."""
    # One that diverged is black, and measured as such.
    patched = torch.where(region.bool(), (pixels + delta).nan_to_num(nan=0.0).clamp(0, LEVELS), pixels)
    before, after = logits_of(pixels), logits_of(patched)
    distance = torch.linalg.vector_norm(after - before, dim=1)
    relative = distance / torch.linalg.vector_norm(before, dim=1)
    converged = (before.argmax(1) == after.argmax(1)) & (relative <= tolerance)
    size = torch.linalg.vector_norm((patched - pixels).flatten(1), dim=1)
    return PatchResult(patched, distance, relative, size, converged)


def _checked(images: Any, masks: Any, init: Any, pixel_range: tuple[float, float]) -> tuple[Tensor, Tensor, Tensor]:
    x, start = as_tensor(images), as_tensor(init)
    check_shape("images", x, ("N", "C", "H", "W"), (None, None, None, None))
    if not len(x):
        raise ValueError("Expected argument `images` to hold at least one image but it is empty.")
    check_finite("images", x)
    if start.ndim == 3:
        start = start.expand(len(x), *start.shape)
    check_shape("init", start, ("N", "C", "H", "W"), tuple(x.shape))
    check_finite("init", start)
    region = to_numpy(masks)
    region = region[:, None] if region.ndim == 3 else region
    check_shape("masks", region, ("N", "1", "H", "W"), (len(x), 1, *x.shape[2:]))
    check_binary("masks", region)
    empty = np.flatnonzero(~region.reshape(len(region), -1).any(1))
    if empty.size:
        raise ValueError(
            f"Expected argument `masks` to say where each patch goes but it is empty for image {listed(empty)}."
        )
    check_pixel_range(x, "images", pixel_range)
    check_pixel_range(start, "init", pixel_range)
    return x, as_tensor(region), start


def as_tensor(value: Any) -> Tensor:
    """Return a tensor of an array, sharing its memory where torch can.

    Parameters
    ----------
    value : array_like
        Any shape.

    Returns
    -------
    Tensor
        Without gradient.
    """
    # Negative strides and arrays that cannot be written do not suit torch.
    return value.detach() if isinstance(value, Tensor) else torch.as_tensor(np.require(value, requirements=("C", "W")))


def check_settings(
    pixel_range: tuple[float, float],
    steps: int,
    step_size: float | None,
    squared: bool,
    tolerance: float,
    chunk_size: int | None,
) -> None:
    """Raise where settings of `optimise_patch` are out of range.

    Parameters
    ----------
    pixel_range : tuple of float
        Lowest and highest value of a pixel.
    steps : int
        Of gradient descent.
    step_size : float, optional
        On pixels of 0 to 255.
    squared : bool
        Whether the norms are squared.
    tolerance : float
        Relative logit distance up to which a patch has converged.
    chunk_size : int, optional
        Images optimised together.

    Raises
    ------
    ValueError
        If one is, or `squared` comes without a `step_size`.
    """
    low, high = pixel_range
    if not low < high:
        raise ValueError(f"Expected argument `pixel_range` to be (low, high) with low < high but got {pixel_range}.")
    check_range("steps", steps, 1, 1_000_000)
    check_range("tolerance", tolerance, 0, float("inf"), open_low=True)
    if step_size is not None:
        check_range("step_size", step_size, 0, float("inf"), open_low=True)
    elif squared:
        raise ValueError(
            "Expected argument `step_size` beside squared=True but got None: the release's 500 makes squared norms "
            "diverge. Start with 1 or less."
        )
    if chunk_size is not None:
        check_range("chunk_size", chunk_size, 1, 1_000_000)


def check_pixel_range(images: Tensor, name: str, pixel_range: tuple[float, float]) -> None:
    """Raise where images are not in the range said, or so small that they are in another.

    Parameters
    ----------
    images : Tensor
        In image space, any shape.
    name : str
        Of the argument, for the message.
    pixel_range : tuple of float
        Lowest and highest value of a pixel.

    Raises
    ------
    ValueError
        If values lie outside, or seem to be of [0, 1] where the range is of 0 to 255.
    """
    low, high = pixel_range
    least, most = float(images.min()), float(images.max())
    # A hair outside is rounding, of a normalisation that was undone for instance.
    slack = 1e-3 * (high - low)
    if least < low - slack or most > high + slack:
        raise ValueError(
            f"Expected argument `{name}` to lie in the pixel range [{low:g}, {high:g}] but got values from {least:.4g} "
            f"to {most:.4g}. Give images before normalisation and the normalisation as `preprocess` (in Patch: "
            "`mean` and `std`), or the range they are in as `pixel_range`."
        )
    # Dark images of 0 to 255 hold whole numbers.
    if low == 0 and high > 2 and 0 < most <= 1 and bool(((images - images.round()).abs() > 0.01).any()):
        raise ValueError(
            f"Expected argument `{name}` to use the pixel range [{low:g}, {high:g}] but its largest value is "
            f"{most:.4g}: these images seem to be in [0, 1]. Pass pixel_range=(0, 1)."
        )
