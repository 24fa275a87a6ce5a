import numpy as np
import pytest
import torch

from quantus_concepts.datasets.ratings.explanations import Question
from quantus_concepts.pasta.labels import LABEL_ALIASES, RELEASED_LABELS, label_place
from quantus_concepts.pasta.scorer import Scorer, question_of
from reference import ratings as reference

LABELS = ("bird", "car", "cat")


@pytest.fixture
def scorer():
    scorer = Scorer(5, ("Q1", "Q3", "Q5"), LABELS, (8, 4), encoder="small", settings={"size": 32}, seed=3)
    # All questions start alike; here they must differ.
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for value in scorer.parameters():
            value += 0.2 * torch.randn(value.shape, generator=generator)
        scorer.biases[-1].fill_(0.5)
    return scorer


@pytest.fixture
def embeddings():
    return torch.randn(20, 5, generator=torch.Generator().manual_seed(1))


def test_agrees_with_the_reference(scorer, embeddings):
    labels = torch.arange(20) % 4 - 1
    scores = scorer.score(embeddings, labels)
    for q in range(3):
        layers = [(w[q].detach(), b[q].detach()) for w, b in zip(scorer.weights, scorer.biases, strict=True)]
        expected = reference.forward(embeddings, labels.tolist(), 3, layers)
        np.testing.assert_allclose(scores[:, q], expected, atol=1e-5)
        assert len(np.unique(expected.round(4))) > 10


def test_by_hand():
    scorer = Scorer(2, labels=("cat",), hidden=(1,))
    with torch.no_grad():
        scorer.weights[0].copy_(torch.tensor([[[0.5, 1.0, -1.0]]]))
        scorer.biases[0].copy_(torch.tensor([[0.25]]))
        scorer.weights[1].copy_(torch.tensor([[[0.5]]]))
    embeddings = torch.tensor([[0.25, 0.0], [0.0, 5.0], [3.0, 0.0]])
    # 0.5 * relu(0.5 + 0.25 + 0.25) + 0.5; the bias alone; above the scale
    torch.testing.assert_close(scorer(embeddings, ["cat"] * 3), torch.tensor([[1.0], [0.5], [2.375]]))
    torch.testing.assert_close(scorer.score(embeddings, ["cat"] * 3), torch.tensor([[5.0], [3.0], [5.0]]))
    torch.testing.assert_close(scorer.score(embeddings)[0], torch.tensor([4.0]))


def test_labels_as_names_indices_aliases_or_none(scorer, embeddings):
    names = ["bird", "cats", "car", None] * 5
    as_names = scorer.score(embeddings, names)
    torch.testing.assert_close(as_names, scorer.score(embeddings, [0, 2, 1, -1] * 5))
    torch.testing.assert_close(scorer.score(embeddings), scorer.score(embeddings, [-1] * 20))
    assert (scorer.score(embeddings) - as_names).abs().max() > 0.01


def test_each_item_is_scored_by_itself(scorer, embeddings):
    alone = torch.cat([scorer.score(row[None]) for row in embeddings])
    torch.testing.assert_close(scorer.score(embeddings), alone)
    embeddings[3, 2] = torch.nan
    scores = scorer.score(embeddings)
    assert scores[3].isnan().all()
    torch.testing.assert_close(scores[4:], alone[4:])
    assert scorer.score(embeddings[:0]).shape == (0, 3)
    assert len(RELEASED_LABELS) == len(set(RELEASED_LABELS)) == 26
    assert all(label_place(RELEASED_LABELS, name) == RELEASED_LABELS.index(to) for name, to in LABEL_ALIASES.items())


def test_select_and_join(scorer, embeddings):
    scorer.metadata = {"split": [1, 2]}
    part, other = scorer.select(["Q5", "Q1"]), scorer.select("Q3")
    assert part.questions == ("Q5", "Q1")
    torch.testing.assert_close(part.score(embeddings), scorer.score(embeddings)[:, [2, 0]])
    other.metadata = {"split": [1, 2], "figures": 0.5}
    joined = Scorer.join([part, other])
    assert joined.questions == ("Q5", "Q1", "Q3")
    torch.testing.assert_close(joined.score(embeddings), scorer.score(embeddings)[:, [2, 0, 1]])
    assert joined.metadata == {"split": [1, 2], "figures": {"Q5": None, "Q1": None, "Q3": 0.5}}


def test_questions_are_those_of_the_study_or_the_papers():
    asked = {"clarity": {"text": "Is it clear?", "low_is_good": False}, "Q5": {"text": "", "low_is_good": False}}
    own = Scorer(5, ("clarity", "Q5"), None, (3,), metadata={"asked": asked})
    assert question_of(own, "clarity") == Question("clarity", "Is it clear?")
    # A study that called its question Q5 did not ask the paper's.
    assert question_of(own, "Q5") == Question("Q5")
    assert question_of(Scorer(5, ("Q5", "trust"), None), "Q5").low_is_good
    assert question_of(Scorer(5, ("Q5", "trust"), None), "trust") == Question("trust")
    # What is said of each question is joined by question.
    more = Scorer(5, ("trust",), None, (3,), metadata={"asked": {"trust": {"text": "", "low_is_good": True}}})
    joined = Scorer.join([own.select("clarity"), more])
    assert question_of(joined, "clarity").text == "Is it clear?"
    assert question_of(joined, "trust").low_is_good
    alike = Scorer.join([Scorer(5, (name,), None, metadata={"ranking": {name: {"pairs": 1}}}) for name in ("a", "b")])
    assert alike.metadata["ranking"] == {"a": {"pairs": 1}, "b": {"pairs": 1}}


def test_start_does_not_depend_on_other_questions_or_touch_the_global_generator():
    before = torch.get_rng_state()
    one, all_ = Scorer(4, ("Q2",), seed=7), Scorer(4, ("Q1", "Q2", "Q3"), seed=7)
    assert torch.equal(torch.get_rng_state(), before)
    for a, b in zip(one.parameters(), all_.parameters(), strict=True):
        assert torch.equal(a[0], b[1])
    assert not torch.equal(one.weights[0], Scorer(4, ("Q2",), seed=8).weights[0])
    assert one.biases[-1].tolist() == [[0.5]]


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda s, e: s.score(e, ["birb"] * 20), "20 of 20 are others: 'birb'. The nearest .*: 'bird'"),
        (
            lambda s, e: Scorer(768).score(torch.zeros(1, 1024)),
            r"`embeddings` to have shape \(N, d\) = \(\*, 768\).*clip 768",
        ),
        (lambda s, e: s.score(e[0]), r"`embeddings` to have shape \(N, d\) = \(\*, 5\)"),
        (lambda s, e: s.score(e, [3] * 20), r"`labels` to lie in \[-1, 2\]"),
        (lambda s, e: Scorer(5, labels=None).score(e, [0] * 20), "trained without labels"),
        (lambda s, e: s.select("Q2"), r"does not answer \['Q2'\]"),
        (lambda s, e: Scorer(5, labels={"a", "b"}), "`labels` to hold different names"),
        (lambda s, e: Scorer.join([s, Scorer(4, ("Q2",))]), "`dim` is 5"),
    ],
)
def test_bad_input(scorer, embeddings, call, message):
    with pytest.raises(ValueError, match=message):
        call(scorer, embeddings)
