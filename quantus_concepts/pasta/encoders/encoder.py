"""What an encoder of images and texts must offer, and how to get one from what a user has."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from typing import Any, Protocol, TypeGuard

import torch
from torch import Tensor

from captum_concepts._support.constraints import Floats
from captum_concepts._support.running import to_host
from captum_concepts._support.shown import described
from quantus_concepts.pasta.encoders.denormalising import ROUNDING


class Encoder(Protocol):
    """Images and texts to embeddings in one space; nothing has to be inherited."""

    # `OpenClipEncoder` is one, `ObjectEncoder` makes one of a user's model, and any object with these members is
    # another.

    @property
    def name(self) -> str:
        """What it is called in tables and checkpoints."""

    @property
    def dim(self) -> int:
        """Size of an embedding."""

    @property
    def fingerprint(self) -> str:
        """Identity for the cache of embeddings: another one wherever embeddings may differ."""

    @property
    def device(self) -> torch.device | None:
        """Where it computes; None where the first images will decide."""

    def encode_images(self, images: Tensor) -> Tensor:
        """Return embeddings (N, dim), float32, not normalised, of images (N, 3, H, W) in [0, 1], on their device."""

    def encode_texts(self, texts: Sequence[str]) -> Tensor:
        """Return embeddings (N, dim), float32, not normalised, of N texts, on the encoder's device."""


class BatchEncoder(Encoder):
    """What the encoders of this package share: checks, empty batches, and the device of what is returned."""

    def __repr__(self) -> str:
        return described(self, repr(self.name))

    name = ""

    @torch.no_grad()
    def encode_images(self, images: Tensor) -> Tensor:
        """Embed images.

        Parameters
        ----------
        images : Tensor
            (N, 3, H, W), floating, in [0, 1], of any size.

        Returns
        -------
        Tensor
            (N, dim), float32, not normalised, on the device of `images`.

        Raises
        ------
        TypeError
            If `images` is not a tensor of a floating-point dtype.
        ValueError
            If the shape is wrong or values are outside [0, 1], or the encoder cannot be built or gives no (N, dim).
        """
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
        ValueError
            If the encoder or its tokenizer cannot be had, do not fit each other, or give no (N, dim).
        """
        if isinstance(texts, str) or not hasattr(texts, "__len__") or not all(isinstance(text, str) for text in texts):
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
    # Of the type, not the object: asking an object for its fingerprint may hash gigabytes.
    return all(hasattr(type(value), name) or name in getattr(value, "__dict__", {}) for name in MEMBERS)


def check_images(images: Any) -> None:
    """Raise unless images are (N, 3, H, W), floating, in [0, 1]."""
    check_image_form(images)
    if images.numel():
        check_image_values(*to_host(*torch.aminmax(images.detach())))


def check_image_form(images: Any) -> None:
    """Raise unless images are (N, 3, H, W), floating, whatever is in them."""
    if isinstance(images, Tensor) and images.dtype == torch.uint8:
        raise TypeError("Expected argument `images` to be floating, in [0, 1], but got uint8. Pass images / 255.")
    Floats("N, 3, H, W").check("images", images, {})
    if len(images) and not images.numel():
        raise ValueError(f"Expected argument `images` to have pixels but got shape {tuple(images.shape)}.")


def check_image_values(low: Tensor, high: Tensor) -> None:
    """Raise unless the least and the largest value of images lie in [0, 1]."""
    if low != low or high != high:
        raise ValueError("Expected argument `images` to be finite but it holds NaN. Remove or repair these samples.")
    if low < -ROUNDING or high > 1 + ROUNDING:
        raise ValueError(
            f"Expected argument `images` to lie in [0, 1] but got values from {low:.3g} to {high:.3g}. An encoder sees "
            "what a person sees: undo a model's normalisation with mean= and std= of PASTAScore, or as images * std + "
            "mean; divide images in [0, 255] by 255."
        )
