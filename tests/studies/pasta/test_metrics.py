from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch

from fixtures_pasta import write_pasta_release
from fixtures_pasta_report import made_ratings
from golden.runs import smaller
from quantus_concepts.datasets.ratings.explanations import QUESTIONS, MapExplanation, Question
from quantus_concepts.datasets.ratings.rated import RatedExplanations
from quantus_concepts.functional import interval
from quantus_concepts.pasta.agreement import spearman
from quantus_concepts.pasta.applications.correlations import with_baseline
from quantus_concepts.studies._kit.results import pick
from quantus_concepts.studies.app import main
from quantus_concepts.studies.pasta.metrics import (
    across_explainers,
    correlation_table,
    mask_error,
    metrics_report,
    related,
    share_between,
)
from quantus_concepts.studies.pasta.votes import explainer_means


def frame(n_images: int = 40, seed: int = 0) -> pd.DataFrame:
    """Return explanations by five explainers whose votes are their places, a perfect metric and a random one."""
    rng = np.random.default_rng(seed)
    images, explainers = np.divmod(np.arange(5 * n_images), 5)
    return pd.DataFrame(
        {
            "image": images,
            "explainer": explainers.astype(str),
            "Q1": explainers + 1.0,
            "perfect": explainers * 10.0,
            "random": rng.standard_normal(5 * n_images),
        }
    )


def test_share_of_the_variance_between_explainers_by_hand() -> None:
    names = ["a", "a", "b", "b"]
    assert share_between(pd.DataFrame({"explainer": names, "Q1": [1.0, 1, 3, 3]}), "Q1") == 1
    assert share_between(pd.DataFrame({"explainer": names, "Q1": [1.0, 3, 1, 3]}), "Q1") == 0
    # Means 2 and 3 of a variance of 5/4: 1/4 of it.
    assert share_between(pd.DataFrame({"explainer": names, "Q1": [1.0, 3, 2, 4]}), "Q1") == pytest.approx(0.2)
    assert math.isnan(share_between(pd.DataFrame({"explainer": names, "Q1": [2.0] * 4}), "Q1"))


def test_rank_correlations_by_hand() -> None:
    assert spearman(np.array([1.0, 2, 3, np.nan]), np.array([10.0, 30, 20, 5])) == pytest.approx(0.5)
    assert math.isnan(spearman(np.array([1.0, 2]), np.array([1.0, 2])))
    # The paper's Table 2: MAE .442, .703, .890 beside scores 3.113, 3.150, 1.846.
    printed = pd.DataFrame(
        {"explainer": ["RISE", "GradCAM", "GBP"], "MAE": [0.442, 0.703, 0.890], "score": [3.113, 3.150, 1.846]}
    )
    assert across_explainers(printed, "MAE", "score") == pytest.approx(-0.5)


def test_means_by_explainer_have_intervals_over_images() -> None:
    means = explainer_means(
        pd.DataFrame({"image": [1, 2, 3, 4] * 2, "explainer": ["a"] * 4 + ["b"] * 4, "Q1": [1, 2, 3, 4.0] * 2}), ["Q1"]
    )
    assert means["explainer"].tolist() == ["a", "b"]
    assert means["value"].tolist() == [2.5] * 2
    # The scale has ends: wider than 3.182446 * 1.290994 / 2.
    low, high = interval([1, 2, 3, 4.0], (1, 5))
    assert means[["low", "high"]].to_numpy().tolist() == [[low, high]] * 2
    # With equal explanations shuffling changes nothing.
    assert means[["random_low", "random_high"]].to_numpy().tolist() == [[2.5, 2.5]] * 2


