import numpy as np
import pytest
import torch
from sklearn.linear_model import Ridge
from sklearn.preprocessing import StandardScaler

from quantus_concepts.pasta.agreement import figures
from quantus_concepts.pasta.regressors import KINDS, fit_regressor


@pytest.fixture(scope="module")
def rated():
    generator = torch.Generator().manual_seed(0)
    embeddings, labels = torch.randn(300, 8, generator=generator), torch.arange(300) % 3
    votes = (2 + labels[:, None] + 0.5 * embeddings @ torch.randn(8, 2, generator=generator)).round().clamp(1, 5)
    votes[::7, 1] = torch.nan
    return embeddings, votes, labels


@pytest.mark.parametrize("kind", KINDS)
def test_learns_both_questions(rated, kind):
    embeddings, votes, labels = rated
    fitted = fit_regressor(
        kind, embeddings, votes, labels, train=range(200), questions=["Q1", "Q2"], label_names=["a", "b", "c"]
    )
    scores = fitted.score(embeddings[200:], labels[200:])
    assert ((scores >= 1) & (scores <= 5)).all()
    first, second = (figures(scores[:, q], votes[200:, q]).spearman for q in range(2))
    assert min(first, second) > 0.8
    # The label counts.
    assert first > figures(fitted.score(embeddings[200:])[:, 0], votes[200:, 0]).spearman


def test_a_nan_embedding_has_no_score_and_bad_arguments_are_refused(rated):
    embeddings, votes, _ = rated
    fitted = fit_regressor("ridge", embeddings, votes[:, 0], questions=["Q3"])
    holed = embeddings.clone()
    holed[2, 3] = torch.nan
    scores = fitted.score(holed)
    assert scores[2].isnan().all()
    torch.testing.assert_close(scores[3:], fitted.score(embeddings)[3:])
    with pytest.raises(ValueError, match="has a vote on Q2"):
        fit_regressor("ridge", embeddings, votes * torch.tensor([1, torch.nan]), questions=["Q1", "Q2"])


def test_ridge_is_that_of_scikit_learn(rated):
    embeddings, votes, _ = rated
    fitted = fit_regressor("ridge", embeddings, votes, questions=["Q1", "Q2"])
    voted = ~votes[:, 1].isnan()
    scaler = StandardScaler().fit(embeddings[voted])
    ridge = Ridge(alpha=1000).fit(scaler.transform(embeddings[voted]), votes[voted, 1])
    expected = ridge.predict(scaler.transform(embeddings)).clip(1, 5)
    np.testing.assert_allclose(fitted.score(embeddings)[:, 1], expected, atol=1e-4)
