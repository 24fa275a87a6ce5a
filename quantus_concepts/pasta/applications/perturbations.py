"""The twelve perturbations under which explanations were rated for change, each with the release's magnitude."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from types import MappingProxyType

import numpy as np
import torch
from numpy.typing import ArrayLike
from torch import Tensor
from torchvision.transforms.v2 import functional as transforms

from captum_concepts.support.checks import as_list, check_choice, check_range, check_shape
from captum_concepts.texts import in_one_line
from quantus_concepts.pasta.encoders.encoder import check_unit_images

#: The release's seed where it fixes one.
SEED = 493
#: At which the release perturbs without changing the prediction.
LIGHT = 1.0
#: Ours: the release goes on until the prediction changes.
STRONG = 5.0
LARGEST = 1000.0
_KERNEL = 15
_TRIES = 10
_RATIOS = 3 / 4, 4 / 3
_MOST_PATCHES = 32

Change = Callable[[Tensor, float, Tensor], Tensor]


@in_one_line
@dataclass(frozen=True)
class Perturbation:
    """A perturbation of images.

    Parameters
    ----------
    name : str
        Its name in `PERTURBATIONS`.
    function : callable
        ``function(images, magnitude, draws)``: images (N, 3, H, W) in [0, 1], a magnitude of at least 0, and draws
        (N, `n_draws`), float64 in [0, 1) on the CPU, from which each image takes what it needs by chance;
        returns the images changed.
    meaning : str
        Meaning of the magnitude.
    light : float
        Magnitude of a light perturbation (Q5).
    strong : float
        Magnitude of a strong perturbation (Q6).
    n_draws : int
        Random numbers that each image needs; 0 where nothing is left to chance.
    """

    name: str
    function: Change
    meaning: str
    light: float = LIGHT
    strong: float = STRONG
    n_draws: int = 0

    def draws(self, n: int, seed: int = SEED) -> Tensor:
        """Return the random numbers of n images; those of an image do not depend on how many follow it.

        Parameters
        ----------
        n : int
            Images.
        seed : int
            Random seed of the draw, not negative; every perturbation has its own stream.

        Returns
        -------
        Tensor
            (n, `n_draws`), float64, in [0, 1), on the CPU.
        """
        generator = np.random.default_rng([seed, *self.name.encode()])
        return torch.from_numpy(generator.random((n, self.n_draws)))

    def __call__(
        self, images: Tensor | ArrayLike, magnitude: float, seed: int = SEED, draws: Tensor | None = None
    ) -> Tensor:
        """Perturb images (N, 3, H, W) as `perturb` does; `draws` replace those of the seed."""
        images = torch.as_tensor(images)
        check_unit_images(images)
        check_range("magnitude", magnitude, 0, LARGEST)
        if draws is None:
            draws = self.draws(len(images), seed)
        check_shape("draws", draws, ("N", "n_draws"), (len(images), self.n_draws))
        if not len(images):
            return images.clone()
        with torch.no_grad():
            changed = self.function(images, float(magnitude), draws)
            return changed.clamp(0, 1)


def as_perturbations(chosen: Iterable[str | Perturbation] | None = None) -> tuple[Perturbation, ...]:
    """Return perturbations by name, or as they are."""
    if chosen is None:
        return tuple(PERTURBATIONS.values())
    perturbations = []
    for perturbation in as_list("perturbations", chosen, "perturbations"):
        if isinstance(perturbation, str):
            check_choice("perturbations", perturbation, PERTURBATIONS)
            perturbations.append(PERTURBATIONS[perturbation])
        else:
            perturbations.append(perturbation)
    names = [perturbation.name for perturbation in perturbations]
    if not names or len(set(names)) < len(names):
        raise ValueError(f"Expected argument `perturbations` to hold at least one, each once, but got {names}.")
    return tuple(perturbations)


def _blend(images: Tensor, changed: Tensor, share: Tensor) -> Tensor:
    """Mix images with changed ones; `share` (N, 1) is that of the image itself."""
    share = share.to(images)[:, :, None, None]
    return images * share + changed * (1 - share)


def _factors(magnitude: float, draws: Tensor) -> Tensor:
    """Return factors drawn uniformly from [1 - tanh(m / 2), 1 + tanh(m / 2)]."""
    return 1 + math.tanh(0.5 * magnitude) * (2 * draws - 1)


def _brightness_jitter(images: Tensor, magnitude: float, draws: Tensor) -> Tensor:
    # torchvision takes one factor for all images; its own result for the factor 0 makes room for one for each.
    return _blend(images, transforms.adjust_brightness(images, 0.0), _factors(magnitude, draws))


def _contrast_jitter(images: Tensor, magnitude: float, draws: Tensor) -> Tensor:
    return _blend(images, transforms.adjust_contrast(images, 0.0), _factors(magnitude, draws))


def _resized_crop(images: Tensor, magnitude: float, draws: Tensor) -> Tensor:
    height, width = images.shape[-2:]
    windows = [_window(height, width, 1 - math.tanh(0.3 * magnitude), row) for row in draws.tolist()]
    return torch.cat(
        [
            transforms.resized_crop(image, *window, [height, width], antialias=True)
            for image, window in zip(images.split(1), windows, strict=True)
        ]
    )


def _window(height: int, width: int, scale: float, draws: list[float]) -> tuple[int, int, int, int]:
    """Return top, left, height and width of a window of a share of the area, as torchvision's RandomResizedCrop."""
    area, (low, high) = scale * height * width, map(math.log, _RATIOS)
    for draw in draws[:_TRIES]:
        ratio = math.exp(low + draw * (high - low))
        tall, wide = round(math.sqrt(area / ratio)), round(math.sqrt(area * ratio))
        if 0 < wide <= width and 0 < tall <= height:
            top, left = (
                int(u * (free + 1)) for u, free in zip(draws[_TRIES:], (height - tall, width - wide), strict=True)
            )
            return top, left, tall, wide
    tall, wide = height, width
    if width / height < _RATIOS[0]:
        tall = round(width / _RATIOS[0])
    elif width / height > _RATIOS[1]:
        wide = round(height * _RATIOS[1])
    return (height - tall) // 2, (width - wide) // 2, tall, wide


