"""Ratings as one CSV file, explanations beside it."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from quantus_concepts.datasets import PastaRatings
from quantus_concepts.datasets.ratings.explanations import QUESTIONS, Question, papers

HEADER = "image,explainer,rater,label,Q1,Q5"
ROWS = (
    "a.jpg,LIME,Anna,cat,4,",
    "a.jpg,LIME,Ben,cat,5,2",
    "b.png,LIME,Anna,dog,1,3",
    "a.jpg,words,Ben,cat,2,NA",
    "a.jpg,drawn,Anna,cat,3,3.0",
)


@pytest.fixture
def write(tmp_path: Path) -> Callable[..., Path]:
    """Write images, explanations and a table of the given lines."""
    rng = np.random.default_rng(0)
    for name in ("images/a.jpg", "b.png"):
        (tmp_path / "images").mkdir(exist_ok=True)
        Image.fromarray(rng.integers(0, 256, (8, 6, 3), dtype=np.uint8)).save(tmp_path / name)
    for explainer in ("explanations/LIME", "words", "drawn"):
        (tmp_path / explainer).mkdir(parents=True)
    for name in ("explanations/LIME/a", "explanations/LIME/b", "drawn/a"):
        np.save(tmp_path / f"{name}.npy", rng.random((4, 3), dtype=np.float32))
    Image.fromarray(rng.integers(0, 256, (8, 6, 3), dtype=np.uint8)).save(tmp_path / "drawn/a.png")
    (tmp_path / "words/a.json").write_text(json.dumps({"fur": 0.5, "beak": -1.0}))

    def call(*lines: str, encoding: str = "utf-8") -> Path:
        path = tmp_path / "ratings.csv"
        path.write_text("\n".join(lines), encoding=encoding)
        return path

    return call


def test_votes_and_files_are_those_of_the_rows(write: Callable[..., Path]) -> None:
    path = write(HEADER, *ROWS)
    rated = PastaRatings(path)
    assert rated.explainer_ids.tolist() == ["LIME", "LIME", "words", "drawn"]
    assert rated.modalities.tolist() == ["map", "map", "concepts", "drawing"]
    assert rated.labels.tolist() == ["cat", "dog", "cat", "cat"]
    nan = np.nan
    # The second axis is that of the raters, whoever rated what.
    assert rated.raters == ("Anna", "Ben")
    np.testing.assert_array_equal(rated.votes[..., 0], [[4, 5], [1, nan], [nan, 2], [3, nan]])
    np.testing.assert_array_equal(rated.votes[..., 1], [[nan, 2], [3, nan], [nan, nan], [3, nan]])
    assert rated.questions == ("Q1", "Q5")
    np.testing.assert_array_equal(rated.explanations[1].map, np.load(path.parent / "explanations/LIME/b.npy"))
    assert rated.explanations[2].values == {"fur": 0.5, "beak": -1.0}
    # Maps are drawn anew where asked for.
    assert PastaRatings(path, drawings=False).modalities.tolist() == ["map", "map", "concepts", "map"]
    assert PastaRatings(path, modality="map").explainer_ids.tolist() == ["LIME", "LIME", "drawn"]


def test_suffixes_in_capital_letters_are_those_in_small_ones(write: Callable[..., Path]) -> None:
    path = write(f"{HEADER},explanation", "a.jpg,LIME,Anna,cat,4,,LIME/a.NPY")
    (path.parent / "explanations/LIME/a.npy").rename(path.parent / "explanations/LIME/a.NPY")
    rated = PastaRatings(path)
    assert rated.modalities.tolist() == ["map"] == [explanation.modality for explanation in rated.explanations]


def test_an_explainer_that_is_called_as_one_of_the_release_is_another_one(write: Callable[..., Path]) -> None:
    path = write(HEADER, ROWS[0])
    (path.parent / "explanations/LIME").rename(path.parent / "3")
    (explanation,) = PastaRatings(write(HEADER, ROWS[0].replace("LIME", "3"))).explanations
    assert explanation.normalise is None


def test_a_column_names_explanations(write: Callable[..., Path]) -> None:
    rated = PastaRatings(write("rater,image,explainer,q1,Explanation", "Anna,b.png,mine,3,words/a.json"))
    assert rated.explanations[0].values == {"fur": 0.5, "beak": -1.0}
    assert any("cannot see the class" in note for note in rated.notes)


def test_the_label_of_the_table_counts_more_than_that_in_a_files_name(write: Callable[..., Path]) -> None:
    path = write(HEADER, ROWS[0].replace("a.jpg", "coco_1_dog.jpg"))
    (path.parent / "images/a.jpg").rename(path.parent / "coco_1_dog.jpg")
    (path.parent / "explanations/LIME/a.npy").rename(path.parent / "explanations/LIME/coco_1_dog.npy")
    for labels in ("predicted", "image-name"):
        assert PastaRatings(path, labels=labels).labels.tolist() == ["cat"]
    bare = "image,explainer,rater,Q1", "coco_1_dog.jpg,LIME,Anna,3"
    assert PastaRatings(write(*bare), labels="image-name").labels.tolist() == ["dog"]
    assert PastaRatings(write(*bare)).labels.tolist() == [""]


def test_files_of_several_raters_in_a_folder(write: Callable[..., Path]) -> None:
    folder = write(HEADER, *ROWS[:2]).parent
    # An early file of the same person and a complete one go together; contradictions do not.
    (folder / "late.csv").write_text("\n".join((HEADER, ROWS[0] + "4", *ROWS[2:])))
    rated = PastaRatings(folder)
    assert (rated.name, len(rated), rated.raters) == (folder.name, 4, ("Anna", "Ben"))
    np.testing.assert_array_equal(rated.votes[0, 0], [4, 4])
    (folder / "other.csv").write_text("\n".join((HEADER, ROWS[0].replace("4", "1"))))
    with pytest.raises(ValueError, match=r"another rating of 'Anna' for the same explanation .*other.csv, line 2"):
        PastaRatings(folder)


def test_as_spreadsheets_write_it(write: Callable[..., Path]) -> None:
    lines = [line.replace(",", ";") for line in (HEADER, *ROWS)]
    assert len(PastaRatings(write(*lines, "", encoding="utf-8-sig"))) == 4


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        (("image,method,rater,Q1", "a.jpg,LIME,Anna,3"), "lacks columns: explainer"),
        (("image,explainer,rater,label", "a.jpg,LIME,Anna,cat"), "lacks a column of votes"),
        (("image,explainer,rater,Q1,modality", "a.jpg,LIME,Anna,3,3"), "called otherwise than 'modality'"),
        (("image,explainer,rater,Q1,", "a.jpg,LIME,Anna,3,3"), "called otherwise than ''"),
        (("image,explainer,rater,Q1,Remark", "a.jpg,LIME,Anna,3,nice"), "'nice' is no vote .*Remark.*questions.json"),
        ((HEADER, "a.jpg,LIME,Anna,cat,good,0", "a.jpg,LIME,Ben,cat,6,3.5"), "4 faults: 'good' is no vote .line 2, Q1"),
        ((HEADER, "a.jpg,LIME,,cat,3,3"), "1 faults: no rater .line 2"),
        ((HEADER, ROWS[0], ROWS[0].replace("4", "3")), "another rating of 'Anna' for the same explanation .line 3"),
        ((HEADER, ROWS[0], ROWS[1].replace("cat", "dog")), "another label than in line 2"),
        ((HEADER, ROWS[0] + ",3"), "line 2: expected 6 columns"),
        ((HEADER, ROWS[0].replace("a.jpg", "../a.jpg")), "line 2: expected the path of a file inside"),
        ((HEADER, "a.jpg,LIME,Anna,cat,,"), "has no vote"),
        (
            ("image,explainer,rater,Q1,explanation", "a.jpg,x,Anna,3,words/a.json", "b.png,x,Anna,3,words/a.json"),
            "a.json is that of a.jpg and of b.png",
        ),
    ],
)
def test_what_is_wrong_is_named(write: Callable[..., Path], lines: tuple[str, ...], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        PastaRatings(write(*lines))


def test_questions_are_those_of_the_study(write: Callable[..., Path]) -> None:
    rated = PastaRatings(
        write("image,explainer,rater,Clarity,Q5,trust", "a.jpg,LIME,Anna,4,2,", "b.png,LIME,Ben,5,1,3")
    )
    assert rated.questions == ("Clarity", "Q5", "trust")
    np.testing.assert_array_equal(rated.targets(), [[4, 2, np.nan], [5, 1, 3]])
    # Nobody said that Q5 is the paper's: neither its wording nor its direction is taken.
    assert [question.text for question in rated.asked.values()] == [""] * 3
    assert not any(question.low_is_good for question in rated.asked.values())
    assert rated.select([1]).questions == rated.questions
    (note,) = (note for note in rated.notes if "wording" in note)
    assert note.startswith("The wording of Clarity, Q5, trust is not known, and high is taken as good: questions.json")
    # Only what was asked can be missing.
    (missing,) = (note for note in rated.notes if "missing" in note)
    assert missing == "Votes are missing: trust in 1 of 2 explanations."


def test_a_file_words_the_questions_and_leaves_other_columns(write: Callable[..., Path]) -> None:
    path = write("image,explainer,rater,clarity,change,remark", "a.jpg,LIME,Anna,4,2,nice", "b.png,LIME,Ben,5,1,")
    wordings = {"clarity": "Is it clear?", "change": {"text": "Did it change?", "low_is_good": True}}
    (path.parent / "questions.json").write_text(json.dumps(wordings))
    rated = PastaRatings(path)
    assert rated.asked == {
        "clarity": Question("clarity", "Is it clear?"),
        "change": Question("change", "Did it change?", low_is_good=True),
    }
    np.testing.assert_array_equal(rated.targets(), [[4, 2], [5, 1]])
    assert not any("wording" in note or "missing" in note for note in rated.notes)
    # The paper's question, where its page asked it.
    (path.parent / "questions.json").write_text(json.dumps({"change": QUESTIONS["Q5"].text}))
    assert papers(PastaRatings(path).asked.values()) == []


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (["clarity"], "to be an object, such as"),
        ({"clarity": 3}, "question 'clarity' in .* to be its wording"),
        ({"Q1": {"text": "?", "low": True}}, "question 'Q1' in .* to be its wording"),
        ({"Q1": {"text": "?", "low_is_good": "yes"}}, "question 'Q1' in .* to be its wording"),
        ({"Q1": {"text": "?", "ends": "ab"}}, "question 'Q1' in .* to be its wording"),
        ({"Q1": {"text": "?", "ends": ["a"]}}, "ends of question 'Q1' in .* to be two texts"),
        ({"Q1": {"text": "?", "ends": ["a", 5]}}, "ends of question 'Q1' in .* to be two texts"),
        ({"Q1": "?", "label": "?", "Explanation": "?"}, "called otherwise than 'label', 'Explanation'"),
        ({"Q1": "?", "q1": "?"}, "to have different names but got Q1, q1"),
        ({"Q1": "?", "Q9": "?"}, "a column for each of its questions but Q9 have none"),
        ({}, "lacks a column of votes"),
    ],
)
def test_what_is_wrong_in_the_file_of_questions(write: Callable[..., Path], content: object, message: str) -> None:
    path = write(HEADER, *ROWS)
    (path.parent / "questions.json").write_text(json.dumps(content))
    with pytest.raises(ValueError, match=message):
        PastaRatings(path)


def test_missing_files_are_listed_once(write: Callable[..., Path]) -> None:
    path = write(HEADER, *ROWS, "c.jpg,LIME,Anna,cat,3,3", "c.jpg,words,Anna,cat,3,3")
    with pytest.raises(FileNotFoundError, match=r"3 files .* missing: c.jpg, LIME/c.json or .png or .npy, words/c"):
        PastaRatings(path)
