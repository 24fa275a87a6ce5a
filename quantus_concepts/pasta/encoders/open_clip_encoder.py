"""Encoders from open_clip, built only when something is to be encoded."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch

from captum_concepts.fingerprints import fingerprint_of, hash_file, tokenizer_hash
from captum_concepts.support.checks import check_choice, check_folder, check_path
from captum_concepts.support.files import check_files
from quantus_concepts.pasta.encoders.encoder import Parts, PartsEncoder, Tokenizer


@dataclass(frozen=True)
class Preset:
    """An encoder of the paper."""

    model_name: str
    tag: str
    dim: int


PRESETS = {
    "siglip": Preset("ViT-L-16-SigLIP-384", "webli", 1024),
    "clip": Preset("ViT-L-14-336", "openai", 768),
    "eva02": Preset("EVA02-L-14-336", "merged2b_s6b_b61k", 768),
}
_WEIGHT_SUFFIXES = (".safetensors", ".pt", ".pth", ".bin", ".ckpt")


class OpenClipEncoder(PartsEncoder):
    """Image and text encoder of open_clip.

    Nothing is imported, read or downloaded before the first image or text is encoded. Embeddings are float32 and not
    normalised; the model is in eval mode and without gradients. Images are prepared as open_clip prepares them for
    these weights, in batches on the device (see `Preprocessing`).

    Parameters
    ----------
    model_name : str
        Name of a model in open_clip; with `model_config`, what to call it.
    pretrained : str, Path or None
        Tag of weights in open_clip, downloaded by it; a file, safetensors or written by torch.save, that is read
        without executing anything in it; None for random weights.
    seed : int
        Random seed of the random weights. The global generators are left alone.
    device : torch.device or str, optional
        Device; by default that of the first images (the CPU for texts before any image).
    model_config : mapping, optional
        Configuration of a model that open_clip does not know: "embed_dim", "vision_cfg", "text_cfg", as in its files.
    tag : str, optional
        If `pretrained` is a file: tag of open_clip whose preprocessing and activation these weights need. By
        default that of the preset, or what all tags of the model have in common.
    tokenizer : callable or Path, optional
        From a list of n texts to tokens (n, length), or the folder of a tokenizer of Hugging Face; by default the
        model's own.

    Attributes
    ----------
    name : str
        A preset's name, "MODEL/TAG", "MODEL (FILE)", or one that says that weights are random.

    Raises
    ------
    ValueError
        If there is no such model or tag, or no such file. When first needed: if weights or a tokenizer cannot be had.
    """

    def __init__(
        self,
        model_name: str = PRESETS["siglip"].model_name,
        pretrained: str | Path | None = PRESETS["siglip"].tag,
        *,
        seed: int = 0,
        device: torch.device | str | None = None,
        model_config: Mapping[str, Any] | None = None,
        tag: str | None = None,
        tokenizer: Tokenizer | str | Path | None = None,
    ) -> None:
        self.seed = int(seed)
        self.model_name = model_name
        self.model_config = None if model_config is None else _copy_config(model_config)
        self.weights = _weight_file(pretrained)
        self._weights_hash: str | None = None
        self.tag = tag if self.weights is not None else None if pretrained is None else str(pretrained)
        self.tokenizer = _check_tokenizer(tokenizer)
        self._preset = None
        for name, preset in PRESETS.items():
            if model_config is None and model_name == preset.model_name and self.tag in (None, preset.tag):
                self._preset = name
                self.tag = None if pretrained is None else preset.tag
        if self._preset is None:
            self._check_model()
        self.untrained = pretrained is None
        super().__init__(build=self._build_parts, name=self._name(), device=device)

    @classmethod
    def preset(
        cls,
        name: str,
        *,
        weights: str | Path | None = None,
        device: torch.device | str | None = None,
        tokenizer: Tokenizer | str | Path | None = None,
    ) -> OpenClipEncoder:
        """Return an encoder by a short name.

        Parameters
        ----------
        name : str
            "siglip", "clip" or "eva02", the encoders of the paper, or "MODEL/TAG" of open_clip.
        weights : str or Path, optional
            File of the weights; by default open_clip downloads them.
        device : torch.device or str, optional
            As in the class.
        tokenizer : callable or Path, optional
            As in the class.

        Returns
        -------
        OpenClipEncoder
            Not built yet.

        Raises
        ------
        ValueError
            If there is no such preset, model or file.
        """
        model_name, slash, tag = name.partition("/")
        if not slash:
            check_choice("encoder", name, PRESETS)
            model_name, tag = PRESETS[name].model_name, PRESETS[name].tag
        pretrained = tag if weights is None else check_path("weights", weights)
        return cls(model_name, pretrained, tag=tag, device=device, tokenizer=tokenizer)

    @property
    def dim(self) -> int:
        """Size of an embedding; known without the model."""
        if self._preset is not None:
            return PRESETS[self._preset].dim
        return int(self._config()["embed_dim"])

    @property
    def fingerprint(self) -> str:
        """Identity for the cache; a file of weights is hashed once, and must not change afterwards."""
        content: Any = {"seed": self.seed, "torch": torch.__version__}
        if self.weights is not None:
            self._weights_hash = self._weights_hash or hash_file(self.weights)
            content = self._weights_hash
        elif self.tag is not None:
            content = "tag"
        tokenizer: Any = self.tokenizer
        if tokenizer is not None:
            files = tokenizer.iterdir() if isinstance(tokenizer, Path) else ()
            tokenizer = {path.name: path for path in files if path.is_file()} or tokenizer_hash(tokenizer)
        return fingerprint_of(
            {
                "model": self.model_name if self.model_config is None else self.model_config,
                "tag": self.tag,
                "weights": content,
                "tokenizer": tokenizer,
                # A library may build another network of the same name.
                "libraries": [version("open_clip_torch"), version("timm")],
            }
        )

    def _build_parts(self) -> Parts:
        # Importing open_clip takes seconds, which a run that finds everything in its cache does not wait for.
        from quantus_concepts.pasta.encoders.open_clip_models import build_open_clip

        return build_open_clip(self.model_name, self._config(), self.tag, self.weights, self.seed, self.tokenizer)

    def _config(self) -> dict[str, Any]:
        if self.model_config is not None:
            return self.model_config
        from quantus_concepts.pasta.encoders.open_clip_models import known_config

        return known_config(self.model_name)

    def _check_model(self) -> None:
        if self.model_config is not None:
            if self.tag is not None and self.weights is None:
                raise ValueError(
                    f"Expected argument `pretrained` to be a file or None with `model_config` but got {self.tag!r}: "
                    "open_clip has no weights of a model it does not know."
                )
            return
        from quantus_concepts.pasta.encoders.open_clip_models import known_config, known_tags, recipe_of

        known_config(self.model_name)
        if self.tag is not None:
            check_choice("pretrained" if self.weights is None else "tag", self.tag, known_tags(self.model_name))
        elif self.weights is not None:
            recipe_of(self.model_name, None)

    def _name(self) -> str:
        short = self._preset or self.model_name
        if self.untrained:
            return f"{self.model_name}, random weights of seed {self.seed}"
        if self.weights is not None:
            return f"{short} ({self.weights.name})"
        return self._preset or f"{self.model_name}/{self.tag}"


def _weight_file(pretrained: str | Path | None) -> Path | None:
    """Return the file of weights, or None where there is none to be read."""
    if pretrained is None:
        return None
    path = check_path("pretrained", pretrained)
    if path.is_file():
        return path
    if isinstance(pretrained, Path) or path.suffix in _WEIGHT_SUFFIXES or len(path.parts) > 1:
        raise ValueError(
            f"Expected argument `pretrained` (--encoder-weights) to name a file of weights but there is none at {path}."
        )
    return None


def _copy_config(config: Mapping[str, Any]) -> dict[str, Any]:
    missing = [key for key in ("embed_dim", "vision_cfg", "text_cfg") if key not in config]
    if missing:
        raise ValueError(f"Expected argument `model_config` to have {missing} but it has {list(config)}.")
    # A copy: later changes of the argument have no effect.
    copied: dict[str, Any] = json.loads(json.dumps(config))
    return copied


def _check_tokenizer(tokenizer: Tokenizer | str | Path | None) -> Tokenizer | Path | None:
    if tokenizer is None or callable(tokenizer):
        return tokenizer
    folder = check_folder("tokenizer", tokenizer, "the folder of a tokenizer, or to be a function of texts,")
    check_files(folder, "Tokenizer")
    return folder
