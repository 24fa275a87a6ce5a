"""The command `pasta score`."""

import json
import re

import numpy as np
import pandas as pd
import pytest
import torch

from explanation_folders import write_folders
from html_pages import HTMLPage
from quantus_concepts.datasets.ratings.explanation_files import find_explanations
from quantus_concepts.pasta.embedder import Embedder
from quantus_concepts.pasta.encoders.embedded_encoder import EmbeddedEncoder
from quantus_concepts.pasta.scorer import Scorer
from quantus_concepts.pasta.scorer_files import save_scorer
from quantus_concepts.studies.app import main
from quantus_concepts.studies.pasta import material
from quantus_concepts.studies.pasta.rate_command import pasta_score
from quantus_concepts.studies.pasta.score import by_explainer, for_spreadsheets, mixture_of
from tiny_encoders import PoolingEncoder

DIM = PoolingEncoder.dim


@pytest.fixture(autouse=True)
def _undrawn(request, monkeypatch):
    # Drawing takes most of the time of a tiny run: one is drawn.
    if "drawn" not in request.fixturenames:
        monkeypatch.setattr("matplotlib.figure.Figure.savefig", lambda *_, **__: None)


@pytest.fixture
def drawn():
    """The figures are drawn."""


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
    return pasta_score(**(settings | changes))


def _frame(out):
    return pd.read_csv(out / "scores.csv", keep_default_na=False, na_values={"Q1": "", "Q5": ""})


def test_scores_are_those_of_the_parts(root, encoder):
    frame = _frame(_score(root))
    assert list(frame) == [
        *("explainer", "explanation", "image", "dataset", "image_id", "label", "modality", "Q1", "Q5", "note")
    ]
    files = find_explanations(root / "images", root / "explanations")
    scorer = _scorer(root / "same.safetensors", ["cat", "dog", "bird"])
    by_hand = {}
    for file in files:
        embedding = Embedder(encoder).embed([file.read()])
        with torch.no_grad():
            by_hand[file.explainer, file.path.name] = scorer.score(embedding, [file.label])[0].tolist()
    assert len(frame) == len(by_hand) == 9
    for _, row in frame.iterrows():
        np.testing.assert_allclose([row.Q1, row.Q5], by_hand[row.explainer, row.explanation], atol=6e-5)
    assert frame.Q1.is_monotonic_decreasing
    assert frame.Q1.nunique() > 3
    assert set(frame.note) == {""}


def test_questions_are_chosen_and_low_may_be_good(root):
    frame = _frame(_score(root, question="Q5"))
    assert "Q1" not in frame
    assert frame.Q5.is_monotonic_increasing
    with pytest.raises(ValueError, match=r"does not answer \['Q2'\]"):
        _score(root, question="Q2", out=root / "other")


@pytest.mark.usefixtures("drawn")
def test_report_has_everything_in_it(root, capsys):
    out = _score(root, n_shown=2)
    page = (out / "report.html").read_text()
    links = {link for link in HTMLPage(page).sources if not link.startswith(("data:", "#"))}
    assert {"./results.csv", "./scores.csv"} <= links
    assert all((out / link).is_file() for link in links)
    assert page.count('class="card"') == 4
    printed = capsys.readouterr().out
    verdicts = pd.read_csv(out / "tables" / "verdicts.csv")
    means = pd.read_csv(out / "results.csv")
    means = means[means["measure"] == "Q1"]
    # Verdicts and tables are of the same rows.
    assert verdicts["value"].tolist() == means["value"].tolist()
    for name, row in zip(means["explainer"], verdicts.to_dict("records"), strict=True):
        assert f"How is {name} rated?" in printed
        assert row["random_low"] <= row["random_high"]
        above = row["low"] > row["random_high"]
        assert row["verdict"] == ("above" if above else "below" if row["high"] < row["random_low"] else "within")


def test_texts_of_users_are_no_formulas():
    frame = pd.DataFrame({"explainer": ["=1+1", "-2", "a"], "value": [-1.0, 2.0, 3.0]})
    assert for_spreadsheets(frame)["explainer"].tolist() == ["'=1+1", "-2", "a"]
    assert for_spreadsheets(frame)["value"].tolist() == [-1.0, 2.0, 3.0]


def test_one_explainer_has_no_mixture(root):
    out = _score(root, explanations=root / "explanations" / "words", n_shown=12)
    assert not (out / "figures" / "mixture.png").exists()
    # None of the three is both among the best and among the worst.
    assert (out / "report.html").read_text().count('class="card"') == 3


def test_wins_follow_the_question():
    table = {
        "explainer": ["a", "a", "b", "b", "b"],
        "dataset": ["d"] * 5,
        "image_id": ["1", "2", "1", "2", "3"],
        "Q1": [3.0, np.nan, 2.0, 2.5, 4.0],
        "Q5": [3.0, np.nan, 2.0, 2.5, 4.0],
    }
    frame = pd.DataFrame(table)
    assert mixture_of(frame, "Q1").wins == {"a": 1, "b": 2}
    assert mixture_of(frame, "Q5").wins == {"a": 0, "b": 3}
    rows = by_explainer(frame, ["Q5", "Q1"], mixture_of(frame, "Q5")).pivot(
        index="explainer", columns="measure", values="value"
    )
    assert list(by_explainer(frame, ["Q5", "Q1"], None)["explainer"][:2]) == ["b", "a"]
    assert rows.loc["b", "Q1"] == pytest.approx(8.5 / 3)
    assert rows["n"].to_dict() == {"a": 1, "b": 3}
    assert rows["wins (Q5)"].to_dict() == {"a": 0, "b": 3}


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
    printed = " ".join(capsys.readouterr().err.split())
    assert "Not scored, 4 of 10:" in printed
    for name in faults:
        assert name in printed


