"""Concept models scored by ranges of a data set: the numbers of one pass."""

from __future__ import annotations

from typing import Any

import pandas as pd
import pytest
import torch
from torch.utils.data import DataLoader

from concept_ranges import N, Samples
from quantus_concepts import score_concepts
from quantus_concepts.metrics import ConceptRanges
from tiny_models import SharingConceptModel


class Pairs(Samples):
    """The same images, with something put in and taken out; of the last two ranges nothing that is known."""

    added = torch.tensor([0, 1, 2, 3, *[-1] * (N - 4)])
    removed = torch.tensor([1, 2, 3, 0, *[-1] * (N - 4)])


@pytest.mark.parametrize("per_image", [False, True])
@pytest.mark.parametrize("baselines", [False, True])
def test_rows_of_ranges_give_the_table_of_one_pass(baselines: bool, per_image: bool) -> None:
    model, data = SharingConceptModel(0), Pairs()
    settings: dict[str, Any] = {"baselines": baselines, "value_threshold": 0.1, "top_l": (1, 2), "seed": 3}
    ranges = ConceptRanges(model, data, batch_size=2, **settings)
    rows = pd.concat([ranges.rows(0, 2), ranges.rows(2, 8), ranges.rows(8, 11)], ignore_index=True)
    loader = DataLoader(data, 2, generator=torch.Generator())
    expected = score_concepts(model, loader, **settings, per_image=per_image)
    pd.testing.assert_frame_equal(ranges.table(rows, per_image=per_image), expected, check_exact=True)
    assert {"CLM", "CEM", "S+"} <= {*expected["metric"]}
    with pytest.raises(ValueError, match=r"all 11 images and 1 models and controls, 11 rows, but got 9"):
        ranges.table(rows[:9])
