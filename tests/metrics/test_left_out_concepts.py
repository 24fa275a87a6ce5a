"""Truth of a data set with more concepts than a model's bank."""

import numpy as np
import pandas as pd
import pytest
from torch import nn
from torch.utils.data import DataLoader

from captum_concepts import PostHocCBM
from quantus_concepts import CEM, CGIM, CLM, score_concepts
from quantus_concepts.datasets import PaintedBirds


@pytest.fixture(scope="module")
def birds():
    return PaintedBirds(30, "train", image_size=32, n_classes=3, n_concepts=20)


@pytest.fixture(scope="module")
def cbm(birds):
    backbone = nn.Sequential(nn.Conv2d(3, 8, 5, 4), nn.ReLU())
    with pytest.warns(UserWarning, match="concepts are left out"):
        return PostHocCBM.fit(backbone, DataLoader(birds, 20), method="mean", min_images=10)


def test_scores_take_the_truth_of_the_banks_concepts(birds, cbm):
    assert 5 < len(cbm.bank) < len(birds.concept_names)
    table = score_concepts(cbm, DataLoader(birds, 20))
    expected = score_concepts(cbm, DataLoader(birds.select(cbm.bank.names), 20))
    pd.testing.assert_frame_equal(table, expected)
    assert set(table[(table["item_kind"] == "concept") & (table["item"] != "")]["item"]) == set(cbm.bank.names)
    # Labels passed as arrays are those of the bank, in its order.
    labels = birds.select(cbm.bank.names)
    truth = {name: getattr(labels, name) for name in ("concept_labels", "part_of_concept", "concept_names")}
    explicit = score_concepts(cbm, DataLoader(birds, 20), class_concepts=labels.class_concepts, truth=truth)
    pd.testing.assert_frame_equal(table, explicit)


def test_metrics_say_where_the_truth_is(birds, cbm):
    images, classes, concepts, points = (np.stack(column) for column in zip(*birds, strict=True))
    metrics = CEM(concepts), CGIM(birds.class_concepts), CLM(points=points, part_of_concept=birds.part_of_concept)
    for metric in metrics:
        with pytest.raises(ValueError, match=r"`dataset\.select\(model\.bank\.names\)` has the truth"):
            metric(cbm, images, classes)
