import warnings

import numpy as np
import pytest
import torch
from sklearn.linear_model import LogisticRegression, SGDClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from captum_concepts.models.heads import fit_elastic_net, fit_logistic
from untouched import untouched


def values_and_labels(k, n=240, n_concepts=5, seed=0):
    rng = np.random.default_rng(seed)
    labels = rng.integers(0, k, n)
    # Concepts of very different scale, one of them constant.
    values = rng.normal(size=(n, n_concepts)) + rng.normal(size=(k, n_concepts))[labels]
    return values * [1.0, 50.0, 0.01, 3.0, 0.0][:n_concepts] + 7.0, labels


@pytest.mark.parametrize("k", [2, 4])
@pytest.mark.parametrize("standardise", [True, False])
def test_logistic_head_gives_the_probabilities_of_scikit_learn(k, standardise):
    x, y = values_and_labels(k)
    model = LogisticRegression(C=0.5, max_iter=1000)
    if standardise:
        model = make_pipeline(StandardScaler(), model)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model.fit(x, y)
    head = fit_logistic(torch.tensor(x), torch.tensor(y), C=0.5, standardise=standardise)
    assert (head.in_features, head.out_features) == (5, k)
    with torch.no_grad():
        probabilities = head(torch.tensor(x)).softmax(dim=1)
    np.testing.assert_allclose(probabilities, model.predict_proba(x), atol=1e-6)
    assert (probabilities.argmax(1).numpy() == y).mean() > 1.3 / k


@pytest.mark.parametrize("k", [2, 4])
def test_elastic_net_head_predicts_as_scikit_learn(k):
    x, y = values_and_labels(k, n_concepts=4)
    x = (x - x.mean(0)) / x.std(0)
    settings = {"alpha": 0.02, "l1_ratio": 0.9}
    model = SGDClassifier(loss="log_loss", penalty="elasticnet", random_state=3, max_iter=10_000, **settings).fit(x, y)
    head = fit_elastic_net(torch.tensor(x), torch.tensor(y), seed=3, standardise=False, **settings)
    with torch.no_grad():
        logits = head(torch.tensor(x))
    np.testing.assert_array_equal(logits.argmax(1), model.predict(x))
    if k == 2:
        np.testing.assert_allclose(logits.softmax(1), model.predict_proba(x), atol=1e-9)
    else:
        np.testing.assert_allclose(logits, model.decision_function(x), atol=1e-9)


@pytest.mark.parametrize("fit", [fit_logistic, fit_elastic_net])
def test_heads_are_repeatable_and_touch_no_global_generator(fit):
    x, y = values_and_labels(3)
    with untouched(x, y):
        first, second = fit(x, y), fit(x, y)
    assert torch.equal(first.weight, second.weight)
    with pytest.warns(UserWarning, match=f"{fit.__name__} has not converged in `max_iter` = 1 steps"):
        fit(x, y, max_iter=1)


@pytest.mark.parametrize("fit", [fit_logistic, fit_elastic_net])
def test_a_class_without_a_sample_is_never_predicted(fit):
    x, y = values_and_labels(3)
    y[y == 1] = 4
    with pytest.warns(UserWarning, match=r"3 of 6 classes have no sample .*: 1, 3, 5"):
        head = fit(torch.tensor(x), torch.tensor(y), n_classes=6)
    assert head.out_features == 6
    assert (head.weight[[1, 3, 5]] == 0).all()
    with torch.no_grad():
        logits = head(torch.tensor(x))
    assert logits.isfinite().all()
    assert set(logits.argmax(1).tolist()) <= {0, 2, 4}


@pytest.mark.parametrize(
    ("fit", "changes", "error", "message"),
    [
        (fit_logistic, {"labels": [0, 1, 0]}, ValueError, r"`labels` to have shape \(N,\) = \(4,\) but got \(3,\)"),
        (fit_logistic, {"labels": [0, 0, 0, 0]}, ValueError, "`labels` .* of at least two classes"),
        (fit_logistic, {"labels": [0, -1, 0, 1]}, ValueError, "`labels` to hold class indices from 0"),
        (fit_logistic, {"labels": [0, 0.5, 0, 1]}, ValueError, "`labels` to hold indices"),
        (fit_logistic, {"values": [[0.0], [np.nan], [1.0], [2.0]]}, ValueError, "`values` to be finite"),
        (fit_logistic, {"C": 0}, ValueError, r"`C` to lie in \(0, inf"),
        (fit_elastic_net, {"alpha": 0}, ValueError, r"`alpha` to lie in \(0, inf"),
        (fit_logistic, {"n_classes": 1}, ValueError, "`n_classes` to be at least 2"),
        (fit_logistic, {"C": "strong"}, TypeError, "`C` to be a number"),
    ],
)
def test_what_cannot_be_fitted_is_refused(fit, changes, error, message):
    with pytest.raises(error, match=message):
        fit(**{"values": [[0.0], [1.0], [2.0], [3.0]], "labels": [0, 1, 0, 1]} | changes)
