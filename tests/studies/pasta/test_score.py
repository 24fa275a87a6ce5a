"""The command `pasta score`."""

import re

import numpy as np
import pandas as pd
import pytest
from quantus.helpers.enums import ScoreDirection

from explanation_folders import write_folders
from quantus_concepts.datasets.ratings.explanation_files import find_explanations
from quantus_concepts.datasets.ratings.explanations import QUESTIONS
from quantus_concepts.metrics.pasta.pasta_score import PASTAScore
from quantus_concepts.pasta.embedder import Embedder
from quantus_concepts.pasta.scorer import Scorer
from quantus_concepts.pasta.scorer_files import save_scorer
from quantus_concepts.studies.pasta import COMMANDS, material
from quantus_concepts.studies.pasta.material import for_spreadsheets
from quantus_concepts.studies.pasta.score import by_explainer, compare_explainers, mixture_of
from tiny_encoders import PoolingEncoder

DIM = PoolingEncoder.dim


@pytest.fixture(autouse=True)
def _undrawn(monkeypatch):
    # Drawing takes most of the time of a tiny run.
    monkeypatch.setattr("matplotlib.figure.Figure.savefig", lambda *_, **__: None)


@pytest.fixture
def encoder(monkeypatch):
    tiny = PoolingEncoder("tiny")
    monkeypatch.setattr(material, "as_encoder", lambda name, **settings: tiny)
    return tiny


@pytest.fixture
def root(tmp_path, encoder):
    write_folders(tmp_path)
    _scorer(tmp_path / "scorer.safetensors", ["cat", "dog", "bird"])
    return tmp_path


def _scorer(path, labels, questions=("Q1", "Q5"), **metadata):
    scorer = Scorer(DIM, questions, labels, (6, 5), encoder="tiny", settings={}, metadata=metadata, seed=3)
    save_scorer(scorer, path)
    return scorer


def _score(root, **changes):
    settings = {
        "images": root / "images",
        "explanations": root / "explanations",
        "scorer": root / "scorer.safetensors",
        "out": root / "out",
        "progress": False,
        "device": "cpu",
        "n_shown": 1,
    }
    return COMMANDS["pasta score"](**(settings | changes))


def _frame(out):
    return pd.read_csv(out / "scores.csv", keep_default_na=False, na_values={"Q1": "", "Q5": ""})


def test_scores_are_those_of_the_parts(root, encoder):
    frame = _frame(_score(root))
    files = find_explanations(root / "images", root / "explanations")
    scorer = _scorer(root / "same.safetensors", ["cat", "dog", "bird"])
    rows = frame.set_index(["explainer", "explanation"])
    assert len(rows) == len(files) == 9
    for file in files:
        expected = scorer.score(Embedder(encoder).embed([file.read()]), [file.label])[0].numpy()
        row = rows.loc[(file.explainer, file.path.name)]
        np.testing.assert_allclose(row[["Q1", "Q5"]].astype(float), expected, atol=6e-5)
    assert frame.Q1.is_monotonic_decreasing
    assert frame.Q1.nunique() > 3
    assert set(frame.note) == {""}


def test_questions_are_chosen_and_low_may_be_good(root):
    frame = _frame(_score(root, question="Q5"))
    assert "Q1" not in frame
    assert frame.Q5.is_monotonic_increasing
    with pytest.raises(ValueError, match=r"does not answer \['Q2'\]"):
        _score(root, question="Q2", out=root / "other")


def test_texts_of_users_are_no_formulas():
    frame = pd.DataFrame({"explainer": ["=1+1", "-2", "a"], "value": [-1.0, 2.0, 3.0]})
    assert for_spreadsheets(frame).to_numpy().tolist() == [["'=1+1", -1.0], ["-2", 2.0], ["a", 3.0]]


def test_wins_follow_the_question():
    table = {
        "explainer": ["a", "a", "b", "b", "b"],
        "dataset": ["d"] * 5,
        "image_id": ["1", "2", "1", "2", "3"],
        "Q1": [3.0, np.nan, 2.0, 2.5, 4.0],
        "Q5": [3.0, np.nan, 2.0, 2.5, 4.0],
    }
    frame, asked = pd.DataFrame(table), {name: QUESTIONS[name] for name in ("Q5", "Q1")}
    assert mixture_of(frame, QUESTIONS["Q1"]).wins == {"a": 1, "b": 2}
    assert mixture_of(frame, QUESTIONS["Q5"]).wins == {"a": 0, "b": 3}
    assert mixture_of(frame[frame["explainer"] == "a"], QUESTIONS["Q1"]) is None
    assert compare_explainers(frame, "Q1", "b")[["a", "b"]].to_numpy().tolist() == [["b", "a"]]
    rows = by_explainer(frame, asked, mixture_of(frame, QUESTIONS["Q5"])).pivot(
        index="explainer", columns="measure", values="value"
    )
    assert list(by_explainer(frame, asked, None)["explainer"][:2]) == ["b", "a"]
    assert rows.loc["b", "Q1"] == pytest.approx(8.5 / 3)
    assert rows["n"].to_dict() == {"a": 1, "b": 3}
    assert rows["wins (Q5)"].to_dict() == {"a": 0, "b": 3}


