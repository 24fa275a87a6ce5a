"""`benchmark pasta` and `pasta train`: what they write, an interrupted run, and the page."""

from __future__ import annotations

import shlex
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch

from fixtures_pasta import read_records, write_pasta_release, write_records
from fixtures_pasta_report import made_outcome, made_ratings
from golden.runs import smaller
from html_pages import HTMLPage
from kills import raising
from quantus_concepts import PASTAScore
from quantus_concepts.pasta.applications.perturbations import PERTURBATIONS
from quantus_concepts.pasta.applications.robustness import RobustnessPairs
from quantus_concepts.pasta.scorer_files import load_scorer
from quantus_concepts.studies.app import main
from quantus_concepts.studies.pasta import scorers, training
from quantus_concepts.studies.pasta.material import RatedBirds, train_classifier
from quantus_concepts.studies.pasta.report import training_report
from quantus_concepts.studies.pasta.scorers import CEILING, SCORER

#: As the run that is recorded.
TINY = [
    *("--n-images", "20", "--n-per-image", "12", "--image-size", "32", "--seeds", "2", "--epochs", "2"),
    *("--n-explained", "4", "--n-masks", "8", "--classifier-epochs", "1", "--no-progress", "--device", "cpu"),
]
#: Where its numbers do not matter.
FEW = ["--n-images", "12", "--seeds", "2", "--epochs", "1", "--n-explained", "2", "--n-masks", "4"]
EXPLAINERS = ("0", "3", "6", "9", "12", "15", "39", "40", "41", "46")
QUICK = shlex.split("--encoder embedded --seeds 1 --epochs 1 --learning-rate 0.001 --no-progress --device cpu")


@pytest.fixture(scope="module")
def folder(golden: Callable[[str], Path]) -> Path:
    return golden("pasta")


@pytest.fixture(scope="module")
def trained(golden: Callable[[str], Path]) -> Path:
    return golden("pasta-train")


