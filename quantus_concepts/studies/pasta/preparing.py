"""What the options of the studies of scorers ask for: ratings, an encoder and its embedder, a plan of the training."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from quantus_concepts.datasets.ratings.rated import RatedExplanations
from quantus_concepts.datasets.ratings.raters import simulated_ratings
from quantus_concepts.datasets.ratings.released import PastaRatings
from quantus_concepts.pasta.embedded_encoder import EmbeddedEncoder
from quantus_concepts.pasta.embedder import Embedder
from quantus_concepts.pasta.encoder import Encoder
from quantus_concepts.pasta.encoders import as_encoder
from quantus_concepts.pasta.labels import LABEL_ALIASES, RELEASED_LABELS
from quantus_concepts.pasta.scorer import Scorer
from quantus_concepts.pasta.training import TrainingSettings
from quantus_concepts.studies.pasta.evaluation import Plan
from quantus_concepts.studies.pasta.options import (
    EMBEDDED,
    EMBEDDED_EPOCHS,
    EMBEDDED_LEARNING_RATE,
    RatingsOptions,
    ScorersOptions,
)

#: The paper's but for learning rate and epochs.
EMBEDDED_SETTINGS = TrainingSettings(epochs=EMBEDDED_EPOCHS, learning_rate=EMBEDDED_LEARNING_RATE)


def embedded_embedder(*, device: torch.device | str | None = None, **settings: Any) -> Embedder:
    """Return an embedder with the embedded encoder."""
    return Embedder(EmbeddedEncoder(device=device), size=64, **settings)


def study_ratings(options: RatingsOptions) -> RatedExplanations:
    """Return the folder's ratings, or simulated ones."""
    if options.data is not None:
        return PastaRatings(options.data)
    return simulated_ratings(options.n_images, seed=options.seed)


def study_embedder(options: RatingsOptions, encoder: str = EMBEDDED, *files: Path | None) -> Embedder:
    """Return an embedder with an encoder, of which weights and tokenizer may be files."""
    shared: dict[str, Any] = {
        "cache": getattr(options, "cache", None),
        "batch_size": options.batch_size,
        "display_progressbar": options.progress,
    }
    device = options.torch_device()
    if encoder == EMBEDDED:
        return embedded_embedder(device=device, **shared)
    return Embedder(load_encoder(encoder, *files, device=device), **shared)


def study_plan(options: ScorersOptions, ratings: RatedExplanations, encoder: str = EMBEDDED) -> Plan:
    """Return how scorers are trained on the embeddings of an encoder."""
    settings = EMBEDDED_SETTINGS if encoder.startswith(EMBEDDED) else TrainingSettings()
    given = {name: value for name in ("epochs", "learning_rate") if (value := getattr(options, name)) is not None}
    return Plan(
        questions=options.questions,
        label_names=known_labels(ratings),
        settings=replace(settings, **given),
        seed=options.seed,
        n_splits=options.seeds,
        device=options.torch_device(),
        progress=options.progress,
    )


def known_labels(ratings: RatedExplanations) -> tuple[str, ...]:
    """Return the labels a scorer of these ratings has to know."""
    names = set(ratings.labels.tolist()) - {""}
    released = {LABEL_ALIASES.get(name, name) for name in names} <= set(RELEASED_LABELS)
    return tuple(RELEASED_LABELS) if released else tuple(sorted(names))


def load_encoder(
    name: str | None,
    weights: Path | None = None,
    tokenizer: Path | None = None,
    *,
    device: torch.device,
    scorer: Scorer | None = None,
) -> Encoder | None:
    """Return the encoder asked for, or the one a scorer was trained on."""
    for option, path, there in (
        ("--encoder-weights", weights, weights is None or weights.is_file()),
        ("--encoder-tokenizer", tokenizer, tokenizer is None or tokenizer.is_dir()),
    ):
        if not there:
            raise ValueError(f"Expected argument `{option}` to name what is there but there is nothing at {path}.")
    if name is None and scorer is not None and scorer.encoder is not None:
        name = scorer.encoder
        # The encoder of a file is called "siglip (weights.safetensors)".
        model, _, file = name.partition(" (")
        if file.endswith((".safetensors)", ".pt)", ".pth)", ".bin)")):
            if weights is None:
                raise ValueError(
                    f"The scorer was trained on the encoder {name}: give that file with --encoder-weights, or another "
                    "encoder of the same weights with --encoder."
                )
            name = model
    return None if name is None else as_encoder(name, weights=weights, tokenizer=tokenizer, device=device)
