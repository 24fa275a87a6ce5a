"""Truth of a data set with more concepts than a model's bank."""

import numpy as np
import pandas as pd
import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader

from captum_concepts import PostHocCBM
from quantus_concepts import CEM, CGIM, CLM, score_concepts
from quantus_concepts.datasets import PaintedBirds


@pytest.fixture(scope="module")
def birds():
    return PaintedBirds(60, "train", image_size=32, n_classes=3, n_concepts=20)


@pytest.fixture(scope="module")
def cbm(birds):
    with torch.random.fork_rng():
        torch.manual_seed(0)
        backbone = nn.Sequential(nn.Conv2d(3, 8, 5, 4), nn.ReLU())
    with pytest.warns(UserWarning, match="concepts are left out"):
        return PostHocCBM.fit(backbone, DataLoader(birds, 20), method="mean", min_images=20)


def test_scores_take_the_truth_of_the_banks_concepts(birds, cbm):
    assert 5 < len(cbm.bank) < len(birds.concept_names)
    table = score_concepts(cbm, DataLoader(birds, 20))
    expected = score_concepts(cbm, DataLoader(birds.select(cbm.bank.names), 20))
    pd.testing.assert_frame_equal(table, expected)
    assert set(table[(table["item_kind"] == "concept") & (table["item"] != "")]["item"]) == set(cbm.bank.names)
    # Labels passed as an array are those of the bank, in its order.
    labels = birds.select(cbm.bank.names)
    explicit = score_concepts(
        cbm,
        DataLoader(birds, 20),
        concept_labels=labels.concept_labels,
        class_concepts=labels.class_concepts,
        part_of_concept=labels.part_of_concept,
        concept_names=cbm.bank.names,
    )
    pd.testing.assert_frame_equal(table, explicit)


@pytest.mark.parametrize("metric", ["CEM", "CGIM", "CLM"])
def test_metrics_say_where_the_truth_is(birds, cbm, metric):
    images, classes, concepts, points = (np.stack(column) for column in zip(*birds, strict=True))
    metrics = {
        "CEM": lambda: CEM(concepts),
        "CGIM": lambda: CGIM(birds.class_concepts),
        "CLM": lambda: CLM(points=points, part_of_concept=birds.part_of_concept),
    }
    with pytest.raises(ValueError, match=r"`dataset\.select\(model\.bank\.names\)` has the truth"):
        metrics[metric]()(cbm, images, classes)
