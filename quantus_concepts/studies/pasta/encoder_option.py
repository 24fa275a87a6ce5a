"""The encoder that the options of a command name."""

from __future__ import annotations

from pathlib import Path

import torch

from quantus_concepts.pasta.encoder import Encoder
from quantus_concepts.pasta.encoders import as_encoder
from quantus_concepts.pasta.scorer import Scorer


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
