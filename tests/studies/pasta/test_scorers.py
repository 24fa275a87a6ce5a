"""Training over splits, and what is made of several splits."""

import math
from dataclasses import replace
from functools import partial

import numpy as np
import pandas as pd
import pytest
import torch

from fixtures_pasta_report import made_ratings, rows_of
from quantus_concepts.pasta.agreement import figures, human_figures
from quantus_concepts.pasta.training import TrainingSettings, train_scorer
from quantus_concepts.studies._kit.folder import RunFolder
from quantus_concepts.studies._kit.results import one, over_seeds, pick
from quantus_concepts.studies.pasta import scorers
from quantus_concepts.studies.pasta.report import BY
from quantus_concepts.studies.pasta.scorers import (
    CEILING,
    HUMAN,
    MEASURES,
    SCORER,
    SHUFFLED,
    SIMULATED_HUMAN,
    Plan,
    agreement,
    rater_rows,
    score_splits,
    shuffled_ranges,
    splits_interval,
    train_on_all,
)

over_splits = partial(over_seeds, interval=splits_interval)
#: Modality of explanations of all kinds.
ALL = "all"
SETTINGS = TrainingSettings(epochs=25, learning_rate=3e-3, batch_size=64, loss="release")


def plan(questions=("Q1", "Q5"), **changes):
    return Plan(questions, **{"settings": SETTINGS, "n_splits": 2, "train_share": 0.6, **changes})


def embeddings_of(ratings, seed=0):
    """Return embeddings that hold the joined votes and noise."""
    rng = np.random.default_rng(seed)
    votes = np.nan_to_num(ratings.targets(), nan=3.0)
    return torch.as_tensor(np.concatenate([votes / 5, rng.normal(0, 1, (len(votes), 4))], 1), dtype=torch.float32)


@pytest.fixture(scope="module")
def ratings():
    return made_ratings(24, 18)


@pytest.fixture(scope="module")
def outcome(ratings, tmp_path_factory):
    with RunFolder("test", {}, tmp_path_factory.mktemp("out") / "run") as folder:
        scores, trained = score_splits(folder, ratings, embeddings_of(ratings), plan())
    return pd.concat([agreement(scores), rater_rows(ratings, plan())], ignore_index=True), scores, trained


def test_a_scorer_that_sees_the_votes_learns_them_and_the_control_does_not(outcome):
    means = over_splits(outcome[0], list(BY))
    for question in ("Q1", "Q5"):
        assert one(means, model=SCORER, question=question, measure="SCC", modality=ALL)["value"] > 0.7
        assert abs(one(means, model=SHUFFLED, question=question, measure="SCC", modality=ALL)["value"]) < 0.45


def test_every_model_has_a_row_of_every_measure_question_and_split(ratings, outcome):
    frame = outcome[0]
    for model in (SCORER, SHUFFLED):
        assert len(pick(frame, model=model, modality="all")) == len(MEASURES) * 2 * 2
    # Each kind alone where a test part has both.
    splits = plan().splits(ratings)
    seeds = [seed for seed, split in splits.items() if len(set(ratings.modalities[split.test].tolist())) == 2]
    assert set(pick(frame, modality="map")["seed"]) == set(pick(frame, modality="concepts")["seed"]) == set(seeds)
    # The ceiling has no squared error if it is estimated from the agreement of raters.
    assert set(pick(frame, model=CEILING)["measure"]) == {"QWK", "SCC"}


def test_scores_are_of_the_test_part_alone(ratings, outcome):
    frame, scores, _ = outcome
    test = plan().splits(ratings)[1].test
    own = pick(scores, model=SCORER, question="Q5", seed=1)
    assert own["item"].tolist() == test.tolist()
    np.testing.assert_array_equal(own["vote"], ratings.targets()[test, 4])
    row = pick(frame, model=SCORER, question="Q5", measure="MSE", seed=1, modality="all").iloc[0]
    assert (row["value"], row["n"]) == (figures(own["score"].to_numpy(), own["vote"].to_numpy()).mse, len(test))
    human = human_figures(ratings.votes[test][:, :, 0])
    assert pick(frame, model=HUMAN, question="Q1", measure="QWK", seed=1)["value"].tolist() == [human.qwk]


def test_simulated_raters_have_an_exact_ceiling():
    ratings = made_ratings(16, 12, simulated=True)
    expected = np.full((len(ratings), 6), 3.0)
    expected[:, 0] = ratings.targets()[:, 0]
    frame = rater_rows(replace(ratings, expected=expected), plan(("Q1",), n_splits=1))
    assert pick(frame, model=CEILING, measure="SCC")["value"].tolist() == pytest.approx([1.0])
    assert {SIMULATED_HUMAN, HUMAN} & set(frame["model"]) == {SIMULATED_HUMAN}


