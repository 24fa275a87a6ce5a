"""Backbones of transformers, built from tiny configurations, against the models' own outputs."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from backbone_families import HF_SWIN, TOKENS, transformers_model
from captum_concepts import from_transformers
from captum_concepts.backbones.named import build_model as build_by_name
from captum_concepts.backbones.named import load_tokenizer

transformers = pytest.importorskip("transformers", reason="the models are those of transformers")


def build_model(name: str, settings: dict[str, Any] = TOKENS) -> Any:
    return transformers_model(name, settings)().eval()


@torch.no_grad()
def test_sides_that_patches_do_not_divide_are_padded() -> None:
    model = build_model("SwinModel", HF_SWIN)
    backbone = from_transformers(model)
    images = torch.rand(2, 3, 26, 46)
    maps = backbone.feature_maps(backbone.features(images))
    assert maps.shape == (2, 16, 4, 6)
    torch.testing.assert_close(maps.mean((2, 3)), model(images).pooler_output)


class OwnForward(transformers.ViTModel):
    def forward(self, pixel_values: Tensor, **kwargs: Any) -> Any:
        return super().forward(pixel_values, **kwargs)


@pytest.mark.parametrize(
    "build",
    [
        lambda: OwnForward(transformers.ViTConfig(**TOKENS)),
        lambda: build_model("SiglipVisionModel", {**TOKENS, "vision_use_head": False}),
    ],
    ids=["a forward pass of its own", "no pooling"],
)
def test_others_are_refused_with_what_to_pass(build: Callable[[], nn.Module]) -> None:
    with pytest.raises(ValueError, match="transformers family"):
        from_transformers(build())


def test_the_processor_tells_the_normalisation() -> None:
    model = build_model("ViTModel")
    processor = transformers.ViTImageProcessor(image_mean=[0.1, 0.2, 0.3], image_std=[0.5, 0.6, 0.7])
    backbone = from_transformers(model, processor)
    assert backbone.normalisation == ((0.1, 0.2, 0.3), (0.5, 0.6, 0.7))
    # What the processor itself makes of bytes, of which `normalise` takes the share of 255.
    image = torch.randint(0, 256, (3, 32, 32), generator=torch.Generator().manual_seed(0), dtype=torch.uint8)
    expected = processor(image, do_resize=False, return_tensors="pt")["pixel_values"]
    torch.testing.assert_close(backbone.normalise(image[None] / 255), expected)
    both = SimpleNamespace(image_processor=transformers.ViTImageProcessor(do_normalize=False))
    assert from_transformers(model, both).normalisation == ((0.0,) * 3, (1.0,) * 3)
    plain = transformers.ViTImageProcessor(do_rescale=False, image_mean=[51.0] * 3, image_std=[255.0] * 3)
    assert from_transformers(model, plain).normalisation == ((0.2,) * 3, (1.0,) * 3)


def test_the_name_on_the_hub_is_the_source(tmp_path: Any) -> None:
    model: Any = build_model("ViTModel")
    assert from_transformers(model).source is None
    model.config._name_or_path = "google/vit-base-patch16-224"
    assert from_transformers(model).source == "transformers:ViTModel:google/vit-base-patch16-224"
    model.config._name_or_path = str(tmp_path)
    assert from_transformers(model).source is None


@pytest.fixture
def repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A model whose processor and tokenizer are classes of its own, of a user who says yes to any question."""
    folder = tmp_path / "repository"
    build_model("ViTModel").save_pretrained(folder)
    names = {"AutoImageProcessor": "own.Own", "AutoTokenizer": ["own.Own", None]}
    for file in ("preprocessor_config.json", "tokenizer_config.json"):
        (folder / file).write_text(json.dumps({"auto_map": names}))
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | {"model_type": "own"}))
    (folder / "own.py").write_text(f"open({str(tmp_path / 'run')!r}, 'w')\nclass Own:\n    pass\n")
    monkeypatch.setattr("builtins.input", lambda *_: "y")
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    return folder


@pytest.mark.parametrize("load", [build_by_name, load_tokenizer], ids=["model", "tokenizer"])
def test_code_of_a_repository_is_never_run(load: Callable[[str], object], repository: Path) -> None:
    with pytest.raises(ValueError, match=r"custom code|trust_remote_code|does not recognize"):
        load(f"transformers:ViTModel:{repository}")
    assert not (repository.parent / "run").exists()


# The keywords of a configuration go to the tokenizer of transformers; of a text encoder open_clip asks the user.
@pytest.mark.parametrize("part", ["tokenizer", "model"])
def test_an_open_clip_configuration_cannot_ask_for_code(part: str, repository: Path) -> None:
    text: dict[str, Any] = {"context_length": 8, "vocab_size": 20, "width": 16, "heads": 2, "layers": 1}
    if part == "tokenizer":
        text |= {"hf_tokenizer_name": "own", "tokenizer_kwargs": {"trust_remote_code": True}}
    else:
        text |= {"hf_model_name": str(repository), "hf_model_pretrained": False}
        config = json.loads((repository / "config.json").read_text())
        names = {"AutoConfig": "own.Own", "AutoModel": "own.Own"}
        (repository / "config.json").write_text(json.dumps(config | {"auto_map": names}))
    vision = {"image_size": 32, "layers": 1, "width": 32, "patch_size": 8, "head_width": 16}
    about = {"model_cfg": {"embed_dim": 16, "vision_cfg": vision, "text_cfg": text}, "preprocess_cfg": {}}
    (repository / "open_clip_config.json").write_text(json.dumps(about))
    load = load_tokenizer if part == "tokenizer" else build_by_name
    # Older versions of open_clip know no folders.
    with pytest.raises((ValueError, AssertionError), match=r"custom code|trust_remote_code|does not recognize|found"):
        load(f"open_clip:local-dir:{repository}")
    assert not (repository.parent / "run").exists()


def test_outputs_of_a_processor_and_names_are_refused() -> None:
    vit = from_transformers(build_model("ViTModel"))
    with pytest.raises(TypeError, match=r'but got BatchFeature\. .* pass its "pixel_values"\.'):
        vit.features(transformers.BatchFeature({"pixel_values": torch.zeros(1, 3, 32, 32)}))
    with pytest.raises(TypeError, match=r"the name 'own/vit'\. Load it first, with `AutoModelFor"):
        from_transformers("own/vit")
    with pytest.raises(TypeError, match="`processor` to be an image processor"):
        from_transformers(build_model("ViTModel"), nn.Conv2d(3, 4, 3))
