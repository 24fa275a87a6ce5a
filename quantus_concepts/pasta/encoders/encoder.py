"""The protocol of encoders of images and texts, and images as they see them: in [0, 1], not normalised."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeGuard

import torch
from numpy.typing import ArrayLike
from torch import Tensor

from captum_concepts._support.checks import check_axes, check_normalisation
from captum_concepts._support.running import to_host
from captum_concepts._support.shown import describe

#: How far rounding may carry a pixel out of [0, 1].
ROUNDING = 1e-3
_REMEDY = (
    "The encoder wants to see what a person sees: undo the model's normalisation with mean= and std=, the numbers it "
    "was normalised by, or with denormalise=, a function of the images"
)


class Encoder(Protocol):
    """Images and texts to embeddings in one space; nothing has to be inherited."""

    # `OpenClipEncoder` is one, `ObjectEncoder` makes one of a user's model, and any object with these members is
    # another.

    @property
    def name(self) -> str:
        """Name in tables and checkpoints."""

    @property
    def dim(self) -> int:
        """Size of an embedding."""

    @property
    def fingerprint(self) -> str:
        """Identity for the cache of embeddings: another one wherever embeddings may differ."""

    @property
    def device(self) -> torch.device | None:
        """Device of the encoder; None if that of the first images."""

    def encode_images(self, images: Tensor) -> Tensor:
        """Return embeddings (N, dim), float32, not normalised, of images (N, 3, H, W) in [0, 1], on their device."""

    def encode_texts(self, texts: Sequence[str]) -> Tensor:
        """Return embeddings (N, dim), float32, not normalised, of N texts, on the encoder's device."""


class BatchEncoder(Encoder):
    """Base of the encoders of this package: checks, empty batches, and the device of the embeddings."""

    def __repr__(self) -> str:
        return describe(self, repr(self.name))

    name = ""

    @torch.no_grad()
    def encode_images(self, images: Tensor | ArrayLike) -> Tensor:
        """Embed images.

        Parameters
        ----------
        images : Tensor or array_like
            (N, 3, H, W), floating, in [0, 1], of any size.

        Returns
        -------
        Tensor
            (N, dim), float32, not normalised, on the device of `images`.

        Raises
        ------
        TypeError
            If `images` are not of a floating-point dtype.
        ValueError
            If the shape is wrong or values are outside [0, 1], or the encoder cannot be built or gives no (N, dim).
        """
        images = torch.as_tensor(images)
        check_images(images)
        if not len(images):
            return images.new_empty(0, self.dim, dtype=torch.float32)
        return self._embed_images(images).to(images.device)

    @torch.no_grad()
    def encode_texts(self, texts: Sequence[str]) -> Tensor:
        """Embed texts.

        Parameters
        ----------
        texts : sequence of str
            N of them; what is longer than the encoder's context is cut off, as its tokenizer does it.

        Returns
        -------
        Tensor
            (N, dim), float32, not normalised, on the encoder's device.

        Raises
        ------
        TypeError
            If `texts` is one text, or a set.
        ValueError
            If the encoder or its tokenizer cannot be had, do not fit each other, or give no (N, dim).
        """
        if isinstance(texts, str | set | frozenset):
            raise TypeError(f"Expected argument `texts` to be a sequence of texts but got {texts!r:.80}.")
        if not len(texts):
            return torch.empty(0, self.dim, device=self.device)
        return self._embed_texts(list(texts))

    @abstractmethod
    def _embed_images(self, images: Tensor) -> Tensor:
        """Return embeddings (n, dim), float32, of at least one image, on any device."""

    @abstractmethod
    def _embed_texts(self, texts: list[str]) -> Tensor:
        """Return embeddings (n, dim), float32, of at least one text."""

    @torch.no_grad()
    def encode_levels(self, levels: Tensor) -> Tensor:
        """Embed at least one picture (N, 3, H, W) of 8 bits, of any type; there is nothing to check in it."""
        return self._embed_images(levels.float() / 255).to(levels.device)


MEMBERS = ("name", "dim", "fingerprint", "device", "encode_images", "encode_texts")
PARTS = ("encode_image", "encode_text", "preprocess", "tokenizer")


def is_encoder(value: Any) -> TypeGuard[Encoder]:
    """Tell whether an object has the members of `Encoder`."""
    # Looked up on the type: the property of an object may hash gigabytes.
    return all(hasattr(type(value), name) or name in getattr(value, "__dict__", {}) for name in MEMBERS)


