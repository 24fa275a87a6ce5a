"""Concept models scored by ranges of a data set: merged states give the table of one pass."""

from __future__ import annotations

import itertools
import warnings
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset, Subset

from captum_concepts import PostHocCBM
from quantus_concepts import CEM, score_concepts
from quantus_concepts.datasets.base import ConceptSample
from quantus_concepts.metrics import (
    ConceptPredictions,
    InterventionAccuracy,
    UsualMetrics,
    predict_concepts,
    score_predictions,
)
from quantus_concepts.metrics.streaming.api import predict_with_controls
from tiny_models import N_CLASSES, N_CONCEPTS, SharingConceptModel, TinyConceptModel

N, BATCH, CUTS = 11, 2, (0, 2, 8, 11)


class Samples(Dataset[ConceptSample]):
    """Images of which all is drawn; something is put into the first four and taken out."""

    part_of_concept = torch.tensor([2, 0, -1, 1, 0])
    added = torch.tensor([0, 1, 2, 3, *[-1] * (N - 4)])
    removed = torch.tensor([1, 2, 3, 0, *[-1] * (N - 4)])
    class_names = [*"KLMN"]  # noqa: RUF012

    def __init__(self) -> None:
        def rand(*shape):
            return torch.rand(*shape, generator=random)

        random = torch.Generator().manual_seed(5)
        self.images, self.concepts = rand(N, 3, 12, 15), (rand(N, N_CONCEPTS) < 0.4).float()
        self.points = (12 * rand(N, 3, 2, 2)).masked_fill(rand(N, 3, 2, 1) < 0.3, torch.nan)
        self.labels = (N_CLASSES * rand(N)).long()
        self.class_concepts = rand(N_CLASSES, N_CONCEPTS)

    def __len__(self) -> int:
        return N

    def __getitem__(self, index: int) -> ConceptSample:
        """Return one image and what is known of it."""
        return ConceptSample(self.images[index], int(self.labels[index]), self.concepts[index], self.points[index])


DATA = Samples()
MODELS = {"one": SharingConceptModel(0), "of its own": TinyConceptModel(3)}


def loader_of(data: Any) -> DataLoader[Any]:
    # Without a generator of its own a loader draws from the global one.
    return DataLoader(data, BATCH, generator=torch.Generator())


def merged(model: Any, folder: Path, metrics: Any = None, controls: Any = (), **settings: Any) -> Any:
    """Return the predictions of all ranges, each of which went through a file: of models, and of controls."""
    parts: dict[Any, list[ConceptPredictions]] = {}
    for start, stop in itertools.pairwise(CUTS):
        loader = loader_of(Subset(DATA, range(start, stop)))
        models, of_controls = predict_with_controls(model, loader, metrics, controls, start=start, **settings)
        for name, rows in (*models.items(), *enumerate(of_controls)):
            # A file of its own: some versions of safetensors map files, and see what is written into them later.
            rows.save(folder / f"{start} {name}.safetensors")
            parts.setdefault(name, []).append(ConceptPredictions.load(folder / f"{start} {name}.safetensors"))
    found = {name: ConceptPredictions.merge(of) for name, of in parts.items()}
    return {name: found[name] for name in models}, [found[number] for number in range(len(of_controls))]


def test_ranges_give_the_tables_of_one_pass(tmp_path):
    metrics = [UsualMetrics(top_l=[1, 2]), InterventionAccuracy([0, 1, 3])]
    settings: dict[str, Any] = {
        "seed": 3,
        "controls": {"random": [SharingConceptModel(seed) for seed in (7, 8, 9)]},
        "control_stride": 3,
    }
    threshold = {"one": 0.1}
    models, controls = merged(MODELS, tmp_path, metrics, **settings)
    scored: dict[str, Any] = {"value_threshold": threshold, "controls": {"random": controls}}
    settings |= {"metrics": metrics, "value_threshold": threshold}
    expected = score_concepts(MODELS, loader_of(DATA), **settings)
    pd.testing.assert_frame_equal(score_predictions(models, metrics, **scored), expected, check_exact=True)
    assert {"CLM", "CEM", "S+", "CGIM", "accuracy after interventions"} <= {*expected["metric"]}
    images = score_concepts(MODELS, loader_of(DATA), **settings, per_image=True)
    found = score_predictions(models, metrics, **scored, per_image=True)
    pd.testing.assert_frame_equal(found, images, check_exact=True)


def test_random_banks_of_a_model_are_scored_over_ranges(tmp_path):
    backbone = nn.Sequential(nn.Conv2d(3, 6, 3, stride=3), nn.ReLU()).eval()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = PostHocCBM.fit(backbone, loader_of(DATA), random_banks=2, min_images=1)
    models, _ = merged(model, tmp_path)
    table = score_predictions(models)
    pd.testing.assert_frame_equal(table, score_concepts(model, loader_of(DATA)), check_exact=True)
    assert {*table["model"]} == {"model", "random banks"}


def test_other_ranges_and_states_raise():
    def part(model: Any, start: int, stop: int, **settings: Any) -> ConceptPredictions:
        return predict_concepts(model, loader_of(Subset(DATA, range(start, stop))), start=start, **settings)

    with pytest.raises(ValueError, match=r"`loader` to be over Subset\(data, range\(start, stop\)\) with `start` = 4"):
        predict_concepts(MODELS, loader_of(Subset(DATA, range(2, 6))), start=4)
    first = part(MODELS["one"], 0, 2)
    with pytest.raises(ValueError, match="`parts` to be of one model but their heads differ"):
        ConceptPredictions.merge([first, part(SharingConceptModel(5), 2, 4)])
    with pytest.raises(ValueError, match=r"`parts` to be of one model and the same arguments but got \('looks'"):
        ConceptPredictions.merge([first, part(MODELS["one"], 2, 4, metrics=[CEM()])])
    with pytest.raises(ValueError, match="`parts` to hold at least one part"):
        ConceptPredictions.merge([])
