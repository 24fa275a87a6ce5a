"""The sheet's questions and its other outputs."""

import numpy as np
import pytest

from explanation_folders import write_folders
from quantus_concepts.datasets.ratings.explanations import QUESTIONS
from quantus_concepts.datasets.ratings.table import read_wordings
from quantus_concepts.studies.app import main
from quantus_concepts.studies.pasta.sheet import page_questions


def test_questions_about_change_need_what_they_ask_about(tmp_path):
    without, light = {"Q5": None, "Q6": None}, {"Q5": tmp_path, "Q6": None}
    with pytest.raises(ValueError, match=r"Q6 asks how .* with --strong"):
        page_questions("Q1,Q6", without)
    with pytest.raises(ValueError, match=r"`--questions` .* got 'Q9'\. .* your own, .* `pasta train --data`"):
        page_questions("Q9", without)
    with pytest.raises(ValueError, match="at least one question"):
        page_questions(" , ", without)
    assert page_questions(None, without) == ("Q1", "Q2", "Q3", "Q4")
    assert page_questions(None, light) == ("Q1", "Q2", "Q3", "Q4", "Q5")


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
