"""Embeddings of explanations made by ranges of batches, each batch what it is in one pass."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from copy import copy
from functools import partial
from typing import Any

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from quantus_concepts.datasets.ratings.explanations import Explanation
from quantus_concepts.datasets.ratings.rated import RatedExplanations
from quantus_concepts.pasta.embedder import Embedder
from quantus_concepts.studies.engine import score_by_ranges
from quantus_concepts.studies.pasta.keeping import ratings_digest
from quantus_concepts.studies.run import Run

#: Batches of a range: what is lost where a worker dies.
_BATCHES = 4
_EMBEDDING = "embedding"


def identity_of(embedder: Embedder) -> dict[str, Any]:
    """Return what embeddings depend on beside the explanations."""
    return {
        "encoder": embedder.encoder.fingerprint,
        "shown": embedder.settings,
        "batch size": embedder.batch_size,
    }


def embedded_ratings(run: Run[Any], embedder: Embedder, ratings: RatedExplanations) -> Tensor:
    """Return embeddings (N, dim) of what was rated, on the CPU."""
    return embedded_by_ranges(
        run,
        lambda: embedder,
        ratings.explanations,
        modalities=ratings.modalities.tolist(),
        names=[f"{image} by {who}" for image, who in zip(ratings.image_ids, ratings.explainer_ids, strict=True)],
        fingerprint={"ratings": ratings_digest(ratings)} | identity_of(embedder),
    )


def embedded_by_ranges(
    run: Run[Any],
    make_embedder: Callable[[], Embedder],
    explanations: Sequence[Explanation],
    *,
    modalities: Sequence[str],
    names: Sequence[str],
    fingerprint: Mapping[str, Any],
) -> Tensor:
    """Return embeddings (N, dim), on the CPU."""
    batches = _batches(modalities, fingerprint["batch size"])
    rows = score_by_ranges(
        run,
        "embeddings",
        partial(_scorer, make_embedder, explanations, batches),
        len(batches),
        fingerprint=fingerprint,
        shard_size=_BATCHES,
        names=[f"{names[batch[0]]} ... {names[batch[-1]]}" for batch in batches],
    )
    found = np.frombuffer(b"".join(rows[_EMBEDDING]), dtype=np.float32).reshape(len(rows), -1)
    return torch.from_numpy(found[np.argsort(np.concatenate(batches))])


def _batches(modalities: Sequence[str], batch_size: int) -> list[list[int]]:
    """Return the places that an `Embedder` encodes together: explanations of one kind, in their order."""
    found = []
    for kind in dict.fromkeys(modalities):
        places = [place for place, modality in enumerate(modalities) if modality == kind]
        found += [places[start : start + batch_size] for start in range(0, len(places), batch_size)]
    return found


def _scorer(
    make_embedder: Callable[[], Embedder], explanations: Sequence[Explanation], batches: Sequence[Sequence[int]]
) -> Callable[[int, int], pd.DataFrame]:
    # The ranges have a bar.
    embedder = copy(make_embedder())
    embedder.display_progressbar = False

    def embed(start: int, stop: int) -> pd.DataFrame:
        parts = [embedder.embed([explanations[place] for place in batch]) for batch in batches[start:stop]]
        return pd.DataFrame({_EMBEDDING: [row.tobytes() for row in torch.cat(parts).numpy()]})

    return embed
