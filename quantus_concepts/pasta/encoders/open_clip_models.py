"""Building a model of open_clip with its weights, preprocessing and tokenizer; imports open_clip."""

from __future__ import annotations

import difflib
import functools
from collections.abc import Callable, Mapping
from copy import deepcopy
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import open_clip
import torch
from open_clip import CLIP
from open_clip.tokenizer import HFTokenizer
from safetensors.torch import save_file
from torch import Tensor

from captum_concepts.backbones.weights import load_weights, read_weights
from quantus_concepts.pasta.encoders.downloads import TOKENIZER_FILES, fetch_folder, fetch_weights, first_line
from quantus_concepts.pasta.encoders.encoder import Tokenizer
from quantus_concepts.pasta.encoders.preprocessing import CLIP_MEAN, CLIP_STD, Preprocessing

#: Settings that may differ between the tags of one model.
_RECIPE = ("mean", "std", "interpolation", "resize_mode", "quick_gelu")


class OpenClipParts:
    """A model of open_clip with its preprocessing; its tokenizer is made for the first text."""

    def __init__(
        self, model: CLIP, preprocess: Preprocessing, make_tokenizer: Callable[[], Tokenizer], vocabulary: int | None
    ) -> None:
        self.model, self.preprocess, self.vocabulary = model, preprocess, vocabulary
        self._make_tokenizer = functools.cache(make_tokenizer)
        self.encode_image, self.encode_text = model.encode_image, model.encode_text

    def tokenizer(self, texts: list[str], /) -> Tensor:
        """Return the tokens of texts, all of which the model knows."""
        tokens = torch.as_tensor(self._make_tokenizer()(texts))
        if self.vocabulary is not None and tokens.numel() and int(tokens.max()) >= self.vocabulary:
            raise ValueError(
                f"Expected argument `tokenizer` to give tokens below {self.vocabulary}, which the text encoder knows, "
                f"but it gives {int(tokens.max())}. Pass the tokenizer the model was trained with."
            )
        return tokens


def known_config(model_name: str) -> dict[str, Any]:
    """Return open_clip's configuration of a model."""
    config: dict[str, Any] | None = open_clip.get_model_config(model_name)
    if config is None:
        near = ", ".join(difflib.get_close_matches(model_name, open_clip.list_models(), n=3))
        raise ValueError(
            f"Expected argument `model_name` to be a model of open_clip but got {model_name!r}. "
            + (f"Nearest: {near}." if near else "open_clip.list_models() lists them.")
        )
    return config


def known_tags(model_name: str) -> list[str]:
    """Return the tags of weights that open_clip has of a model."""
    return list(open_clip.list_pretrained_tags_by_model(model_name))


def build_open_clip(
    model_name: str,
    config: Mapping[str, Any],
    tag: str | None,
    weights: Path | None,
    seed: int,
    tokenizer: Tokenizer | Path | None,
) -> OpenClipParts:
    """Build a model and load its weights."""
    recipe = recipe_of(model_name, tag, random=weights is None)
    # Fetched before the model is built, which may take minutes.
    path = weights
    if weights is None and tag is not None:
        source = open_clip.get_pretrained_cfg(model_name, tag)
        path = fetch_weights(f"{model_name}/{tag}", source, open_clip.download_pretrained)
    text_cfg = config["text_cfg"]
    # Read before the model is built. Another kind of file is not left to open_clip, which may execute what is in it.
    tensors = read_weights(path) if path is not None and path.suffix != ".safetensors" else None
    # Seeds the generator of the CPU alone, which is restored afterwards.
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(seed)
        model = _bare_model(model_name, config, quick_gelu=bool(recipe.get("quick_gelu")))
    if path is not None:
        try:
            with TemporaryDirectory() as folder:
                file = path if tensors is None else Path(folder) / "weights.safetensors"
                if tensors is not None:
                    save_file({name: tensor.clone().contiguous() for name, tensor in tensors.items()}, file)
                open_clip.load_checkpoint(model, str(file), strict=True)
        except Exception:  # each kind of wrong file fails in its own way
            # Its error names the tensors that do not fit.
            load_weights(model, path)
    model = model.float().eval().requires_grad_(False)
    return OpenClipParts(
        model,
        _preprocessing(model, recipe),
        lambda: _tokenizer(model_name, text_cfg, tokenizer),
        _vocabulary(model, text_cfg),
    )


