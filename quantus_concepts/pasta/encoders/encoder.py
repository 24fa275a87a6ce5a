"""The encoder of images and texts, and images as encoders see them: in [0, 1], not normalised."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeGuard

import torch
from numpy.typing import ArrayLike
from PIL import Image
from torch import Tensor, nn

from captum_concepts.support.checks import check_axes, check_normalisation, check_shape
from captum_concepts.support.running import evaluation_mode, to_host, without_autocast
from captum_concepts.texts import describe
from quantus_concepts.pasta.encoders.overlay import to_levels
from quantus_concepts.pasta.encoders.preprocessing import Preprocessing, batched_form

#: How far rounding may carry a pixel out of [0, 1].
ROUNDING = 1e-3
_REMEDY = (
    "Undo the model's normalisation: images * std + mean, or arguments `mean` and `std` where a function has them; "
    "divide images in [0, 255] by 255"
)
#: From n texts to their tokens.
Tokenizer = Callable[[list[str]], Tensor]
PARTS = ("encode_image", "encode_text", "preprocess", "tokenizer")


class Parts(Protocol):
    """What an encoder is made of."""

    def encode_image(self, images: Tensor, /) -> Tensor:
        """Return (n, dim) of prepared images."""

    def encode_text(self, tokens: Any, /) -> Tensor:
        """Return (n, dim) of what the tokenizer gives."""

    def preprocess(self, image: Any, /) -> Tensor:
        """Prepare a Pillow image, or many images if its attribute `batched` is true."""

    def tokenizer(self, texts: list[str], /) -> Any:
        """Return the tokens of n texts."""


class Encoder(Protocol):
    """What embeds pictures and texts; a cache of embeddings needs an attribute ``fingerprint`` as well.

    Attributes
    ----------
    name : str
        Name in tables and files of scorers.
    """

    name: str

    @property
    def dim(self) -> int:
        """Size of an embedding."""

    def encode_images(self, images: Tensor, /) -> Tensor:
        """Embed images (N, 3, H, W), floating, in [0, 1], of any size.

        Parameters
        ----------
        images : Tensor
            (N, 3, H, W).

        Returns
        -------
        Tensor
            (N, dim), not normalised.
        """

    def encode_texts(self, texts: Sequence[str], /) -> Tensor:
        """Embed texts.

        Parameters
        ----------
        texts : sequence of str
            N of them.

        Returns
        -------
        Tensor
            (N, dim), not normalised.
        """


class PartsEncoder:
    """Encoder made of the parts of a model.

    Nothing of a user's model is changed: each of its modules keeps its train or eval mode (it computes in eval mode)
    and its device. A model that `build` makes is built when something is encoded, and moves to the device of the
    images.

    Parameters
    ----------
    parts : object, optional
        With ``encode_image(images)`` and ``encode_text(tokens)``, both giving (n, dim); ``preprocess``, from a Pillow
        image to a tensor (3, h, w), or from images (n, 3, H, W) in [0, 1] to the model's input, if it has an
        attribute ``batched`` that is true; ``tokenizer``, from a list of n texts to tokens. What open_clip gives will
        do; its preprocessing is recognised and done in batches.
    name : str, optional
        Name in tables and files of scorers; by default its attribute `name`, or the name of its class.
    fingerprint : str, optional
        Identity for the cache, another text wherever embeddings may differ; by default its attribute `fingerprint`.
        Only a cache needs it.
    build : callable, optional
        Makes the parts when they are first needed, in place of `parts`.
    device : torch.device or str, optional
        Device of what `build` makes; by default that of the images.

    Attributes
    ----------
    name : str
        Name of the encoder.

    Raises
    ------
    TypeError
        If a part is missing.
    """

    #: Whether its weights are random, so that scores on it support no conclusion.
    untrained = False

    def __init__(
        self,
        parts: Parts | None = None,
        *,
        name: str | None = None,
        fingerprint: str | None = None,
        build: Callable[[], Parts] | None = None,
        device: torch.device | str | None = None,
    ) -> None:
        self.parts: Any = None
        self.modules: Sequence[nn.Module] = ()
        self._build, self._fingerprint = build, fingerprint
        self._dim: int | None = None
        self._device = None if device is None else torch.device(device)
        if build is None:
            if missing := [part for part in PARTS if not callable(getattr(parts, part, None))]:
                raise TypeError(
                    "Expected argument `encoder` to be the name of a preset, an encoder, or an object with functions "
                    f"{', '.join(PARTS)} but got {type(parts).__name__}, which lacks {', '.join(missing)}. Bundle a "
                    "model with types.SimpleNamespace(encode_image=model.encode_image, encode_text=model.encode_text, "
                    "preprocess=preprocess, tokenizer=tokenizer)."
                )
            self._set_parts(parts)
        self.name = name or getattr(parts, "name", None) or type((*self.modules, parts)[0]).__name__

    def __repr__(self) -> str:
        return describe(self, repr(self.name))

    @property
    def dim(self) -> int:
        """Size of an embedding, found by encoding a text once."""
        if self._dim is None:
            self._dim = int(self.encode_texts(["a"]).shape[1])
        return self._dim

    @property
    def device(self) -> torch.device | None:
        """Device of the model; None for an object without modules, and if the first images decide."""
        tensors = (tensor for module in self.modules for tensor in (*module.parameters(), *module.buffers()))
        first = next(tensors, None)
        return self._device if first is None else first.device

    @property
    def fingerprint(self) -> str | None:
        """Identity for the cache of embeddings, which the user gives; None where there is none."""
        fingerprint = self._fingerprint or getattr(self.parts, "fingerprint", None)
        return None if fingerprint is None else str(fingerprint)

    @torch.no_grad()
    def encode_images(self, images: Tensor | ArrayLike) -> Tensor:
        """Embed images.

        Parameters
        ----------
        images : Tensor or array_like
            (N, 3, H, W), floating in [0, 1], or of uint8, of any size.

        Returns
        -------
        Tensor
            (N, dim), float32, not normalised, on the device of `images`.

        Raises
        ------
        TypeError
            If `images` are of another dtype.
        ValueError
            If the shape is wrong or values are outside [0, 1], or the encoder cannot be built or gives no (N, dim).
        """
        images = torch.as_tensor(images)
        if images.dtype != torch.uint8:
            check_unit_images(images)
        if not len(images):
            return images.new_empty(0, self.dim, dtype=torch.float32)
        device = self._place_parts(images.device)
        with evaluation_mode(*self.modules), without_autocast(device):
            embeddings = self.parts.encode_image(self._prepare(images.to(device)).to(device))
        return self._check_embeddings("encode_image", embeddings, len(images)).to(images.device)

    @torch.no_grad()
    def encode_texts(self, texts: Sequence[str]) -> Tensor:
        """Embed texts.

        Parameters
        ----------
        texts : sequence of str
            N texts, truncated to the encoder's context by its tokenizer.

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
        device = self._place_parts(self.device or torch.device("cpu"))
        with evaluation_mode(*self.modules), without_autocast(device):
            tokens = self.parts.tokenizer(list(texts))
            embeddings = self.parts.encode_text(tokens.to(device) if hasattr(tokens, "to") else tokens)
        return self._check_embeddings("encode_text", embeddings, len(texts)).to(device)

    def _set_parts(self, parts: Any) -> None:
        self.parts, self.modules = parts, _modules(parts)
        batched = getattr(parts.preprocess, "batched", False)
        self._batched = parts.preprocess if batched else batched_form(parts.preprocess)

    def _place_parts(self, device: torch.device) -> torch.device:
        """Return where the model computes: a user's where it is, one that is built on the device of the images."""
        if self._build is not None:
            if self.parts is None:
                self._set_parts(self._build())
            if self.device != (self._device or device):
                for module in self.modules:
                    module.to(self._device or device)
        return self.device or device

    def _prepare(self, images: Tensor) -> Tensor:
        if isinstance(self._batched, Preprocessing):
            return self._batched(images)
        if self._batched is not None:
            return self._batched(images if images.is_floating_point() else images.float() / 255)
        levels = images if images.dtype == torch.uint8 else to_levels(images)
        pictures = map(Image.fromarray, levels.permute(0, 2, 3, 1).cpu().numpy())
        return torch.stack([torch.as_tensor(self.parts.preprocess(picture)) for picture in pictures])

    def _check_embeddings(self, name: str, embeddings: Tensor, n: int) -> Tensor:
        if not isinstance(embeddings, Tensor):
            raise TypeError(f"Expected {name} of {self.name} to return a tensor but got {type(embeddings).__name__}.")
        check_shape(name, embeddings, ("N", "dim"), (n, self._dim))
        self._dim = int(embeddings.shape[1])
        return embeddings.float()


