"""A vision transformer and a CLIP model small enough for a page of the documentation."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy
from transformers import CLIPConfig, CLIPModel, ViTConfig, ViTForImageClassification


def trained_vit(
    images: Tensor, labels: Tensor, n_classes: int
) -> ViTForImageClassification:
    """Return a transformer of 32 px that is trained on images in seconds, in eval mode."""
    torch.manual_seed(0)
    sizes = {"hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4}
    config = ViTConfig(
        image_size=32,
        patch_size=4,
        intermediate_size=128,
        num_labels=n_classes,
        **sizes,
    )
    vit = ViTForImageClassification(config)
    optimiser = torch.optim.AdamW(vit.parameters(), lr=2e-3)
    for _ in range(10):
        for rows in torch.randperm(len(images)).split(25):
            loss = cross_entropy(
                vit(images[rows]).logits, torch.as_tensor(labels)[rows]
            )
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()
    return vit.eval()


def small_clip() -> CLIPModel:
    """Return a CLIP model of 32 px with random weights."""
    sizes = {
        "hidden_size": 32,
        "num_hidden_layers": 1,
        "num_attention_heads": 2,
        "intermediate_size": 64,
    }
    text = {"vocab_size": 300, "bos_token_id": 298, "eos_token_id": 299}
    vision = {"image_size": 32, "patch_size": 8}
    config = CLIPConfig(
        text_config=text | sizes, vision_config=vision | sizes, projection_dim=32
    )
    return CLIPModel(config).eval()


def letters_tokenizer(texts: Sequence[str]) -> Tensor:
    """Return letters as numbers (n, 61), and what ends a text; a real tokenizer comes with the model."""
    return torch.tensor(
        [[ord(letter) for letter in text.ljust(60)[:60]] + [299] for text in texts]
    )
