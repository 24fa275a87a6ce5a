"""Concept models of tables and of texts: whatever has values and a head is evaluated at its bottleneck."""

from __future__ import annotations

import numpy as np
import pytest
import quantus
import torch
from torch import Tensor, nn

from captum_concepts import BottleneckCBM
from quantus_concepts import CEM, CGIM


class Rows(nn.Module):
    """Rows of a table (N, F) to embeddings (N, 2): the sums of two columns each."""

    def forward(self, rows: Tensor) -> Tensor:
        return torch.stack([rows[:, :2].sum(1), rows[:, 2:].sum(1)], 1)


class Texts(nn.Module):
    """Tokens (N, T) to embeddings (N, 2): how often each of two words occurs."""

    def forward(self, tokens: Tensor) -> Tensor:
        return torch.stack([(tokens == word).float().sum(1) for word in (0, 1)], 1)


ROWS = torch.tensor([[3.0, 1, 0, 0], [1, 1, 0, 1], [0, 0, 2, 2], [0, 1, 3, 0]])
TOKENS = torch.tensor([[0, 0, 0, 7], [0, 0, 1, 7], [1, 1, 1, 1], [0, 1, 1, 1]])


@pytest.mark.parametrize(("features", "inputs"), [(Rows(), ROWS), (Texts(), TOKENS)], ids=["table", "text"])
def test_a_chain_of_other_inputs(features: nn.Module, inputs: Tensor) -> None:
    concepts, head = nn.Linear(2, 3), nn.Linear(3, 2)
    with torch.no_grad():
        # The third concept is the second less the first; classes go by the first two.
        concepts.weight.copy_(torch.tensor([[1.0, 0.0], [0.0, 1.0], [-1.0, 1.0]]))
        concepts.bias.zero_()
        head.weight.copy_(torch.tensor([[1.0, 0.0, 0.0], [0.0, 1.0, 0.5]]))
        head.bias.zero_()
        cbm = BottleneckCBM(features, concepts, head, activation=None).eval()
        values, classes = cbm.concept_predictor(inputs).numpy(), cbm(inputs).argmax(1).numpy()
    assert classes.tolist() == [0, 0, 1, 1]

    found = quantus.evaluate(
        metrics={
            "CEM": CEM(np.eye(3, dtype=int)[[0, 1, 1, 1]]),
            "CGIM": CGIM([[1.0, 0.0, 0.0], [0.0, 1.0, 1.0]], per="class"),
        },
        xai_methods={"InputXGradient": {"method": "InputXGradient"}, "Gradient": {"method": "Gradient"}},
        model=cbm.head.eval(),
        x_batch=values,
        y_batch=classes,
    )
    # The most important concept of each class is its own; the second row shows another.
    assert found["InputXGradient"]["CEM"] == [1.0, 0.0, 1.0, 1.0]
    # The weights (1, 0, 0) are along class 0's concepts, (0, 1, .5) at an angle of 18 degrees to class 1's.
    np.testing.assert_allclose(found["Gradient"]["CGIM"], [1.0, 1.5 / np.sqrt(1.25 * 2)], rtol=1e-6)
