"""`pasta train` on ratings in one CSV file, and what stands for a ceiling near 0."""

from __future__ import annotations

import json
import shlex
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from PIL import Image

from golden.runs import smaller
from quantus_concepts.pasta.scorer_files import load_scorer
from quantus_concepts.studies.app import main

QUICK = shlex.split("--encoder embedded --seeds 1 --epochs 1 --learning-rate 0.001 --no-progress --device cpu")


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Ratings by two people of eight explainers on nine images, on Q1 and Q3."""
    folder, rng, rows = tmp_path_factory.mktemp("rated"), np.random.default_rng(0), []
    for number in range(9):
        Image.fromarray(rng.integers(0, 256, (16, 16, 3), dtype=np.uint8)).save(folder / f"{number}.png")
        for place in range(8):
            explainer = folder / f"explainer {place}"
            explainer.mkdir(exist_ok=True)
            if place % 4 == 3:
                (explainer / f"{number}.json").write_text(json.dumps({"fur": 0.5, "beak": rng.normal()}))
            else:
                np.save(explainer / f"{number}.npy", rng.random((4, 4)))
            for rater in ("Anna", "Ben"):
                votes = rng.integers(1, 6, 2)
                rows.append((f"{number}.png", explainer.name, rater, ("newt", "dog", "fish")[number % 3], *votes))
    frame = pd.DataFrame(rows, columns=["image", "explainer", "rater", "label", "Q1", "Q3"])
    frame.to_csv(folder / "ratings.csv", index=False)
    return folder / "ratings.csv"


def test_all_questions_are_those_with_votes(table: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with smaller(figures=False):
        code = main(["pasta", "train", "--data", str(table), *QUICK, "--out", str(tmp_path / "out")])
    assert code == 0, capsys.readouterr().err
    scorer = load_scorer(tmp_path / "out" / "scorer.safetensors")
    assert scorer.questions == ("Q1", "Q3")
    assert list(scorer.labels) == ["dog", "fish", "newt"]
    assert scorer.metadata["ratings"] == "ratings.csv"
