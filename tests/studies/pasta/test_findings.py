"""What is said of a training, from numbers made up for it."""

import math

import numpy as np
import pandas as pd
import pytest

from fixtures_pasta_report import made_outcome, made_ratings, rows_of
from quantus_concepts.pasta.applications.mixture import best_explainer
from quantus_concepts.studies.pasta.applications_page import (
    said_of_choice,
    said_of_metrics,
    said_of_steering,
    said_of_wins,
)
from quantus_concepts.studies.pasta.findings import (
    control,
    findings,
    image_means,
    kind_difference,
    one_rater,
    score_ranks,
    summarised,
    unseen,
    within_kinds,
)
from quantus_concepts.studies.pasta.options import CEILING, HUMAN, SCORER, SHUFFLED


def means(*parts):
    return summarised(pd.concat(parts))


def said(found, topic):
    return " ".join(each.text for each in found if each.topic == topic)


def test_reached_not_reached_and_cannot_be_told():
    limit = rows_of(CEILING, 0.8, 0.8, 0.8)
    assert unseen(means(rows_of(SCORER, 0.64, 0.65, 0.66), limit), "Q1") == (
        "Q1: above 60 % of the ceiling. Spearman 0.65 of 0.80, 81 % (95 % interval 78 % to 84 %, 3 splits)."
    )
    assert unseen(means(rows_of(SCORER, 0.2, 0.21, 0.22), limit), "Q1").startswith(
        "Q1: below 60 % of the ceiling. Spearman 0.21"
    )
    told = unseen(means(rows_of(SCORER, 0.4, 0.5, 0.6), limit), "Q1")
    assert told.startswith("Q1: whether it is above 60 % of the ceiling is not known. Spearman 0.50 of 0.80, 62 %")


def test_one_split_tells_nothing_of_the_ceiling():
    told = unseen(means(rows_of(SCORER, 0.64), rows_of(CEILING, 0.8)), "Q1")
    assert "is not known from 1 split: fewer than 3 have no interval" in told
    assert told.endswith("There: Spearman 0.64 of 0.80, 80 %.")


def test_no_ceiling_and_nothing_defined():
    assert unseen(means(rows_of(SCORER, 0.5, 0.5)), "Q1") == (
        "Q1: Spearman's correlation is 0.50 in 2 splits, too few for an interval."
    )
    assert "not defined" in unseen(means(rows_of(SCORER, math.nan), rows_of(CEILING, 0.8)), "Q1")
    assert "nothing to reach" in unseen(means(rows_of(SCORER, 0.1, 0.2), rows_of(CEILING, 0.0, 0.0)), "Q1")


def test_the_control_holds_or_not():
    holds = control(means(rows_of(SHUFFLED, -0.1, 0.0, 0.1), rows_of(SHUFFLED, 0.30, 0.31, 0.32, question="Q2")))
    assert "correlation on Q1 (0.00, −0.24 to 0.24) has an interval that holds 0, as it must." in holds
    assert "On Q2 (0.31, 0.28 to 0.33) the interval does not hold 0" in holds
    assert "One in twenty misses by chance" in holds


def test_a_control_of_one_split_or_none_or_without_numbers():
    assert control(means(rows_of(SHUFFLED, 0.1))).endswith("cannot be known from fewer than 3 splits: Q1 (0.10).")
    assert control(means(rows_of(SCORER, 0.4))).startswith("No scorer was trained on shuffled votes")
    assert (
        control(means(rows_of(SHUFFLED, math.nan, math.nan)))
        == "Not defined, for all its scores are alike: Q1 in 2 splits."
    )


def test_beside_one_rater():
    scorer = (
        rows_of(SCORER, 0.4, 0.42, 0.41, measure="QWK"),
        rows_of(SCORER, 0.8, 0.84, 0.82, question="Q2", measure="QWK"),
    )
    rater = (
        rows_of(HUMAN, 0.8, 0.82, 0.81, measure="QWK"),
        rows_of(HUMAN, 0.8, 0.82, 0.81, question="Q2", measure="QWK"),
    )
    told = one_rater(means(*scorer, *rater), simulated=False)
    assert "an annotator, whose own vote is part of it" in told
    assert "not distinguishable on Q2 (0.82 against 0.81); lower on Q1 (0.41 against 0.81)" in told
    assert "single annotator" in one_rater(means(*scorer), simulated=False)


def test_order_within_one_kind():
    found = means(
        rows_of(SCORER, 0.4, 0.42, 0.41, modality="map"), rows_of(SCORER, -0.3, 0.3, 0.1, modality="concepts")
    )
    assert within_kinds(found) == (
        "Spearman's correlation among maps alone: above 0 on Q1 (0.41). "
        "Spearman's correlation among concepts alone: not distinguishable from 0 on Q1 (0.03)."
    )
    assert within_kinds(means(rows_of(SCORER, 0.4))) == ""


