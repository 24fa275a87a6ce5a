"""The files of several annotators, joined; and the sheet's other outputs."""

import json

import numpy as np
import pytest

from explanation_folders import write_folders
from quantus_concepts.datasets.ratings.released import PastaRatings
from quantus_concepts.studies.app import main
from quantus_concepts.studies.pasta.rate_command import pasta_join, pasta_sheet
from quantus_concepts.studies.pasta.sheet import join_ratings, page_questions


def _sheet(root, **changes):
    return pasta_sheet(root / "images", root / "explanations", progress=False, **changes)


@pytest.fixture
def data(tmp_path):
    root = write_folders(tmp_path / "data", 2, ("grad-cam", "words"))
    return _sheet(root, picture_size=40, out=tmp_path / "sheet")


def _record(explainer, image, label, *votes):
    return {
        "img": f"images/pets_{image}_{label}.png",
        "explication": f"expl/pets_{image}_{explainer}_{label}.png",
        "GTclass": label,
        "predictedclass": label,
        "Annotation": list(votes),
    }


def _write(path, *records):
    path.write_text(json.dumps(records))
    return path


def test_votes_are_joined_by_explanation(data, tmp_path, capsys):
    anna = {"annotator": "Anna"}
    first = _write(
        tmp_path / "a.json",
        _record("grad-cam", "000", "cat", anna | {"Q1": 4, "Q2": 2}),
        _record("words", "001", "dog", anna | {"Q1": 1}),
    )
    # Saved later: agrees, and has more.
    again = _write(
        tmp_path / "b.json",
        _record("words", "001", "dog", anna | {"Q1": 1, "Q2": 5}),
        _record("grad-cam", "000", "cat", anna | {"Q1": 4, "Q2": 2}),
    )
    nameless = _write(tmp_path / "carl.json", _record("grad-cam", "000", "cat", {"Q1": 3}))
    joined = join_ratings([first, again, nameless])
    assert joined.annotators == ["Anna", "carl"]
    assert pasta_join([first, again, nameless], data, out=tmp_path / "out") == tmp_path / "out"
    assert "2 annotators: Anna, carl." in capsys.readouterr().out.splitlines()
    ratings = PastaRatings(tmp_path / "out")
    np.testing.assert_array_equal(ratings.votes[0][:, :3], [[4, 2, np.nan], [3, np.nan, np.nan]])
    np.testing.assert_array_equal(ratings.votes[1][:, :3], [[1, 5, np.nan], [np.nan] * 3])
    assert not (tmp_path / "out" / "images" / "pets_002_bird.png").exists()


def test_contradictions_are_all_listed(tmp_path):
    anna = {"annotator": "Anna"}
    first = _write(
        tmp_path / "a.json",
        _record("grad-cam", "000", "cat", anna | {"Q1": 4, "Q3": 1}),
        _record("words", "001", "dog", anna | {"Q1": 1}),
    )
    other = _record("words", "001", "dog", anna | {"Q1": 1}) | {"predictedclass": "wolf"}
    second = _write(tmp_path / "b.json", _record("grad-cam", "000", "cat", anna | {"Q1": 5, "Q3": 1}), other)
    outside = _write(tmp_path / "d.json", _record("words", "001", "dog", {"Q1": 6}))
    with pytest.raises(ValueError, match="cannot be joined") as error:
        join_ratings([first, second, outside])
    message = str(error.value)
    assert "Anna gave expl/pets_000_grad-cam_cat.png other votes in b.json than in a file before it (Q1)" in message
    assert "b.json has another image or label for expl/pets_001_words_dog.png" in message
    assert "d.json has 1 faulty votes" in message


def test_questions_about_change_need_what_they_ask_about(tmp_path):
    without, light = {"Q5": None, "Q6": None}, {"Q5": tmp_path, "Q6": None}
    with pytest.raises(ValueError, match=r"Q6 asks how .* with --strong"):
        page_questions("Q1,Q6", without)
    with pytest.raises(ValueError, match="Q9"):
        page_questions("Q9", without)
    with pytest.raises(ValueError, match="at least one question"):
        page_questions(" , ", without)
    assert page_questions(None, without) == ("Q1", "Q2", "Q3", "Q4")
    assert page_questions(None, light) == ("Q1", "Q2", "Q3", "Q4", "Q5")


def test_records_that_point_outside_of_the_folder_write_nothing_there(data, tmp_path):
    (tmp_path / "key.png").write_bytes(b"secret")
    record = _record("grad-cam", "000", "cat", {"Q1": 4}) | {"img": "../key.png"}
    with pytest.raises(ValueError, match="no path inside the folder"):
        pasta_join([_write(tmp_path / "a.json", record)], data, out=tmp_path / "a" / "out")
    assert not (tmp_path / "a").exists()


def test_missing_files_are_all_listed(data, tmp_path):
    (data / "activations" / "pets_000_grad-cam_cat.npy").unlink()
    (data / "images" / "pets_001_dog.png").unlink()
    records = [_record("grad-cam", "000", "cat", {"Q1": 4}), _record("words", "001", "dog", {"Q1": 1})]
    missing = r"2 are missing: activations/pets_000_grad-cam_cat\.npy, images/pets_001_dog\.png"
    with pytest.raises(ValueError, match=missing):
        pasta_join([_write(tmp_path / "a.json", *records)], data, out=tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_sheet_on_the_command_line(tmp_path, capsys):
    root = write_folders(tmp_path)
    np.save(root / "explanations" / "grad-cam" / "pets_000_cat.npy", np.zeros((4, 4)))
    arguments = ["pasta", "sheet", "--images", str(root / "images"), "--explanations", str(root / "explanations")]
    arguments += ["--out", str(tmp_path / "out"), "--no-progress", "--picture-size", "40"]
    assert main([*arguments, "--n-items", "4"]) == 0
    assert "Left out, 1: grad-cam/pets_000_cat.npy (the map is constant" in capsys.readouterr().out
    assert main([*arguments[:-5], "--max-megabytes", "0.001", "--out", str(tmp_path / "large")]) == 2
    assert "Take fewer with --n-items" in capsys.readouterr().err
    assert not (tmp_path / "large").exists()


def test_explainers_of_one_name_in_files_are_refused(tmp_path):
    root = write_folders(tmp_path, 1, ("grad_cam", "grad cam"))
    with pytest.raises(ValueError, match=r"'grad cam' and 'grad_cam' .* same explainer"):
        _sheet(root, out=tmp_path / "out")
    assert not (tmp_path / "out").exists()
