"""Encoders of images and texts that are quick to build."""

from __future__ import annotations

import torch
from torch import Tensor

from quantus_concepts.pasta.open_clip_encoder import OpenClipEncoder

CONFIG = {
    "embed_dim": 16,
    "vision_cfg": {"image_size": 32, "layers": 1, "width": 32, "patch_size": 8, "head_width": 16},
    "text_cfg": {"context_length": 32, "vocab_size": 49408, "width": 16, "heads": 2, "layers": 1},
}


def tiny_open_clip(**arguments) -> OpenClipEncoder:
    return OpenClipEncoder(**{"model_name": "tiny", "pretrained": None, "model_config": CONFIG} | arguments)


class CountingEncoder:
    """An encoder of a few fixed sums, which counts what it is asked for."""

    dim = 6
    device = None

    def __init__(self, name: str = "counting") -> None:
        self.name = name
        self.fingerprint = f"fingerprint of {name}"
        self.images: list[int] = []
        self.texts: list[str] = []

    def encode_images(self, images: Tensor) -> Tensor:
        self.images.append(len(images))
        self.last = images
        halves = images.shape[-1] // 2
        parts = [images[..., :halves], images[..., halves:]]
        return torch.cat([part.mean((2, 3)) for part in parts], 1)

    def encode_texts(self, texts: list[str]) -> Tensor:
        self.texts.extend(texts)
        rows = [[len(text), *(text.count(letter) for letter in "abcde")] for text in texts]
        return torch.tensor(rows, dtype=torch.float32).reshape(len(texts), 6)