def _modules(parts: Parts) -> list[nn.Module]:
    """Return the modules that parts encode with: themselves, their attributes, and the owners of their methods."""
    if isinstance(parts, nn.Module):
        return [parts]
    attributes = getattr(parts, "__dict__", {}).values()
    owners = (getattr(getattr(parts, name), "__self__", None) for name in ("encode_image", "encode_text"))
    modules = [value for value in (*attributes, *owners) if isinstance(value, nn.Module)]
    return list({id(module): module for module in modules}.values())


def is_encoder(value: object) -> TypeGuard[Encoder]:
    """Return whether an object has the attributes and methods of an encoder."""
    # Looked up on the type: the property of an object may hash gigabytes.
    names = ("name", "dim", "encode_images", "encode_texts")
    return all(hasattr(type(value), name) or name in getattr(value, "__dict__", {}) for name in names)


def check_unit_images(images: Tensor) -> None:
    """Raise unless images are (N, 3, H, W), floating, in [0, 1]."""
    check_image_form(images)
    if images.numel():
        check_unit("images", *torch.aminmax(images))


def check_image_form(images: Tensor) -> None:
    """Raise unless images are (N, 3, H, W), floating; values are not checked."""
    if not images.is_floating_point():
        raise TypeError(
            f"Expected argument `images` to be floating, in [0, 1], but got {str(images.dtype)[6:]}. Pass images / 255."
        )
    check_axes(images=(images, "N 3 H W"))
    if len(images) and not images.numel():
        raise ValueError(f"Expected argument `images` to have pixels but got shape {tuple(images.shape)}.")


def check_unit(name: str, low: Tensor, high: Tensor) -> None:
    """Raise unless the least and the largest value of some images lie in [0, 1]."""
    low, high = to_host(low, high)
    if low != low or high != high:
        raise ValueError(f"Expected argument `{name}` to be finite but it holds NaN. Remove or repair these samples.")
    if not (low >= -ROUNDING and high <= 1 + ROUNDING):
        raise ValueError(
            f"Expected argument `{name}` to hold images in [0, 1] but got values from {low:.3g} to {high:.3g}. "
            f"{_REMEDY}."
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

    def __call__(self, images: Tensor, name: str = "x_batch", *, checked: bool = False) -> Tensor:
        """Return images in [0, 1] with three channels; `checked` says that `check` has accepted them."""
        images = self._undo(images, name)
        if not checked:
            check_unit(name, *torch.aminmax(images))
        return images.clamp(0, 1).expand(-1, 3, -1, -1)

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
