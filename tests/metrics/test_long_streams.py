"""Thousands of images, part of a data set, in small batches: every metric of a stream gives what one batch gives."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
import pandas as pd
import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset, Subset

from captum_concepts import BottleneckCBM
from quantus_concepts import score_substitutions
from quantus_concepts.metrics import predict_concepts, score_predictions
from quantus_concepts.metrics.contrast.regions import Subject

#: Many batches, so that their rows are joined, and many chunks.
N, BATCH, SIZE = 3000, 48, 6
N_CLASSES, N_CONCEPTS = 3, 4


class Photographs(Dataset):
    """Images of more than `N` rows, of which a `Subset` takes some in another order."""

    def __init__(self) -> None:
        generator = torch.Generator().manual_seed(0)
        n = N + 500
        self.class_concepts = torch.tensor([[1.0, 0.0, 0.2, 0.6], [0.0, 1.0, 0.7, 0.3], [0.4, 0.1, 1.0, 0.5]])
        self.part_of_concept = torch.tensor([0, 1, -1, 2])
        self.labels = torch.randint(0, N_CLASSES, (n,), generator=generator)
        shares = self.class_concepts[self.labels]
        self.concept_labels = (torch.rand(n, N_CONCEPTS, generator=generator) < shares).float()
        self.images = torch.rand(n, 3, SIZE, SIZE, generator=generator) + self.concept_labels[:, :3, None, None]
        self.points = torch.rand(n, 3, 2, generator=generator) * SIZE - 0.5
        self.points[torch.rand(n, 3, generator=generator) < 0.2] = torch.nan
        # What a data set knows of its images without giving it in a batch.
        self.added = torch.randint(0, N_CONCEPTS, (n,), generator=generator)
        self.network_classes = torch.randint(0, N_CLASSES, (n,), generator=generator)

    def __len__(self) -> int:
        return len(self.images)

    def __getitem__(self, index: int) -> tuple[Tensor, ...]:
        return self.images[index], self.labels[index], self.concept_labels[index], self.points[index]


DATA = Photographs()
ROWS = np.random.default_rng(0).permutation(len(DATA))[:N]
PART = Subset(DATA, ROWS.tolist())


@functools.cache
def make_model() -> BottleneckCBM:
    with torch.random.fork_rng([]):
        torch.manual_seed(0)
        features = nn.Sequential(nn.Conv2d(3, 6, 3), nn.ReLU())
        model = BottleneckCBM(features, nn.Linear(6, N_CONCEPTS), nn.Linear(N_CONCEPTS, N_CLASSES)).eval()
    model.head.weight.data = DATA.class_concepts - 0.4
    return model


def score(loader: Any, **truth: Any) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Return the table of all metrics, and the scores of the images, from one pass."""
    rows = predict_concepts(make_model(), loader, "all", truth=truth)
    table, images = (score_predictions(rows, "all", value_threshold=0.5, per_image=each) for each in (False, True))
    return table, images


def test_batches_of_a_part_give_what_one_batch_gives() -> None:
    table, images = score(DataLoader(PART, BATCH))
    whole = DATA.images[ROWS], DATA.labels[ROWS], DATA.concept_labels[ROWS], DATA.points[ROWS]
    # Bound, and so without a data set to look them up in.
    truth = {"part_of_concept": DATA.part_of_concept}
    truth |= {name: getattr(DATA, name)[ROWS] for name in ("added", "network_classes")}
    expected, of_images = score([whole], class_concepts=DATA.class_concepts, **truth)
    pd.testing.assert_frame_equal(table, expected, rtol=1e-4, atol=1e-6)
    pd.testing.assert_frame_equal(images, of_images, rtol=1e-4, atol=1e-5)
    assert images["image"].max() == N - 1
    of_concepts = {"CEM", "CEM gain", "CGIM", "CGIM correlation", "CLM", "part specificity", "S+", "locality"}
    of_classes = {"accuracy after interventions", "oracle accuracy", "sparse head accuracy", "completeness"}
    leakage = {"concept-task leakage", "inter-concept leakage", "concept-set ceiling"}
    quality = {"concept average precision", "concept F1", "concept Brier score", "concept calibration error"}
    assert of_concepts | of_classes | leakage | quality <= {*table["metric"]}


def test_substitutions_of_a_part_give_what_one_batch_gives() -> None:
    class Changed(Photographs):
        def __getitem__(self, index: int) -> dict[str, Tensor]:
            image, label, _, _ = super().__getitem__(index)
            return {"images": image, "before": image.flip(0), "labels": label}

    names = {"class_names": [*"abc"], "concept_names": [*"wxyz"], "class_concepts": DATA.class_concepts}
    loader = DataLoader(Subset(Changed(), ROWS.tolist()), BATCH)
    table = score_substitutions(make_model(), loader, **names, per_image=True)
    images = DATA.images[ROWS]
    whole = {"images": images, "before": images.flip(1), "labels": DATA.labels[ROWS]}
    expected = score_substitutions(make_model(), [whole], added=DATA.added[ROWS], **names, per_image=True)
    pd.testing.assert_frame_equal(table, expected, rtol=1e-4, atol=1e-5)
    assert len({*table["metric"]}) > 5


def test_logits_of_many_images() -> None:
    network = nn.Sequential(nn.Flatten(), nn.Linear(3 * SIZE * SIZE, 3)).eval()
    images = DATA.images[ROWS]
    expected = network(images).detach()
    torch.testing.assert_close(Subject(network, images, DATA.labels[ROWS]).logits(500), expected, rtol=1e-4, atol=1e-5)
