from __future__ import annotations

import json
import shlex
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from safetensors import safe_open

from fixtures_pasta import read_records, write_pasta_release, write_records
from golden.runs import NO_FIGURES
from kills import raising
from quantus_concepts import PASTAScore
from quantus_concepts.pasta.scorer_files import load_scorer
from quantus_concepts.pasta.training import TrainingSettings
from quantus_concepts.studies.app import main
from quantus_concepts.studies.rating.options import TrainOptions

EXPLAINERS = ("0", "3", "6", "9", "12", "15", "39", "40", "41", "46")
QUICK = [*shlex.split("--encoder embedded --seeds 1 --epochs 1 --learning-rate 0.001 --no-progress --device cpu")]


@pytest.fixture(scope="module")
def release(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("release")
    return write_pasta_release(folder, datasets=("coco", "catsdogscars"), n_images=6, explainers=EXPLAINERS)


@pytest.fixture
def run(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    # The recorded run's are drawn.
    for name, nothing in NO_FIGURES.items():
        monkeypatch.setattr(name, nothing)
    # Room for the whole table.
    monkeypatch.setenv("COLUMNS", "120")

    def call(*arguments: object) -> tuple[int, str, str]:
        code = main(["pasta", "train", *map(str, arguments)])
        streams = capsys.readouterr()
        return code, streams.out, streams.err

    return call


@pytest.fixture(scope="module")
def trained(golden: Callable[[str], Path]) -> Path:
    return golden("pasta-train")


def test_writes_scorers_tables_and_curves(trained: Path) -> None:
    names = {path.relative_to(trained).as_posix() for path in trained.rglob("*") if path.is_file()}
    assert names >= {
        "results.csv",
        "report.html",
        "scorer.safetensors",
        "scorer-0.safetensors",
        "scorer-1.safetensors",
        "figures/curves.png",
        "figures/scc.png",
    }
    results = pd.read_csv(trained / "results.csv")
    assert set(results.question) == {"Q1", "Q5"}
    assert set(results.model) >= {"PASTA-score", "one annotator"}
    assert set(results.seed) == {0, 1}
    assert set(results.raters) == {"people"}
    assert "simulated" not in (trained / "report.html").read_text(encoding="utf-8").split("</style>")[1].lower()


def test_the_saved_scorer_has_its_settings_and_metadata(trained: Path) -> None:
    scorer = load_scorer(trained / "scorer.safetensors")
    assert scorer.questions == ("Q1", "Q5")
    assert "home_or_hotel" in scorer.labels
    assert scorer.encoder.startswith("embedded")
    assert scorer.settings["saliency"] == "overlay"
    assert scorer.metadata["simulated"] is False
    parts = scorer.metadata["images"]
    assert not set(parts["train"]) & set(parts["test"])
    assert set(scorer.metadata["figures"]) == {"Q1", "Q5"}
    with safe_open(trained / "scorer.safetensors", "pt") as file:
        assert "weights.0" in set(file.keys())


def test_the_saved_scorer_scores_without_naming_its_encoder(trained: Path) -> None:
    images = np.random.default_rng(0).uniform(size=(3, 3, 16, 16)).astype(np.float32)
    metric = PASTAScore(trained / "scorer.safetensors", labels=["cat", "dogs", "workplace"])
    scores = metric(None, images, np.zeros(3, int), images[:, :1])
    assert np.isfinite(scores).all()
    assert metric.name == "PASTA-score Q1 (embedded (untrained convolutions, random word vectors))"


def test_the_table_has_the_papers_figures_and_the_human_row(run, release: Path) -> None:
    code, out, err = run("--data", release, "--question", "Q1", *QUICK, "--out", "one", "--regressors")
    assert code == 0, err
    # The scorer's figures of the paper are of the paper's encoders; those of people are of no encoder.
    assert "paper, siglip" not in out
    assert "0.501" not in out
    assert "0.849" in out
    assert "one annotator" in out
    for name in ("ridge", "lasso", "SVM"):
        assert name in out
    assert out.splitlines()[-1] == "one"


def test_a_single_annotator_and_missing_questions_are_normal(run, tmp_path: Path) -> None:
    folder = write_pasta_release(tmp_path / "single", n_images=4, explainers=EXPLAINERS, n_annotators=1)
    records = read_records(folder)
    for record in records[::5]:
        del record["Annotation"][0]["Q2"]
    write_records(folder, records)
    code, out, err = run("--data", folder, "--question", "Q1,Q2", *QUICK, "--out", "few")
    assert code == 0, err
    assert "one annotator" not in out
    assert "Q2" in err
    assert "missing" in err or "not asked" in err or "without" in err


def test_sparseness_is_correlated_with_the_votes_of_the_ratings_folder_alone(trained: Path) -> None:
    table = pd.read_csv(trained / "correlations.csv")
    assert set(table.metric) == {"Sparseness"}
    assert set(table.question) == {"Q1", "Q5"}
    # Maps alone have a sparseness: of ten explainers seven.
    assert (table.n == 7 * 12).all()


def test_without_labels(run, release: Path) -> None:
    assert run("--data", release, "--question", "Q1", "--no-labelled", *QUICK, "--out", "plain")[0] == 0
    assert load_scorer("plain/scorer.safetensors").labels is None


def test_a_cache_is_filled_and_used(run, release: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    arguments = ("--data", release, "--question", "Q1", *QUICK, "--cache", "kept")
    assert run(*arguments, "--out", "first")[0] == 0

    refuse = raising(AssertionError("the encoder was asked although everything is in the cache"))
    for name in ("encode_images", "encode_texts"):
        monkeypatch.setattr(f"quantus_concepts.pasta.encoders.embedded_encoder.EmbeddedEncoder.{name}", refuse)
    code, _, err = run(*arguments, "--out", "second")
    assert code == 0, err
    assert Path("first/results.csv").read_bytes() == Path("second/results.csv").read_bytes()


def test_votes_out_of_range_and_missing_files_are_all_listed(run, tmp_path: Path) -> None:
    folder = write_pasta_release(tmp_path / "broken", n_images=6, explainers=EXPLAINERS)
    records = json.loads((folder / "human_annotations.json").read_text())
    for record, vote in zip(records, (0, 6), strict=False):
        record["Annotation"][0]["Q1"] = vote
    write_records(folder, records)
    code, _, err = run("--data", folder, *QUICK)
    assert code == 2
    assert "0" in err
    assert "6" in err


def test_the_defaults_are_the_papers(tmp_path: Path) -> None:
    (tmp_path / "human_annotations.json").write_text("[]")
    options, paper = TrainOptions(data=tmp_path), TrainingSettings()
    assert (options.epochs, options.learning_rate, options.loss) == (paper.epochs, paper.learning_rate, paper.loss)
