"""The twelve perturbations under which explanations were rated for change, each with a magnitude."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from types import MappingProxyType

import numpy as np
import torch
from torch import Tensor
from torchvision.transforms.v2 import functional as transforms

from captum_concepts.checks import check_choice, check_range, check_shape, check_whole
from quantus_concepts.functional.arguments import check_floating
from quantus_concepts.pasta.denormalising import ROUNDING

# Nothing is darkened or flattened all the way: an even image has no explanation.
_FADED = 0.9
_MOST_PATCHES = 25
_PATCH = 0.15
_LARGEST_BLUR = 0.05
_SMALLEST_CROP = 0.25
_DISTORTION = 0.8

Change = Callable[[Tensor, float, Tensor], Tensor]


@dataclass(frozen=True)
class Perturbation:
    """A perturbation of images.

    Parameters
    ----------
    name : str
        Its name in `PERTURBATIONS`.
    function : callable
        ``function(images, magnitude, draws)``: images (N, 3, H, W) in [0, 1], a magnitude in (0, 1], and draws
        (N, `n_draws`), float64 in [0, 1) on the CPU, from which each image takes what it needs by chance;
        returns the images changed. A magnitude of 0 never reaches it.
    meaning : str
        What the magnitude does.
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
    light: float
    strong: float
    n_draws: int = 0

    def __post_init__(self) -> None:
        for name in ("light", "strong"):
            check_range(name, getattr(self, name), 0, 1)
        check_whole("n_draws", self.n_draws, 0)

    def draws(self, n: int, seed: int = 0) -> Tensor:
        """Return the random numbers of n images; those of an image do not depend on how many follow it.

        Parameters
        ----------
        n : int
            Images.
        seed : int
            Of the draw, not negative; every perturbation has its own stream.

        Returns
        -------
        Tensor
            (n, `n_draws`), float64, in [0, 1), on the CPU.
        """
        generator = np.random.default_rng([check_whole("seed", seed, 0), *self.name.encode()])
        return torch.from_numpy(generator.random((n, self.n_draws)))

    def __call__(self, images: Tensor, magnitude: float, seed: int = 0, draws: Tensor | None = None) -> Tensor:
        """Perturb images.

        Parameters
        ----------
        images : Tensor
            (N, 3, H, W), in [0, 1]; left as they are.
        magnitude : float
            In [0, 1]; 0 changes nothing.
        seed : int
            Of what is left to chance. No global generator is touched, and every device gets the same.
        draws : Tensor, optional
            (N, `n_draws`) in [0, 1), in place of what `draws` gives for `seed`: for images out of a larger set.

        Returns
        -------
        Tensor
            (N, 3, H, W), in [0, 1], of the dtype and on the device of the images.

        Raises
        ------
        TypeError
            If images are no floating-point tensor.
        ValueError
            If images have another shape or values outside [0, 1], or `magnitude` is out of range.
        """
        check_floating("images", images)
        check_shape("images", images, ("N", "3", "H", "W"), (None, 3, None, None))
        check_range("magnitude", magnitude, 0, 1)
        check_unit("images", images)
        if draws is None:
            draws = self.draws(len(images), seed)
        check_shape("draws", draws, ("N", "n_draws"), (len(images), self.n_draws))
        if magnitude == 0 or not len(images):
            return images.clone()
        with torch.no_grad():
            changed = self.function(images, float(magnitude), draws)
            return changed.clamp(0, 1)


def check_unit(name: str, images: Tensor) -> None:
    """Raise unless images are in [0, 1].

    Parameters
    ----------
    name : str
        Name of the argument.
    images : Tensor
        Of any shape.

    Raises
    ------
    ValueError
        If a value is outside; NaN is.
    """
    if not images.numel():
        return
    low, high = torch.aminmax(images)
    if not (low >= -ROUNDING and high <= 1 + ROUNDING):
        raise ValueError(
            f"Expected argument `{name}` to hold images in [0, 1] but got values from {low:.3g} to {high:.3g}. "
            "Undo the model's normalisation first: images * std + mean."
        )


