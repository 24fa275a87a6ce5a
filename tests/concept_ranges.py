"""Concept models scored by ranges of images, held against one pass."""

from __future__ import annotations

import os
import time
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pandas as pd
import torch
from torch import Tensor
from torch.utils.data import Dataset

from quantus_concepts import score_concepts
from quantus_concepts.datasets.base import ConceptSample
from quantus_concepts.metrics import ConceptRanges
from quantus_concepts.studies._models.loading import sample_loader
from quantus_concepts.studies.concepts.study import score_in_ranges
from simulated_device import simulated_device
from tiny_models import N_CLASSES, N_CONCEPTS, SharingConceptModel, TinyConceptModel

N, BATCH = 11, 2


class Samples(Dataset[ConceptSample]):
    """Images of which all is drawn."""

    part_of_concept = torch.tensor([2, 0, -1, 1, 0])

    def __init__(self) -> None:
        def rand(*shape: int) -> Tensor:
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


def check_concepts(folder: Path) -> Any:
    """Hold what ranges give against `score_concepts`, to the bit; return the call, to make it again."""
    data = Samples()
    models = {"one": SharingConceptModel(0), "of its own": TinyConceptModel(3)}
    arguments: dict[str, Any] = {
        "class_concepts": data.class_concepts,
        "part_of_concept": data.part_of_concept,
        "top_l": (1, 2),
        "value_threshold": {"one": 0.1},
        "controls": {"random": [SharingConceptModel(seed) for seed in (7, 8, 9)]},
        "control_stride": 3,
        "interventions": (0, 1, 3),
    }
    names = {"class_names": list("KLMN"), "concept_names": list("vwxyz")}
    prepared: Any = SimpleNamespace(test=data, fingerprint="these images", **names)
    settings: Any = SimpleNamespace(batch_size=BATCH, engine="local", progress=False)
    expected = score_concepts(models, sample_loader(data, BATCH), **arguments, **names, seed=4)

    def call() -> None:
        table = score_in_ranges(models, prepared, 4, arguments, out=folder, settings=settings)  # type: ignore[arg-type]
        pd.testing.assert_frame_equal(table, expected, check_exact=True)

    call()
    assert {"CEM", "CLM", "CGIM", "accuracy after interventions"} <= set(expected["metric"])
    assert expected.loc[expected["baseline"] == "parts of another image", "n"].gt(0).any()
    return call


@dataclass
class OnSimulatedDevice:
    """A factory: each worker notes the GPU that Ray gave it, and begins when all have one."""

    notes: Path
    workers: int

    def __call__(self) -> Any:
        self.notes.mkdir(exist_ok=True)
        (self.notes / os.environ["CUDA_VISIBLE_DEVICES"]).touch()
        return self.score

    def score(self, start: int, stop: int) -> pd.DataFrame:
        """Score some images on a simulated device."""
        end = time.monotonic() + 60
        while len(list(self.notes.iterdir())) < self.workers and time.monotonic() < end:
            time.sleep(0.05)
        with simulated_device() as there:
            model = SharingConceptModel(0).to(there.device)
            rows = ConceptRanges(model, Samples(), batch_size=BATCH).rows(start, stop)
            assert there.kinds()["to_device"]
        return rows
