"""Images whose left half shows the object class and whose right half the scene class, as colours."""

from __future__ import annotations

import copy

import numpy as np
import torch
from torch import Tensor, nn

N_CLASSES = 3
SIZE = 16
GREY = 128


class TwoHalves:
    """Class c is a half that is brighter in channel c, by its own amount in every image; what is missing is grey."""

    def __init__(self, n_per_pair: int = 4, view: str = "os", seed: int = 0, with_object: int = N_CLASSES):
        pairs = [(o, s) for o in range(N_CLASSES) for s in range(N_CLASSES)] * n_per_pair
        self.object_labels = torch.tensor([o if s < with_object else -1 for o, s in pairs])
        self.scene_labels = torch.tensor([s for _, s in pairs])
        self.view = view
        self.seed = seed
        self.asked: list[int] = []

    def __len__(self) -> int:
        return len(self.scene_labels)

    def with_view(self, view: str) -> TwoHalves:
        other = copy.copy(self)
        other.view = view
        return other

    def images(self, indices=None) -> Tensor:
        indices = range(len(self)) if indices is None else indices
        self.asked.append(len(indices))
        return torch.stack([self._image(int(index)) for index in indices])

    def _image(self, index: int) -> Tensor:
        generator = np.random.default_rng([self.seed, index])
        image = np.full((3, SIZE, SIZE), GREY, dtype=np.int64)
        contrasts = generator.integers(30, 100, 2)
        if self.view != "0s" and self.object_labels[index] >= 0:
            image[self.object_labels[index], :, : SIZE // 2] += contrasts[0]
        if self.view != "og":
            image[self.scene_labels[index], :, SIZE // 2 :] += contrasts[1]
        return torch.as_tensor(image.astype(np.uint8))


class Looks(nn.Module):
    """Answers by the colour of the left half, of the right half, or of the left where the right is no mere grey."""

    def __init__(self, at: str) -> None:
        super().__init__()
        self.at = at
        self.gain = nn.Parameter(torch.tensor(40.0))

    def forward(self, images: Tensor) -> Tensor:
        above = images * 255 - GREY
        left, right = (half.mean((2, 3)) / 255 for half in above.chunk(2, 3))
        if self.at == "both":
            return self.gain * left * (right.abs().sum(1, keepdim=True) > 0)
        return self.gain * {"left": left, "right": right, "sum": left + right}[self.at]
