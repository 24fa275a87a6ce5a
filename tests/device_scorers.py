"""A scorer of ranges for workers that each have a simulated device."""

from __future__ import annotations

import os
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd

from concept_ranges import BATCH, Samples
from quantus_concepts.metrics import ConceptRanges
from simulated_device import simulated_device
from tiny_models import SharingConceptModel


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
