import math
from dataclasses import replace

import numpy as np
import pytest

from fixtures_pasta_report import made_outcome, made_plan, made_ratings, made_uses
from quantus_concepts.studies.pasta.results import CEILING, HUMAN, SCORER, SHUFFLED, Record
from quantus_concepts.studies.pasta.uses_results import MeanRow, Uses
from quantus_concepts.studies.pasta.uses_tables import uses_verdicts
from quantus_concepts.studies.pasta.verdicts import control, one_rater, unseen, verdicts, within_kinds
from quantus_concepts.studies.rating.rating_facts import image_means, inverted_rank, kind_difference, score_rank


def of(model, *values, question="Q1", measure="SCC", **fields):
    return [Record(model, question, measure, value, 50, seed, **fields) for seed, value in enumerate(values)]


def said(found, topic):
    return " ".join(verdict.text for verdict in found if verdict.topic == topic)


def test_reached_not_reached_and_cannot_be_told():
    limit = of(CEILING, 0.8, 0.8, 0.8)
    assert unseen(of(SCORER, 0.64, 0.65, 0.66) + limit, "Q1") == (
        "Q1: above 60 % of the ceiling. Spearman 0.65 of 0.80, 81 % (95 % interval 78 % to 84 %, 3 splits)."
    )
    assert unseen(of(SCORER, 0.2, 0.21, 0.22) + limit, "Q1").startswith("Q1: below 60 % of the ceiling. Spearman 0.21")
    told = unseen(of(SCORER, 0.4, 0.5, 0.6) + limit, "Q1")
    assert told.startswith("Q1: whether it is above 60 % of the ceiling cannot be told. Spearman 0.50 of 0.80, 62 %")


def test_one_split_tells_nothing_of_the_ceiling():
    told = unseen(of(SCORER, 0.64) + of(CEILING, 0.8), "Q1")
    assert "cannot be told from 1 split: fewer than 3 have no interval" in told
    assert told.endswith("There: Spearman 0.64 of 0.80, 80 %.")


def test_no_ceiling_and_nothing_defined():
    assert unseen(of(SCORER, 0.5, 0.5), "Q1") == (
        "Q1: Spearman's correlation is 0.50 in 2 splits, too few for an interval."
    )
    assert "not defined" in unseen(of(SCORER, math.nan) + of(CEILING, 0.8), "Q1")
    assert "nothing to reach" in unseen(of(SCORER, 0.1, 0.2) + of(CEILING, 0.0, 0.0), "Q1")
    assert unseen([], "Q1") == ""


def test_the_control_holds_or_not():
    holds = control(of(SHUFFLED, -0.1, 0.0, 0.1) + of(SHUFFLED, 0.30, 0.31, 0.32, question="Q2"))
    assert "correlation on Q1 (0.00, −0.24 to 0.24) has an interval that holds 0, as it must." in holds
    assert "On Q2 (0.31, 0.28 to 0.33) the interval does not hold 0" in holds
    assert "One in twenty misses by chance" in holds


def test_a_control_of_one_split_or_none_or_without_numbers():
    assert control(of(SHUFFLED, 0.1)).endswith("cannot be told from fewer than 3 splits: Q1 (0.10).")
    assert control(of(SCORER, 0.4)).startswith("No scorer was trained on shuffled votes")
    assert control(of(SHUFFLED, math.nan, math.nan)) == "Not defined, for all its scores are alike: Q1 in 2 splits."


def test_beside_one_rater():
    scorer = of(SCORER, 0.4, 0.42, 0.41, measure="QWK") + of(SCORER, 0.8, 0.84, 0.82, question="Q2", measure="QWK")
    rater = of(HUMAN, 0.8, 0.82, 0.81, measure="QWK") + of(HUMAN, 0.8, 0.82, 0.81, question="Q2", measure="QWK")
    told = one_rater(scorer + rater, simulated=False)
    assert "an annotator, whose own vote is part of it" in told
    assert "not told apart on Q2 (0.82 against 0.81); lower on Q1 (0.41 against 0.81)" in told
    assert "single annotator" in one_rater(scorer, simulated=False)


def test_order_within_one_kind():
    records = of(SCORER, 0.4, 0.42, 0.41, modality="map") + of(SCORER, -0.3, 0.3, 0.1, modality="concepts")
    assert within_kinds(records) == (
        "Spearman's correlation among maps alone: above 0 on Q1 (0.41). "
        "Spearman's correlation among concepts alone: not told apart from 0 on Q1 (0.03)."
    )
    assert within_kinds(of(SCORER, 0.4)) == ""


