"""Substitutions scored by ranges: what one pass gives, and nothing done twice."""

from __future__ import annotations

from pathlib import Path

import pytest

from concept_ranges import check_substitutions
from quantus_concepts.studies.substitution import evaluation as score_ranges

pytest.importorskip("pyarrow", reason="the extra cluster is not installed")


def test_ranges_give_what_one_pass_gives_and_are_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    again = check_substitutions(tmp_path, "local", None)
    monkeypatch.setattr(score_ranges, "_rows", lambda *_: pytest.fail("scored again"))
    again()
