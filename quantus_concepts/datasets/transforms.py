"""Images and the part points on them, moved together by one torchvision transform."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torchvision import transforms as v1
from torchvision import tv_tensors
from torchvision.transforms import v2
from torchvision.transforms.v2 import functional as F  # noqa: N812

from captum_concepts._support.checks import check_axes, check_choice, check_normalisation
from quantus_concepts.datasets.base import check_image_size, mask_outside

MODES = ("resize", "centre_crop")

Transform = Callable[..., Any]


def apply_transform(image: Tensor, points: Tensor, transform: Transform | None) -> tuple[Tensor, Tensor]:
    """Transform an image and move the points on it along.

    A point (x, y) lies at the centre of pixel ``image[:, y, x]``. Accurate to the pixel for every geometric
    transform of torchvision v2: where torchvision's own rules for key points mix two conventions (its flips
    count pixel centres, its scaling counts pixel edges), those of `PartPoints` are used.

    Parameters
    ----------
    image : Tensor
        (C, H, W).
    points : Tensor
        (P, Q, 2), each (x, y) in pixels of `image`; NaN where not visible.
    transform : callable, optional
        A transform of ``torchvision.transforms.v2`` or a chain of them (``v2.Compose``, ``nn.Sequential``);
        None for no change. Where there are no points at all (P = 0), any callable from image to image. Random
        transforms draw from torch's global generator, as they do everywhere.

    Returns
    -------
    image : Tensor
        (C', H', W').
    points : Tensor
        (P, Q, 2) in pixels of the new image; NaN where `points` were NaN or have left the image.

    Raises
    ------
    TypeError
        If there are points and the transform is not of torchvision v2, so that nothing is known of where it
        moves them; if it does not return a tensor.
    ValueError
        If a shape is wrong, or the transform treats image and points differently.

    Examples
    --------
    >>> import torch
    >>> from torchvision.transforms import v2
    >>> from quantus_concepts.datasets import apply_transform
    >>> points = torch.tensor([[[2.0, 1.0]]])  # x and y of one part
    >>> flip = v2.RandomHorizontalFlip(p=1)
    >>> image, moved = apply_transform(torch.zeros(3, 4, 10), points, flip)
    >>> moved.tolist()
    [[[7.0, 1.0]]]
    """
    image, points = torch.as_tensor(image), torch.as_tensor(points)
    check_axes(image=(image, "C H W"), points=(points, "P Q 2"))
    if transform is None:
        return image, mask_outside(points, points, image)
    if not points.numel():
        return _plain_image(transform(tv_tensors.Image(image))), points
    for part in _leaves(transform):
        if not isinstance(part, v2.Transform):
            raise TypeError(
                "Expected argument `transform` to consist of transforms of torchvision.transforms.v2, which "
                f"move the part points along, but got {_kind(part)}."
            )
    size = (int(image.shape[-2]), int(image.shape[-1]))
    # Half a pixel: torchvision's rules, flips apart, count from the corner of a pixel, not from its centre.
    moved = transform((tv_tensors.Image(image), PartPoints(points + 0.5, canvas_size=size)))
    new_image, new_points = _plain_image(moved[0]), moved[1]
    if not isinstance(new_points, PartPoints):
        raise TypeError(
            f"Expected argument `transform` to return the points as key points but got {_kind(new_points)}. "
            "A v2.Lambda changes points too unless it says what to act on: v2.Lambda(fn, tv_tensors.Image)."
        )
    if new_points.shape != points.shape or tuple(new_points.canvas_size) != tuple(new_image.shape[-2:]):
        raise ValueError(
            "Expected argument `transform` to treat image and points alike but the image has (H, W) = "
            f"{tuple(new_image.shape[-2:])} and the points have shape {tuple(new_points.shape)} on a canvas "
            f"of {tuple(new_points.canvas_size)}."
        )
    return new_image, mask_outside(new_points.as_subclass(Tensor) - 0.5, points, new_image)


def default_transform(
    image_size: int | Sequence[int],
    mode: str = "resize",
    mean: Sequence[float] | None = None,
    std: Sequence[float] | None = None,
) -> v2.Compose:
    """Return the usual transform of evaluation: one size for all images, then normalisation.

    Parameters
    ----------
    image_size : int or (int, int)
        Height and width in pixels, one number for a square.
    mode : str
        "resize" scales each image to the size, whatever its proportions, so that nothing is cut off;
        "centre_crop" cuts the size out of the middle without scaling (black is added where the image is
        smaller), which is what the post-hoc CBM release does with CUB at 224 pixels.
    mean : sequence of float, optional
        Mean per channel, of values in [0, 1]; None for 0.
    std : sequence of float, optional
        Deviation per channel; None for 1. With neither mean nor deviation nothing is normalised.

    Returns
    -------
    v2.Compose
        Takes images (C, H, W) of floats in [0, 1].

    Raises
    ------
    ValueError
        If an argument is not as said.

    Examples
    --------
    >>> import torch
    >>> from quantus_concepts.datasets import default_transform
    >>> transform = default_transform(8, mean=[0.5, 0.5, 0.5], std=[0.5, 0.5, 0.5])
    >>> image = transform(torch.ones(3, 20, 30))
    >>> image.shape, image.max().item()
    (torch.Size([3, 8, 8]), 1.0)
    """
    size = check_image_size(image_size)
    check_choice("mode", mode, MODES)
    steps: list[nn.Module] = [v2.Resize(size, antialias=True) if mode == "resize" else v2.CenterCrop(size)]
    if mean is not None or std is not None:
        n_channels = np.size(std if mean is None else mean)  # type: ignore[arg-type]
        mean = [0.0] * n_channels if mean is None else mean
        std = [1.0] * n_channels if std is None else std
        check_normalisation(mean, std)
        steps.append(v2.Normalize([*map(float, mean)], [*map(float, std)]))
    return v2.Compose(steps)


class PartPoints(tv_tensors.KeyPoints):
    """Key points counted from pixel edges: pixel i covers [i, i + 1), its centre is at i + 0.5."""

    # Torchvision's kernels for key points follow that convention except for the six below, which are replaced for
    # this class only; everybody else's key points are as before.


@F.register_kernel(F.horizontal_flip, PartPoints)
def _horizontal_flip(points: PartPoints, **_: Any) -> Any:
    mirrored = points.as_subclass(Tensor) * points.new_tensor([-1.0, 1.0]).as_subclass(Tensor)
    return _wrap(mirrored + torch.tensor([points.canvas_size[1], 0]), points)


@F.register_kernel(F.vertical_flip, PartPoints)
def _vertical_flip(points: PartPoints, **_: Any) -> Any:
    mirrored = points.as_subclass(Tensor) * points.new_tensor([1.0, -1.0]).as_subclass(Tensor)
    return _wrap(mirrored + torch.tensor([0, points.canvas_size[0]]), points)


@F.register_kernel(F.elastic, PartPoints)
def _elastic(points: PartPoints, displacement: Tensor, **_: Any) -> Any:
    # The displacement of a pixel is in units of half the image; torchvision truncates the point to a pixel
    # and loses its fraction.
    height, width = points.canvas_size
    plain = points.as_subclass(Tensor)
    x = plain[..., 0].nan_to_num().long().clamp(0, width - 1)
    y = plain[..., 1].nan_to_num().long().clamp(0, height - 1)
    return _wrap(plain - displacement[0, y, x].to(plain) * torch.tensor([width / 2, height / 2]), points)


@F.register_kernel(F.rotate, PartPoints)
def _rotate(points: PartPoints, angle: float, expand: bool = False, center: list[float] | None = None, **_: Any) -> Any:
    # With `expand` torchvision gives key points a canvas up to a pixel smaller than the image's, whose size
    # is therefore read off a rotated blank; the image is laid centre on centre.
    old = points.canvas_size
    moved, _canvas = F.rotate_keypoints(points.as_subclass(Tensor), old, angle, expand=False, center=center)
    if not expand:
        return _wrap(moved, points)
    blank = F.rotate_image(torch.zeros(1, *old), angle, expand=True, center=center)
    new = (int(blank.shape[-2]), int(blank.shape[-1]))
    return _wrap(moved + torch.tensor([(new[1] - old[1]) / 2, (new[0] - old[0]) / 2]), points, new)


@F.register_kernel(F.center_crop, PartPoints)
def _center_crop(points: PartPoints, output_size: list[int], **_: Any) -> Any:
    # An image smaller than the crop is padded first, where an odd pixel goes to the right; torchvision rounds
    # it to the left for key points.
    sizes = [output_size] if isinstance(output_size, int) else list(output_size)
    crop = (sizes[0], sizes[-1])
    shift = [
        (new - old) // 2 if new > old else -round((old - new) / 2.0)
        for new, old in zip(crop, points.canvas_size, strict=True)
    ]
    return _wrap(points.as_subclass(Tensor) + torch.tensor([shift[1], shift[0]]), points, crop)


@F.register_kernel(F.pad, PartPoints)
def _pad(points: PartPoints, padding: list[int], **_: Any) -> Any:
    # Torchvision refuses all modes but "constant", since a mirror repeats the point; the original stays.
    moved, canvas = F.pad_keypoints(points.as_subclass(Tensor), points.canvas_size, padding)
    return _wrap(moved, points, canvas)


def _as_key_points(function: Callable[..., Any]) -> Callable[..., PartPoints]:
    def kernel(points: PartPoints, *args: Any, **kwargs: Any) -> PartPoints:
        plain = tv_tensors.KeyPoints(points.as_subclass(Tensor), canvas_size=points.canvas_size)
        moved = function(plain, *args, **kwargs)
        return _wrap(moved.as_subclass(Tensor), points, moved.canvas_size)

    return kernel


# The rest moves them as it moves all key points, but older versions of torchvision return the plain class.
for _function in (F.resize, F.crop, F.resized_crop, F.affine, F.perspective):
    F.register_kernel(_function, PartPoints)(_as_key_points(_function))


def _wrap(moved: Tensor, like: PartPoints, canvas_size: tuple[int, int] | None = None) -> Any:
    return PartPoints(moved, canvas_size=canvas_size or like.canvas_size)


def _plain_image(image: Any) -> Tensor:
    if not isinstance(image, Tensor) or image.ndim != 3:
        kind = f"shape {tuple(image.shape)}" if isinstance(image, Tensor) else _kind(image)
        raise TypeError(f"Expected argument `transform` to return an image tensor (C, H, W) but got {kind}.")
    return image.as_subclass(Tensor)


def _leaves(transform: Any) -> Iterator[Any]:
    """Yield the single steps of nested chains; `v2.RandomApply` and its like hold theirs in `transforms`."""
    steps = None
    if isinstance(transform, nn.Sequential):
        steps = list(transform)
    elif isinstance(transform, v2.Transform | v1.Compose):
        steps = getattr(transform, "transforms", None)
    if not isinstance(steps, Sequence | nn.ModuleList):
        yield transform
        return
    for step in steps:
        yield from _leaves(step)


def _kind(value: Any) -> str:
    return f"{type(value).__module__}.{type(value).__qualname__}"
