"""An encoder made of a model that a user brings."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from PIL import Image
from torch import Tensor, nn

from captum_concepts._support.checks import check_shape
from captum_concepts._support.running import evaluation_mode, without_autocast
from quantus_concepts.pasta.encoders.encoder import PARTS, BatchEncoder
from quantus_concepts.pasta.encoders.preprocessing import batched_form


class ObjectEncoder(BatchEncoder):
    """Encoder of an object with `encode_image`, `encode_text`, `preprocess` and `tokenizer`.

    Nothing of the object is changed: each of its modules keeps its train or eval mode (it computes in eval mode) and
    its device.

    Parameters
    ----------
    parts : object
        With ``encode_image(images)`` and ``encode_text(tokens)``, both giving (n, dim); ``preprocess``, from a Pillow
        image to a tensor (3, h, w), or from images (n, 3, H, W) in [0, 1] to the model's input, if it has an
        attribute ``batched`` that is true; ``tokenizer``, from a list of n texts to tokens. What open_clip gives will
        do; its preprocessing is recognised and done in batches.
    name : str, optional
        Name; by default its attribute `name`, or the name of its class.
    fingerprint : str, optional
        Identity for the cache, another text wherever embeddings may differ; by default its attribute `fingerprint`.
        Only a cache needs it.

    Attributes
    ----------
    name : str
        Name of the encoder.

    Raises
    ------
    TypeError
        If a part is missing.
    """

    def __init__(self, parts: Any, *, name: str | None = None, fingerprint: str | None = None) -> None:
        missing = [part for part in PARTS if not callable(getattr(parts, part, None))]
        if missing:
            raise TypeError(
                f"Expected argument `parts` to have functions {', '.join(PARTS)} but {type(parts).__name__} lacks "
                f"{', '.join(missing)}."
            )
        self.parts = parts
        self.modules = _modules(parts)
        self.name = name or getattr(parts, "name", None) or type((self.modules or [parts])[0]).__name__
        self._fingerprint = fingerprint
        self._preprocess: Callable[[Tensor], Tensor] = (
            parts.preprocess if getattr(parts.preprocess, "batched", False) else batched_form(parts.preprocess)
        ) or self._one_by_one
        self._dim: int | None = None

    @property
    def dim(self) -> int:
        """Size of an embedding, found by encoding a text once."""
        if self._dim is None:
            self._dim = int(self.encode_texts(["a"]).shape[1])
        return self._dim

    @property
    def device(self) -> torch.device | None:
        """Device of the model; None for an object without modules."""
        first = next((tensor for each in self.modules for tensor in (*each.parameters(), *each.buffers())), None)
        return None if first is None else first.device

    @property
    def fingerprint(self) -> str:
        """Identity for the cache of embeddings, which the user gives."""
        given = self._fingerprint or getattr(self.parts, "fingerprint", None)
        if given is None:
            raise ValueError(
                f"Expected {self.name} to have an attribute `fingerprint`, a text that is another one wherever "
                "embeddings may differ: a cache on disk cannot know what an object depends on. Or use no cache."
            )
        return str(given)

    def _embed_images(self, images: Tensor) -> Tensor:
        device = self.device or images.device
        with self._computing(device):
            embeddings = self.parts.encode_image(self._preprocess(images.to(device)).to(device))
        return self._checked("encode_image", embeddings, len(images))

    def _embed_texts(self, texts: list[str]) -> Tensor:
        device = self.device or torch.device("cpu")
        with self._computing(device):
            tokens = self.parts.tokenizer(texts)
            embeddings = self.parts.encode_text(tokens.to(device) if hasattr(tokens, "to") else tokens)
        return self._checked("encode_text", embeddings, len(texts))

    @contextmanager
    def _computing(self, device: torch.device) -> Iterator[None]:
        with evaluation_mode(*self.modules), without_autocast(device):
            yield

    def _checked(self, name: str, embeddings: Any, n: int) -> Tensor:
        if not isinstance(embeddings, Tensor):
            raise TypeError(f"Expected {name} of {self.name} to return a tensor but got {type(embeddings).__name__}.")
        check_shape(name, embeddings, ("N", "dim"), (n, self._dim))
        self._dim = int(embeddings.shape[1])
        return embeddings.float()

    def _one_by_one(self, images: Tensor) -> Tensor:
        """Prepare images with a function of one Pillow image."""
        levels = (images * 255).round().clamp(0, 255).to(torch.uint8).permute(0, 2, 3, 1).cpu().numpy()
        return torch.stack([torch.as_tensor(self.parts.preprocess(Image.fromarray(each))) for each in levels])


def _modules(parts: Any) -> list[nn.Module]:
    """Return the modules that an object encodes with: itself, those it holds, and the owners of its methods."""
    if isinstance(parts, nn.Module):
        return [parts]
    held = [value for value in getattr(parts, "__dict__", {}).values() if isinstance(value, nn.Module)]
    owners = [getattr(getattr(parts, name), "__self__", None) for name in ("encode_image", "encode_text")]
    found = [*held, *(owner for owner in owners if isinstance(owner, nn.Module))]
    return list({id(module): module for module in found}.values())
