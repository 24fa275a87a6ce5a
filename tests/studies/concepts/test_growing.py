"""Rows that come in batches: all are there, in order, in few allocations."""

from __future__ import annotations

import pytest
import torch

from quantus_concepts.studies.concepts.growing import GrowingRows


@pytest.mark.parametrize("batch_size", [1, 7, 600, 3000])
def test_all_rows_in_order(batch_size: int) -> None:
    expected = torch.arange(6000.0).view(3000, 2)
    rows = GrowingRows()
    views = [rows.add(batch) for batch in expected.split(batch_size)]
    assert len(rows) == 3000
    assert torch.equal(rows.rows, expected)
    # what was returned earlier is what was there then
    assert torch.equal(views[0], expected[:batch_size])
    assert len({view.data_ptr() for view in views}) <= 4


def test_nothing_added() -> None:
    rows = GrowingRows()
    assert len(rows) == 0
    assert rows.rows.shape == (0,)
