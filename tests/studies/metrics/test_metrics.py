"""`benchmark metrics`: its page, its files, the run that goes on, and photographs of a folder."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pandas as pd
import pytest

import quantus_concepts.studies.metrics.study as study
from fixtures_commands import write_own_images
from golden.runs import smaller
from quantus_concepts.studies.metrics import COMMANDS
from quantus_concepts.studies.metrics.report import FEW_DAMAGES, FEW_SCORES
from quantus_concepts.testing import meta_evaluate, noticed, trial_metrics
from quantus_concepts.testing.damages import DAMAGES
from testing_planted import planted_rows

benchmark = COMMANDS["benchmark metrics"]
OPTIONS: dict[str, Any] = {"worlds": 2, "progress": False}


@pytest.fixture(scope="module")
def frame() -> pd.DataFrame:
    metrics = {name: scorer for name, scorer in trial_metrics().items() if name in (*FEW_SCORES, "CLM")}
    return meta_evaluate(metrics, world=planted_rows, sizes=[1.0], worlds=2, repetitions=1)


def test_a_run_writes_table_picture_and_results_and_goes_on(
    tmp_path: Path, frame: pd.DataFrame, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    asked: list[dict[str, Any]] = []
    monkeypatch.setattr(study, "meta_evaluate", lambda **settings: (asked.append(settings), frame)[1])
    folder = benchmark(out=tmp_path / "trial", **OPTIONS)
    assert [settings["world"] for settings in asked] == ["right", "trained"]
    assert {settings["worlds"] for settings in asked} == {2}
    results = pd.read_csv(folder / "results.csv")
    assert set(results["model"]) == {"right", "trained"}
    assert len(results) == 2 * len(frame)
    found = noticed(frame)
    misses = ((found["kind"] == "damage") & (found["finding"] == "misses")).sum()
    assert f"right: miss it   {misses} of" in " ".join(capsys.readouterr().out.split(" ")).replace("  ", " ") or misses
    page = (folder / "report.html").read_text(encoding="utf-8")
    assert page.count('<b class="bad">') > 0
    assert "must get worse" in page
    assert {"few.png", "trial_right.png", "trial_trained.png"} <= {path.name for path in (folder / "figures").iterdir()}
    table = pd.read_csv(folder / "tables/all_noticed.csv")
    assert {*table["damage"]} >= {*DAMAGES}
    # The same command reads its cache.
    monkeypatch.setattr(study, "meta_evaluate", lambda **_: pytest.fail("tried again"))
    benchmark(out=folder, **OPTIONS)
    assert (folder / "results.csv").read_bytes() == results.to_csv(index=False).encode()


def test_photographs_of_a_folder_are_one_world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(write_own_images(tmp_path, counts=(24, 8)))
    metrics = {name: scorer for name, scorer in trial_metrics().items() if name in (*FEW_SCORES, "CLM")}
    few: dict[str, Any] = {"metrics": metrics, "sizes": [1.0], "damages": [*FEW_DAMAGES, "maps shifted"]}
    monkeypatch.setattr(study, "meta_evaluate", lambda **settings: meta_evaluate(**settings | few))
    files = {"root": Path("fruit"), "concepts": "concepts.csv", "parts": Path("parts.csv")}
    with smaller(figures=False):
        folder = benchmark(
            data="folder", **files, backbone="network.py:model", device="cpu", out=Path("out"), **OPTIONS
        )
    results = pd.read_csv(folder / "results.csv")
    assert set(results["model"]) == {"photographs"}
    assert {*metrics} == {*results["metric"]}
    # CLM is there because the folder has places of a part.
    starts = results[(results["kind"] == "start") & (results["metric"] == "CLM")]
    assert starts["value"].between(0, 1).all()
    page = (folder / "report.html").read_text("utf-8")
    assert "48 training and 16 test images, 2 classes, 3 concepts" in page
    assert "Notes (" in page


def test_options_that_have_no_effect_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="`--backbone` has no effect with --data painted"):
        benchmark(backbone="resnet18", out=tmp_path / "a")
    with pytest.raises(ValueError, match="Expected `--root`"):
        benchmark(data="cub", out=tmp_path / "b")
    assert not list(tmp_path.iterdir())


def test_the_picture_shows_scores_and_damages_that_there_are() -> None:
    assert {*FEW_SCORES} <= {*trial_metrics()}
    assert {*FEW_DAMAGES} <= {*DAMAGES}
    assert (len(FEW_SCORES), len(FEW_DAMAGES)) == (8, 6)