def test_missing_votes_and_labels_are_normal(tmp_path):
    ratings = made_ratings(16, 12, missing=0.5)
    labels = ratings.labels.copy()
    labels[::3] = ""
    object.__setattr__(ratings, "labels", labels)
    ratings.votes[:5, :, 0] = np.nan
    how = plan(n_splits=1, control=False, label_names=("bird", "cat"))
    with RunFolder("test", {}, tmp_path / "run") as folder:
        scores, trained = score_splits(folder, ratings, embeddings_of(ratings), how)
    (row,) = pick(agreement(scores), model=SCORER, measure="SCC", modality="all", question="Q1").to_dict("records")
    assert row["n"] == int((~np.isnan(ratings.targets()[how.splits(ratings)[0].test, 0])).sum())
    assert trained[0].scorer.labels == ["bird", "cat"]


def test_the_scorer_that_is_used_learned_from_all_ratings(ratings, outcome, tmp_path):
    with RunFolder("test", {}, tmp_path / "run") as folder:
        scorer = train_on_all(folder, ratings, embeddings_of(ratings), plan(), outcome[2])
        again = train_on_all(folder, ratings, embeddings_of(ratings), plan(), outcome[2])
    scores = scorer.score(embeddings_of(ratings))
    assert torch.equal(scores, again.score(embeddings_of(ratings)))
    # The epochs are those that were best on explanations held back; what it saw it fits.
    best = np.median([of.best_epoch for of in outcome[2].values()], 0).round().astype(int)
    alone = train_scorer(
        embeddings_of(ratings),
        ratings.targets()[:, [0, 4]],
        train=np.arange(len(ratings)),
        keep=dict(zip(("Q1", "Q5"), best, strict=True)),
        questions=("Q1", "Q5"),
        settings=SETTINGS,
    ).scorer
    assert torch.equal(scores, alone.score(embeddings_of(ratings)))


def test_what_is_kept_is_not_trained_again_and_other_votes_are(ratings, tmp_path, monkeypatch):
    trained, train = [], scorers.train_scorer
    monkeypatch.setattr(scorers, "train_scorer", lambda *a, **k: trained.append(1) or train(*a, **k))
    found = []
    for votes in ("mode", "mode", "mean"):
        with RunFolder("test", {}, tmp_path / "run") as folder:
            found.append(score_splits(folder, ratings, embeddings_of(ratings), plan(("Q1",), n_splits=1, votes=votes)))
    pd.testing.assert_frame_equal(found[0][0], found[1][0])
    # The votes and the shuffled ones, twice.
    assert len(trained) == 4


def test_means_and_intervals_over_splits_by_hand():
    frame = pd.concat([rows_of(SCORER, 0.1, 0.2, 0.3, measure="MSE"), rows_of(SCORER, 0.1, 0.2, 0.3)])
    squared, rank = over_splits(frame, ["model", "measure"]).to_dict("records")
    # Student's t of 2 degrees of freedom is 4.302653 at 97.5 %.
    assert (squared["value"], squared["deviation"]) == pytest.approx((0.2, 0.1))
    assert (squared["low"], squared["high"]) == pytest.approx((0.2 - 0.248414, 0.2 + 0.248414), abs=1e-5)
    # On Fisher's z: 0.100335, 0.202733, 0.309520, so 0.204196 -+ 0.259843.
    assert (rank["low"], rank["high"]) == pytest.approx((-0.055590, 0.433378), abs=1e-5)
    assert rank["seeds"] == 3
    undefined = over_splits(rows_of(SCORER, 0.1, 0.2, math.nan), ["model", "measure"]).iloc[0]
    assert (undefined["value"], undefined["seeds"], undefined["undefined"]) == (pytest.approx(0.15), 2, 1)
    assert math.isnan(undefined["low"])


@pytest.mark.parametrize("measure", ["MSE", "SCC"])
def test_splits_that_agree_by_chance_have_no_interval(measure):
    row = over_splits(rows_of(SCORER, 0.2, 0.2, 0.2, measure=measure), ["model", "measure"]).iloc[0]
    assert row["value"] == pytest.approx(0.2)
    assert math.isnan(row["low"])
    assert math.isnan(row["high"])


def test_what_knows_nothing_lies_in_the_range_of_shuffled_votes_and_a_scorer_above(outcome):
    ranges = shuffled_ranges(outcome[1]).set_index("question")
    means = over_splits(outcome[0], list(BY))
    for question, row in ranges.iterrows():
        assert row["random_low"] < 0 < row["random_high"] < 0.6
        assert one(means, model=SCORER, question=question, measure="SCC", modality=ALL)["value"] > row["random_high"]
