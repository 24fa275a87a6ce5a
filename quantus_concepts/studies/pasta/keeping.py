"""What is expensive in a study of scorers, in the form in which a run keeps it."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from quantus_concepts.datasets.ratings.rated import RatedExplanations
from quantus_concepts.pasta.embedder import Embedder
from quantus_concepts.pasta.scorer import Scorer
from quantus_concepts.pasta.training import Training

#: `Run.kept`, or what makes everything anew.
Keep = Callable[[str, Mapping[str, Any], Callable[[Any], Mapping[str, Tensor]]], dict[str, Tensor]]


def not_kept(name: str, settings: Mapping[str, Any], make: Callable[[Any], Mapping[str, Tensor]]) -> dict[str, Tensor]:
    """Make tensors anew."""
    return dict(make(None))


def digest(*arrays: Any) -> str:
    """Return the SHA-256 of arrays, None among them."""
    found = hashlib.sha256()
    for array in arrays:
        values = np.asarray(array)
        found.update(f"{values.shape} {values.dtype}".encode())
        found.update(values.tobytes() if values.dtype != object else repr(values.tolist()).encode())
    return found.hexdigest()


def kept_arrays(
    keep: Keep, name: str, settings: Mapping[str, Any], make: Callable[[], Mapping[str, np.ndarray]]
) -> dict[str, np.ndarray]:
    """Return arrays by name, in the order in which they were made."""

    def numbered(_: Any) -> dict[str, Tensor]:
        made = make().items()
        return {f"{place:03d} {key}": torch.as_tensor(np.ascontiguousarray(a)) for place, (key, a) in enumerate(made)}

    found = keep(name, settings, numbered)
    return {key[4:]: found[key].numpy() for key in sorted(found)}


def ratings_digest(ratings: RatedExplanations) -> str:
    """Return what tells ratings apart: what was rated, by its names, and the votes."""
    return digest(ratings.image_ids, ratings.explainer_ids, ratings.modalities, ratings.votes)


def kept_embeddings(
    keep: Keep,
    embedder: Embedder,
    ratings: RatedExplanations,
    name: str = "embeddings",
    embed: Callable[[], Tensor] | None = None,
) -> Tensor:
    """Return the embeddings of rated explanations, on the CPU; `embed` makes them in another way."""
    make = embed or (lambda: embedder.embed(ratings.explanations))
    settings = {
        "ratings": ratings_digest(ratings),
        "encoder": embedder.encoder.fingerprint,
        "settings": embedder.settings,
    }
    return keep(name, settings, lambda _: {"embeddings": make().cpu()})["embeddings"]


def training_tensors(training: Training) -> dict[str, Tensor]:
    """Return all of a training as tensors."""
    questions = training.scorer.questions
    curve = {
        f"curve {name}": torch.tensor(
            [[point[name][question] for question in questions] for point in training.curve], dtype=torch.float64
        )
        for name in ("loss", "qwk")
    }
    told = torch.tensor(list(json.dumps(training.notes).encode()), dtype=torch.uint8)
    best = torch.tensor([training.best_epoch[question] for question in questions])
    return {**training.scorer.state_dict(), **curve, "best epoch": best, "notes": told}


def training_of(
    found: Mapping[str, Tensor], questions: Sequence[str], label_names: Sequence[str] | None, dim: int
) -> Training:
    """Return the training that `training_tensors` took apart."""
    scorer = Scorer(dim, questions, label_names)
    scorer.load_state_dict({name: found[name] for name in scorer.state_dict()})
    curve = [
        {"epoch": place, "loss": dict(zip(questions, loss, strict=True)), "qwk": dict(zip(questions, qwk, strict=True))}
        for place, (loss, qwk) in enumerate(
            zip(found["curve loss"].tolist(), found["curve qwk"].tolist(), strict=True), start=1
        )
    ]
    best = dict(zip(questions, found["best epoch"].tolist(), strict=True))
    return Training(scorer.eval(), curve, best, tuple(json.loads(bytes(found["notes"].tolist()))))
