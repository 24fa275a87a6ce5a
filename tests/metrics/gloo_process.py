"""One of several processes that update metrics with their own images and merge them."""

from __future__ import annotations

import sys
from datetime import timedelta
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import distributed, nn

from captum_concepts import ConceptBank, PostHocCBM
from quantus_concepts import CEM, CGIM

N, K, L, BATCH = 24, 3, 5, 4


def joined(rank: int, world: int, metrics: dict[str, Any]) -> dict[str, Any]:
    """Return the scores of all images; each process updates with its own batches."""
    rng = np.random.default_rng(0)
    images, classes = rng.random((N, 3, 8, 8)).astype(np.float32), rng.integers(0, K, N)
    concepts = rng.integers(0, 2, (N, L))
    torch.manual_seed(0)
    model = PostHocCBM(nn.Conv2d(3, 4, 3), ConceptBank(torch.randn(L, 4)), nn.Linear(L, K)).eval()
    share = N // world
    for start in range(rank * share, (rank + 1) * share, BATCH):
        rows = slice(start, start + BATCH)
        metrics["CEM"].update(model, images[rows], concept_labels=concepts[rows])
        metrics["CGIM"].update(model, images[rows], labels=classes[rows])
    if world > 1:
        for name, metric in metrics.items():
            gathered: list[Any] = [None] * world
            distributed.all_gather_object(gathered, metric)
            metrics[name] = gathered[0]
            for other in gathered[1:]:
                metrics[name].merge_state(other)
    return {name: np.asarray(metric.compute()) for name, metric in metrics.items()}


def fresh() -> dict[str, Any]:
    """Return new metrics."""
    return {"CEM": CEM(top_l=2), "CGIM": CGIM(np.random.default_rng(1).random((K, L)))}


if __name__ == "__main__":
    rank, world, folder = int(sys.argv[1]), int(sys.argv[2]), Path(sys.argv[3])
    distributed.init_process_group(
        "gloo",
        init_method=(folder / "store").as_uri(),
        rank=rank,
        world_size=world,
        timeout=timedelta(seconds=120),
    )
    np.savez(folder / f"{rank}.npz", **joined(rank, world, fresh()))
    distributed.destroy_process_group()