def check_images(images: Tensor) -> None:
    """Raise unless images are (N, 3, H, W), floating, in [0, 1]."""
    check_image_form(images)
    if images.numel():
        check_image_values(*to_host(*torch.aminmax(images.detach())))


def check_image_form(images: Tensor) -> None:
    """Raise unless images are (N, 3, H, W), floating; values are not checked."""
    if not images.is_floating_point():
        raise TypeError(
            f"Expected argument `images` to be floating, in [0, 1], but got {str(images.dtype)[6:]}. Pass images / 255."
        )
    check_axes(images=(images, "N 3 H W"))
    if len(images) and not images.numel():
        raise ValueError(f"Expected argument `images` to have pixels but got shape {tuple(images.shape)}.")


def check_image_values(low: Tensor, high: Tensor) -> None:
    """Raise unless the least and the largest value of images lie in [0, 1]."""
    if low != low or high != high:
        raise ValueError("Expected argument `images` to be finite but it holds NaN. Remove or repair these samples.")
    check_unit("images", low, high, f"{_REMEDY}; divide images in [0, 255] by 255")


def check_unit(name: str, low: Tensor, high: Tensor, remedy: str = _REMEDY) -> None:
    """Raise unless the least and the largest value of some images lie in [0, 1]."""
    low, high = to_host(low, high)
    if not (low >= -ROUNDING and high <= 1 + ROUNDING):
        raise ValueError(
            f"Expected argument `{name}` to hold images in [0, 1] but got values from {low:.3g} to {high:.3g}. "
            f"{remedy}."
        )


@dataclass(frozen=True)
class Denormalisation:
    """How to turn a model's input into images in [0, 1]; with `clip`, values outside are cut off."""

    mean: Sequence[float] | None = None
    std: Sequence[float] | None = None
    function: Callable[[Tensor], Tensor] | None = None
    clip: bool = False

    def __post_init__(self) -> None:
        check_normalisation(self.mean, self.std)
        if self.mean is not None and self.function is not None:
            raise ValueError("Expected either `mean` and `std` or argument `denormalise` but got all of them.")

    def __call__(self, images: Tensor, name: str = "x_batch") -> Tensor:
        """Return images in [0, 1] with three channels."""
        images = self._undo(images, name)
        check_unit(name, *torch.aminmax(images))
        return _three_channels(images)

    def of_checked(self, images: Tensor) -> Tensor:
        """Return what a call does, for images that `check` has accepted."""
        return _three_channels(self._undo(images, "x_batch"))

    def check(self, images: Tensor, name: str = "x_batch") -> None:
        """Raise as a call does, without making the images where their extremes suffice."""
        if self.function is None and images.ndim == 4 and images.shape[1] in (1, 3):
            low, high = images.amin((0, 2, 3), keepdim=True), images.amax((0, 2, 3), keepdim=True)
            images = torch.cat([low, high])
        check_unit(name, *torch.aminmax(self._undo(images, name)))

    def renormalise(self, images: Tensor) -> Tensor:
        """Return images in [0, 1] as the model takes them; with neither `mean` nor `std` as they are."""
        if self.mean is None or self.std is None:
            return images
        mean, std = (torch.as_tensor(value).to(images)[:, None, None] for value in (self.mean, self.std))
        return (images - mean) / std

    def _undo(self, images: Tensor, name: str) -> Tensor:
        """Return images (N, C, H, W) without the normalisation."""
        images = images.float()
        if self.function is not None:
            images = self.function(images)
            if not isinstance(images, Tensor) or images.ndim != 4:
                raise ValueError("Expected argument `denormalise` to return images (N, C, H, W) as a tensor.")
        if images.ndim != 4 or images.shape[1] not in (1, 3):
            raise ValueError(
                f"Expected argument `{name}` to have shape (N, 3, H, W) or (N, 1, H, W) but got {tuple(images.shape)}."
            )
        if self.mean is not None:
            if len(self.mean) != images.shape[1]:
                raise ValueError(
                    f"Expected argument `mean` to have {images.shape[1]} numbers, one for each channel of `{name}`, "
                    f"but got {len(self.mean)}."
                )
            mean, std = (torch.as_tensor(value, device=images.device).float() for value in (self.mean, self.std))
            images = images * std[:, None, None] + mean[:, None, None]
        return images.clamp(0, 1) if self.clip else images


def _three_channels(images: Tensor) -> Tensor:
    return images.clamp(0, 1).expand(-1, 3, -1, -1)
