import numpy as np
import pytest
import torch

from quantus_concepts.datasets.ratings.explanations import QUESTIONS
from quantus_concepts.pasta import training as module
from quantus_concepts.pasta.agreement import figures
from quantus_concepts.pasta.losses import pasta_loss
from quantus_concepts.pasta.training import TrainingSettings, train_scorer

FAST = TrainingSettings(epochs=8, batch_size=32, learning_rate=2e-3)
SMALL = {"hidden": (16, 8), "settings": FAST}
TRAIN, VALIDATION, TEST = range(160), range(160, 200), range(200, 240)


@pytest.fixture(scope="module")
def rated():
    """Votes that are linear in the embedding, some of them missing."""
    generator = torch.Generator().manual_seed(0)
    embeddings = torch.randn(240, 10, generator=generator)
    directions = torch.randn(10, 6, generator=generator)
    votes = (3 + 0.5 * embeddings @ directions).round().clamp(1, 5)
    votes[torch.rand(votes.shape, generator=generator) < 0.2] = torch.nan
    return embeddings, votes


def state_of(training):
    return training.scorer.state_dict()


def test_learns_every_question_and_keeps_the_best_epoch_of_each(rated):
    embeddings, votes = rated
    settings = TrainingSettings(epochs=25, batch_size=32, learning_rate=1e-2)
    training = train_scorer(embeddings, votes, train=TRAIN, validation=VALIDATION, hidden=(16, 8), settings=settings)
    scores = training.scorer.score(embeddings)
    for q, name in enumerate(QUESTIONS):
        assert figures(scores[200:, q], votes[200:, q]).spearman > 0.7, name
        assert training.curve[-1]["loss"][name] < training.curve[0]["loss"][name]
        kappas = np.array([epoch["qwk"][name] for epoch in training.curve])
        assert training.best_epoch[name] == np.nanargmax(kappas) + 1
        assert figures(scores[160:200, q], votes[160:200, q]).qwk == pytest.approx(np.nanmax(kappas), abs=1e-9)
    assert len(set(training.best_epoch.values())) > 1


@pytest.mark.parametrize("loss", ["paper", "release"])
def test_each_question_learns_what_it_learns_alone(rated, loss):
    embeddings, votes = rated
    settings = TrainingSettings(epochs=6, batch_size=32, learning_rate=4e-3, loss=loss)
    options = {"train": TRAIN, "validation": VALIDATION, "hidden": (16, 8), "settings": settings, "seed": 4}
    together = train_scorer(embeddings, votes, **options)
    scores = together.scorer.score(embeddings)
    for q, name in enumerate(QUESTIONS):
        alone = train_scorer(embeddings, votes[:, q], questions=[name], **options)
        torch.testing.assert_close(alone.scorer.score(embeddings)[:, 0], scores[:, q], atol=1e-3, rtol=0)
        assert alone.best_epoch[name] == together.best_epoch[name]


def test_the_loss_does_not_see_a_missing_vote():
    votes, ones = torch.full((64,), 4.0), torch.ones(64, 3)
    votes[::2] = torch.nan
    settings = TrainingSettings(epochs=40, batch_size=16, learning_rate=1e-2, weights=(0, 1, 0))
    training = train_scorer(ones, votes, questions=["Q1"], train=range(64), settings=settings, hidden=(4, 4))
    torch.testing.assert_close(training.scorer.score(ones)[:, 0], votes.nan_to_num(4.0), atol=0.1, rtol=0)


def test_the_first_epoch_by_the_loss_itself(rated):
    embeddings, votes = rated[0], rated[1][:, :1].nan_to_num(3)
    settings = TrainingSettings(epochs=1, batch_size=1000, learning_rate=1e-12)
    training = train_scorer(embeddings, votes, questions=["Q1"], train=TRAIN, settings=settings, hidden=(16, 8))
    targets = (votes[:160, 0] - 1) / 4
    # The last bias starts at the mean target.
    torch.testing.assert_close(training.scorer.biases[-1].detach()[0, 0], targets.mean())
    with torch.no_grad():
        loss = pasta_loss(
            training.scorer(embeddings[:160])[:, 0],
            targets,
            torch.ones(160, dtype=torch.bool),
            weights=(1, 0.001, 0.01),
        )
    assert training.curve[0]["loss"]["Q1"] == pytest.approx(float(loss), rel=1e-4)


def test_an_epoch_that_predicts_the_same_for_all_is_never_the_best(rated):
    # A step so small that every vote is predicted as the mean: without a best epoch the last one is kept.
    settings = TrainingSettings(epochs=3, batch_size=1000, learning_rate=1e-12)
    options = {"train": TRAIN, "validation": VALIDATION, "settings": settings, "hidden": (16, 8)}
    embeddings = torch.ones_like(rated[0])
    training = train_scorer(embeddings, rated[1], **options)
    assert np.isnan([[epoch["qwk"][name] for name in QUESTIONS] for epoch in training.curve]).all()
    assert set(training.best_epoch.values()) == {3}