def test_maps_are_compared_with_the_mask_of_their_image() -> None:
    masks = np.zeros((2, 2, 2), dtype=bool)
    masks[0, 0] = masks[1, 1] = True
    maps = [[[5, 5], [1, 1]], [[5, 5], [1, 1]], [[0, 4], [0, 0]], [[3, 3], [3, 3]]]
    n = len(maps)
    ratings = RatedExplanations(
        [MapExplanation(torch.zeros(3, 2, 2), torch.tensor(heat, dtype=torch.float32)) for heat in maps],
        np.full((n, 1, 6), 3.0),
        image_ids=np.array(["0", "1"] * 2),
        explainer_ids=np.array(["a", "a", "b", "b"]),
        labels=np.full(n, ""),
        datasets=np.full(n, "x"),
        modalities=np.full(n, "map"),
        name="x",
    )
    # Scaled to [0, 1]: right, opposite, one of two pixels, nothing marked.
    assert mask_error(ratings, masks).tolist() == [0, 1, 0.25, 0.5]


def test_a_related_metric_is_beyond_its_control_and_a_random_one_is_not() -> None:
    perfect, random = (
        with_baseline(frame(), lambda rows, name=name: spearman(rows[name].to_numpy(), rows["Q1"].to_numpy()), "Q1")
        for name in ("perfect", "random")
    )
    assert perfect["value"] == perfect["low"] == perfect["high"] == pytest.approx(1)
    # Of 200 shuffled pairs: 1.96 / sqrt(199), and the noise of 200 shuffles.
    assert perfect["random_high"] == pytest.approx(0.139, abs=0.05)
    assert random["random_low"] <= random["value"] <= random["random_high"] < perfect["value"]


def test_a_folder_of_ratings_has_votes_and_sparseness(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    data = write_pasta_release(tmp_path / "data", n_images=3)
    command = ["pasta", "metrics", "--data", str(data), "--no-progress", "--out", str(tmp_path / "out")]
    assert main(["pasta", "metrics"]) == 2
    assert "--data" in capsys.readouterr().err
    with smaller(figures=False):
        assert main(command) == 0
    assert "Does Sparseness follow the votes?" in capsys.readouterr().out
    explanations = pd.read_csv(tmp_path / "out" / "explanations.csv")
    assert explanations.loc[explanations["modality"] == "map", "Sparseness"].notna().all()
    assert "MAE" not in explanations
    page = (tmp_path / "out" / "report.html").read_text(encoding="utf-8")
    assert "imulated" not in page
    # Differences come first, in verdicts and in tables, and the release has asked the paper's questions.
    verdicts = pd.read_csv(tmp_path / "out" / "tables" / "verdicts.csv")["question"].tolist()
    assert "the last of 6 explainers (paired difference of votes, Q1)" in verdicts[0]
    assert page.index("Explainers compared: difference of votes") < page.index("Mean vote by explainer")
    # All pairs of all questions are in a file; a table has room for those with the best, by the first question.
    assert len(pd.read_csv(tmp_path / "out" / "vote_differences.csv")) == 6 * 15
    shown = pd.read_csv(tmp_path / "out" / "tables" / "explainers-compared.csv")
    assert shown.groupby(["a", "b"]).ngroups == 5
    assert QUESTIONS["Q1"].text in " ".join(page.split())


def test_measures_and_papers_numbers_of_a_study_with_questions_of_its_own() -> None:
    ratings = made_ratings(6, 3)
    asked = dict(zip(("Q1", "b", "Q5", "d", "Sparse", "f"), QUESTIONS.values(), strict=True))
    own = replace(ratings, asked={name: Question(name, low_is_good=name == "d") for name in asked})
    values = {"Sparseness": np.arange(len(own)) % 7.0}
    page = metrics_report(related(own, values))
    assert "Low is good in d." in page.picture.caption
    table = next(part for part in page.sections[1].parts if part.name == "correlations")
    assert not table.frame["measure"].str.startswith("paper").any()
    both = correlation_table(pick(related(ratings, values).related, table="8"), QUESTIONS)
    assert both.frame["measure"].astype(str).str.startswith("paper").any()
    with pytest.raises(ValueError, match="called otherwise than Sparse"):
        related(own, {"Sparse": values["Sparseness"]})
