"""`benchmark concepts --explore` writes the page of the post-hoc model, beside its random banks."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path

import pandas as pd
import pytest

from quantus_concepts.studies.app import main
from quantus_concepts.studies.concepts.options import ConceptOptions


def test_the_explorer_of_a_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    words = f"benchmark concepts {ConceptOptions.quick} --explore --no-progress --device cpu --out out"
    assert main(shlex.split(words)) == 0
    page = Path("out/explore.html").read_text(encoding="utf-8")
    found = re.search(r'<script type="application/json" id="data">(.*?)</script>', page, re.DOTALL)
    assert found
    data = json.loads(found[1])
    assert (len(data["pictures"]), len(data["concepts"]), len(data["classes"])) == (18, 8, 3)
    assert "explore.html" in Path("out/report.html").read_text(encoding="utf-8")
    # The grey range is that of the random control of the study.
    assert len(data["random_values"]) == 18
    # Both are of the same images: how many are classified right is the accuracy in the table.
    table = pd.read_csv("out/results.csv").query("metric == 'accuracy' and model == 'post-hoc CBM' and item.isna()")
    wrong = [value for value in data["scores"]["confidence when wrong"][0] if value is not None]
    assert 1 - len(wrong) / 18 == pytest.approx(table["value"].iloc[0])
