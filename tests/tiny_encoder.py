"""An encoder of open_clip that is quick to build."""

from __future__ import annotations

from quantus_concepts.pasta.encoders.open_clip_encoder import OpenClipEncoder

CONFIG = {
    "embed_dim": 16,
    "vision_cfg": {"image_size": 32, "layers": 1, "width": 32, "patch_size": 8, "head_width": 16},
    "text_cfg": {"context_length": 32, "vocab_size": 49408, "width": 16, "heads": 2, "layers": 1},
}


def tiny_open_clip(**arguments) -> OpenClipEncoder:
    return OpenClipEncoder(**{"model_name": "tiny", "pretrained": None, "model_config": CONFIG} | arguments)
