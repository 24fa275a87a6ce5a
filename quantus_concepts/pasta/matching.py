"""Putting together a scorer and what embeds for it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from quantus_concepts.pasta.embedder import Embedder
from quantus_concepts.pasta.scorer import Scorer
from quantus_concepts.pasta.scorer_files import load_scorer


def scorer_from(value: Any) -> Scorer:
    """Return a scorer, read from its file where a path is given.

    Parameters
    ----------
    value : Scorer, str, Path or mapping
        A scorer, or what `load_scorer` reads.

    Returns
    -------
    Scorer
        As it is where it is one.

    Raises
    ------
    TypeError
        If it is neither.
    ValueError
        If the file is none of a scorer.
    """
    if isinstance(value, str | Path | dict):
        return load_scorer(value)
    if not isinstance(value, Scorer):
        raise TypeError(
            "Expected argument `scorer` to be a Scorer, or the file of one (of the release: PASTA_Q1.pth), but got "
            f"{type(value).__name__}."
        )
    return value


def embedder_for(scorer: Scorer, encoder: Any = None, *, cache: Any = None, **overrides: Any) -> Embedder:
    """Return an embedder that shows explanations as the scorer saw them when it was trained.

    Parameters
    ----------
    scorer : Scorer
        Knows its encoder and how explanations were embedded; a scorer of the release does not, and is taken to be
        trained as the paper says.
    encoder : Embedder, Encoder, str or object, optional
        What `as_encoder` accepts; an embedder is taken as it is. With None the encoder the scorer names.
    cache : EmbeddingCache or path, optional
        Where embeddings are kept.
    **overrides : Any
        Of the settings.

    Returns
    -------
    Embedder
        Whose embeddings have the size the scorer takes.

    Raises
    ------
    ValueError
        If no encoder is given or named, or its embeddings have another size.
    """
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
