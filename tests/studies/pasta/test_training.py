"""`benchmark pasta` and `pasta train`: what they write, an interrupted run, and the page."""

from __future__ import annotations

import itertools
import json
import re
import shlex
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from PIL import Image

from fixtures_pasta import RELEASED_KEYS, read_records, write_pasta_release, write_records
from fixtures_pasta_report import made_outcome, made_ratings, made_report
from golden.runs import RUNS, smaller
from kills import raising
from quantus_concepts import PASTAScore
from quantus_concepts.datasets.ratings.released import PastaRatings
from quantus_concepts.pasta.applications.perturbations import PERTURBATIONS
from quantus_concepts.pasta.applications.robustness import RobustnessPairs
from quantus_concepts.pasta.embedder import Embedder
from quantus_concepts.pasta.scorer import Scorer
from quantus_concepts.pasta.scorer_files import load_scorer
from quantus_concepts.studies.app import main
from quantus_concepts.studies.pasta import scorers, training
from quantus_concepts.studies.pasta.material import voted_questions
from quantus_concepts.studies.pasta.scorers import SCORER

EXPLAINERS = ("0", "3", "6", "9", "12", "15", "39", "40", "41", "46")
QUICK = shlex.split("--encoder embedded --seeds 1 --epochs 1 --learning-rate 0.001 --no-progress --device cpu")


@pytest.fixture(scope="module")
def folder(golden: Callable[[str], Path]) -> Path:
    return golden("pasta")


@pytest.fixture(scope="module")
def trained(golden: Callable[[str], Path]) -> Path:
    return golden("pasta-train")


def test_simulated_raters_are_named_in_the_report_and_by_the_scorer(folder: Path) -> None:
    page = (folder / "report.html").read_text(encoding="utf-8")
    assert "No person rated anything" in page[page.index('class="banner"') :][:300]
    scorer = load_scorer(folder / "scorer.safetensors")
    assert scorer.metadata["simulated"] is True
    assert "simulated raters" in PASTAScore(scorer, question="Q3").name


