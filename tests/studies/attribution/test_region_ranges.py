"""Attributions of regions by ranges."""

from __future__ import annotations

from pathlib import Path

import pytest

from region_subjects import check_regions

pytest.importorskip("pyarrow", reason="ranges are kept in files of Arrow, of the extra ray")


def test_ranges_are_as_one_pass(tmp_path: Path) -> None:
    check_regions(tmp_path, "local", None)
    # Four batches of two subjects, two in a range.
    assert len([*tmp_path.rglob("*.parquet")]) == 4
