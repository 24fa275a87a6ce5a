"""The encoder of a model that a user brings, and `as_encoder`: the encoder of a name or an object."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from PIL import Image
from torch import Tensor, nn

from captum_concepts._support.checks import check_path, check_shape
from captum_concepts._support.files import check_files
from captum_concepts._support.fingerprints import fingerprint_of, tokenizer_hash
from captum_concepts._support.running import evaluation_mode, without_autocast
from quantus_concepts.pasta.encoders.embedded_encoder import EMBEDDED, EmbeddedEncoder
from quantus_concepts.pasta.encoders.encoder import PARTS, BatchEncoder, Encoder, is_encoder
from quantus_concepts.pasta.encoders.open_clip_encoder import OpenClipEncoder
from quantus_concepts.pasta.encoders.preprocessing import Preprocessing, batched_form

BLIP = "Salesforce/blip-itm-base-coco"
_FILES = ("config.json", "preprocessor_config.json", "tokenizer_config.json", "model.safetensors")
#: Numbers of Pillow's filters.
_FILTERS = {2: "bilinear", 3: "bicubic"}
#: Names of the two parts in models of transformers.
_KINDS = (("vision_model", "text_encoder"), ("vision_model", "text_model"))


class ObjectEncoder(BatchEncoder):
    """Encoder of an object with `encode_image`, `encode_text`, `preprocess` and `tokenizer`.

    Nothing of the object is changed: each of its modules keeps its train or eval mode (it computes in eval mode) and
    its device.

    Parameters
    ----------
    parts : object
        With ``encode_image(images)`` and ``encode_text(tokens)``, both giving (n, dim); ``preprocess``, from a Pillow
        image to a tensor (3, h, w), or from images (n, 3, H, W) in [0, 1] to the model's input, if it has an
        attribute ``batched`` that is true; ``tokenizer``, from a list of n texts to tokens. What open_clip gives will
        do; its preprocessing is recognised and done in batches.
    name : str, optional
        Name; by default its attribute `name`, or the name of its class.
    fingerprint : str, optional
        Identity for the cache, another text wherever embeddings may differ; by default its attribute `fingerprint`.
        Only a cache needs it.

    Attributes
    ----------
    name : str
        Name of the encoder.

    Raises
    ------
    TypeError
        If a part is missing.
    """

    def __init__(self, parts: Any, *, name: str | None = None, fingerprint: str | None = None) -> None:
        missing = [part for part in PARTS if not callable(getattr(parts, part, None))]
        if missing:
            raise TypeError(
                f"Expected argument `parts` to have functions {', '.join(PARTS)} but {type(parts).__name__} lacks "
                f"{', '.join(missing)}."
            )
        self.parts = parts
        self.modules = _modules(parts)
        self.name = name or getattr(parts, "name", None) or type((self.modules or [parts])[0]).__name__
        self._fingerprint = fingerprint
        self._preprocess: Callable[[Tensor], Tensor] = (
            parts.preprocess if getattr(parts.preprocess, "batched", False) else batched_form(parts.preprocess)
        ) or self._one_by_one
        self._dim: int | None = None

    @property
    def dim(self) -> int:
        """Size of an embedding, found by encoding a text once."""
        if self._dim is None:
            self._dim = int(self.encode_texts(["a"]).shape[1])
        return self._dim

    @property
    def device(self) -> torch.device | None:
        """Device of the model; None for an object without modules."""
        tensors = (tensor for module in self.modules for tensor in (*module.parameters(), *module.buffers()))
        first = next(tensors, None)
        return None if first is None else first.device

    @property
    def fingerprint(self) -> str:
        """Identity for the cache of embeddings, which the user gives."""
        fingerprint = self._fingerprint or getattr(self.parts, "fingerprint", None)
        if fingerprint is None:
            raise ValueError(
                f"Expected {self.name} to have an attribute `fingerprint`, a text that is another one wherever "
                "embeddings may differ: a cache on disk cannot know what an object depends on. Or use no cache."
            )
        return str(fingerprint)

    def _embed_images(self, images: Tensor) -> Tensor:
        device = self.device or images.device
        with self._evaluation(device):
            embeddings = self.parts.encode_image(self._preprocess(images.to(device)).to(device))
        return self._check_embeddings("encode_image", embeddings, len(images))

    def _embed_texts(self, texts: list[str]) -> Tensor:
        device = self.device or torch.device("cpu")
        with self._evaluation(device):
            tokens = self.parts.tokenizer(texts)
            embeddings = self.parts.encode_text(tokens.to(device) if hasattr(tokens, "to") else tokens)
        return self._check_embeddings("encode_text", embeddings, len(texts))

    @contextmanager
    def _evaluation(self, device: torch.device) -> Iterator[None]:
        with evaluation_mode(*self.modules), without_autocast(device):
            yield

    def _check_embeddings(self, name: str, embeddings: Any, n: int) -> Tensor:
        if not isinstance(embeddings, Tensor):
            raise TypeError(f"Expected {name} of {self.name} to return a tensor but got {type(embeddings).__name__}.")
        check_shape(name, embeddings, ("N", "dim"), (n, self._dim))
        self._dim = int(embeddings.shape[1])
        return embeddings.float()

    def _one_by_one(self, images: Tensor) -> Tensor:
        """Prepare images with a function of one Pillow image."""
        levels = (images * 255).round().clamp(0, 255).to(torch.uint8).permute(0, 2, 3, 1).cpu().numpy()
        pictures = map(Image.fromarray, levels)
        return torch.stack([torch.as_tensor(self.parts.preprocess(picture)) for picture in pictures])


def _modules(parts: Any) -> list[nn.Module]:
    """Return the modules that an object encodes with: itself, its attributes, and the owners of its methods."""
    if isinstance(parts, nn.Module):
        return [parts]
    attributes = getattr(parts, "__dict__", {}).values()
    owners = (getattr(getattr(parts, name), "__self__", None) for name in ("encode_image", "encode_text"))
    modules = [value for value in (*attributes, *owners) if isinstance(value, nn.Module)]
    return list({id(module): module for module in modules}.values())


class _BlipParts:
    """The members `ObjectEncoder` asks for, of a BLIP model and its processor."""

    def __init__(self, model: nn.Module, processor: Any, name: str) -> None:
        self.model = model
        self.name = name
        self.preprocess = _preprocessing(processor.image_processor)
        self._tokenizer = processor.tokenizer

    @property
    def fingerprint(self) -> str:
        """Identity of the weights, the preprocessing and the tokenizer."""
        return fingerprint_of(self.model, repr(self.preprocess), tokenizer_hash(self.tokenizer))

    def tokenizer(self, texts: Sequence[str]) -> Any:
        return self._tokenizer(list(texts), padding=True, truncation=True, return_tensors="pt")

    def encode_image(self, images: Tensor) -> Tensor:
        vision: Any = self.model.vision_model
        tokens: Tensor = vision(pixel_values=images).last_hidden_state
        return tokens[:, 0]

    def encode_text(self, tokens: Mapping[str, Tensor]) -> Tensor:
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
) -> ObjectEncoder:
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
    ObjectEncoder
        An `Encoder`; a module that was given keeps its mode and device.

    Raises
    ------
    ValueError
        If transformers is not installed, the model cannot be had, or a module is given without its processor.
    """
    if isinstance(model, nn.Module):
        fits = any(all(hasattr(model, part) for part in parts) for parts in _KINDS)
        if processor is None or not fits:
            lacks = "no `processor` beside it" if fits else type(model).__name__
            raise ValueError(
                "Expected argument `model` to be a BlipForImageTextRetrieval or a BlipModel with its `processor` but "
                f"got {lacks}."
            )
        return ObjectEncoder(_BlipParts(model, processor, name or "blip"))
    check_path("model", model)
    # Imported only where they are needed, for they take long.
    from quantus_concepts.pasta.encoders.downloads import REVISION, fetch_folder, first_line

    try:
        from transformers import AutoProcessor, BlipForImageTextRetrieval
    except ImportError:
        raise ValueError(
            "BLIP needs the package transformers: python -m pip install 'quantus-concepts[blip]'."
        ) from None
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
    return ObjectEncoder(_BlipParts(loaded, processor, name or ("blip" if model == BLIP else str(model))))


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
    value: Any,
    *,
    weights: str | Path | None = None,
    tokenizer: Any = None,
    device: torch.device | str | None = None,
) -> Encoder:
    """Return the encoder of a name or an object."""
    extra = [name for name, content in (("weights", weights), ("tokenizer", tokenizer)) if content is not None]
    if isinstance(value, str) and value.partition(" ")[0] == EMBEDDED:
        if extra:
            raise ValueError(f"Argument `{extra[0]}` has no effect on the embedded encoder, which has its own.")
        return EmbeddedEncoder.of_name(value, device)
    if isinstance(value, str):
        return OpenClipEncoder.preset(value, weights=weights, tokenizer=tokenizer, device=device)
    if extra:
        raise ValueError(f"Expected argument `{extra[0]}` only with the name of an encoder; an object has its own.")
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
