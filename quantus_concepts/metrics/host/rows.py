"""Rows: of a result table (value, low, high, n, undefined), and those that batches add to one block of memory."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch
from torch import Tensor

from captum_concepts.support.checks import to_numpy
from quantus_concepts.functional.arguments import Numbers
from quantus_concepts.functional.statistics.intervals import interval

Row = dict[str, Any]


def score_row(
    scores: Numbers,
    bounds: tuple[float, float],
    clusters: Numbers | None,
    *,
    intervals: bool = True,
    **fields: object,
) -> Row:
    """Return fields with the mean of the defined scores, its 95 % interval, and the counts of defined and undefined.

    `clusters` (N,) tells which scores depend on each other; None if all are independent.
    """
    values = np.asarray(to_numpy(scores), dtype=np.float64).ravel()
    defined = values[~np.isnan(values)]
    low, high = interval(values, bounds, clusters) if intervals else (math.nan, math.nan)
    return fields | {
        "value": float(defined.mean()) if defined.size else math.nan,
        "low": low,
        "high": high,
        "n": int(defined.size),
        "undefined": int(values.size - defined.size),
    }


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
