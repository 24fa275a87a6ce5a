"""Concept directions from elsewhere: CAVs of Captum, and texts through CLIP or SigLIP."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from captum.concept import CAV, Concept
from torch import Tensor, nn

from captum_concepts._support.checks import check_whole
from captum_concepts._support.files import quote
from captum_concepts._support.running import device_of, evaluation_mode
from captum_concepts.bank.directions import as_embeddings


def read_cavs(cavs: Any, concept: int | str, layer: str | None) -> tuple[str, list[str], Tensor]:
    """Return the layer of CAVs, and names (L) and rows (L, d) of one direction of each."""
    found = _flatten(cavs)
    for cav in found:
        if not isinstance(cav, CAV):
            raise TypeError(
                f"Expected argument `cavs` to hold captum.concept.CAV objects but got {type(cav).__name__}. "
                f"Where it is None, Captum has not trained that experiment: call `TCAV.compute_cavs` first."
            )
    layers = sorted({cav.layer for cav in found})
    if layer is not None:
        if layer not in layers:
            raise ValueError(f"Expected argument `layer` to be one of {layers}, those of `cavs`, but got {layer!r}.")
        found = [cav for cav in found if cav.layer == layer]
    if not found:
        wanted = "" if layer is None else f" of layer {layer!r}"
        raise ValueError(
            f"Expected argument `cavs` to hold at least one CAV{wanted} but it holds none; its layers are {layers}."
        )
    if layer is None and len(layers) > 1:
        raise ValueError(f"Expected argument `layer` to choose one of {layers}: directions of several do not mix.")
    names, directions = zip(*(_direction(cav, concept) for cav in found), strict=True)
    widths = sorted({len(each) for each in directions})
    if len(widths) > 1:
        raise ValueError(f"Expected argument `cavs` to hold directions of one width d but got {widths}.")
    return found[0].layer, list(names), torch.stack(directions)


def write_cavs(names: Sequence[str], rows: Tensor, layer: str) -> list[CAV]:
    """Return a trained CAV of Captum for each direction: of its concept, and of images without it."""
    made = []
    for j, (name, row) in enumerate(zip(names, rows.detach().cpu(), strict=True)):
        concepts = [Concept(2 * j, name, None), Concept(2 * j + 1, f"not {name}", None)]
        stats = {"weights": torch.stack([row, -row]), "classes": [each.id for each in concepts], "accs": None}
        made.append(CAV(concepts, layer, stats))
    return made


def _flatten(cavs: Any) -> list[Any]:
    if isinstance(cavs, CAV):
        return [cavs]
    if isinstance(cavs, Mapping):
        return [cav for value in cavs.values() for cav in _flatten(value)]
    return list(cavs) if isinstance(cavs, list | tuple) else [cavs]


def _direction(cav: CAV, concept: int | str) -> tuple[str, Tensor]:
    names = [each.name for each in cav.concepts]
    if isinstance(concept, str):
        if concept not in names:
            raise ValueError(f"Expected argument `concept` to name one of {names} but got {concept!r}.")
        position = names.index(concept)
    else:
        position = check_whole("concept", concept, 0)
        if position >= len(names):
            raise ValueError(f"Expected argument `concept` to lie in 0..{len(names) - 1} but got {concept}.")
    stats = cav.stats or {}
    if stats.get("weights") is None or stats.get("classes") is None:
        raise ValueError(
            f"Expected argument `cavs` to hold trained CAVs but that of {names} at layer {cav.layer!r} has "
            f"no weights. Call `TCAV.compute_cavs` first."
        )
    # Rows follow the classes of the classifier, not the order of the concepts (TCAV reorders them likewise).
    classes = [int(each) for each in stats["classes"]]
    chosen = cav.concepts[position]
    if chosen.id not in classes:
        raise ValueError(
            f"Expected argument `cavs` to have a row for {chosen.name!r} (id {chosen.id}) but its classes "
            f"are {classes}."
        )
    weights = torch.as_tensor(stats["weights"])[classes.index(chosen.id)]
    return chosen.name, weights.detach().flatten()


def embed_texts(
    model: Any, tokenizer: Callable[..., Any], texts: Sequence[str], templates: Any, batch_size: int
) -> Tensor:
    """Return embeddings (L, d) of length 1, of a text alone or as the mean over templates."""
    encode = _encoder(model)
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
            encode(tokenizer, forms[start : start + batch_size], device_of(model))
            for start in range(0, len(forms), batch_size)
        ]
    unit = nn.functional.normalize(as_embeddings(torch.cat(rows)), dim=1)
    if templates is None:
        return unit
    return nn.functional.normalize(unit.unflatten(0, (len(texts), -1)).mean(1), dim=1)


def _encoder(model: Any) -> Callable[[Callable[..., Any], list[str], torch.device], Tensor]:
    """Return what tokenises and encodes texts with a model."""
    methods = {name: getattr(model, name, None) for name in ("encode_text", "get_text_features")}
    name = next((name for name, method in methods.items() if callable(method)), None)
    if isinstance(model, type) or name is None:
        raise TypeError(
            f"Expected argument `model` to have a method `encode_text`, as models of open_clip have, or "
            f"`get_text_features`, as CLIP and SigLIP of transformers, but got {type(model).__name__}."
        )

    def encode(tokenizer: Callable[..., Any], texts: list[str], device: torch.device) -> Tensor:
        if name == "encode_text":
            rows = model.encode_text(_on(device, tokenizer(texts)))
        else:
            tokens = _tokens(tokenizer, texts, model)
            given = tokens if isinstance(tokens, Mapping) else {"input_ids": tokens}
            rows = model.get_text_features(**{name: _on(device, each) for name, each in given.items()})
            # A tensor up to version 4 of transformers.
            rows = getattr(rows, "pooler_output", rows)
        if not isinstance(rows, Tensor) or rows.ndim != 2 or len(rows) != len(texts):
            got = tuple(rows.shape) if isinstance(rows, Tensor) else type(rows).__name__
            raise ValueError(f"Expected argument `model` to encode texts as (n, d) = ({len(texts)}, *) but got {got}.")
        return rows

    return encode


def _tokens(tokenizer: Callable[..., Any], texts: list[str], model: Any) -> Any:
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


def _on(device: torch.device, tokens: Any) -> Any:
    if not callable(getattr(tokens, "to", None)):
        raise TypeError(f"Expected argument `tokenizer` to return a tensor but got {type(tokens).__name__}.")
    return tokens.to(device)