def test_a_finished_run_makes_nothing_again(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    out = shutil.copytree(folder, tmp_path / "out")
    again = raising(AssertionError("made again"))
    for module, name in ((scorers, "train_scorer"), (training, "_explain"), (training, "_steer")):
        monkeypatch.setattr(module, name, again)
    arguments = [*shlex.split(RUNS["pasta"].commands[0])[:-1], str(out)]
    with smaller(figures=False):
        assert main(arguments) == 0
    for file in ("results.csv", "wins.csv", "faithfulness.csv", "steering.csv", "scorer.safetensors"):
        assert (out / file).read_bytes() == (folder / file).read_bytes()


def test_explainers_of_ones_choice(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def note(*given: Any, **more: Any) -> RobustnessPairs:
        asked.append(given[3])
        return pairs(*given, **more)

    asked, pairs = list[Any](), training.robustness_pairs
    monkeypatch.setattr(training, "robustness_pairs", note)
    out, mine = tmp_path / "out", tmp_path / "mine.py"
    mine.write_text("def bright(model, inputs, targets, **more):\n    return inputs\n")
    arguments = [*shlex.split(RUNS["pasta"].commands[0])[:-1], str(out), "--question", "Q1", "--seeds", "1"]
    with smaller(figures=False):
        assert main([*arguments, "--methods", f"{mine}:bright,OCCLUSION,vanilla Gradient"]) == 0
    chosen = {"OCCLUSION", "vanilla gradient", f"{mine}:bright", "random", "Sobel edges"}
    assert set(pd.read_csv(out / "wins.csv")["explainer"]) == chosen
    metrics = pd.read_csv(out / "metrics.csv")
    assert set(metrics[metrics["table"] == 10]["explainer"]) == {"RISE", *chosen}
    # The first explains the perturbed images.
    assert [explain.__name__ for explain in asked] == ["bright"] * 2
    # Those of both runs get the same numbers.
    before, after = (pd.read_csv(root / "faithfulness.csv").set_index("name")["mean"] for root in (folder, out))
    assert after["vanilla gradient"] == before["vanilla gradient"]
    listed = json.loads((out / "run.json").read_text())["settings"]["methods"]
    assert re.fullmatch(rf"{mine}:bright \(\w{{12}}\), OCCLUSION, vanilla gradient, random, Sobel edges", listed)


def test_peoples_figures_are_followed_by_the_papers_where_they_are_comparable() -> None:
    def labels(encoder: str, **ratings: Any) -> set[str]:
        made = made_ratings(12, 9, **ratings)
        report = made_report(made, encoder, *made_outcome(made, ("Q1", "Q5"), 2))
        return set(report.sections[1].parts[0].frame["label"])

    assert {"paper, siglip", "paper, human"} <= labels("siglip")
    # Weights that may be others, and BLIP, of which the paper's weights are not known.
    for encoder in ("siglip (weights.safetensors)", "blip"):
        assert {name for name in labels(encoder) if name.startswith("paper")} == {"paper, human"}
    assert not {name for name in labels("siglip", simulated=True) if name.startswith("paper")}


def test_a_single_annotator_has_neither_ceiling_nor_human_row() -> None:
    made = made_ratings(12, 9, 1)
    report = made_report(made, "siglip", *made_outcome(made, ("Q1",), 3, control=False))
    assert set(report.sections[1].parts[0].frame["label"]) == {SCORER, "paper, siglip", "paper, human"}
    of_last, of_second, best, last, verdict = report.verdicts
    # It begins with what people said, and that with paired differences; means have no verdict.
    assert report.sections[0].heading == "What people said"
    assert report.sections[0].parts[0].title == "Explainers compared: difference of votes"
    assert of_last.value == pytest.approx(best.value - last.value)
    assert (of_last.verdict, of_second.verdict, best.verdict, last.verdict) == ("above 0", "not shown", "–", "–")
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
    assert scorer.metadata["explanations"] == 120
    assert scorer.metadata["untrained_encoder"] is True
    assert set(scorer.metadata["figures"]) == set(scorer.metadata["ranking"]) == {"Q1", "Q5"}


def test_the_saved_scorer_scores_without_naming_its_encoder(trained: Path) -> None:
    images = np.random.default_rng(0).uniform(size=(3, 3, 16, 16)).astype(np.float32)
    metric = PASTAScore(trained / "scorer.safetensors", labels=["cat", "dogs", "workplace"])
    scores = metric(None, images, np.zeros(3, int), images[:, :1])
    assert np.isfinite(scores).all()
    assert metric.name == "PASTA-score Q1 (embedded)"


def test_train_and_score_a_folder_laid_out_as_the_release(tmp_path: Path) -> None:
    release = write_pasta_release(tmp_path, datasets=("coco", "pascalpart"), n_images=3, explainers=EXPLAINERS)
    trained, scored, base = tmp_path / "trained", tmp_path / "scored", release / "result_dataset"
    settings = shlex.split("--question Q1 --embedding sentence=release --labels image-name")
    with smaller(figures=False):
        assert main(["pasta", "train", "--data", str(release), *QUICK, *settings, "--out", str(trained)]) == 0
    scorer = load_scorer(trained / "scorer.safetensors")
    assert (scorer.settings["sentence"], scorer.labelled_by) == ("release", "image-name")
    # A folder, in which each split has a scorer, too.
    folders = ["--images", str(base / "imgs"), "--explanations", str(base / "expl"), "--scorer", str(trained)]
    assert main(["pasta", "score", *folders, *QUICK[-3:], "--out", str(scored)]) == 0
    frame = pd.read_csv(scored / "scores.csv", keep_default_na=False, dtype={"explainer": str})
    frame = frame.set_index("explanation")
    records = read_records(release)
    assert len(frame) == len(records) == 60
    assert set(frame.note) == {""}
    assert set(frame.explainer) == set(EXPLAINERS)
    assert frame.modality.value_counts().to_dict() == {"drawing": 42, "concepts": 18}
    # Each as by hand, with the label in the name of its image, which is not the class predicted.
    rated = PastaRatings(release, labels="image-name")
    embeddings = Embedder.from_settings("embedded", scorer.settings).embed(rated.explanations)
    expected = scorer.score(embeddings, rated.labels.tolist())[:, 0].numpy()
    suffixes = {"drawing": ".png", "concepts": ".json"}
    names = [Path(record["explication"]).stem for record in records]
    files = [name + suffixes[kind] for name, kind in zip(names, rated.modalities.tolist(), strict=True)]
    np.testing.assert_allclose(frame.loc[files].Q1.astype(float), expected, atol=6e-5)
    page = "".join((scored / "report.html").read_text().split())
    assert "image-name" in page


def test_a_released_scorer_takes_the_images_label_and_the_released_sentence(tmp_path: Path) -> None:
    scorer = Scorer(768, seed=1)
    with torch.no_grad():
        scorer.biases[-1].fill_(1.1)
    tensors = [value[0] for pair in zip(scorer.weights, scorer.biases, strict=True) for value in pair]
    torch.save(dict(zip(RELEASED_KEYS, tensors, strict=True)), tmp_path / "PASTA_Q1.pth")
    loaded = load_scorer(tmp_path / "PASTA_Q1.pth")
    assert loaded.settings == {"sentence": "release"}
    assert loaded.labelled_by == "image-name"
    embeddings = torch.zeros(1, 768)
    # 1 + 4 * 1.1 or so: the release leaves what is above 5.
    assert loaded.score(embeddings, ["cat"])[0, 0] == 5
    assert loaded.score(embeddings, ["cat"], clip=False)[0, 0] > 5


def test_ratings_in_one_table(tmp_path: Path) -> None:
    rng, rows = np.random.default_rng(0), []
    for image, place in itertools.product(range(9), range(8)):
        Image.new("RGB", (16, 16), (20 * image, 9, 9)).save(tmp_path / f"{image}.png")
        explainer = tmp_path / f"explainer {place}"
        explainer.mkdir(exist_ok=True)
        if place % 4 == 3:
            (explainer / f"{image}.json").write_text(json.dumps({"fur": 0.5, "beak": rng.normal()}))
        else:
            np.save(explainer / f"{image}.npy", rng.random((4, 4)))
        votes = rng.integers(1, 6, (2, 2))
        label = ("newt", "dog", "fish")[image % 3]
        rows += [(f"{image}.png", explainer.name, name, label, *of) for name, of in zip("AB", votes, strict=True)]
    frame = pd.DataFrame(rows, columns=["image", "explainer", "rater", "label", "Q1", "Q3"])
    frame.to_csv(tmp_path / "ratings.csv", index=False)
    with smaller(figures=False):
        arguments = ["--data", str(tmp_path / "ratings.csv"), *QUICK, "--out", str(tmp_path / "out")]
        assert main(["pasta", "train", *arguments]) == 0
    scorer = load_scorer(tmp_path / "out" / "scorer.safetensors")
    # All questions are those with votes.
    assert scorer.questions == ("Q1", "Q3")
    assert list(scorer.labels) == ["dog", "fish", "newt"]
    assert scorer.metadata["ratings"] == "ratings.csv"
    with pytest.raises(ValueError, match=r"all or some of Q1, Q3 with commas between them but got 'Q1,Q5'"):
        voted_questions("Q1,Q5", PastaRatings(tmp_path / "ratings.csv"))


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


@pytest.mark.parametrize(
    ("arguments", "message"),
    {
        "--question Q9": "`--question` to be all or some of Q1",
        "--embedding top=3": "`--embedding` to name one of saliency",
        "--embedding n_top=few": "`--embedding n_top=` with a whole number",
        "--encoder-weights scorer.txt": "`--encoder-weights` has no effect on the embedded encoder",
        "--data empty": "human_annotations.json",
        "--data broken": "faulty records",
    }.items(),
)
def test_refusals(
    arguments: str, message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    release = write_pasta_release(tmp_path / "release", n_images=6, explainers=("0", "3", "40"))
    broken = shutil.copytree(release, Path("broken"))
    records = read_records(broken)
    for record, vote in zip(records, (0, 6), strict=False):
        record["Annotation"][0]["Q1"] = vote
    write_records(broken, records)
    Path("scorer.txt").touch()
    Path("empty").mkdir()
    assert main(["pasta", "train", "--data", str(release), *QUICK, *shlex.split(arguments)]) == 2
    assert message in capsys.readouterr().err


def test_the_best_and_the_worst_are_of_different_explainers_and_lists_have_their_image() -> None:
    ratings = made_ratings(12, 9)
    _, scores, _, _, _ = made_outcome(ratings, ("Q1",), 1)
    scored = scores[scores["model"] == SCORER]
    found = training.ranked_rows(scored, ratings, "Q1")
    explainers = {name: [row.label.partition(":")[0] for row in rows] for name, rows in found.items()}
    assert all(len(names) == len(set(names)) for names in explainers.values())
    best = scored.sort_values("score", ascending=False, kind="stable")
    assert explainers["best"] == list(dict.fromkeys(best["explainer"]))[: len(explainers["best"])]
    rows = [row for rows in found.values() for row in rows]
    assert all(isinstance(row.cells[0], np.ndarray) for row in rows)
    assert any(row.label.startswith("list") for row in rows)
