"""Rows that come in batches, kept in one block of memory."""

from __future__ import annotations

import torch
from torch import Tensor


class RowBuffer:
    """A tensor that rows are added to; its room doubles when it is full."""

    # Keeping each batch's rows by themselves would leave small blocks between the freed images of the batches, and
    # memory would grow by the images although none is kept.

    def __init__(self) -> None:
        self._room: Tensor | None = None
        self._length = 0

    def __len__(self) -> int:
        return self._length

    def add(self, rows: Tensor) -> Tensor:
        """Copy rows behind those there are."""
        needed = self._length + len(rows)
        if self._room is None or needed > len(self._room):
            room = torch.empty(max(1024, 2 * needed), *rows.shape[1:], dtype=rows.dtype, device=rows.device)
            if self._room is not None:
                room[: self._length] = self._room[: self._length]
            self._room = room
        self._room[self._length : needed] = rows
        self._length = needed
        return self.rows

    @property
    def rows(self) -> Tensor:
        """All rows so far, (N, ...); none is a tensor (0,)."""
        return torch.empty(0) if self._room is None else self._room[: self._length]
