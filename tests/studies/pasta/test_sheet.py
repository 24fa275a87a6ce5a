"""The sheet's questions and its other outputs."""

import json

import numpy as np
import pytest

from explanation_folders import write_folders
from quantus_concepts.datasets.ratings.explanations import QUESTIONS, Question
from quantus_concepts.datasets.ratings.table import read_wordings
from quantus_concepts.studies.app import main
from quantus_concepts.studies.pasta.sheet import page_questions


def test_questions_about_change_need_what_they_ask_about(tmp_path):
    without, light = {"Q5": None, "Q6": None}, {"Q5": tmp_path, "Q6": None}
    with pytest.raises(ValueError, match=r"Q6 asks how .* with --strong"):
        page_questions("Q1,Q6", without)
    with pytest.raises(ValueError, match=r"`--questions` .* a file of your own .* got 'Q9'"):
        page_questions("Q9", without)
    with pytest.raises(ValueError, match="at least one question"):
        page_questions(" , ", without)
    with pytest.raises(ValueError, match=r"`--light` has no effect .* not ask Q5"):
        page_questions("Q1", light)
    assert [question.name for question in page_questions(None, without)] == ["Q1", "Q2", "Q3", "Q4"]
    assert [question.name for question in page_questions(None, light)] == ["Q1", "Q2", "Q3", "Q4", "Q5"]


def test_a_file_of_questions_is_asked_in_its_order(tmp_path):
    light, file = {"Q5": tmp_path, "Q6": None}, tmp_path / "questions.json"
    own = {"trust": "Do you trust it?", "effort": {"text": "How hard?", "low_is_good": True, "ends": ["easy", "hard"]}}
    file.write_text(json.dumps(own))
    asked = page_questions(str(file), {"Q5": None, "Q6": None})
    assert asked == (Question("trust", "Do you trust it?"), Question("effort", "How hard?", low_is_good=True))
    assert [question.ends for question in asked] == [None, ("easy", "hard")]
    with pytest.raises(ValueError, match=r"`--light` has no effect .* not ask Q5"):
        page_questions(str(file), light)
    # The file of a page asks the paper's questions again; another question of that name needs no changed image.
    change = {"text": QUESTIONS["Q5"].text, "low_is_good": True}
    file.write_text(json.dumps({"Q5": change}))
    assert page_questions(str(file), light) == (QUESTIONS["Q5"],)
    with pytest.raises(ValueError, match="--light"):
        page_questions(str(file), {"Q5": None, "Q6": None})
    file.write_text(json.dumps({"Q5": "Would you buy it?"}))
    assert page_questions(str(file), {"Q5": None, "Q6": None}) == (Question("Q5", "Would you buy it?"),)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ({}, "at least one question"),
        ({"trust": " "}, "question 'trust' .* to have a wording"),
        ({"trust": {"low_is_good": True}}, "question 'trust' .* to have a wording"),
        ({"rater": "Who?"}, "called otherwise than 'rater'"),
        *(
            ({name: "?"}, "to be a short word")
            for name in ("=1+1", "+a", "-a", "@a", "'a", " a", "a ", "a;b", "a\tb", "a\nb")
        ),
    ],
)
def test_what_a_page_cannot_ask(tmp_path, content, message):
    (tmp_path / "questions.json").write_text(json.dumps(content))
    with pytest.raises(ValueError, match=message):
        page_questions(str(tmp_path / "questions.json"), {"Q5": None, "Q6": None})


def test_no_file_of_questions(tmp_path):
    with pytest.raises(ValueError, match=r"File of questions .*asked\.json cannot be read"):
        page_questions(str(tmp_path / "asked.json"), {"Q5": None, "Q6": None})


def test_sheet_on_the_command_line(tmp_path, capsys):
    root = write_folders(tmp_path)
    np.save(root / "explanations" / "grad-cam" / "pets_000_cat.npy", np.zeros((4, 4)))
    arguments = ["pasta", "sheet", "--images", str(root / "images"), "--explanations", str(root / "explanations")]
    arguments += ["--out", str(tmp_path / "out"), "--no-progress", "--picture-size", "40"]
    assert main([*arguments, "--n-items", "4"]) == 0
    assert "Left out, 1: grad-cam/pets_000_cat.npy (the map is constant" in capsys.readouterr().out
    # What the page asks stands beside the answers.
    asked = read_wordings(tmp_path / "out" / "questions.json")
    assert asked == {name: QUESTIONS[name] for name in ("Q1", "Q2", "Q3", "Q4")}
    assert main([*arguments[:-5], "--max-megabytes", "0.001", "--out", str(tmp_path / "large")]) == 2
    assert "Take fewer with --n-items" in capsys.readouterr().err
    assert not (tmp_path / "large").exists()
