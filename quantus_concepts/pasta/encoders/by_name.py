"""Encoder of a name or an object."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch

from quantus_concepts.pasta.encoders.embedded_encoder import EMBEDDED, EmbeddedEncoder
from quantus_concepts.pasta.encoders.encoder import PARTS, Encoder, is_encoder
from quantus_concepts.pasta.encoders.object_encoder import ObjectEncoder
from quantus_concepts.pasta.encoders.open_clip_encoder import OpenClipEncoder


def as_encoder(
    value: Any,
    *,
    weights: str | Path | None = None,
    tokenizer: Any = None,
    device: torch.device | str | None = None,
) -> Encoder:
    """Return an encoder, whatever was given to name one."""
    given = [name for name, content in (("weights", weights), ("tokenizer", tokenizer)) if content is not None]
    if isinstance(value, str) and value.partition(" ")[0] == EMBEDDED:
        if given:
            raise ValueError(f"Argument `{given[0]}` has no effect on the embedded encoder, which has its own.")
        return EmbeddedEncoder.of_name(value, device)
    if isinstance(value, str):
        return OpenClipEncoder.preset(value, weights=weights, tokenizer=tokenizer, device=device)
    if given:
        raise ValueError(f"Expected argument `{given[0]}` only with the name of an encoder; an object has its own.")
    if is_encoder(value):
        return value
    missing = [part for part in PARTS if not hasattr(value, part)]
    if not missing:
        return ObjectEncoder(value)
    raise TypeError(
        "Expected argument `encoder` to be the name of a preset, an encoder, or an object with "
        f"{', '.join(PARTS)} but got {type(value).__name__}, which lacks {', '.join(missing)}. Bundle a model with "
        "types.SimpleNamespace(encode_image=model.encode_image, encode_text=model.encode_text, "
        "preprocess=preprocess, tokenizer=tokenizer)."
    )