def test_nothing_left_is_an_error_and_leaves_nothing(root):
    for file in (root / "explanations").rglob("*.*"):
        file.write_bytes(b"?")
    with pytest.raises(ValueError, match="None of the 9 explanations can be used"):
        _score(root)
    assert not (root / "out").exists()


def test_unknown_labels_are_one_sentence_with_a_count(root):
    _scorer(root / "scorer.safetensors", ["Heron", "Wren"])
    with pytest.raises(ValueError, match="None of the 9 explanations") as error:
        _score(root)
    message = str(error.value)
    assert message.count("the scorer has no label 'bird', 'cat', 'dog' (3 of 3 labels), only 'Heron', 'Wren'") == 1
    assert message.count("--labels-from none") == 1
    assert "-1" not in message


def test_labels_of_the_release_are_understood(root):
    _scorer(root / "scorer.safetensors", ["cat", "dog", "home_or_hotel"])
    for folder in (root / "images", root / "explanations" / "grad-cam"):
        for suffix in (".png", ".npy"):
            file = folder / f"pets_002_bird{suffix}"
            if file.exists():
                file.rename(folder / f"pets_002_SUN_large_hotel{suffix}")
    frame = _frame(_score(root))
    row = frame[frame.explanation == "pets_002_SUN_large_hotel.npy"].iloc[0]
    assert (row.label, row.note) == ("home_or_hotel", "")


def test_without_labels(root, capsys):
    _score(root, labels_from="none")
    assert "no label, which the scorer was trained with" in capsys.readouterr().err
    for file in [*(root / "explanations" / "words").iterdir()]:
        file.rename(file.with_name("_".join(file.stem.split("_")[:2]) + ".json"))
    frame = _frame(_score(root, overwrite=True))
    assert frame.Q1.notna().all()
    assert "3 of 9 explanations have no label, which the scorer was trained with." in capsys.readouterr().err
    _scorer(root / "scorer.safetensors", None)
    frame = _frame(_score(root, overwrite=True))
    assert frame.Q1.notna().all()
    assert "no label" not in capsys.readouterr().err


def test_the_encoder_of_a_file_needs_the_file(root, monkeypatch):
    scorer = Scorer(DIM, ("Q1",), None, (6, 5), encoder="siglip (mine.safetensors)", settings={})
    save_scorer(scorer, root / "scorer.safetensors")
    with pytest.raises(ValueError, match=r"siglip \(mine\.safetensors\): give that file with --encoder-weights"):
        _score(root)
    calls = []

    def as_encoder(name, **settings):
        calls.append((name, settings))
        return PoolingEncoder("tiny")

    monkeypatch.setattr(material, "as_encoder", as_encoder)
    (root / "mine.safetensors").touch()
    _score(root, encoder_weights=root / "mine.safetensors")
    settings = {"weights": root / "mine.safetensors", "tokenizer": None, "device": torch.device("cpu")}
    # Once for its settings, and once where it encodes.
    assert calls == [("siglip", settings)] * 2


def test_an_encoder_of_another_size_is_an_error(root):
    save_scorer(Scorer(DIM + 1, ("Q1",), None, (6, 5), encoder="tiny", settings={}), root / "scorer.safetensors")
    with pytest.raises(ValueError, match="embeddings of 28 numbers"):
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


def test_cache_spares_the_encoder(root, encoder):
    first = _frame(_score(root, cache=root / "cache"))
    assert encoder.images_seen == 6
    again = _frame(_score(root, cache=root / "cache", overwrite=True))
    assert encoder.images_seen == 6
    pd.testing.assert_frame_equal(first, again)


def test_without_a_scorer_the_error_names_three_sources(root, capsys):
    folders = ["--images", str(root / "images"), "--explanations", str(root / "explanations")]
    assert main(["pasta", "score", *folders]) == 2
    error = capsys.readouterr().err
    for word in ("--scorer", "PASTA_Q1.pth", "ENSTA-U2IS/PASTA_weights", "pasta train", "benchmark pasta", "simulated"):
        assert word in error


def test_concepts_in_ascending_order(root):
    # Fifteen of twenty are named: the longest names come last, so another sentence.
    concepts = {f"concept {i}" + "x" * i: i + 1.0 for i in range(20)}
    file = root / "explanations" / "words" / "pets_000_cat.json"
    file.write_text(json.dumps(concepts))
    descending = _frame(_score(root, clip=False))
    ascending = _frame(_score(root, clip=False, ascending="words", overwrite=True))
    values = [frame.set_index(["explainer", "explanation"]).Q1["words", file.name] for frame in (descending, ascending)]
    assert values[0] != values[1]


def test_simulated_raters_and_concepts_the_scorer_never_saw_are_named(root, capsys):
    _scorer(root / "some.safetensors", ["cat", "dog", "bird"], concept_names=["wing"], simulated=True)
    out = _score(root, scorer=root / "some.safetensors", encoder="tiny")
    notes = capsys.readouterr().err
    assert re.search(r"\d+ of \d+ concepts were in none of the ratings the scorer learned from", notes)
    assert "simulated raters" in (out / "report.html").read_text()
    _score(root, out=root / "other")
    notes = capsys.readouterr().err
    assert "in none of the ratings" not in notes


def test_a_scorer_of_the_embedded_encoder_finds_it_by_its_name(tmp_path):
    write_folders(tmp_path)
    encoder = EmbeddedEncoder()
    scorer = Scorer(encoder.dim, ("Q1",), None, encoder=encoder.name, settings={"size": 64})
    save_scorer(scorer, tmp_path / "own.safetensors")
    out = _score(tmp_path, scorer=tmp_path / "own.safetensors")
    assert _frame(out)["Q1"].notna().all()
