"""Encoding in batches only what is not in the cache."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import torch
from torch import Tensor

from captum_concepts.checks import check_shape
from quantus_concepts.pasta.cache import EmbeddingCache
from quantus_concepts.pasta.encoder import Encoder
from quantus_concepts.pasta.keys import KeyMaker


class Encoding:
    """An encoder with its cache."""

    def __init__(self, encoder: Encoder, cache: EmbeddingCache | None, batch_size: int) -> None:
        self.encoder = encoder
        self.cache = cache
        self.batch_size = batch_size
        self.keys = None if cache is None else KeyMaker(encoder, cache.folder)

    def of(
        self,
        n: int,
        keys: Sequence[str] | None,
        encode: Callable[[Sequence[int]], Tensor],
        device: torch.device | None = None,
    ) -> Tensor:
        """Return embeddings from the cache, and encode those that are not there."""
        if n == 0:
            return torch.empty(0, self.encoder.dim, device=device)
        if keys is None or self.cache is None:
            embedded = torch.cat([self._checked(encode(some)) for some in self._batches(range(n))])
            return embedded if device is None else embedded.to(device)
        found = self.cache.get(dict.fromkeys(keys))
        missing = {key: place for place, key in reversed(list(enumerate(keys))) if key not in found}
        for some in self._batches(sorted(missing.values())):
            embedded = self._checked(encode(some)).cpu()
            fresh = {keys[place]: row for place, row in zip(some, embedded, strict=True)}
            self.cache.put(fresh)
            found.update(fresh)
        return torch.stack([found[key] for key in keys]).to(device)

    def texts(self, texts: Sequence[str]) -> Tensor:
        """Return embeddings of texts, each text encoded once."""
        places = {text: place for place, text in enumerate(dict.fromkeys(texts))}
        different = list(places)
        keys = None if self.keys is None else self.keys.of_texts(different)
        embedded = self.of(
            len(different), keys, lambda some: self.encoder.encode_texts([different[place] for place in some])
        )
        return embedded[[places[text] for text in texts]]

    def _checked(self, embedded: Tensor) -> Tensor:
        check_shape("encoder", embedded, ("N", "dim"), (None, self.encoder.dim))
        return embedded

    def _batches(self, items: Sequence[int]) -> Iterator[Sequence[int]]:
        for start in range(0, len(items), self.batch_size):
            yield items[start : start + self.batch_size]