def test_kinds_are_compared_image_by_image():
    ratings = made_ratings(3, 3, 1)  # explainers: two maps, one list of concepts
    votes = np.full((9, 1, 6), np.nan)
    votes[:, 0, 0] = [5, 3, 2, 4, 4, 1, 2, 2, np.nan]
    object.__setattr__(ratings, "votes", votes)
    assert image_means(ratings, "Q1", ["map"]).to_dict() == {"image 000": 4.0, "image 001": 4.0, "image 002": 2.0}
    found = kind_difference(ratings, "Q1")
    assert [found[name] for name in ("n", "maps", "concepts", "difference")] == [2, 4.0, 1.5, 2.5]
    # Differences 2 and 3: 2.5 ± 12.706205 * 0.5.
    assert (found["low"], found["high"]) == pytest.approx((2.5 - 6.3531025, 2.5 + 6.3531025), abs=1e-6)
    assert kind_difference(ratings, "Q2") is None


def told_of(ratings, *arguments):
    frame, results = made_outcome(ratings, *arguments)
    return findings(summarised(frame), results, ratings)


def test_direction_of_q5_in_votes_and_scores():
    ratings = made_ratings(8, 8)
    assert score_ranks(made_outcome(ratings, ("Q1", "Q5"), 3)[1]).notna().sum() == 3
    assert score_ranks(made_outcome(ratings, ("Q1",), 1)[1]).empty
    told = said(told_of(ratings, ("Q1", "Q5"), 3), "Q5")
    assert told.startswith("Low is good: the best explanation has the lowest answer.")
    assert "as good explanations should change little. In the scores of unseen explanations it is −" in told
    turned = ratings.votes.copy()
    turned[..., 4] = 6 - turned[..., 4]
    object.__setattr__(ratings, "votes", turned)
    assert "where a negative one would be expected" in said(told_of(ratings, ("Q1", "Q5"), 3), "Q5")


def test_everything_said_of_a_training():
    found = told_of(made_ratings(12, 9), tuple(f"Q{place}" for place in range(1, 7)), 3)
    topics = list(dict.fromkeys(each.topic for each in found))
    assert topics == ["Unseen explanations", "Control", "One rater", "Within one kind", "Maps or concepts", "Q5"]
    assert sum(each.topic == topics[0] for each in found) == 6
    kinds = said(found, "Maps or concepts")
    assert kinds.startswith("The mean vote on images explained in both ways is higher for maps")
    assert "simulated" not in " ".join(map(str, found))


def test_one_question_alone_and_simulated_raters_are_named():
    found = told_of(made_ratings(12, 9, simulated=True), ("Q1",), 2)
    assert "The simulated raters' mean vote" in said(found, "Maps or concepts")
    assert "Q2" not in " ".join(map(str, found))
    assert said(found, "Q5") == ""


def test_a_single_annotator_has_no_ceiling():
    found = told_of(made_ratings(12, 9, 1), ("Q1",), 2)
    assert said(found, "Ceiling").startswith("There is none to hold the scorer against")


def test_who_wins():
    wins = said_of_wins(best_explainer({"LIME": [1.0, 2, 3, 4], "Grad-CAM": [2.0, 3, 4, 4], "RISE": [0.0, 0, 0, 0]}))
    assert wins == (
        "Grad-CAM has the best score (Q1) most often, for 3 of 4 images; 2 of 3 explainers never have it alone. "
        "Of 1 images several explainers share the best score."
    )


def faithful(*rows):
    names = ["name", "mean", "low", "high", "n", "difference", "difference_low", "difference_high"]
    return pd.DataFrame([(*row, *[math.nan] * (8 - len(row))) for row in rows], columns=names)


def test_choice_against_average_and_best_fixed():
    choice, rise = ("mixture", 0.05, 0.04, 0.06, 9), ("RISE", 0.01, 0, 0.02, 9)
    average = ("average of explainers", 0.052, 0.044, 0.06, 9, 0.011, 0.004, 0.018)
    told = said_of_choice(faithful(choice, average, ("LIME", 0.08, 0.07, 0.09, 9), rise))
    assert told.startswith("The chosen explanations have a mean faithfulness correlation of 0.050 (95 % interval 0.040")
    above = "That is above the average of the explainers (0.052, difference +0.011, 95 % interval 0.004 to 0.018)."
    assert above in told
    assert told.endswith("That is below LIME, the most faithful for all images (0.080).")
    near = said_of_choice(faithful(choice, ("LIME", 0.055, 0.045, 0.09, 9), rise))
    assert "It cannot be distinguished from LIME" in near


def test_steering_and_correlations():
    rows = [("score", "0", 3.1, 2.9, 3.3, 4), ("faithfulness", "0", 0.31, 0.21, 0.41, 4)]
    rows += [("score", "1", 4.2, 4.0, 4.4, 4), ("faithfulness", "1", 0.25, 0.15, 0.35, 4)]
    assert said_of_steering(pd.DataFrame(rows, columns=["measure", "name", "mean", "low", "high", "n"])) == (
        "The mean score of 4 images rises from 3.100 at λ = 0 to 4.200 at λ = 1. "
        "The mean faithfulness of 4 images goes from 0.310 at λ = 0 to 0.250 at λ = 1, "
        "which the intervals do not tell apart."
    )
    related = pd.DataFrame(
        [("Sparseness", "Q1", -0.05, 340), ("Faithfulness (ROAD)", "Q6", -0.25, 340)],
        columns=["metric", "question", "spearman", "n"],
    )
    told = said_of_metrics(related, True)
    assert told.endswith(
        "goes most closely with the simulated raters' votes: Spearman −0.25 on Q6 (n = 340), which is weak."
    )
