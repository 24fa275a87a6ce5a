"""The run of `benchmark pasta`, and the small network that it explains."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from quantus_concepts.studies.pasta.applications import PERTURBED
from quantus_concepts.studies.pasta.options import CEILING, SCORER, SHUFFLED, SIMULATED_HUMAN
from quantus_concepts.studies.pasta.preparing import RatedBirds, train_classifier

from golden.record import RECORDED
from golden.runs import smaller
from kills import raising
from quantus_concepts import PASTAScore
from quantus_concepts.pasta.applications.perturbations import PERTURBATIONS
from quantus_concepts.pasta.applications.robustness import RobustnessPairs
from quantus_concepts.pasta.scorer_files import load_scorer
from quantus_concepts.studies._kit.charts import png
from quantus_concepts.studies._kit.pictures import PictureGrid
from quantus_concepts.studies.app import main
from quantus_concepts.studies.pasta import study

#: As the run that is recorded.
TINY = [
    *("--n-images", "20", "--n-per-image", "12", "--image-size", "32", "--seeds", "2", "--epochs", "2"),
    *("--n-explained", "4", "--n-masks", "8", "--classifier-epochs", "1", "--no-progress", "--device", "cpu"),
]
#: Where its numbers do not matter.
FEW = ["--n-images", "12", "--seeds", "1", "--epochs", "1", "--n-explained", "2", "--n-masks", "4"]


@pytest.fixture(scope="module")
def folder(golden: Callable[[str], Path]) -> Path:
    return golden("pasta")


def test_writes_everything_and_nothing_half(folder: Path) -> None:
    names = {path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()}
    tables = {"results.csv", "wins.csv", "faithfulness.csv", "steering.csv", "correlations.csv"}
    scorers = {"scorer.safetensors", "scorer-0.safetensors", "scorer-1.safetensors"}
    figures = {f"figures/{name}.png" for name in ("steering", "wins", "curves", "scc")}
    assert names >= tables | scorers | figures | {"report.html"}
    assert [name for name in names if Path(name).name.startswith(".")] == [".quantus-concepts.json"]


def test_one_pair_of_each_perturbation_is_drawn() -> None:
    names = tuple(PERTURBATIONS)[:2]
    images, maps, classes = torch.rand(3, 3, 8, 8), np.arange(3 * 64.0).reshape(3, 1, 8, 8), np.zeros(3, int)
    pairs = RobustnessPairs(
        *("Q5", images, images.flip(0), maps, maps[::-1], classes, classes),
        *((names[1], names[0], names[1]), np.array([0.5, 1.0, 2.0]), np.arange(3), 0, 0),
    )
    rows = study.perturbation_rows(pairs)
    assert [row.label.split("\n")[-1] for row in rows] == ["1", "0.5"]
    np.testing.assert_array_equal(rows[1].maps[0], images[2].permute(1, 2, 0).numpy())
    assert png(PictureGrid("light", PERTURBED, rows)).startswith(b"\x89PNG")


def test_records_have_scorer_control_rater_and_ceiling(folder: Path) -> None:
    results = pd.read_csv(folder / "results.csv")
    assert {SCORER, SHUFFLED, SIMULATED_HUMAN, CEILING, "ridge", "lasso", "SVM"} <= set(results.model)
    assert set(results.question) == {"Q1", "Q2", "Q3", "Q4", "Q5", "Q6"}
    assert set(results.raters) == {"simulated"}


def test_simulated_raters_are_named_in_the_report_and_by_the_scorer(folder: Path) -> None:
    page = (folder / "report.html").read_text(encoding="utf-8")
    assert "imulated raters" in page.split("<h1>")[1][:200]
    assert page.lower().count("simulated raters") > 10
    scorer = load_scorer(folder / "scorer.safetensors")
    assert scorer.metadata["simulated"] is True
    assert "simulated raters" in PASTAScore(scorer, question="Q3").name


def test_every_explainer_has_a_place_and_every_image_a_choice(folder: Path) -> None:
    wins = pd.read_csv(folder / "wins.csv")
    assert wins.iloc[:, 1].sum() == 4
    assert len(wins) == 10


def test_the_same_seed_gives_the_same_numbers(folder: Path, tmp_path: Path) -> None:
    again = tmp_path / "again"
    with smaller(figures=False):
        assert main(["benchmark", "pasta", *TINY, "--no-uses", "--out", str(again)]) == 0
    first, second = (pd.read_csv(out / "results.csv") for out in (folder, again))
    pd.testing.assert_frame_equal(first[first.model.isin(set(second.model))].reset_index(drop=True), second)
    assert not (again / "wins.csv").exists()


def test_one_question_alone(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["--question", "Q5", *FEW, "--no-uses", "--out", str(tmp_path / "five")]
    with smaller(figures=False):
        assert main(["benchmark", "pasta", *TINY, *arguments]) == 0
    output = capsys.readouterr().out
    assert "Q5" in output
    assert "Q1" not in output


def test_interrupted_before_anything_was_done_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(study, "simulated_ratings", raising(KeyboardInterrupt()))
    out = tmp_path / "stopped"
    assert main(["benchmark", "pasta", *TINY, "--out", str(out)]) == 130
    assert "Interrupted" in capsys.readouterr().err
    assert not out.exists()


def test_an_interrupted_run_goes_on_with_the_same_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    out, frames = tmp_path / "stopped", {}
    correlations = pd.read_csv(RECORDED / "pasta" / "correlations.csv")
    arguments = ["benchmark", "pasta", *TINY, *FEW, "--regressors", "--out", str(out)]
    train = study.train_on_ratings

    def train_and_record(*arguments: Any, **options: Any) -> Any:
        frames["results"], results = train(*arguments, **options)
        return frames["results"], results

    def stop(run: Any, *_: Any) -> None:
        frames.update(run.frames)
        raise KeyboardInterrupt

    with monkeypatch.context() as patch, smaller(figures=False):
        patch.setattr(study, "train_on_ratings", train_and_record)
        patch.setattr(study, "_correlate_metrics", stop)
        assert main(arguments) == 130
    assert f"--out {out}" in capsys.readouterr().err
    assert not (out / "report.html").exists()
    assert main([*arguments, "--no-uses"]) == 2
    assert "(--uses: True there, False here)" in capsys.readouterr().err
    with monkeypatch.context() as patch, smaller(figures=False):
        patch.setattr("quantus_concepts.studies.pasta.evaluation.train_scorer", lambda *_, **__: pytest.fail("again"))
        patch.setattr("quantus_concepts.pasta.embedder.Embedder.embed", lambda *_: pytest.fail("again"))
        for name in ("_explain", "_faithfulness", "_steer"):
            patch.setattr(study, name, lambda *_, **__: pytest.fail("again"))
        patch.setattr(study, "_correlate_metrics", lambda *_: correlations)
        assert main(arguments) == 0
    assert {*frames} == {"results", "wins", "faithfulness", "steering"}
    for table, frame in frames.items():
        frame.to_csv(tmp_path / "before.csv", index=False)
        pd.testing.assert_frame_equal(pd.read_csv(out / f"{table}.csv"), pd.read_csv(tmp_path / "before.csv"))


def test_too_few_images_to_split_are_an_error(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["--n-images", "5", "--n-per-image", "2", "--out", str(tmp_path / "few")]
    assert main(["benchmark", "pasta", *TINY, *arguments]) == 2
    assert len(capsys.readouterr().err.splitlines()) == 1


def test_a_classifier_that_was_kept_is_the_trained_one_to_the_bit():
    store: dict[str, dict[str, torch.Tensor]] = {}

    def keep(name, settings, make):
        if name not in store:
            store[name] = {key: value.clone() for key, value in make(None).items()}
        return store[name]

    birds = RatedBirds(20, 40, seed=0)
    trained, restored = (train_classifier(birds, epochs=1, device=torch.device("cpu"), keep=keep) for _ in range(2))
    assert len(store) == 1
    with torch.no_grad():
        assert torch.equal(trained.model(trained.images), restored.model(restored.images))
