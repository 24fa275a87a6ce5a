import numpy as np
import pytest
import torch

from fixtures_pasta_report import made_ratings
from quantus_concepts.functional.agreement import figures, human_figures
from quantus_concepts.pasta.training import TrainingSettings
from quantus_concepts.studies.pasta.results import (
    CEILING,
    HUMAN,
    MEASURES,
    SCORER,
    SHUFFLED,
    SIMULATED_HUMAN,
    of_ceiling,
    summary,
)
from quantus_concepts.studies.pasta.seeds import Plan, train_seeds
from quantus_concepts.studies.records import select

SETTINGS = TrainingSettings(epochs=25, learning_rate=3e-3, batch_size=64, loss="release")


def plan(questions=("Q1", "Q5"), **changes):
    return Plan(questions, **{"settings": SETTINGS, "n_seeds": 2, "train_share": 0.6, **changes})


def told(ratings, seed=0):
    """Embeddings that hold the joined votes among noise."""
    rng = np.random.default_rng(seed)
    votes = np.nan_to_num(ratings.targets(), nan=3.0)
    return torch.as_tensor(np.concatenate([votes / 5, rng.normal(0, 1, (len(votes), 4))], 1), dtype=torch.float32)


@pytest.fixture(scope="module")
def ratings():
    return made_ratings(24, 18)


@pytest.fixture(scope="module")
def outcome(ratings):
    lines = []
    found = train_seeds(ratings, told(ratings), plan(regressors=True), say=lines.append)
    assert [line.split(":")[0] for line in lines] == ["Split 1 of 2", "Split 2 of 2"]
    return found


def test_a_scorer_that_is_told_the_votes_learns_them_and_the_control_does_not(outcome):
    for question in ("Q1", "Q5"):
        learned = summary(outcome.records, SCORER, question, "SCC")
        assert learned.mean > 0.7
        assert abs(summary(outcome.records, SHUFFLED, question, "SCC").mean) < 0.45
        assert of_ceiling(outcome.records, question).n_seeds == 2


def test_every_model_has_a_record_of_every_measure_question_and_seed(ratings, outcome):
    for model in (SCORER, SHUFFLED, "ridge", "lasso", "SVM"):
        found = select(outcome.records, model=model, modality="all")
        assert len(found) == len(MEASURES) * 2 * 2
    # Each kind alone where a test part has both.
    both = [r.seed for r in outcome.seeds if len(set(ratings.modalities[r.split.test].tolist())) == 2]
    assert {r.seed for r in select(outcome.records, modality="map")} == set(both)
    assert {r.seed for r in select(outcome.records, modality="concepts")} == set(both)
    # What the raters' noise allows has no squared error where it is estimated from their agreement.
    assert {record.measure for record in select(outcome.records, model=CEILING)} == {"QWK", "SCC"}


def test_figures_are_of_the_test_part_alone(ratings, outcome):
    result = outcome.seeds[1]
    test = result.split.test
    targets = ratings.targets()[test][:, [0, 4]]
    np.testing.assert_array_equal(result.targets, targets)
    expected = figures(result.scores[:, 1], targets[:, 1])
    (record,) = select(outcome.records, model=SCORER, question="Q5", measure="MSE", seed=1, modality="all")
    assert (record.value, record.n) == (expected.mse, len(test))
    human = human_figures(ratings.votes[test][:, :, 0])
    (record,) = select(outcome.records, model=HUMAN, question="Q1", measure="QWK", seed=1)
    assert record.value == human.qwk


def test_splits_differ_and_leak_nothing(outcome):
    first, second = (result.split for result in outcome.seeds)
    assert first.images["test"] != second.images["test"]
    for split in (first, second):
        assert not set(split.images["test"]) & set(split.images["train"])
        assert not set(split.explainers["test"]) & set(split.explainers["train"])


def test_the_same_seed_gives_the_same_numbers(ratings):
    once, twice = (train_seeds(ratings, told(ratings), plan(("Q1",), n_seeds=1, control=False)) for _ in range(2))
    assert once.records == twice.records


def test_simulated_raters_have_an_exact_ceiling():
    ratings = made_ratings(16, 12, simulated=True)
    expected = np.full((len(ratings), 6), 3.0)
    expected[:, 0] = ratings.targets()[:, 0]
    found = train_seeds(ratings, told(ratings), plan(("Q1",), n_seeds=1, control=False), expected=expected)
    (record,) = select(found.records, model=CEILING, measure="SCC")
    assert record.value == pytest.approx(1.0)
    assert select(found.records, model=SIMULATED_HUMAN)
    assert not select(found.records, model=HUMAN)


def test_a_single_annotator_has_no_human_row_and_no_ceiling():
    ratings = made_ratings(16, 12, 1)
    found = train_seeds(ratings, told(ratings), plan(("Q1",), n_seeds=1, control=False))
    assert {record.model for record in found.records} == {SCORER}


def test_missing_votes_and_labels_are_normal():
    ratings = made_ratings(16, 12, missing=0.5)
    labels = ratings.labels.copy()
    labels[::3] = ""
    object.__setattr__(ratings, "labels", labels)
    ratings.votes[:5, :, 0] = np.nan
    found = train_seeds(ratings, told(ratings), plan(n_seeds=1, control=False, label_names=("bird", "cat")))
    counts = {r.question: r.n for r in select(found.records, model=SCORER, measure="SCC", modality="all")}
    test = found.seeds[0].split.test
    assert counts["Q1"] == int((~np.isnan(ratings.targets()[test, 0])).sum())
    assert found.seeds[0].training.scorer.labels == ["bird", "cat"]


def test_the_best_split_is_that_of_the_highest_validation_kappa(outcome):
    kept = [
        np.mean([r.training.curve[epoch - 1]["qwk"][q] for q, epoch in r.training.best_epoch.items()])
        for r in outcome.seeds
    ]
    assert outcome.best is outcome.seeds[int(np.argmax(kept))]
