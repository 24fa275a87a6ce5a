"""Small random changes of training images, where there are few of them."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional

from captum_concepts._support.checks import check_range


@dataclass(frozen=True)
class Augmentation:
    """Mirror images and shift them by some pixels, each image in its own way."""

    flip: bool = True
    shift: int = 4

    def __post_init__(self) -> None:
        check_range("shift", self.shift, 0, 1_000)

    def __call__(self, images: Tensor, generator: torch.Generator) -> Tensor:
        """Return changed images (B, C, H, W); the generator is one of the CPU."""
        n, _, height, width = images.shape
        device = images.device
        row = torch.arange(height, device=device).expand(n, -1)
        column = torch.arange(width, device=device).expand(n, -1)
        if self.flip:
            mirrored = torch.randint(2, (n, 1), generator=generator).to(device).bool()
            column = torch.where(mirrored, width - 1 - column, column)
        if self.shift:
            offsets = torch.randint(2 * self.shift + 1, (2, n, 1), generator=generator).to(device)
            row, column = row + offsets[0], column + offsets[1]
            images = functional.pad(images, (self.shift,) * 4, mode="replicate")
        sample = torch.arange(n, device=device)[:, None, None]
        # Indexed with the channels last: the three indices then stand side by side.
        return images.permute(0, 2, 3, 1)[sample, row[:, :, None], column[:, None]].permute(0, 3, 1, 2)
