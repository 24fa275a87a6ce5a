"""Putting together a scorer and what embeds for it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from quantus_concepts.pasta.embedder import Embedder
from quantus_concepts.pasta.scorer import Scorer
from quantus_concepts.pasta.scorer_files import load_scorer


def scorer_from(value: Any) -> Scorer:
    """Return a scorer, read from its file where a path is given."""
    if isinstance(value, str | Path | dict):
        return load_scorer(value)
    if not isinstance(value, Scorer):
        raise TypeError(
            "Expected argument `scorer` to be a Scorer, or the file of one (of the release: PASTA_Q1.pth), but got "
            f"{type(value).__name__}."
        )
    return value


def embedder_for(scorer: Scorer, encoder: Any = None, *, cache: Any = None, **overrides: Any) -> Embedder:
    """Return an embedder that shows explanations as the scorer saw them when it was trained."""
    if isinstance(encoder, Embedder):
        if cache is not None:
            raise ValueError("Argument `cache` says nothing beside an Embedder, which has its own: leave it out.")
        embedder = encoder
    else:
        if encoder is None:
            if scorer.encoder is None:
                raise ValueError(
                    "Expected argument `encoder`, for the scorer does not name the one it was trained on. Scorers of "
                    'the release were trained on "siglip", "clip" or "eva02".'
                )
            encoder = scorer.encoder
        embedder = Embedder.from_settings(encoder, scorer.settings or {}, cache=cache, **overrides)
    scorer.check_encoder(embedder)
    return embedder
