"""Patches that a model does not see, made by gradient descent."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from captum_concepts.support.checks import check_finite, check_module, check_range, check_shape, check_whole, to_masks
from captum_concepts.support.running import evaluation_mode, progress, tensor_output, to_host, to_model
from captum_concepts.texts import in_one_line
from quantus_concepts.functional.arguments import Numbers, as_tensor
from quantus_concepts.functional.attribution.patch_objective import patch_objective
from quantus_concepts.metrics.host.checks import check_outputs, join_numbers

#: Step size and weight of the patch's size in the authors' release.
STEP_SIZE, ETA1 = 500.0, 0.01
#: The release works on pixels of 0 to 255; its step size and weights are meant for these.
LEVELS = 255.0
#: Images of a chunk times their pixels, on a CPU: what small networks' activations keep in the cache. Measured best on
#: two cores with chunks of 4 to 64 images.
CACHED_PIXELS = 64 * 64 * 64
CHUNK_ON_ACCELERATOR = 64
#: Part of the tolerance at which a patch may stop: rounding must not carry its distance back over the rest.
MARGIN = 0.999


@in_one_line
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
    images: Numbers,
    masks: Numbers,
    init: Numbers,
    *,
    preprocess: Callable[[Tensor], Tensor] | None = None,
    pixel_range: tuple[float, float] = (0.0, 1.0),
    steps: int = 300,
    step_size: float | None = None,
    eta1: float = ETA1,
    eta2: float = 0.01,
    squared: bool = False,
    tolerance: float = 0.05,
    early_stop: bool = True,
    chunk_size: int | None = None,
    display_progressbar: bool | None = None,
) -> PatchResult:
    """Change an object inside each mask until the model's logits are those of the image without it.

    Gradient descent on `quantus_concepts.functional.patch_objective`: Yang and Kim (2019), "BIM", Section 4.3 and
    Appendix A, as released. It starts from the object, d_0 = (init - x) inside the mask, and d is multiplied by the
    mask after every step. All images of a chunk are optimised together, each for itself, on the model's device. At
    the end pixels out of range are clipped to it (the release leaves them), and the result is measured after that.

    A patch is done as soon as it has converged: with its pixels clipped, the predicted class is that of the image
    without it, and the logits are no further apart than `tolerance`. It then leaves the batch, and the run ends when
    all have. The release takes all its steps with every patch, which makes those that have converged larger, not
    less visible to the model (``early_stop=False``).

    A step is a forward and a backward pass. On one core of a CPU, 300 steps take about a minute an image with a
    ResNet-18 at 224 px, and half a second with the small network of the benchmark at 64 px (a quarter at 32 px); less
    where patches converge.
    If that is too long, take fewer images rather than fewer steps; where few patches converge, a smaller
    `step_size` or `eta1` does more than more steps.

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
        Steps of gradient descent; the release takes 300.
    step_size : float, optional
        On pixels of 0 to 255, for every `pixel_range`; None for the release's 500, which suits norms that are
        not squared and networks like ResNet-50. If few patches converge, take smaller steps.
    eta1 : float
        Weight of the patch's size. In small networks the logits hardly change with a pixel: there, less than the
        release's 0.01 lets more patches converge.
    eta2 : float
        Weight of pixels out of range.
    squared : bool
        Whether the norms of the objective are squared, as the paper prints them; needs a `step_size`.
    tolerance : float
        Logit distance, as a share of ||f(x)||, up to which a patch has converged.
    early_stop : bool
        Whether a patch that has converged is left as it is, or takes all steps as in the release.
    chunk_size : int, optional
        Images optimised together; None for as many as suit the device. No result depends on it but by rounding.
    display_progressbar : bool, optional
        Whether to show progress; None for once it takes longer than two seconds.

    Returns
    -------
    PatchResult
        On the model's device, in its precision.

    Raises
    ------
    TypeError
        If an argument is of the wrong kind.
    ValueError
        If a shape is wrong, values are not finite or contradict `pixel_range`, a mask is empty, or an argument is
        out of its range.
    """
    check_module("model", model)
    numbers = {"steps": steps, "step_size": step_size, "eta1": eta1, "eta2": eta2}
    check_settings(pixel_range, squared, **numbers, tolerance=tolerance, chunk_size=chunk_size)
    x, inside, start = _checked_tensors(images, masks, init, pixel_range)
    step_size = STEP_SIZE if step_size is None else step_size
    if chunk_size is None:
        on_cpu = to_model(model, x[:0]).device.type == "cpu"
        chunk_size = max(1, CACHED_PIXELS // (x.shape[2] * x.shape[3])) if on_cpu else CHUNK_ON_ACCELERATOR
    low, high = pixel_range
    scale = (high - low) / LEVELS
    descent = _Descent(steps, step_size, eta1, eta2, squared, tolerance if early_stop else None)

    def logits_of(pixels: Tensor) -> Tensor:
        images = low + pixels * scale
        outputs = model(images if preprocess is None else preprocess(images))
        return check_outputs(tensor_output(outputs), len(images))

    results = []
    show, delay = display_progressbar is not False, 0 if display_progressbar else 2
    bar = progress(description="optimising patches", show=show, total=len(x) * steps, unit="step", delay=delay)
    # Metrics may be called from within inference mode.
    with evaluation_mode(model), torch.inference_mode(False), torch.enable_grad(), bar as shown_progress:
        for first in range(0, len(x), chunk_size):
            rows = slice(first, first + chunk_size)
            originals, region, target = (to_model(model, part[rows]).clone() for part in (x, inside, start))
            pixels, target = (originals - low) / scale, (target - low) / scale
            delta = _descend(logits_of, pixels, (target - pixels) * region, region, descent, shown_progress)
            result = _measure(logits_of, pixels, delta, region, tolerance)
            # Outside the masks to the bit: there and back again would round.
            results.append(result._replace(images=torch.where(region.bool(), low + result.images * scale, originals)))
    return PatchResult(*(torch.cat(parts) for parts in zip(*results, strict=True)))


class _Descent(NamedTuple):
    """Settings of the descent; without a tolerance all steps are taken."""

    steps: int
    step_size: float
    eta1: float
    eta2: float
    squared: bool
    tolerance: float | None


def _descend(
    logits_of: Callable[[Tensor], Tensor],
    pixels: Tensor,
    delta: Tensor,
    region: Tensor,
    settings: _Descent,
    bar: Any,
) -> Tensor:
    """Return the patches of a chunk; one that has converged is set aside, and the others go on without it."""
    with torch.no_grad():
        logits = logits_of(pixels)
    patches = delta.clone()
    rows = torch.arange(len(delta), device=delta.device)
    for step in range(settings.steps):
        delta = delta.requires_grad_()
        patched = logits_of(pixels + delta)
        going: Any = slice(None)
        if settings.tolerance is not None:
            converged = _find_overlooked(logits_of, pixels, delta.detach(), region, logits, patched, settings.tolerance)
            if converged.any():
                # Indices, since the size of a mask on the device would need a synchronisation.
                done, going = (mask.nonzero()[:, 0].to(delta.device) for mask in (converged, ~converged))
                patches[rows[done]] = delta.detach()[done]
                bar.update(len(done) * (settings.steps - step))
                if not len(going):
                    return patches
        parts = patched[going], logits[going], pixels[going], delta[going]
        objective = patch_objective(*parts, (0.0, LEVELS), settings.eta1, settings.eta2, settings.squared)
        # Images are independent of each other, so the gradient of the sum holds that of each.
        (gradient,) = torch.autograd.grad(objective.sum(), delta)
        moved = ((delta.detach() - settings.step_size * gradient) * region).detach()
        rows, pixels, region, logits, delta = (part[going] for part in (rows, pixels, region, logits, moved))
        bar.update(len(rows))
    patches[rows] = delta
    return patches


@torch.no_grad()
def _find_overlooked(
    logits_of: Callable[[Tensor], Tensor],
    pixels: Tensor,
    delta: Tensor,
    region: Tensor,
    logits: Tensor,
    patched: Tensor,
    tolerance: float,
) -> Tensor:
    """Return (n,) of bool, on the CPU: which patches have converged; `patched` are the logits without clipping."""
    (converged,) = to_host(_is_overlooked(logits, patched, MARGIN * tolerance))
    if converged.any():
        # Judge the patch with its pixels clipped to the valid range.
        near = converged.nonzero()[:, 0].to(pixels.device)
        clipped = _clip_pixels(pixels[near], delta[near], region[near])
        (converged[converged.clone()],) = to_host(_is_overlooked(logits[near], logits_of(clipped), MARGIN * tolerance))
    return converged


def _is_overlooked(before: Tensor, after: Tensor, tolerance: float) -> Tensor:
    """Return (n,) of bool: whether the class is the same, and the distance within the tolerance."""
    distance = torch.linalg.vector_norm(after - before, dim=1) / torch.linalg.vector_norm(before, dim=1)
    return (before.argmax(1) == after.argmax(1)) & (distance <= tolerance)


def _clip_pixels(pixels: Tensor, delta: Tensor, region: Tensor) -> Tensor:
    """Return images of 0 to 255 with their patches; one that diverged is black."""
    return torch.where(region.bool(), (pixels + delta).nan_to_num(nan=0.0).clamp(0, LEVELS), pixels)


@torch.no_grad()
def _measure(
    logits_of: Callable[[Tensor], Tensor],
    pixels: Tensor,
    delta: Tensor,
    region: Tensor,
    tolerance: float,
) -> PatchResult:
    """Clip the patches and compare the logits with and without them; images are of 0 to 255 here."""
    patched = _clip_pixels(pixels, delta, region)
    before, after = logits_of(pixels), logits_of(patched)
    distance = torch.linalg.vector_norm(after - before, dim=1)
    relative = distance / torch.linalg.vector_norm(before, dim=1)
    size = torch.linalg.vector_norm((patched - pixels).flatten(1), dim=1)
    return PatchResult(patched, distance, relative, size, _is_overlooked(before, after, tolerance))


def _checked_tensors(
    images: Numbers, masks: Numbers, init: Numbers, pixel_range: tuple[float, float]
) -> tuple[Tensor, Tensor, Tensor]:
    """Return images, masks and objects as tensors (N, ., H, W), or raise if they do not go together."""
    x, start = to_host(as_tensor("images", images).detach(), as_tensor("init", init).detach())
    check_shape("images", x, ("N", "C", "H", "W"), (None,) * 4)
    start = start.expand(len(x), *start.shape) if start.ndim == 3 else start
    check_shape("init", start, ("N", "C", "H", "W"), tuple(x.shape))
    regions = torch.from_numpy(to_masks("masks", masks))
    check_shape("masks", regions, ("N", "1", "H", "W"), (len(x), 1, *x.shape[2:]))
    empty = np.flatnonzero(~regions.flatten(1).any(1).numpy())
    if empty.size:
        raise ValueError(
            f"Expected argument `masks` to say where each patch goes but it is empty for image {join_numbers(empty)}."
        )
    for name, pixels in (("images", x), ("init", start)):
        check_finite(name, pixels)
        check_pixel_range(pixels, name, pixel_range)
    return x, regions, start


def check_settings(pixel_range: tuple[float, float], squared: bool, **numbers: float | None) -> None:
    """Raise if a setting of the descent is out of its range, or `squared` comes without a `step_size`."""
    if not pixel_range[0] < pixel_range[1]:
        raise ValueError(f"Expected argument `pixel_range` to be the lower end first but got {pixel_range}.")
    for name, value in numbers.items():
        if name in ("steps", "chunk_size") and value is not None:
            check_whole(name, value, 1)
        elif value is not None:
            check_range(name, value, 0, math.inf, open_low=name in ("step_size", "tolerance"), open_high=True)
    if squared and numbers["step_size"] is None:
        raise ValueError(
            "Expected argument `step_size` with squared=True but got None: the release's 500 makes squared norms "
            "diverge. Start with 1 or less."
        )


def check_pixel_range(images: Tensor, name: str, pixel_range: tuple[float, float]) -> None:
    """Raise where images are not in the range said, or so small that they are in another."""
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