def test_same_seed_same_scorer_and_no_global_generator(rated):
    embeddings, votes = rated
    before = torch.get_rng_state()
    first, second = (train_scorer(embeddings, votes, train=TRAIN, validation=VALIDATION, seed=5, **SMALL) for _ in "ab")
    other = train_scorer(embeddings, votes, train=TRAIN, validation=VALIDATION, seed=6, **SMALL)
    assert torch.equal(torch.get_rng_state(), before)
    assert repr(first.curve) == repr(second.curve)
    assert all(torch.equal(value, state_of(second)[name]) for name, value in state_of(first).items())
    assert not torch.equal(state_of(first)["weights.0"], state_of(other)["weights.0"])


def test_labels_carry_what_the_embedding_does_not():
    generator = torch.Generator().manual_seed(1)
    embeddings, labels = torch.randn(200, 4, generator=generator), torch.arange(200) % 5
    options = {"train": range(150), "validation": range(150, 200), "questions": ["Q1"], "hidden": (16, 8)}
    options |= {"labels": list("abcde" * 40), "label_names": list("abcde")}
    options |= {"settings": TrainingSettings(epochs=25, batch_size=32, learning_rate=1e-2)}
    scorer = train_scorer(embeddings, labels + 1.0, **options).scorer
    assert figures(scorer.score(embeddings, labels)[150:, 0], labels[150:] + 1).spearman > 0.95
    assert abs(figures(scorer.score(embeddings)[150:, 0], labels[150:] + 1).spearman) < 0.4


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"train": range(200)}, r"share no item but 40 are in both, the first is 160"),
        ({"targets": torch.full((240,), torch.nan), "questions": ["Q1"]}, r"No item to learn from has a vote on Q1"),
        ({"targets": torch.zeros(240, 6)}, r"`targets` to lie in \[1, 5\].*1440 of 1440"),
        ({"labels": ["bird"] * 240, "label_names": ["cat"]}, "240 of 240 are others: 'bird'.*: 'cat'"),
    ],
)
def test_bad_input(rated, changes, message):
    arguments = {"embeddings": rated[0], "targets": rated[1], "train": TRAIN, "validation": VALIDATION}
    with pytest.raises(ValueError, match=message):
        train_scorer(**arguments | changes)
    with pytest.raises(ValueError, match="`epochs` to be at least 1"):
        TrainingSettings(epochs=0)
    with pytest.raises(ValueError, match="`weights` to hold three numbers"):
        TrainingSettings(weights=(1, -1, 0))


def test_a_dead_output_and_divergence_are_errors(rated, monkeypatch):
    embeddings, votes = rated
    with pytest.raises(ValueError, match="output for Q1 is no longer a number"):
        train_scorer(
            embeddings * 1e20, votes, train=TRAIN, hidden=(16, 8), settings=TrainingSettings(3, learning_rate=1e3)
        )
    # Dying in the last step, after the last look of an epoch.
    plain = module.Scorer.output
    monkeypatch.setattr(module.Scorer, "output", lambda self, x: plain(self, x) * float(torch.is_grad_enabled()))
    with pytest.raises(ValueError, match="output for Q1 is 0 for every item"):
        train_scorer(embeddings, votes, train=TRAIN, **SMALL)


def test_a_kept_epoch_is_what_so_many_epochs_give(rated):
    embeddings, votes = rated
    three = train_scorer(embeddings, votes, train=TRAIN, hidden=(16, 8), settings=TrainingSettings(3, 32, 2e-3))
    keep = dict.fromkeys(QUESTIONS, 3)
    training = train_scorer(embeddings, votes, train=TRAIN, validation=VALIDATION, keep=keep, **SMALL)
    assert [epoch["loss"] for epoch in training.curve[:3]] == [epoch["loss"] for epoch in three.curve]
    assert training.best_epoch == keep
    for name, value in state_of(training).items():
        torch.testing.assert_close(value, state_of(three)[name], rtol=0, atol=0)
    # An epoch that never comes would leave the initial weights.
    with pytest.raises(ValueError, match=r"`keep\['Q2'\]` .*8"):
        train_scorer(embeddings, votes, train=TRAIN, keep=keep | {"Q2": 9}, **SMALL)


def test_votes_of_validation_are_rounded_up_at_halves(rated):
    embeddings, votes = rated
    halves = votes[:, 0].clone()
    halves[160:200] = (halves[160:200] - 0.5).clamp(1)
    up, down = halves.clone(), halves.clone()
    up[160:200], down[160:200] = (halves[160:200] + 0.5).floor(), halves[160:200].floor()
    by_halves, by_up, by_down = (
        [epoch["qwk"]["Q1"] for epoch in training.curve]
        for training in (
            train_scorer(embeddings, targets, train=TRAIN, validation=VALIDATION, questions=["Q1"], **SMALL)
            for targets in (halves, up, down)
        )
    )
    np.testing.assert_array_equal(by_halves, by_up)
    assert not np.array_equal(by_halves, by_down, equal_nan=True)


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"embeddings": torch.full((240, 10), torch.nan)}, "`embeddings` to be finite"),
        ({"train": [0, 0]}, "`train` to hold each item once"),
        ({"train": []}, "`train` to hold at least one item"),
    ],
)
def test_what_cannot_be_learned_from_is_refused(rated, changed, message):
    embeddings, targets = rated
    with pytest.raises(ValueError, match=message):
        train_scorer(**{"embeddings": embeddings, "targets": targets, "train": TRAIN} | SMALL | changed)