def _blur(images: Tensor, magnitude: float, draws: Tensor) -> Tensor:
    sigma = 2 * (magnitude + 1e-5)
    # Mirrored padding must be smaller than the image. One axis after the other is the same and costs a fraction.
    rows, columns = (2 * min(_KERNEL // 2, side - 1) + 1 for side in images.shape[-2:])
    for kernel in ([columns, 1], [1, rows]):
        images = transforms.gaussian_blur(images, kernel, [sigma, sigma])
    return images


def _perspective(images: Tensor, magnitude: float, draws: Tensor) -> Tensor:
    height, width = images.shape[-2:]
    corners = np.array([[0, 0], [width - 1, 0], [width - 1, height - 1], [0, height - 1]])
    inwards = np.array([[1, 1], [-1, 1], [-1, -1], [1, -1]])
    # Whole pixels, at most the half of a side, as torchvision's RandomPerspective draws them.
    most = (min(1.0, 0.5 * magnitude) * np.array([width // 2, height // 2])).astype(int)
    moved = corners + inwards * (draws.numpy().reshape(-1, 4, 2) * (most + 1)).astype(int)
    return torch.cat(
        [
            transforms.perspective(image, corners.tolist(), ends.tolist(), fill=0)
            for image, ends in zip(images.split(1), moved, strict=True)
        ]
    )


def _brightness(images: Tensor, magnitude: float, draws: Tensor) -> Tensor:
    return transforms.adjust_brightness(images, 1 + 0.5 * magnitude)


def _colour(images: Tensor, magnitude: float, draws: Tensor) -> Tensor:
    return transforms.adjust_saturation(images, 1 + 2 * magnitude)


def _contrast(images: Tensor, magnitude: float, draws: Tensor) -> Tensor:
    return transforms.adjust_contrast(images, 1 + magnitude)


def _sharpness(images: Tensor, magnitude: float, draws: Tensor) -> Tensor:
    return transforms.adjust_sharpness(images, 1 + 5 * magnitude)


def _posterise(images: Tensor, magnitude: float, draws: Tensor) -> Tensor:
    step = 2 ** (8 - int(8 - min(8, magnitude + 1)))
    return ((images * 255).round() / step).floor() * step / 255


def _solarise(images: Tensor, magnitude: float, draws: Tensor) -> Tensor:
    threshold = 256 - min(256, 5 * magnitude)
    return torch.where((images * 255).round() >= threshold, 1 - images, images)


def _patches(images: Tensor, magnitude: float, draws: Tensor) -> Tensor:
    if magnitude >= _MOST_PATCHES + 1:
        raise ValueError(f"Expected argument `magnitude` of random patches to be at most {_MOST_PATCHES}: one each.")
    places = draws.view(len(images), _MOST_PATCHES, 2, 2)[:, : int(magnitude)]
    within = []
    for axis, length in enumerate(images.shape[-2:]):
        # Both ends count, and may lie just outside, as of the release's rectangles.
        start = (places[..., axis, 0] * (length + 1)).long()
        end = start + (places[..., axis, 1] * (length - start + 1)).long()
        pixels = torch.arange(length)
        within.append(((pixels >= start[..., None]) & (pixels <= end[..., None])).to(images))
    # How many patches cover each pixel, without a plane for each patch.
    covered = within[0].mT @ within[1] > 0
    return images.masked_fill(covered[:, None], 0)


_ALL = (
    Perturbation(
        "brightness jitter",
        _brightness_jitter,
        "brightness times a factor drawn from 1 - tanh(m/2) to 1 + tanh(m/2)",
        n_draws=1,
    ),
    Perturbation(
        "contrast jitter",
        _contrast_jitter,
        "contrast times a factor drawn from 1 - tanh(m/2) to 1 + tanh(m/2)",
        n_draws=1,
    ),
    Perturbation(
        "random resized crop",
        _resized_crop,
        "a window of 1 - tanh(0.3 m) of the area, its sides' ratio drawn from 3/4 to 4/3, at a random place, enlarged",
        n_draws=_TRIES + 2,
    ),
    Perturbation("Gaussian blur", _blur, "standard deviation of 2 m pixels, in a kernel of 15"),
    Perturbation(
        "perspective",
        _perspective,
        "every corner moves inwards by up to 0.5 m of half a side; black outside",
        n_draws=8,
    ),
    Perturbation("brightness", _brightness, "brightness times 1 + 0.5 m"),
    Perturbation("colour", _colour, "saturation times 1 + 2 m"),
    Perturbation("contrast", _contrast, "contrast times 1 + m"),
    Perturbation("sharpness", _sharpness, "sharpness 1 + 5 m, 1 being the image itself"),
    Perturbation("posterise", _posterise, "8 - min(8, m + 1) bits, rounded down, are kept of each channel"),
    Perturbation("solarise", _solarise, "levels of 256 - min(256, 5 m) and more, of 256, are inverted"),
    Perturbation(
        "random patches", _patches, "m black rectangles, rounded down, at random places", n_draws=4 * _MOST_PATCHES
    ),
)
PERTURBATIONS: Mapping[str, Perturbation] = MappingProxyType({perturbation.name: perturbation for perturbation in _ALL})
"""The twelve perturbations of Kazmierczak et al., "PASTA", Appendix A.2, by name.

Their magnitudes m are those of the released code, and so is what they leave to chance, but not its random numbers: ours
are drawn for each image, by default from the release's seed 493. The release crops and draws at 224 pixels; here images
keep their size. "posterise" keeps 7 bits at a magnitude of 0, as there; the others leave an image as it is, but for the
resampling of "random resized crop". A light perturbation has the release's magnitude of 1; it raises that of a strong
one until the prediction changes, for which 5 stands here.
"""


def perturb(images: Tensor | ArrayLike, name: str, magnitude: float, seed: int = SEED) -> Tensor:
    """Perturb images by the name of a perturbation.

    Parameters
    ----------
    images : Tensor or array_like
        (N, 3, H, W), floating, in [0, 1].
    name : str
        One of `PERTURBATIONS`.
    magnitude : float
        At least 0; the release perturbs lightly at 1.
    seed : int
        Random seed of what is left to chance.

    Returns
    -------
    Tensor
        (N, 3, H, W), in [0, 1].

    Raises
    ------
    TypeError
        If `images` are not of a floating-point dtype.
    ValueError
        If there is no such perturbation, or an argument is out of range.
    """
    check_choice("name", name, PERTURBATIONS)
    return PERTURBATIONS[name](images, magnitude, seed)
