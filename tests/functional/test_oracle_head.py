"""The oracle head: a literal, the reference, and the controls whose score is known."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from quantus_concepts.functional import oracle_head
from reference.oracle_head import oracle_head as reference
from refusals import refusals


def test_literal() -> None:
    # Agreements of the rows: 3, 1, 1; 2, 0, 0; 1, 3, 3; the last row is unknown.
    table, rows = [[1, 0, 1], [0, 1, 1], [0, 1, 1]], [[1, 0, 1], [1, 0, 0], [0, 1, 1], [1, np.nan, 0]]
    np.testing.assert_array_equal(oracle_head(rows, table, [0, 1, 2, 0]), [1, 0, 0.5, np.nan])


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.int64])
def test_reference(dtype: torch.dtype) -> None:
    rng = np.random.default_rng(0)
    rows, table, labels = rng.integers(0, 2, (200, 7)), rng.random((9, 7)).round(1), rng.integers(0, 9, 200)
    found = oracle_head(torch.tensor(rows, dtype=dtype), table, labels)
    np.testing.assert_allclose(found, reference(rows, table, labels), atol=1e-7)


test_refused = refusals(
    (
        lambda: oracle_head(np.ones((2, 3)), np.ones((2, 4)), [0, 1]),
        r"shape \(N, L\)|shape \(K, L\)",
    ),
    (lambda: oracle_head([[-1, 1]], np.ones((2, 2)), [0]), "`presence` to hold 0 and 1, or NaN .* from -1 to 1.*>="),
    (lambda: oracle_head([[0, 2]], np.ones((2, 2)), [0]), "`presence` to hold 0 and 1"),
    (lambda: oracle_head([[0.3, np.nan]], np.ones((2, 2)), [0]), "`presence` to hold 0 and 1"),
    (lambda: oracle_head([[1, np.inf]], np.ones((2, 2)), [0]), "`presence` to hold 0 and 1"),
    (lambda: oracle_head(np.ones((2, 3)), np.ones((2, 3)) * 50, [0, 1]), "`class_concepts` .*Divide percentages"),
    (lambda: oracle_head(np.ones((2, 3)), np.ones((2, 3)), [0, 2]), r"`labels` to lie in \[0, 1\]"),
)