def _bare_model(model_name: str, config: Mapping[str, Any], *, quick_gelu: bool) -> CLIP:
    arguments = deepcopy(dict(config))
    vision, text = arguments["vision_cfg"], arguments["text_cfg"]
    # Neither tower may download weights of its own.
    if "timm_model_name" in vision:
        vision["timm_model_pretrained"] = False
    if "hf_model_name" in text:
        text["hf_model_pretrained"] = False
    if quick_gelu:
        arguments["quick_gelu"] = True
    own_text = arguments.pop("custom_text", False) or "hf_model_name" in text
    kind = open_clip.CLIP
    if own_text:
        kind = open_clip.CoCa if "multimodal_cfg" in arguments else open_clip.CustomTextCLIP
    try:
        return kind(**arguments)
    except Exception as error:  # a configuration may be wrong in many ways
        raise ValueError(f"open_clip cannot build {model_name} from its configuration: {first_line(error)}.") from error


def recipe_of(model_name: str, tag: str | None, *, random: bool = False) -> dict[str, Any]:
    """Return how images are prepared, and which activation is built, for some weights."""
    tags = known_tags(model_name) if tag is None else [tag]
    recipes = [
        {key: value for key, value in open_clip.get_pretrained_cfg(model_name, name).items() if key in _RECIPE}
        for name in tags
    ]
    if all(recipe == recipes[0] for recipe in recipes):
        return recipes[0] if recipes else {}
    if random:
        return {}
    raise ValueError(
        f"The weights of {model_name} in open_clip need images, or activations, that differ from tag to tag. Name the "
        f"tag that these are like with argument `tag`, or as {model_name}/TAG: {', '.join(tags)}."
    )


def _preprocessing(model: Any, recipe: Mapping[str, Any]) -> Preprocessing:
    size = model.visual.image_size
    height, width = (size, size) if isinstance(size, int) else tuple(size)
    return Preprocessing(
        (int(height), int(width)),
        recipe.get("resize_mode", "shortest"),
        recipe.get("interpolation", "bicubic"),
        tuple(recipe.get("mean", CLIP_MEAN)),
        tuple(recipe.get("std", CLIP_STD)),
    )


def _tokenizer(model_name: str, text_cfg: Mapping[str, Any], tokenizer: Tokenizer | Path | None) -> Tokenizer:
    if callable(tokenizer):
        return tokenizer
    options = dict(text_cfg.get("tokenizer_kwargs", {}))
    options["context_length"] = text_cfg.get("context_length", 77)
    hub_name = text_cfg.get("hf_tokenizer_name")
    if tokenizer is None and not hub_name:
        return open_clip.SimpleTokenizer(**options)
    if find_spec("transformers") is None:
        raise ValueError(
            f"The tokenizer of {model_name} needs the package transformers, without which no list of concepts can be "
            "embedded: python -m pip install transformers, or pass a tokenizer of your own with argument `tokenizer`."
        )
    if tokenizer is None:
        remedy = "name it with --encoder-tokenizer FOLDER (argument `tokenizer`)"
        source = fetch_folder(f"The tokenizer of {model_name}", str(hub_name), TOKENIZER_FILES, remedy)
    else:
        source = str(tokenizer)
    try:
        # False explicitly: by default transformers asks whether to execute code in the tokenizer's folder.
        return HFTokenizer(
            source, tokenizer_mode=text_cfg.get("tokenizer_mode"), **(options | {"trust_remote_code": False})
        )
    except Exception as error:  # of the library, for whatever is wrong in the folder
        raise ValueError(
            f"Expected argument `tokenizer` (--encoder-tokenizer) to be the folder of a tokenizer but {source} cannot "
            f"be read ({first_line(error)})."
        ) from None


def _vocabulary(model: Any, text_cfg: Mapping[str, Any]) -> int | None:
    if "hf_model_name" in text_cfg:
        return None
    size = getattr(model, "vocab_size", None) or getattr(getattr(model, "text", None), "vocab_size", None)
    return None if size is None else int(size)
