"""An encoder that needs no download: an untrained convolutional network for pictures, random vectors for names."""

from __future__ import annotations

import hashlib
import math
from functools import partial

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.nn.utils import skip_init

from captum_concepts.fingerprints import fingerprint_of
from captum_concepts.support.checks import check_whole
from quantus_concepts.datasets.birds.painted_birds import PaintedBirds
from quantus_concepts.pasta.encoders.encoder import PartsEncoder
from quantus_concepts.pasta.encoders.overlay import overlay_maps, resize

#: Its name for `as_encoder`.
EMBEDDED = "embedded"
SIZE = 64
_CHANNELS, _WIDTH, _KERNEL = 32, 128, 3
_TEXT = 64
# Embeddings then have a norm of about 2, so that the one-hot label of a scorer, of norm 1, has some weight.
_PICTURE_SCALE, _TEXT_SCALE = 0.035, 0.055
_REFERENCES = 96
_REFERENCE_SEED, _REFERENCE_CELLS = 1_000_003, 8
_ROWS_AT_ONCE = 64


class EmbeddedEncoder(PartsEncoder):
    """Encodes pictures and lists of names with fixed random weights; nothing in it was trained.

    Pictures, resized to 64 px: two convolutions of 3 x 3 (stride 2 each, 32 and 128 channels, random weights and
    biases, ReLU), then mean and standard deviation of each channel over the picture, 256 numbers. They are
    standardised by fixed statistics, those of 96 painted birds of a seed of their own under random blotches. What such
    a network sees is how often small patterns and colours occur, not what or where they are.

    Texts: split at commas; each name has a random vector of its own, drawn by a hash of the name. A text is their sum
    and their sum with weights 1 / sqrt(place), 128 numbers. Order and names are kept, what words mean is not.

    A picture is 0 in the numbers of texts and the other way round, so that a scorer can tell them apart. Embeddings
    are scaled by fixed factors and not normalised.

    Parameters
    ----------
    seed : int
        Random seed of all random weights; the global random state is left as it was.
    device : torch.device or str, optional
        Device; by default that of the images.
    width : int
        Channels of the second convolution.

    Attributes
    ----------
    name : str
        "embedded", and width and seed where they are not the default.

    Raises
    ------
    TypeError
        If the seed or the width is not a whole number.
    ValueError
        If the seed is negative or the width is 0.
    """

    untrained = True

    def __init__(self, seed: int = 0, device: torch.device | str | None = None, *, width: int = _WIDTH) -> None:
        self.seed = check_whole("seed", seed, 0)
        self.width = check_whole("width", width, 1)
        more = f"/{self.width}/{self.seed}" if (self.width, self.seed) != (_WIDTH, 0) else ""
        super().__init__(build=partial(_EmbeddedParts, self.seed, self.width), name=EMBEDDED + more, device=device)

    @classmethod
    def of_name(cls, name: str, device: torch.device | str | None = None) -> EmbeddedEncoder:
        """Return the encoder that has a name.

        Parameters
        ----------
        name : str
            "embedded", "embedded/WIDTH" or "embedded/WIDTH/SEED".
        device : torch.device or str, optional
            As in the class.

        Returns
        -------
        EmbeddedEncoder
            A new one.

        Raises
        ------
        ValueError
            If width or seed is no number.
        """
        numbers, defaults = name.split("/")[1:], [_WIDTH, 0]
        try:
            width, seed = [*map(int, numbers), *defaults[len(numbers) :]]
            return cls(seed, device, width=width)
        except ValueError as error:
            raise ValueError(f"Expected argument `encoder` to be embedded/WIDTH/SEED but got {name!r}.") from error

    @property
    def dim(self) -> int:
        """Size of an embedding: 384, or 128 and twice the width where that is another."""
        return 2 * self.width + 2 * _TEXT

    @property
    def fingerprint(self) -> str:
        """Identity for the cache: the settings and the version of torch, which draws the weights."""
        settings = (SIZE, _CHANNELS, self.width, _KERNEL, _TEXT, _PICTURE_SCALE, _TEXT_SCALE, _REFERENCES, self.seed)
        return fingerprint_of("embedded", settings, torch.__version__)