def test_kinds_are_compared_image_by_image():
    ratings = made_ratings(3, 3, 1)  # explainers: two maps, one list of concepts
    votes = np.full((9, 1, 6), np.nan)
    votes[:, 0, 0] = [5, 3, 2, 4, 4, 1, 2, 2, np.nan]
    object.__setattr__(ratings, "votes", votes)
    assert image_means(ratings, "Q1", "map") == {"image 000": 4.0, "image 001": 4.0, "image 002": 2.0}
    found = kind_difference(ratings, "Q1")
    assert (found.n, found.maps, found.concepts, found.difference) == (2, 4.0, 1.5, 2.5)
    # Differences 2 and 3: 2.5 ± 12.706205 * 0.5.
    assert (found.low, found.high) == pytest.approx((2.5 - 6.3531025, 2.5 + 6.3531025), abs=1e-6)
    assert kind_difference(ratings, "Q2") is None


def test_direction_of_q5_in_votes_and_scores():
    ratings = made_ratings(8, 8)
    outcome = made_outcome(ratings, ("Q1", "Q5"), 3)
    assert inverted_rank(ratings) < -0.3
    assert score_rank(outcome).n_seeds == 3
    assert score_rank(made_outcome(ratings, ("Q1",), 1)) is None
    told = said(verdicts(outcome, ratings), "Q5")
    assert told.startswith("Low is good: the best explanation has the lowest answer.")
    assert "as good explanations should change little" in told
    turned = ratings.votes.copy()
    turned[..., 4] = 6 - turned[..., 4]
    object.__setattr__(ratings, "votes", turned)
    assert "where a negative one would be expected" in said(verdicts(outcome, ratings), "Q5")


def test_everything_said_of_a_training():
    ratings = made_ratings(12, 9)
    found = verdicts(made_outcome(ratings, n_seeds=3), ratings)
    topics = list(dict.fromkeys(verdict.topic for verdict in found))
    assert topics == [
        "Unseen explanations",
        "Control",
        "One rater",
        "Within one kind",
        "Maps or concepts",
        "Q5",
    ]
    assert sum(verdict.topic == topics[0] for verdict in found) == 6
    assert said(found, "Maps or concepts").startswith(
        "The mean vote on images explained in both ways is higher for maps"
    )
    assert "simulated" not in " ".join(map(str, found))


def test_one_question_is_alone_and_simulated_raters_are_named():
    ratings = made_ratings(12, 9, simulated=True)
    found = verdicts(made_outcome(ratings, ("Q1",), 2), ratings)
    assert found[0].topic == "Raters"
    assert "No person was asked" in found[0].text
    assert "The simulated raters' mean vote" in said(found, "Maps or concepts")
    assert "Q2" not in " ".join(map(str, found))
    assert said(found, "Q5") == ""


def test_a_single_annotator_has_no_ceiling():
    ratings = made_ratings(12, 9, 1)
    found = verdicts(made_outcome(ratings, ("Q1",), 2), ratings)
    assert said(found, "Ceiling").startswith("There is none to hold the scorer against")


def test_a_plan_of_the_fixture_fits():
    assert made_plan(("Q1", "Q5")).columns == [0, 4]


def test_choice_against_average_and_best_fixed():
    uses = made_uses()
    told = said(uses_verdicts(uses, True), "Mixture")
    assert "Grad-CAM has the best score (Q1) most often" in told
    assert "1 of 8 explainers never has it alone." in told
    assert (
        "That is above the average of the explainers (0.052, difference +0.011, 95 % interval 0.004 to 0.018)." in told
    )
    rows = (
        MeanRow("mixture", 0.05, 0.04, 0.06, 9),
        MeanRow("LIME", 0.08, 0.07, 0.09, 9),
        MeanRow("RISE", 0.01, 0, 0.02, 9),
    )
    fixed = said(uses_verdicts(Uses(faithfulness=rows), False), "Mixture")
    assert fixed.endswith("That is below LIME, the most faithful for all images (0.080).")
    near = (rows[0], replace(rows[1], mean=0.055, low=0.045))
    assert "It cannot be told from LIME" in said(uses_verdicts(Uses(faithfulness=near), False), "Mixture")


def test_steering_and_correlations():
    found = uses_verdicts(made_uses(), True)
    assert said(found, "Steering") == (
        "The mean score of 4 images rises from 3.100 at λ = 0 to 4.200 at λ = 1. "
        "The mean faithfulness of 4 images goes from 0.310 at λ = 0 to 0.250 at λ = 1, "
        "which the intervals do not tell apart."
    )
    assert "the simulated raters' votes: Spearman −0.25 on Q6 (n = 340), which is weak." in said(found, "Other metrics")


def test_no_use_says_nothing():
    assert uses_verdicts(Uses(), False) == []
