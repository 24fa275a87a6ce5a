"""The embedded encoder and how scorers are trained on it."""

from __future__ import annotations

from typing import Any

import torch

from quantus_concepts.pasta.embedded_encoder import EmbeddedEncoder
from quantus_concepts.pasta.embedder import Embedder
from quantus_concepts.pasta.training import TrainingSettings

#: The paper's but for learning rate and epochs, found by trial on simulated ratings.
EMBEDDED_SETTINGS = TrainingSettings(epochs=20, learning_rate=3e-3)


def embedded_embedder(*, device: torch.device | str | None = None, **settings: Any) -> Embedder:
    """Return an embedder with the embedded encoder."""
    return Embedder(EmbeddedEncoder(device=device), size=64, **settings)
