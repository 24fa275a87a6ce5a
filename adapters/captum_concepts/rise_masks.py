"""The random masks of RISE."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional

from captum_concepts.checks import as_list, check_range, check_seed, check_whole
from captum_concepts.running import without_autocast


@dataclass(frozen=True)
class RandomMasks:
    """The masks of RISE: random grids, and where each is cut out once it is enlarged."""

    grids: Tensor
    rows: Tensor
    columns: Tensor
    size: tuple[int, int]

    @classmethod
    def draw(
        cls, n_masks: int, size: tuple[int, int], cells: int | Sequence[int] = (7, 7), p: float = 0.5, seed: int = 0
    ) -> RandomMasks:
        """Draw masks; no global generator is touched, and every device gets the same."""
        n_masks = check_whole("n_masks", n_masks, 1)
        check_range("p", p, 0, 1, open_low=True)
        pair = tuple(as_list("cells", cells, "numbers")) if isinstance(cells, Iterable) else (cells, cells)
        if len(pair) != 2:
            raise ValueError(f"Expected argument `cells` to be a whole number or two but got {cells!r}.")
        s1, s2 = (check_whole("cells", each, 2, side) for each, side in zip(pair, size, strict=True))
        generator = torch.Generator().manual_seed(check_seed(seed))
        grids = (torch.rand(n_masks, s1, s2, generator=generator) < p).float()
        rows, columns = (
            torch.randint(math.ceil(side / s), (n_masks,), generator=generator)
            for side, s in zip(size, (s1, s2), strict=True)
        )
        return cls(grids, rows, columns, size)

    def __len__(self) -> int:
        return len(self.grids)

    def render(self, some: slice, device: torch.device | str = "cpu", dtype: torch.dtype = torch.float32) -> Tensor:
        """Return some of the masks, enlarged and cut out."""
        grids = self.grids[some].to(device, dtype)
        # Bilinear enlarging is separable, and the rows cut out of a matrix are rows of it: two products do all.
        down, across = (
            _enlarging(side, s, device, dtype)[(cut[some, None] + torch.arange(side)).to(device)]
            for side, s, cut in zip(self.size, self.grids.shape[1:], (self.rows, self.columns), strict=True)
        )
        with without_autocast(grids.device):
            # Products of a convex combination may leave [0, 1] by rounding.
            return (down @ grids @ across.mT).clamp_(0, 1)


def _enlarging(side: int, cells: int, device: torch.device | str, dtype: torch.dtype) -> Tensor:
    """Return the matrix that enlarges `cells` numbers to one cell more than `side` pixels."""
    length = (cells + 1) * math.ceil(side / cells)
    unit = torch.eye(cells, device=device, dtype=dtype)
    return functional.interpolate(unit[None], length, mode="linear", align_corners=False)[0].T
