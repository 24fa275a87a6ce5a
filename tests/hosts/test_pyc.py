"""TCAV beside that of PyC (pytorch-concepts), which takes activations, a head and directions."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from sklearn.svm import SVC
from torch import Tensor, nn

from captum_concepts import tcav_score
from captum_concepts.tcav.score import random_splits
from tiny_models import seeded

functional = pytest.importorskip("torch_concepts.nn.functional")

FEATURES = nn.Sequential(nn.Conv2d(3, 4, 3, stride=2), nn.ReLU(), nn.Flatten())
HEAD = nn.Sequential(nn.Linear(36, 8), nn.Tanh(), nn.Linear(8, 3))
N_RANDOM = 30


@pytest.fixture
def model() -> nn.Sequential:
    return seeded(nn.Sequential(FEATURES, HEAD)).double()


def images(n: int, seed: int) -> Tensor:
    return torch.rand(n, 3, 8, 8, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def direction(activations: Tensor, sides: tuple[np.ndarray, np.ndarray], method: str) -> Tensor:
    """Return the direction from the second side to the first."""
    positive, negative = (activations[side].numpy() for side in sides)
    if method == "mean":
        return torch.as_tensor(positive.mean(0) - negative.mean(0))
    labels = np.repeat([1, 0], [len(positive), len(negative)])
    fit = SVC(kernel="linear", C=1.0, max_iter=100_000).fit(np.concatenate([positive, negative]), labels)
    return torch.tensor(fit.coef_[0])


@pytest.mark.parametrize("method", ["mean", "svm"])
@pytest.mark.parametrize("target", [0, 1, 2])
def test_scores_are_those_of_pyc(model: nn.Sequential, method: str, target: int) -> None:
    positive, negative, inputs = images(8, 0), images(20, 1), images(40, 2)
    positive[:, 0] += 0.2
    ours = tcav_score(
        model, ["0"], positive, negative, inputs, target, method=method, n_random=N_RANDOM, alpha=1.0
    ).layers["0"]
    with torch.no_grad():
        activations = model[0](torch.cat([positive, negative]))
        explained = model[0](inputs)
    splits = random_splits(np.arange(8), np.arange(8, 28), 100, N_RANDOM, 0)
    cavs = torch.stack([direction(activations, sides, method) for sides in splits])
    expected = functional.tcav_score(explained, model[1], cavs, target)
    assert expected.std() > 0
    np.testing.assert_allclose([ours.score, *ours.random_scores], expected.numpy(), atol=1e-12)
