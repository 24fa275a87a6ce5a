"""Concept models scored by ranges of images: the numbers of one pass, and what is done is kept."""

from __future__ import annotations

from pathlib import Path

import pytest

from concept_ranges import check_concepts
from quantus_concepts.metrics.streaming.columns import ModelColumns


def test_ranges_give_the_numbers_of_one_pass_and_are_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    again = check_concepts(tmp_path, "local", None)
    files = sorted(tmp_path.rglob("*.safetensors"))
    assert len(files) == 3
    files[1].unlink()
    scored = []
    add = ModelColumns.add
    monkeypatch.setattr(ModelColumns, "add", lambda self, batch, *rest: (scored.append(batch), add(self, batch, *rest)))
    again()
    # Two batches, each by two models and three controls.
    assert len(scored) == 10
