"""Concept models scored by ranges of images, with a substitution and without, held against one pass."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pandas as pd
import torch
from torch import Tensor
from torch.utils.data import Dataset

from quantus_concepts import score_concepts, score_substitutions
from quantus_concepts.datasets import SubstitutionSample
from quantus_concepts.datasets.base import ConceptSample
from quantus_concepts.studies._kit.command import DeviceOptions
from quantus_concepts.studies._kit.engine import WorkerOptions
from quantus_concepts.studies._models.loading import sample_loader
from quantus_concepts.studies.concepts.evaluation import scored_by_ranges
from quantus_concepts.studies.substitution.evaluation import in_order
from quantus_concepts.studies.substitution.evaluation import scored_by_ranges as substitutions_by_ranges
from tiny_models import N_CLASSES, N_CONCEPTS, SharingConceptModel, TinyConceptModel

N, BATCH = 11, 2


@dataclass(frozen=True, kw_only=True)
class Options(WorkerOptions, DeviceOptions):
    """What scoring by ranges asks of options."""


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


class Pairs(Samples):
    """The same images, with something put in and taken out; of the last two ranges nothing that is known."""

    added = torch.tensor([0, 1, 2, 3, *[-1] * (N - 4)])
    removed = torch.tensor([1, 0, -1, 4, *[-1] * (N - 4)])
    pairs = torch.arange(N) // 2
    class_names, concept_names = list("KLMN"), ["v::1", "v::2", "w::1", "x::1", "x::2"]

    def __getitem__(self, index: int) -> Any:
        """Return one image and the next, which stands for the one before."""
        return SubstitutionSample(*super().__getitem__(index), self.images[(index + 1) % N])


def check_concepts(folder: Path, engine: str, workers: int | None) -> Any:
    """Hold what ranges give against `score_concepts`, to the bit; return the call, to make it again."""
    data = Samples()
    models = {"one": SharingConceptModel(0), "of its own": TinyConceptModel(3)}
    asked: dict[str, Any] = {
        "class_concepts": data.class_concepts,
        "part_of_concept": data.part_of_concept,
        "top_l": (1, 2),
        "value_threshold": {"one": 0.1},
        "controls": {"random": [SharingConceptModel(seed) for seed in (7, 8, 9)]},
        "control_stride": 3,
        "interventions": (0, 1, 3),
    }
    whole = SimpleNamespace(
        test=data, class_names=list("KLMN"), concept_names=list("vwxyz"), digest=lambda: "these images"
    )
    names = {"class_names": whole.class_names, "concept_names": whole.concept_names}
    expected = score_concepts(models, sample_loader(data, BATCH), **asked, **names, seed=4)

    def call() -> None:
        options = Options(engine=engine, workers=workers, batch_size=BATCH)
        run: Any = SimpleNamespace(options=options, folder=SimpleNamespace(kept=folder), progress=False)
        found = scored_by_ranges(run, models, whole, 4, asked)  # type: ignore[arg-type]
        pd.testing.assert_frame_equal(found, expected, check_exact=True)

    call()
    assert {"CEM", "CLM", "CGIM", "accuracy after interventions"} <= set(expected["metric"])
    assert expected.loc[expected["baseline"] == "parts of another image", "n"].gt(0).any()
    return call


def check_substitutions(folder: Path, engine: str, workers: int | None) -> Any:
    """Hold substitutions scored by ranges against one pass, to the bit; return the call, to make it again."""
    data = Pairs()
    models = {"one": SharingConceptModel(0), "of its own": TinyConceptModel(3)}
    asked = {"threshold": {"one": 0.1}, "controls": {"random": [SharingConceptModel(seed) for seed in (7, 8)]}}
    seen = sample_loader(Samples(), BATCH)
    expected = score_substitutions(models, in_order(data, BATCH), **asked, seen=seen)  # type: ignore[arg-type]

    def call() -> None:
        options = Options(engine=engine, workers=workers, batch_size=BATCH)
        run: Any = SimpleNamespace(options=options, folder=SimpleNamespace(kept=folder), progress=False)
        found = substitutions_by_ranges(run, "here", models, data, seen, asked)
        pd.testing.assert_frame_equal(found, expected, check_exact=True)

    call()
    assert {"S+", "rises", "T_A"} <= set(expected["metric"])
    return call
