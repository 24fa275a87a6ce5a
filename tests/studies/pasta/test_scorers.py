"""Training over splits, and what is made of several splits."""

import math

import numpy as np
import pandas as pd
import pytest
import torch

from fixtures_pasta_report import made_ratings, rows_of
from quantus_concepts.functional.agreement import figures, human_figures
from quantus_concepts.pasta.training import TrainingSettings, train_scorer
from quantus_concepts.studies._kit.results import one, pick
from quantus_concepts.studies.pasta.report import BY
from quantus_concepts.studies.pasta.scorers import (
    CEILING,
    HUMAN,
    MEASURES,
    SCORER,
    SHUFFLED,
    SIMULATED_HUMAN,
    Plan,
    Trainer,
    best_split,
    over_splits,
    shuffled_ranges,
    train_splits,
    training_of,
    training_tensors,
)

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
def outcome(ratings):
    return train_splits(Trainer(ratings, embeddings_of(ratings), plan(regressors=True)))


def of_one_split(ratings, **changes):
    expected = changes.pop("expected", None)
    trainer = Trainer(ratings, embeddings_of(ratings), plan(**{"n_splits": 1, "control": False, **changes}))
    return train_splits(trainer, expected)


def test_a_scorer_that_sees_the_votes_learns_them_and_the_control_does_not(outcome):
    means = over_splits(outcome[0], BY)
    for question in ("Q1", "Q5"):
        assert one(means, model=SCORER, question=question, measure="SCC", modality=ALL)["value"] > 0.7
        assert abs(one(means, model=SHUFFLED, question=question, measure="SCC", modality=ALL)["value"]) < 0.45


def test_every_model_has_a_row_of_every_measure_question_and_split(ratings, outcome):
    frame, results = outcome
    for model in (SCORER, SHUFFLED, "ridge", "lasso", "SVM"):
        assert len(pick(frame, model=model, modality="all")) == len(MEASURES) * 2 * 2
    # Each kind alone where a test part has both.
    seeds = [r.seed for r in results if len(set(ratings.modalities[r.split.test].tolist())) == 2]
    assert set(pick(frame, modality="map")["seed"]) == set(pick(frame, modality="concepts")["seed"]) == set(seeds)
    # The ceiling has no squared error if it is estimated from the agreement of raters.
    assert set(pick(frame, model=CEILING)["measure"]) == {"QWK", "SCC"}


def test_figures_are_of_the_test_part_alone(ratings, outcome):
    frame, results = outcome
    result = results[1]
    test = result.split.test
    targets = ratings.targets()[test][:, [0, 4]]
    np.testing.assert_array_equal(result.targets, targets)
    expected = figures(result.scores[:, 1], targets[:, 1])
    row = pick(frame, model=SCORER, question="Q5", measure="MSE", seed=1, modality="all").iloc[0]
    assert (row["value"], row["n"]) == (expected.mse, len(test))
    human = human_figures(ratings.votes[test][:, :, 0])
    assert pick(frame, model=HUMAN, question="Q1", measure="QWK", seed=1)["value"].tolist() == [human.qwk]


def test_simulated_raters_have_an_exact_ceiling():
    ratings = made_ratings(16, 12, simulated=True)
    expected = np.full((len(ratings), 6), 3.0)
    expected[:, 0] = ratings.targets()[:, 0]
    frame, _ = of_one_split(ratings, questions=("Q1",), expected=expected)
    assert pick(frame, model=CEILING, measure="SCC")["value"].tolist() == pytest.approx([1.0])
    assert {SIMULATED_HUMAN, HUMAN} & set(frame["model"]) == {SIMULATED_HUMAN}


def test_missing_votes_and_labels_are_normal():
    ratings = made_ratings(16, 12, missing=0.5)
    labels = ratings.labels.copy()
    labels[::3] = ""
    object.__setattr__(ratings, "labels", labels)
    ratings.votes[:5, :, 0] = np.nan
    frame, (result,) = of_one_split(ratings, label_names=("bird", "cat"))
    (row,) = pick(frame, model=SCORER, measure="SCC", modality="all", question="Q1").to_dict("records")
    assert row["n"] == int((~np.isnan(ratings.targets()[result.split.test, 0])).sum())
    assert result.training.scorer.labels == ["bird", "cat"]