def as_perturbations(chosen: Iterable[str | Perturbation] | None = None) -> tuple[Perturbation, ...]:
    """Return perturbations by name, or as they are.

    Parameters
    ----------
    chosen : iterable of str or Perturbation, optional
        Names of `PERTURBATIONS`, or one's own; all twelve by default.

    Returns
    -------
    tuple of Perturbation
        In the order given.

    Raises
    ------
    TypeError
        If one is neither, or `chosen` is one string.
    ValueError
        If there is no such name (the nearest is told), none is given, or two have the same name.
    """
    if chosen is None:
        return tuple(PERTURBATIONS.values())
    if isinstance(chosen, str | Perturbation):
        raise TypeError(f"Expected argument `perturbations` to hold several but got one: [{chosen!r}] is a list.")
    found = []
    for each in chosen:
        if isinstance(each, str):
            check_choice("perturbations", each, PERTURBATIONS)
            each = PERTURBATIONS[each]
        if not isinstance(each, Perturbation):
            raise TypeError(
                f"Expected argument `perturbations` to hold names or Perturbation but got {type(each).__name__}."
            )
        found.append(each)
    names = [each.name for each in found]
    if not names or len(set(names)) < len(names):
        raise ValueError(f"Expected argument `perturbations` to hold at least one, each once, but got {names}.")
    return tuple(found)


def _blend(images: Tensor, others: Tensor, share: Tensor) -> Tensor:
    """Return images mixed with others, each image with its own share (N, 1) of itself."""
    share = share.to(images)[:, :, None, None]
    return images * share + others * (1 - share)


def _factors(magnitude: float, draws: Tensor) -> Tensor:
    return 1 - _FADED * magnitude * draws


def _brightness_jitter(images: Tensor, magnitude: float, draws: Tensor) -> Tensor:
    # torchvision takes one factor for all images; its own result for the factor 0 makes room for one for each.
    return _blend(images, transforms.adjust_brightness(images, 0.0), _factors(magnitude, draws))


def _contrast_jitter(images: Tensor, magnitude: float, draws: Tensor) -> Tensor:
    return _blend(images, transforms.adjust_contrast(images, 0.0), _factors(magnitude, draws))


def _resized_crop(images: Tensor, magnitude: float, draws: Tensor) -> Tensor:
    size = images.shape[-2:]
    sides = [max(1, round(side * (1 - (1 - _SMALLEST_CROP) * magnitude))) for side in size]
    free = [side - cropped for side, cropped in zip(size, sides, strict=True)]
    places = (draws * (torch.tensor(free) + 1)).long().tolist()
    return torch.cat(
        [
            transforms.resized_crop(image, top, left, sides[0], sides[1], list(size), antialias=True)
            for image, (top, left) in zip(images.split(1), places, strict=True)
        ]
    )


def _blur(images: Tensor, magnitude: float, draws: Tensor) -> Tensor:
    sigma = _LARGEST_BLUR * magnitude * min(images.shape[-2:])
    # Mirrored padding must be smaller than the image.
    reach = min(math.ceil(3 * sigma), min(images.shape[-2:]) - 1)
    if reach < 1:
        return images
    # One axis after the other is the same and costs a fraction.
    for kernel in ([2 * reach + 1, 1], [1, 2 * reach + 1]):
        images = transforms.gaussian_blur(images, kernel, [sigma, sigma])
    return images


def _perspective(images: Tensor, magnitude: float, draws: Tensor) -> Tensor:
    bottom, right = (side - 1 for side in images.shape[-2:])
    corners = np.array([[0, 0], [right, 0], [right, bottom], [0, bottom]], dtype=float)
    # Every corner moves inwards, at most this far.
    inwards = np.array([[1, 1], [-1, 1], [-1, -1], [1, -1]]) * np.array([right, bottom]) / 2
    moved = corners + _DISTORTION * magnitude * inwards * draws.numpy().reshape(-1, 4, 2)
    return torch.cat(
        [
            transforms.perspective(image, corners.tolist(), ends.tolist(), fill=0)
            for image, ends in zip(images.split(1), moved, strict=True)
        ]
    )


def _brightness(images: Tensor, magnitude: float, draws: Tensor) -> Tensor:
    return transforms.adjust_brightness(images, 1 - _FADED * magnitude)


def _colour(images: Tensor, magnitude: float, draws: Tensor) -> Tensor:
    return transforms.adjust_saturation(images, 1 + 4 * magnitude)


def _contrast(images: Tensor, magnitude: float, draws: Tensor) -> Tensor:
    return transforms.adjust_contrast(images, 1 + 4 * magnitude)


def _sharpness(images: Tensor, magnitude: float, draws: Tensor) -> Tensor:
    return transforms.adjust_sharpness(images, 1 + 19 * magnitude)


