"""Concept directions from texts: the embeddings of a CLIP-like model."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from captum_concepts.bank.directions import as_embeddings
from captum_concepts.support.checks import as_list, check_axes, check_names
from captum_concepts.support.files import quote
from captum_concepts.support.running import device_of, evaluation_mode

#: Texts to tokens, or to the arguments of a model of transformers.
Tokenizer = Callable[..., Any]


def fit_texts(
    model: nn.Module,
    tokenizer: Tokenizer,
    prompts: Sequence[str],
    names: Sequence[str] | None,
    batch_size: int,
    templates: Sequence[str] | None,
) -> dict[str, Any]:
    """Take the embeddings of texts as directions."""
    texts = as_list("prompts", prompts, "texts")
    forms = None if templates is None else as_list("templates", templates, "texts")
    if not texts or forms == []:
        raise ValueError("Expected arguments `prompts` and `templates` to hold at least one text but one is empty.")
    names = check_names(texts if names is None else names, len(texts))
    rows = embed_texts(model, tokenizer, texts, forms, batch_size)
    settings = {"method": "text"} if forms is None else {"method": "text", "templates": forms}
    return {"cavs": rows, "names": names, "settings": settings}


def embed_texts(
    model: nn.Module, tokenizer: Tokenizer, texts: Sequence[str], templates: list[str] | None, batch_size: int
) -> Tensor:
    """Return embeddings (L, d) of length 1, of a text alone or as the mean over templates."""
    forms = list(texts)
    if templates is not None:
        bare = [template for template in templates if "{}" not in template]
        if bare:
            raise ValueError(
                f"Expected argument `templates` to hold texts with {{}} where the prompt goes but got {quote(bare[0])}."
            )
        # No `str.format`, to which other brackets mean something.
        forms = [template.replace("{}", text) for text in texts for template in templates]
    with evaluation_mode(model), torch.no_grad():
        rows = [
            _encode(model, tokenizer, forms[start : start + batch_size], device_of(model))
            for start in range(0, len(forms), batch_size)
        ]
    unit = nn.functional.normalize(as_embeddings(torch.cat(rows)), dim=1)
    if templates is None:
        return unit
    return nn.functional.normalize(unit.unflatten(0, (len(texts), -1)).mean(1), dim=1)


def _encode(model: Any, tokenizer: Tokenizer, texts: list[str], device: torch.device) -> Tensor:
    """Tokenise and encode texts, as models of open_clip or of transformers do."""
    if hasattr(model, "encode_text"):
        rows = model.encode_text(tokenizer(texts).to(device))
    elif hasattr(model, "get_text_features"):
        tokens = _tokens(tokenizer, texts, model)
        inputs = tokens if isinstance(tokens, Mapping) else {"input_ids": tokens}
        rows = model.get_text_features(**{name: tensor.to(device) for name, tensor in inputs.items()})
        # A tensor up to version 4 of transformers.
        rows = getattr(rows, "pooler_output", rows)
    else:
        raise TypeError(
            f"Expected argument `model` to have a method `encode_text`, as models of open_clip have, or "
            f"`get_text_features`, as CLIP and SigLIP of transformers, but got {type(model).__name__}."
        )
    check_axes(**{"embeddings of `model`": (rows, f"{len(texts)} d")})
    return rows


def _tokens(tokenizer: Tokenizer, texts: list[str], model: Any) -> Any:
    """Return what a tokenizer or processor of transformers, or any callable, gives for texts."""
    if not hasattr(tokenizer, "model_input_names"):
        return tokenizer(texts)
    config = getattr(model, "config", None)
    settings = getattr(config, "text_config", config)
    # SigLIP was trained on texts of its full length and reads its last token, one of those that fill up.
    full = "siglip" in getattr(config, "model_type", "")
    return tokenizer(
        text=texts,
        padding="max_length" if full else True,
        truncation=True,
        max_length=getattr(settings, "max_position_embeddings", None),
        return_tensors="pt",
    )
