"""The run of `benchmark concepts`: the birds of its seeds, scores by ranges of images, and the explorer."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path

import pandas as pd
import pytest
import torch

from concept_ranges import check_concepts
from quantus_concepts.datasets import PaintedBirds
from quantus_concepts.metrics.streaming.columns import ModelColumns
from quantus_concepts.studies._models import loading
from quantus_concepts.studies._models.loading import KeptImages
from quantus_concepts.studies.app import main
from quantus_concepts.studies.concepts.data_option import load_data
from quantus_concepts.studies.concepts.options import ConceptOptions


def test_each_seed_paints_other_birds_of_the_same_classes(monkeypatch):
    monkeypatch.setattr(loading, "PAINTED_AT_ONCE", 12)
    options = ConceptOptions(n_train=27, n_test=10, n_classes=5, image_size=32, seeds=2, min_images=1)
    _, together = load_data(options, None)
    # Other birds of the same classes, with a truth of their own.
    whole = KeptImages(PaintedBirds(57, image_size=32, n_classes=5), range(30, 57))
    own = PaintedBirds(27, image_size=32, n_classes=5, first=30)
    assert torch.equal(together.train.images, whole.images)
    assert torch.equal(together.train.labels, whole.labels)
    assert torch.equal(together.class_concepts, own.class_concepts)


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