def _posterise(images: Tensor, magnitude: float, draws: Tensor) -> Tensor:
    return transforms.posterize(images, 8 - math.ceil(7 * magnitude))


def _solarise(images: Tensor, magnitude: float, draws: Tensor) -> Tensor:
    return transforms.solarize(images, 1 - magnitude)


def _patches(images: Tensor, magnitude: float, draws: Tensor) -> Tensor:
    height, width = images.shape[-2:]
    side = max(1, round(_PATCH * min(height, width)))
    places = draws.view(len(images), _MOST_PATCHES, 2)[:, : math.ceil(_MOST_PATCHES * magnitude)]
    within = []
    for axis, length in enumerate((height, width)):
        start = (places[..., axis, None] * (length - side + 1)).long().to(images.device)
        pixels = torch.arange(length, device=images.device)
        within.append(((pixels >= start) & (pixels < start + side)).to(images.dtype))
    # How many patches cover each pixel, without a plane for each patch.
    covered = within[0].mT @ within[1] > 0
    return images.masked_fill(covered[:, None], 0)


def _named(*perturbations: Perturbation) -> Mapping[str, Perturbation]:
    return MappingProxyType({each.name: each for each in perturbations})


PERTURBATIONS: Mapping[str, Perturbation] = _named(
    Perturbation(
        "brightness jitter",
        _brightness_jitter,
        "brightness times a factor drawn uniformly from [1 - 0.9 magnitude, 1]",
        0.5,
        1.0,
        1,
    ),
    Perturbation(
        "contrast jitter",
        _contrast_jitter,
        "contrast times a factor drawn uniformly from [1 - 0.9 magnitude, 1]",
        0.6,
        1.0,
        1,
    ),
    Perturbation(
        "random resized crop",
        _resized_crop,
        "a window at a random place, enlarged; its sides are 1 - 0.75 magnitude of the image's",
        0.1,
        0.8,
        2,
    ),
    Perturbation("Gaussian blur", _blur, "standard deviation of 0.05 magnitude of the shorter side", 0.3, 1.0),
    Perturbation(
        "perspective",
        _perspective,
        "every corner moves inwards by up to 0.8 magnitude of half a side; black outside",
        0.3,
        1.0,
        8,
    ),
    Perturbation("brightness", _brightness, "brightness times 1 - 0.9 magnitude", 0.4, 1.0),
    Perturbation("colour", _colour, "saturation times 1 + 4 magnitude", 0.3, 1.0),
    Perturbation("contrast", _contrast, "contrast times 1 + 4 magnitude", 0.2, 1.0),
    Perturbation("sharpness", _sharpness, "sharpness 1 + 19 magnitude, 1 being the image itself", 0.05, 1.0),
    Perturbation("posterise", _posterise, "8 - 7 magnitude bits are kept of each channel, rounded down", 0.5, 1.0),
    Perturbation("solarise", _solarise, "values of at least 1 - magnitude are inverted", 0.1, 0.8),
    Perturbation(
        "random patches",
        _patches,
        "25 magnitude black squares at random places, rounded up; their sides are 0.15 of the shorter side",
        0.05,
        1.0,
        2 * _MOST_PATCHES,
    ),
)
"""The twelve perturbations of Kazmierczak et al., "PASTA", Appendix A.2, by name.

All are torchvision's, but for the patches. The paper names no numbers: ranges, light and strong magnitudes are ours,
chosen so that light ones leave most predictions of a small CIFAR-10 network as they are and strong ones change many.
A magnitude of 0 leaves an image as it is, for every one of them: so it lowers the bits of "posterise" and the
threshold of "solarise", which the paper's magnitude raises. Colour jitter lowers, as the paper says of it, and draws
its factor; the two transforms of brightness and contrast use the magnitude as it is.
"""


def perturb(images: Tensor, name: str, magnitude: float, seed: int = 0) -> Tensor:
    """Perturb images by the name of a perturbation.

    Parameters
    ----------
    images : Tensor
        (N, 3, H, W), in [0, 1].
    name : str
        One of `PERTURBATIONS`.
    magnitude : float
        In [0, 1]; 0 changes nothing.
    seed : int
        Of what is left to chance.

    Returns
    -------
    Tensor
        (N, 3, H, W), in [0, 1].

    Raises
    ------
    ValueError
        If there is no such perturbation, or an argument is out of range.
    """
    check_choice("name", name, PERTURBATIONS)
    return PERTURBATIONS[name](images, magnitude, seed)