@pytest.fixture(scope="module")
def release(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("release")
    return write_pasta_release(folder, datasets=("coco", "catsdogscars"), n_images=6, explainers=EXPLAINERS)


@pytest.fixture
def run(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)

    def call(*arguments: object) -> tuple[int, str, str]:
        with smaller(figures=False):
            code = main(["pasta", "train", *map(str, arguments)])
        streams = capsys.readouterr()
        return code, streams.out, streams.err

    return call


def test_simulated_raters_are_named_in_the_report_and_by_the_scorer(folder: Path) -> None:
    page = (folder / "report.html").read_text(encoding="utf-8")
    links = {link for link in HTMLPage(page).sources if not link.startswith(("data:", "#"))}
    assert all((folder / link).is_file() for link in links)
    assert "No person rated anything" in page[page.index('class="banner"') :][:300]
    scorer = load_scorer(folder / "scorer.safetensors")
    assert scorer.metadata["simulated"] is True
    assert "simulated raters" in PASTAScore(scorer, question="Q3").name


def test_the_verdicts_are_those_of_the_tables(folder: Path) -> None:
    verdicts, table = (pd.read_csv(folder / "tables" / f"{name}.csv") for name in ("verdicts", "table-1"))
    faithful = pd.read_csv(folder / "tables" / "faithfulness-by-explainer.csv")
    scc = table[(table["measure"] == "SCC") & (table["label"] == SCORER)].set_index("question")
    limits = table[(table["measure"] == "SCC") & (table["label"] == CEILING)].set_index("question")
    assert len(verdicts) == 7
    for row in verdicts.head(6).to_dict("records"):
        question = row["question"][:2]
        assert row["value"] == pytest.approx(scc["value"].get(question))
        # The ceiling stands beside the number; no share of it is given, which may be near 0.
        assert f"ceiling {limits['value'][question]:.2f}" in row["question"]
    average = faithful[(faithful["name"] == "average of explainers") & (faithful["head"] == "choice minus this")]
    assert verdicts["value"].iloc[6] == pytest.approx(average["value"].iloc[0])


def test_one_question_alone_without_uses(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["--question", "Q5", *FEW, "--no-uses", "--out", str(tmp_path / "five")]
    with smaller(figures=False):
        assert main(["benchmark", "pasta", *TINY, *arguments]) == 0
    output = capsys.readouterr().out
    assert "Q5" in output
    assert "Q1" not in output
    assert not (tmp_path / "five" / "wins.csv").exists()


def test_interrupted_before_anything_was_done_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(training, "simulated_ratings", raising(KeyboardInterrupt()))
    out = tmp_path / "stopped"
    assert main(["benchmark", "pasta", *TINY, "--out", str(out)]) == 130
    assert "Interrupted" in capsys.readouterr().err
    assert not out.exists()


def test_an_interrupted_run_goes_on_with_the_same_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    whole, out = tmp_path / "whole", tmp_path / "stopped"
    arguments = ["benchmark", "pasta", *TINY, *FEW, "--question", "Q1"]
    train, seeds = scorers.train_scorer, []

    def train_and_count(*positional: Any, seed: int, **options: Any) -> Any:
        seeds.append(seed)
        if len(seeds) == 3:
            # The first seed's scorer and its control are done.
            raise KeyboardInterrupt
        return train(*positional, seed=seed, **options)

    with smaller(figures=False):
        assert main([*arguments, "--out", str(whole)]) == 0
        monkeypatch.setattr(scorers, "train_scorer", train_and_count)
        assert main([*arguments, "--out", str(out)]) == 130
        assert f"--out {out}" in capsys.readouterr().err
        assert not (out / "report.html").exists()
        assert main([*arguments, "--no-uses", "--out", str(out)]) == 2
        assert "uses: True there, none here" in capsys.readouterr().err
        monkeypatch.setattr("quantus_concepts.pasta.embedder.Embedder.embed", lambda *_: pytest.fail("again"))
        with monkeypatch.context() as patch:
            patch.setattr(training, "use_score", raising(KeyboardInterrupt()))
            assert main([*arguments, "--out", str(out)]) == 130
        monkeypatch.undo()
        monkeypatch.setattr(scorers, "train_scorer", lambda *_, **__: pytest.fail("again"))
        assert main([*arguments, "--out", str(out)]) == 0
    assert seeds == [0, 0, 1, 1, 1]
    for file in ("results.csv", "wins.csv", "faithfulness.csv", "scorer-0.safetensors", "scorer-1.safetensors"):
        assert (out / file).read_bytes() == (whole / file).read_bytes()


def test_a_classifier_from_the_cache_is_the_trained_one_to_the_bit() -> None:
    store: dict[str, dict[str, torch.Tensor]] = {}

    def cached(name, key, make):
        if name not in store:
            store[name] = {key: value.clone() for key, value in make().items()}
        return store[name]

    birds = RatedBirds(20, 40, seed=0)
    first, again = (train_classifier(birds, epochs=1, device=torch.device("cpu"), cached=cached) for _ in range(2))
    assert len(store) == 1
    with torch.no_grad():
        assert torch.equal(first.model(first.images), again.model(again.images))


def test_one_pair_of_each_perturbation_is_drawn() -> None:
    names = tuple(PERTURBATIONS)[:2]
    images, maps, classes = torch.rand(3, 3, 8, 8), np.arange(3 * 64.0).reshape(3, 1, 8, 8), np.zeros(3, int)
    pairs = RobustnessPairs(
        *("Q5", images, images.flip(0), maps, maps[::-1], classes, classes),
        *((names[1], names[0], names[1]), np.array([0.5, 1.0, 2.0]), np.arange(3), 0, 0),
    )
    rows = training.perturbation_rows(pairs)
    assert [row.label for row in rows] == [f"{names[0]}, 1", f"{names[1]}, 0.5"]
    np.testing.assert_array_equal(rows[1].cells[1], images[2].permute(1, 2, 0).numpy())


def test_peoples_figures_are_followed_by_the_papers_where_they_are_comparable() -> None:
    def labels(encoder: str, **ratings: Any) -> set[str]:
        made = made_ratings(12, 9, **ratings)
        frame, results = made_outcome(made, ("Q1", "Q5"), 2, regressors=True)
        report = training_report("Training", frame, results, made, encoder)
        return set(report.sections[0].parts[0].frame["label"])

    assert {"paper, siglip", "paper, human", "paper, SVM"} <= labels("siglip")
    # Weights that may be others, and BLIP, of which the paper's weights are not known.
    for encoder in ("siglip (weights.safetensors)", "blip"):
        assert {name for name in labels(encoder) if name.startswith("paper")} == {"paper, human"}
    assert not {name for name in labels("siglip", simulated=True) if name.startswith("paper")}


def test_a_single_annotator_has_neither_ceiling_nor_human_row() -> None:
    made = made_ratings(12, 9, 1)
    frame, results = made_outcome(made, ("Q1",), 3, control=False)
    report = training_report("Training", frame, results, made, "siglip")
    assert set(report.sections[0].parts[0].frame["label"]) == {SCORER, "paper, siglip", "paper, human"}
    (verdict,) = report.verdicts
    assert "ceiling" not in verdict.question
    # Without a control of its own: the votes on the test explanations, shuffled.
    assert verdict.random_low < 0 < verdict.random_high
    assert verdict.value > verdict.random_high
    assert "not the published ratings" in report.banner


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


def test_the_saved_scorer_scores_without_naming_its_encoder(trained: Path) -> None:
    images = np.random.default_rng(0).uniform(size=(3, 3, 16, 16)).astype(np.float32)
    metric = PASTAScore(trained / "scorer.safetensors", labels=["cat", "dogs", "workplace"])
    scores = metric(None, images, np.zeros(3, int), images[:, :1])
    assert np.isfinite(scores).all()
    assert metric.name == "PASTA-score Q1 (embedded (untrained convolutions, random word vectors))"


def test_sparseness_is_correlated_with_the_votes_of_the_ratings_folder_alone(trained: Path) -> None:
    table = pd.read_csv(trained / "correlations.csv")
    assert set(table.metric) == {"Sparseness"}
    assert set(table.question) == {"Q1", "Q5"}
    # Maps alone have a sparseness: of ten explainers seven.
    assert (table.n == 7 * 12).all()


def test_a_single_annotator_missing_questions_and_no_labels_are_normal(run, tmp_path: Path) -> None:
    folder = write_pasta_release(tmp_path / "single", n_images=4, explainers=EXPLAINERS, n_annotators=1)
    records = read_records(folder)
    for record in records[::5]:
        del record["Annotation"][0]["Q2"]
    write_records(folder, records)
    code, _, err = run("--data", folder, "--question", "Q1,Q2", "--no-labelled", *QUICK, "--out", "few")
    assert code == 0, err
    assert "Votes are missing: Q2" in Path("few/report.html").read_text(encoding="utf-8")
    assert load_scorer("few/scorer.safetensors").labels is None


def test_a_cache_is_filled_and_used(run, release: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    arguments = ("--data", release, "--question", "Q1", *QUICK, "--cache", "kept")
    assert run(*arguments, "--out", "first")[0] == 0
    refuse = raising(AssertionError("the encoder was asked although everything is in the cache"))
    for name in ("encode_images", "encode_texts"):
        monkeypatch.setattr(f"quantus_concepts.pasta.encoders.embedded_encoder.EmbeddedEncoder.{name}", refuse)
    code, _, err = run(*arguments, "--out", "second")
    assert code == 0, err
    for file in ("results.csv", "scorer.safetensors"):
        assert Path("first", file).read_bytes() == Path("second", file).read_bytes()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--question", "Q9"], "`--question` to be all or some of Q1"),
        (["--encoder-weights", "scorer.txt"], "`--encoder-weights` has no effect on the embedded encoder"),
        (["--data", "."], "human_annotations.json"),
    ],
)
def test_refusals(run, release: Path, arguments: list[str], message: str) -> None:
    Path("scorer.txt").touch()
    code, _, err = run("--data", release, *QUICK, *arguments)
    assert code == 2
    assert message in err


def test_votes_out_of_range_are_all_listed(run, tmp_path: Path) -> None:
    folder = write_pasta_release(tmp_path / "broken", n_images=6, explainers=EXPLAINERS)
    records = read_records(folder)
    for record, vote in zip(records, (0, 6), strict=False):
        record["Annotation"][0]["Q1"] = vote
    write_records(folder, records)
    code, _, err = run("--data", folder, *QUICK)
    assert code == 2
    assert "2 faulty votes" in err
