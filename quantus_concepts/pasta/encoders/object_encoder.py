"""The encoder of BLIP, and `as_encoder`: the encoder of a name or an object."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, cast

import torch
from torch import Tensor, nn

from captum_concepts.fingerprints import fingerprint_of, tokenizer_hash
from captum_concepts.lazy import check_extra
from captum_concepts.support.checks import check_path
from captum_concepts.support.files import check_files
from quantus_concepts.pasta.encoders.embedded_encoder import EMBEDDED, EmbeddedEncoder
from quantus_concepts.pasta.encoders.encoder import Encoder, Parts, PartsEncoder, Tokenizer, is_encoder
from quantus_concepts.pasta.encoders.open_clip_encoder import OpenClipEncoder
from quantus_concepts.pasta.encoders.preprocessing import Preprocessing

BLIP = "Salesforce/blip-itm-base-coco"
_FILES = ("config.json", "preprocessor_config.json", "tokenizer_config.json", "model.safetensors")
#: Numbers of Pillow's filters.
_FILTERS = {2: "bilinear", 3: "bicubic"}


class _BlipParts:
    """The parts of a BLIP model and its processor."""

    def __init__(self, model: nn.Module, processor: Any, name: str) -> None:
        self.model = model
        self.name = name
        self.preprocess = _preprocessing(processor.image_processor)
        self._tokenizer = processor.tokenizer

    @property
    def fingerprint(self) -> str:
        """Identity of the weights, the preprocessing and the tokenizer."""
        return fingerprint_of(self.model, repr(self.preprocess), tokenizer_hash(self.tokenizer))

    def tokenizer(self, texts: list[str], /) -> Mapping[str, Tensor]:
        return cast(Mapping[str, Tensor], self._tokenizer(texts, padding=True, truncation=True, return_tensors="pt"))

    def encode_image(self, images: Tensor, /) -> Tensor:
        vision: Any = self.model.vision_model
        tokens: Tensor = vision(pixel_values=images).last_hidden_state
        return tokens[:, 0]

    def encode_text(self, tokens: Mapping[str, Tensor], /) -> Tensor:
        model: Any = self.model
        text = model.text_encoder if hasattr(model, "text_encoder") else model.text_model
        states: Tensor = text(**{key: tokens[key] for key in ("input_ids", "attention_mask")}).last_hidden_state
        return states[:, 0]


def blip_encoder(
    model: str | Path | nn.Module = BLIP,
    processor: Any = None,
    *,
    name: str | None = None,
    revision: str | None = None,
) -> PartsEncoder:
    """Return an encoder of a BLIP model.

    The class tokens of picture and text, before they are projected to be compared: 768 numbers of the base model, as
    the release of Kazmierczak et al. (PASTA), Table 1, takes them of "model_base" of Li et al. (2022), "BLIP". Its
    weights are in BLIP's own format; those here are of the base model trained further on retrieval.

    Parameters
    ----------
    model : str, Path or nn.Module
        A folder, a name on Hugging Face, or a `BlipForImageTextRetrieval` or `BlipModel` of transformers.
    processor : object, optional
        The model's ``BlipProcessor``; has to be given with a module, and is otherwise read from where the model is.
    name : str, optional
        Name; by default "blip", or the name of the model.
    revision : str, optional
        Which commit of the repository is fetched, where `model` is a name on Hugging Face: the whole hash, for
        embeddings that stay the same. By default the newest.

    Returns
    -------
    PartsEncoder
        A module that was given keeps its mode and device.

    Raises
    ------
    ValueError
        If transformers is not installed, the model cannot be had, or a module is given without its processor.
    """
    if isinstance(model, nn.Module):
        fits = hasattr(model, "vision_model") and (hasattr(model, "text_encoder") or hasattr(model, "text_model"))
        if processor is None or not fits:
            raise ValueError(
                "Expected argument `model` to be a BlipForImageTextRetrieval or a BlipModel, with its `processor`, but "
                f"got {type(model).__name__}{' alone' if fits else ''}."
            )
        return PartsEncoder(_BlipParts(model, processor, name or "blip"))
    check_path("model", model)
    # Imported only where they are needed, for they take long.
    from quantus_concepts.pasta.encoders.downloads import REVISION, fetch_folder, first_line

    check_extra("transformers", "blip", "BLIP")
    from transformers import AutoProcessor, BlipForImageTextRetrieval

    source, revision = str(model), revision or REVISION
    if (folder := check_path("model", source)).is_dir():
        check_files(folder, "Model")
        source = str(folder)
    else:
        source = fetch_folder(f"The model {model}", source, _FILES, "pass that folder as argument `model`", revision)
    try:
        loaded = BlipForImageTextRetrieval.from_pretrained(
            source, use_safetensors=True, revision=revision, trust_remote_code=False
        )
        if processor is None:
            processor = AutoProcessor.from_pretrained(source, revision=revision, trust_remote_code=False)
    except Exception as error:  # of the library, for whatever is wrong in the folder
        raise ValueError(f"{source} holds no BLIP model that can be read ({first_line(error)}).") from None
    loaded.float().eval().requires_grad_(False)
    return PartsEncoder(_BlipParts(loaded, processor, name or ("blip" if model == BLIP else str(model))))


def _preprocessing(image_processor: Any) -> Preprocessing:
    size = image_processor.size
    height, width = (size[side] if isinstance(size, Mapping) else getattr(size, side) for side in ("height", "width"))
    return Preprocessing(
        (int(height), int(width)),
        "squash",
        _FILTERS[int(image_processor.resample)],
        tuple(image_processor.image_mean),
        tuple(image_processor.image_std),
    )


def as_encoder(
    value: Encoder | Parts | str,
    *,
    weights: str | Path | None = None,
    tokenizer: Tokenizer | str | Path | None = None,
    device: torch.device | str | None = None,
) -> Encoder:
    """Return the encoder of a name or an object."""
    if isinstance(value, str) and value.partition("/")[0] != EMBEDDED:
        return OpenClipEncoder.preset(value, weights=weights, tokenizer=tokenizer, device=device)
    for name, content in (("weights", weights), ("tokenizer", tokenizer)):
        if content is not None:
            raise ValueError(f"Expected argument `{name}` only with the name of an encoder of open_clip.")
    if isinstance(value, str):
        return EmbeddedEncoder.of_name(value, device)
    return value if is_encoder(value) else PartsEncoder(cast(Parts, value))