def test_questions_of_ones_own_are_sorted_and_worded_as_they_were_asked(root):
    asked = {
        "change": {"text": "How much did it change?", "low_is_good": True},
        "Q1": {"text": "", "low_is_good": False},
    }
    _scorer(root / "scorer.safetensors", ["cat", "dog", "bird"], ("change", "Q1"), asked=asked)
    _score(root)
    page = " ".join((root / "out" / "report.html").read_text(encoding="utf-8").split())
    assert "How much did it change? Low is good." in page
    assert "whose wording its files do not give" in page
    assert QUESTIONS["Q1"].text not in page
    scores = pd.read_csv(root / "out" / "scores.csv")["change"].dropna()
    assert scores.is_monotonic_increasing
    assert scores.nunique() > 1
    assert PASTAScore(root / "scorer.safetensors", PoolingEncoder("tiny")).score_direction == ScoreDirection.LOWER


def test_bad_files_and_unknown_labels_lose_only_themselves(root, capsys):
    folder = root / "explanations"
    np.save(folder / "grad-cam" / "pets_000_cat.npy", np.ones((3, 3)))
    (folder / "words" / "pets_001_dog.json").write_text("{")
    np.save(folder / "lime_2" / "pets_007_dog.npy", np.eye(3))
    (folder / "lime_2" / "pets_002_bird.npy").rename(folder / "lime_2" / "pets_002_brd.npy")
    frame = _frame(_score(root))
    notes = dict(zip(frame.explainer + "/" + frame.explanation, frame.note, strict=True))
    faults = {name: note for name, note in notes.items() if note}
    assert len(faults) == 4
    assert "constant" in faults["grad-cam/pets_000_cat.npy"]
    assert "is no JSON" in faults["words/pets_001_dog.json"]
    assert "no image" in faults["lime_2/pets_007_dog.npy"]
    assert re.search(r"'brd' \(1 of \d labels\), only 'cat', 'dog', 'bird'", faults["lime_2/pets_002_brd.npy"])
    assert frame.Q1.isna().sum() == 4
    assert frame.Q1.tail(4).isna().all()
    assert "Not scored, 4 of 10:" in capsys.readouterr().err


def test_nothing_left_is_an_error_and_leaves_nothing(root):
    for file in (root / "explanations").rglob("*.*"):
        file.write_bytes(b"?")
    with pytest.raises(ValueError, match="None of the 9 explanations can be used"):
        _score(root)
    assert not (root / "out").exists()


def test_without_labels(root, capsys):
    assert _frame(_score(root, labels_from="none")).Q1.notna().all()
    assert "9 of 9 explanations have no label, which the scorer was trained with." in capsys.readouterr().err
    _scorer(root / "scorer.safetensors", None)
    assert _frame(_score(root, overwrite=True)).Q1.notna().all()
    assert "no label" not in capsys.readouterr().err


def test_the_encoder_of_a_file_needs_the_file(root):
    scorer = Scorer(DIM, ("Q1",), None, (6, 5), encoder="siglip (mine.safetensors)", settings={})
    save_scorer(scorer, root / "scorer.safetensors")
    with pytest.raises(ValueError, match=r"siglip \(mine\.safetensors\): give that file with --encoder-weights"):
        _score(root)
    assert material.encoder_trained_on(scorer, root / "mine.safetensors") == "siglip"


def test_without_a_scorer_and_with_one_that_cannot_be_used(root):
    with pytest.raises(ValueError, match=r"There are three ways to one: PASTA_Q1\.pth"):
        _score(root, scorer=None)
    (root / "scorer.safetensors").write_bytes(b"?")
    with pytest.raises(ValueError, match="`--scorer` names what cannot be used"):
        _score(root)


def test_an_interrupted_run_encodes_only_what_is_missing(root, encoder, monkeypatch):
    reference = _frame(_score(root, batch_size=1, out=root / "whole"))
    assert encoder.images_seen == 6
    encode = encoder.encode_images

    def interrupted(images):
        if encoder.images_seen == 11:
            raise KeyboardInterrupt
        return encode(images)

    monkeypatch.setattr(encoder, "encode_images", interrupted)
    with pytest.raises(KeyboardInterrupt):
        _score(root, batch_size=1)
    monkeypatch.setattr(encoder, "encode_images", encode)
    # Four batches are a range.
    _score(root, batch_size=1)
    assert encoder.images_seen == 11 + 2
    pd.testing.assert_frame_equal(_frame(root / "out"), reference, check_exact=True)


def test_simulated_raters_and_concepts_the_scorer_never_saw_are_named(root, capsys):
    _scorer(root / "some.safetensors", ["cat", "dog", "bird"], concept_names=["wing"], simulated=True)
    out = _score(root, scorer=root / "some.safetensors", encoder="tiny")
    notes = capsys.readouterr().err
    assert re.search(r"\d+ of \d+ concepts were in none of the ratings the scorer learned from", notes)
    assert "simulated raters" in (out / "report.html").read_text()
    _score(root, out=root / "other")
    notes = capsys.readouterr().err
    assert "in none of the ratings" not in notes
