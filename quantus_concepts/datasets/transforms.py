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

from captum_concepts.support.checks import check_axes, check_choice, check_normalisation
from quantus_concepts.datasets.base import check_image_size, mask_outside

MODES = ("resize", "centre_crop")

Transform = Callable[..., Any]


def apply_transform(image: Tensor, points: Tensor, transform: Transform | None) -> tuple[Tensor, Tensor]:
    """Transform an image and move the points on it along.

    A point (x, y) lies at the centre of pixel ``image[:, y, x]``. Accurate to the pixel for every geometric
    transform of torchvision v2.

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
    # Half a pixel: they are counted from the corner of a pixel, not from its centre.
    moved = transform((tv_tensors.Image(image), PartPoints(points + 0.5, canvas_size=size)))
    new_image, new_points = _plain_image(moved[0]), moved[1]
    if not isinstance(new_points, PartPoints):
        raise TypeError(
            f"Expected argument `transform` to return the points as they are passed but got {_kind(new_points)}. "
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


class PartPoints(tv_tensors.TVTensor):
    """Points counted from pixel edges: pixel i covers [i, i + 1), its centre is at i + 0.5."""

    # Torchvision's own key points, which 0.23 brought, count flips from centres, and were moved back to the border of
    # the image that they had left, where they would count as seen.
    canvas_size: tuple[int, int]

    def __new__(cls, points: Tensor, canvas_size: tuple[int, int]) -> PartPoints:
        """Wrap points (..., 2) on an image of (H, W)."""
        made: PartPoints = points.as_subclass(Tensor).as_subclass(cls)
        made.canvas_size = canvas_size
        return made

    def moved(self, points: Tensor, canvas_size: tuple[int, int] | None = None) -> PartPoints:
        """Return other points of the same canvas, or of another."""
        return PartPoints(points, canvas_size or self.canvas_size)

    def mapped(self, matrix: np.ndarray) -> PartPoints:
        """Return the points under a projective map (3, 3) of (x, y, 1)."""
        plain = self.as_subclass(Tensor)
        homogeneous = torch.cat([plain, torch.ones_like(plain[..., :1])], -1) @ torch.as_tensor(matrix.T).to(plain)
        return self.moved(homogeneous[..., :2] / homogeneous[..., 2:])

    def canvas_after(self, function: Callable[..., Any], *args: Any, **kwargs: Any) -> tuple[int, int]:
        """Return (H, W) of an image of this canvas after an operation."""
        height, width = function(torch.zeros(1, *self.canvas_size), *args, **kwargs).shape[-2:]
        return int(height), int(width)


@F.register_kernel(F.horizontal_flip, PartPoints)
def _horizontal_flip(points: PartPoints, **_: Any) -> PartPoints:
    mirrored = points.as_subclass(Tensor) * torch.tensor([-1.0, 1.0])
    return points.moved(mirrored + torch.tensor([points.canvas_size[1], 0]))


@F.register_kernel(F.vertical_flip, PartPoints)
def _vertical_flip(points: PartPoints, **_: Any) -> PartPoints:
    mirrored = points.as_subclass(Tensor) * torch.tensor([1.0, -1.0])
    return points.moved(mirrored + torch.tensor([0, points.canvas_size[0]]))


@F.register_kernel(F.resize, PartPoints)
def _resize(points: PartPoints, size: Any, max_size: int | None = None, **_: Any) -> PartPoints:
    height, width = points.canvas_size
    new = points.canvas_after(F.resize, size, max_size=max_size)
    return points.moved(points.as_subclass(Tensor) * torch.tensor([new[1] / width, new[0] / height]), new)


@F.register_kernel(F.crop, PartPoints)
def _crop(points: PartPoints, top: int, left: int, height: int, width: int) -> PartPoints:
    return points.moved(points.as_subclass(Tensor) - torch.tensor([left, top]), (height, width))


@F.register_kernel(F.resized_crop, PartPoints)
def _resized_crop(points: PartPoints, top: int, left: int, height: int, width: int, size: Any, **_: Any) -> PartPoints:
    return _resize(_crop(points, top, left, height, width), size)


@F.register_kernel(F.pad, PartPoints)
def _pad(points: PartPoints, padding: Any, **_: Any) -> PartPoints:
    # A mirror repeats the point; the original stays.
    sides = [padding] if isinstance(padding, int) else list(padding)
    shift = torch.tensor([sides[0], sides[0] if len(sides) == 1 else sides[1]])
    return points.moved(points.as_subclass(Tensor) + shift, points.canvas_after(F.pad, padding))


@F.register_kernel(F.center_crop, PartPoints)
def _center_crop(points: PartPoints, output_size: Any) -> PartPoints:
    # An image smaller than the crop is padded first, where an odd pixel goes to the right.
    sizes = [output_size] if isinstance(output_size, int) else list(output_size)
    crop = (sizes[0], sizes[-1])
    shift = [
        (new - old) // 2 if new > old else -round((old - new) / 2.0)
        for new, old in zip(crop, points.canvas_size, strict=True)
    ]
    return points.moved(points.as_subclass(Tensor) + torch.tensor([shift[1], shift[0]]), crop)


@F.register_kernel(F.affine, PartPoints)
def _affine(
    points: PartPoints,
    angle: float,
    translate: Sequence[float],
    scale: float,
    shear: Any,
    center: Sequence[float] | None = None,
    **_: Any,
) -> PartPoints:
    # About the centre: the shear along x, that along y, the rotation, the scale; then the shift.
    height, width = points.canvas_size
    x, y = (width / 2, height / 2) if center is None else center
    shears = [shear] if isinstance(shear, int | float) else list(shear)
    along_x, along_y = np.tan(np.radians([shears[0], shears[1] if len(shears) > 1 else 0.0]))
    turn = np.radians(angle)
    rotation = np.array([[np.cos(turn), -np.sin(turn)], [np.sin(turn), np.cos(turn)]])
    matrix = np.eye(3)
    matrix[:2, :2] = scale * rotation @ np.array([[1, 0], [-along_y, 1]]) @ np.array([[1, -along_x], [0, 1]])
    matrix[:2, 2] = np.array([x, y]) + translate - matrix[:2, :2] @ [x, y]
    return points.mapped(matrix)


@F.register_kernel(F.rotate, PartPoints)
def _rotate(
    points: PartPoints, angle: float, expand: bool = False, center: Sequence[float] | None = None, **_: Any
) -> PartPoints:
    # Counterclockwise, where the affine map is clockwise. An image that is expanded is laid centre on centre.
    turned = _affine(points, -angle, (0, 0), 1.0, 0.0, center)
    if not expand:
        return turned
    old, new = points.canvas_size, points.canvas_after(F.rotate, angle, expand=True, center=center)
    return points.moved(turned.as_subclass(Tensor) + torch.tensor([(new[1] - old[1]) / 2, (new[0] - old[0]) / 2]), new)


@F.register_kernel(F.perspective, PartPoints)
def _perspective(
    points: PartPoints, startpoints: Any, endpoints: Any, coefficients: Sequence[float] | None = None, **_: Any
) -> PartPoints:
    # The coefficients map places of the new image to those of the old one.
    if coefficients is None:
        rows = [
            row
            for (x, y), (u, v) in zip(endpoints, startpoints, strict=True)
            for row in ([x, y, 1, 0, 0, 0, -u * x, -u * y, u], [0, 0, 0, x, y, 1, -v * x, -v * y, v])
        ]
        system = np.array(rows, dtype=float)
        coefficients = np.linalg.solve(system[:, :8], system[:, 8]).tolist()
    return points.mapped(np.linalg.inv(np.append(coefficients, 1.0).reshape(3, 3)))


@F.register_kernel(F.elastic, PartPoints)
def _elastic(points: PartPoints, displacement: Tensor, **_: Any) -> PartPoints:
    # The displacement of a pixel is in units of half the image.
    height, width = points.canvas_size
    plain = points.as_subclass(Tensor)
    x = plain[..., 0].nan_to_num().long().clamp(0, width - 1)
    y = plain[..., 1].nan_to_num().long().clamp(0, height - 1)
    return points.moved(plain - displacement[0, y, x].to(plain) * torch.tensor([width / 2, height / 2]))


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
