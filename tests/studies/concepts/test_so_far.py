"""What is shown while seeds are still to come, and the birds of each seed."""

from __future__ import annotations

import pandas as pd
import torch

from quantus_concepts.datasets import PaintedBirds
from quantus_concepts.studies._models import loading
from quantus_concepts.studies._models.loading import KeptImages
from quantus_concepts.studies.concepts.data_option import load_data
from quantus_concepts.studies.concepts.evaluation import so_far
from quantus_concepts.studies.concepts.names import ORACLE, POST_HOC, RANDOM
from quantus_concepts.studies.concepts.options import ConceptOptions

CEM = {"metric": "CEM", "explanation": "contribution", "set": "correct", "l": 1, "alpha": float("nan")}
CEM |= {"item_kind": "", "item": "", "n": 10, "undefined": 0, "chance": 0.2}


def rows(seed: int, value: float) -> list[dict[str, object]]:
    """Return scores of one seed, each with an interval over its images."""
    known = {POST_HOC: (value, value - 0.01, value + 0.01), ORACLE: (0.99, 0.98, 1.0), RANDOM: (0.3, 0.2, 0.75)}
    return [
        CEM | {"model": model, "seed": seed} | dict(zip(("value", "low", "high"), numbers, strict=True))
        for model, numbers in known.items()
    ]


def test_one_seed_has_no_interval_and_two_have_the_wide_one_over_both():
    # As scores come: numbers of concepts are whole, and not known of everything.
    other = CEM | {"metric": "CGIM", "item_kind": "class", "l": pd.NA, "model": POST_HOC, "value": 0.5, "seed": 0}
    first = so_far(pd.DataFrame([*rows(0, 0.7), other]).astype({"l": "Int64"}), 4)
    ((_, (row,)),) = first.groups
    assert (first.title, row.label) == ("After 1 of 4 seeds", "first concept present (CEM)")
    assert [cell.mark + cell.text for cell in row.cells] == ["≈70.0", "99.0", "75.0"]
    assert "no intervals" in first.note
    both = so_far(pd.DataFrame(rows(0, 0.7) + rows(1, 0.72)), 4)
    ((_, (row,)),) = both.groups
    # 12.706 deviations of the mean of two, at least those of the single runs.
    assert [cell.mark + cell.text for cell in row.cells] == ["≈71.0 (58.3–83.7)", "99.0 (94.4–100.0)", "75.0"]
    assert "over 2 seeds" in both.note


def test_each_seed_paints_other_birds_of_the_same_classes(monkeypatch):
    monkeypatch.setattr(loading, "PAINTED_AT_ONCE", 12)
    options = ConceptOptions(n_train=27, n_test=10, n_classes=5, image_size=32, seeds=2)
    _, together = load_data(options, None)
    # Other birds of the same classes, with a truth of their own.
    whole = KeptImages(PaintedBirds(57, image_size=32, n_classes=5), range(30, 57))
    own = PaintedBirds(27, image_size=32, n_classes=5, first=30)
    assert torch.equal(together.train.images, whole.images)
    assert torch.equal(together.train.labels, whole.labels)
    assert torch.equal(together.class_concepts, own.class_concepts)