def test_the_best_split_is_that_of_the_highest_validation_kappa(outcome):
    results = outcome[1]
    kappas = [
        np.mean([r.training.curve[epoch - 1]["qwk"][q] for q, epoch in r.training.best_epoch.items()]) for r in results
    ]
    assert best_split(results) is results[int(np.argmax(kappas))]


def test_a_training_taken_apart_and_put_together_is_the_same():
    ratings = made_ratings(16, 12)
    rows = np.arange(len(ratings))
    trained = train_scorer(
        embeddings_of(ratings),
        ratings.targets()[:, :2],
        train=rows[:90],
        validation=rows[90:],
        questions=("Q1", "Q2"),
        settings=SETTINGS,
    )
    again = training_of(training_tensors(trained), ("Q1", "Q2"), None, embeddings_of(ratings).shape[1])
    assert (again.curve, again.best_epoch, again.notes) == (trained.curve, trained.best_epoch, trained.notes)
    torch.testing.assert_close(
        again.scorer.score(embeddings_of(ratings)), trained.scorer.score(embeddings_of(ratings)), rtol=0, atol=0
    )


def test_what_is_kept_is_not_trained_again_and_other_votes_are(ratings):
    store, trained_names = {}, []

    def keep(name, settings, make):
        key = (name, repr(settings))
        if key not in store:
            trained_names.append(name)
            store[key] = make()
        return store[key]

    trainer = Trainer(ratings, embeddings_of(ratings), plan(("Q1",), n_splits=1), keep)
    first, _ = train_splits(trainer)
    again, _ = train_splits(Trainer(ratings, embeddings_of(ratings), plan(("Q1",), n_splits=1), keep))
    pd.testing.assert_frame_equal(first, again)
    assert trained_names == ["scorers 0"]
    train_splits(Trainer(ratings, embeddings_of(ratings), plan(("Q1",), n_splits=1, votes="mean"), keep))
    assert len(trained_names) == 2


def test_means_and_intervals_over_splits_by_hand():
    frame = pd.concat([rows_of(SCORER, 0.1, 0.2, 0.3, measure="MSE"), rows_of(SCORER, 0.1, 0.2, 0.3)])
    squared, rank = over_splits(frame, ("model", "measure")).to_dict("records")
    # Student's t of 2 degrees of freedom is 4.302653 at 97.5 %.
    assert (squared["value"], squared["deviation"]) == pytest.approx((0.2, 0.1))
    assert (squared["low"], squared["high"]) == pytest.approx((0.2 - 0.248414, 0.2 + 0.248414), abs=1e-5)
    # On Fisher's z: 0.100335, 0.202733, 0.309520, so 0.204196 -+ 0.259843.
    assert (rank["low"], rank["high"]) == pytest.approx((-0.055590, 0.433378), abs=1e-5)
    assert rank["splits"] == 3
    undefined = over_splits(rows_of(SCORER, 0.1, 0.2, math.nan), ("model", "measure")).iloc[0]
    assert (undefined["value"], undefined["splits"], undefined["undefined"]) == (pytest.approx(0.15), 2, 1)
    assert math.isnan(undefined["low"])


@pytest.mark.parametrize("measure", ["MSE", "SCC"])
def test_splits_that_agree_by_chance_have_no_interval(measure):
    row = over_splits(rows_of(SCORER, 0.2, 0.2, 0.2, measure=measure), ("model", "measure")).iloc[0]
    assert row["value"] == pytest.approx(0.2)
    assert math.isnan(row["low"])
    assert math.isnan(row["high"])


def test_what_knows_nothing_lies_in_the_range_of_shuffled_votes_and_a_scorer_above(outcome):
    ranges = shuffled_ranges(outcome[1]).set_index("question")
    means = over_splits(outcome[0], BY)
    for question, row in ranges.iterrows():
        assert row["random_low"] < 0 < row["random_high"] < 0.6
        assert one(means, model=SCORER, question=question, measure="SCC", modality=ALL)["value"] > row["random_high"]