class _EmbeddedParts(nn.Module):
    """The network for pictures, with the statistics that standardise it, and the vectors of names."""

    mean: Tensor
    std: Tensor

    def __init__(self, seed: int, width: int) -> None:
        super().__init__()
        self.seed = seed
        # The norm does not depend on the width.
        self.scale = _PICTURE_SCALE * math.sqrt(_WIDTH / width)
        self._vectors: dict[str, np.ndarray] = {}
        generator = torch.Generator().manual_seed(seed)
        # Without the usual initial weights, which come from the global generator.
        first = skip_init(nn.Conv2d, 3, _CHANNELS, _KERNEL, stride=2)
        second = skip_init(nn.Conv2d, _CHANNELS, width, _KERNEL, stride=2)
        for layer in (first, second):
            n_inputs = layer.in_channels * _KERNEL**2
            layer.weight.normal_(
                0, 2 / math.sqrt(n_inputs) if layer is first else math.sqrt(2 / n_inputs), generator=generator
            )
            layer.bias.normal_(0, 0.5, generator=generator)
        # In place: fresh memory for what is as large as the convolutions' outputs costs more than the cut.
        network = nn.Sequential(first, nn.ReLU(inplace=True), second, nn.ReLU(inplace=True))
        self.network = network.eval().requires_grad_(False).to(memory_format=torch.channels_last)
        pooled = _pool(self.network, _reference_pictures(generator))
        self.register_buffer("mean", pooled.mean(0))
        self.register_buffer("std", pooled.std(0) + 1e-6)

    def preprocess(self, images: Tensor, /) -> Tensor:
        return images

    preprocess.batched = True  # type: ignore[attr-defined]

    def encode_image(self, images: Tensor, /) -> Tensor:
        pooled = (_pool(self.network, images) - self.mean) / self.std * self.scale
        return functional.pad(pooled, (0, 2 * _TEXT))

    def tokenizer(self, texts: list[str], /) -> list[list[str]]:
        """Return the names between commas."""
        return [[name for part in text.split(",") if (name := part.strip().lower())] for text in texts]

    def encode_text(self, tokens: list[list[str]], /) -> Tensor:
        embeddings = np.zeros((len(tokens), len(self.mean) + 2 * _TEXT), dtype=np.float32)
        for row, names in zip(embeddings, tokens, strict=True):
            for place, name in enumerate(names, 1):
                vector = self._vector(name) * _TEXT_SCALE
                row[-2 * _TEXT : -_TEXT] += vector
                row[-_TEXT:] += vector / math.sqrt(place)
        return torch.from_numpy(embeddings)

    def _vector(self, name: str) -> np.ndarray:
        if name not in self._vectors:
            digest = hashlib.sha256(f"{self.seed} {name}".encode()).digest()
            self._vectors[name] = np.random.default_rng(list(digest)).standard_normal(_TEXT)
        return self._vectors[name]


def _pool(network: nn.Module, images: Tensor) -> Tensor:
    """Return mean and deviation of each channel over each picture, (N, 2 * width)."""
    pooled = []
    for batch in images.float().split(_ROWS_AT_ONCE):
        small = resize(batch, (SIZE, SIZE)).contiguous(memory_format=torch.channels_last)
        values = network((small - 0.5) * 3)
        pooled.append(torch.cat([values.mean((2, 3)), values.std((2, 3))], dim=1))
    return torch.cat(pooled)


def _reference_pictures(generator: torch.Generator) -> Tensor:
    images = PaintedBirds(_REFERENCES, image_size=SIZE, seed=_REFERENCE_SEED).images()
    blotches = torch.rand(_REFERENCES, 1, _REFERENCE_CELLS, _REFERENCE_CELLS, generator=generator)
    return overlay_maps(images, functional.interpolate(blotches, size=SIZE, mode="bilinear")[:, 0])
