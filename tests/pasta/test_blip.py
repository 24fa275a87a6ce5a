import json
import types

import numpy as np
import pytest
import torch
from PIL import Image

transformers = pytest.importorskip("transformers", reason="BLIP needs transformers: pip install transformers")

from quantus_concepts.pasta.encoders.encoder import is_encoder  # noqa: E402
from quantus_concepts.pasta.encoders.object_encoder import blip_encoder  # noqa: E402

IMAGES = torch.rand(3, 3, 224, 224, generator=torch.Generator().manual_seed(0))
SIZES = {
    "hidden_size": 16,
    "intermediate_size": 16,
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
    "initializer_range": 0.2,
}


def config():
    text = {**SIZES, "vocab_size": 40, "encoder_hidden_size": 16, "max_position_embeddings": 32, "projection_dim": 12}
    text |= {"bos_token_id": 1, "eos_token_id": 2, "sep_token_id": 2, "pad_token_id": 0}
    # With the initial weights of 1e-10 that BLIP has, every image gives the same embedding.
    return transformers.BlipConfig(
        initializer_range=0.2,
        text_config=text,
        vision_config={**SIZES, "image_size": 32, "patch_size": 8},
        projection_dim=12,
        image_text_hidden_size=10,
    )


class Words:
    """A tokenizer of whole words, called as those of transformers are."""

    def __call__(self, texts, **options):
        assert options == {"padding": True, "truncation": True, "return_tensors": "pt"}
        rows = [[1, *(3 + len(word) for word in text.split()), 2] for text in texts]
        longest = max(map(len, rows))
        ids = torch.tensor([row + [0] * (longest - len(row)) for row in rows])
        return transformers.BatchEncoding({"input_ids": ids, "attention_mask": (ids > 0).long()})


@pytest.fixture(scope="module")
def processor():
    images = transformers.BlipImageProcessor(size={"height": 32, "width": 32})
    return types.SimpleNamespace(image_processor=images, tokenizer=Words())


@pytest.mark.parametrize("kind", ["BlipForImageTextRetrieval", "BlipModel"])
def test_embeddings_are_the_class_tokens_not_projected(processor, kind):
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        model = getattr(transformers, kind)(config()).train()
    encoder = blip_encoder(model, processor)
    assert is_encoder(encoder)
    # The size of the transformer (768 of the base model), not of the projection (256 there, 10 or 12 here).
    assert (encoder.name, encoder.dim) == ("blip", 16)
    images, texts = encoder.encode_images(IMAGES), encoder.encode_texts(["a wing", "a red wing and a beak"])
    assert images.shape == (3, 16)
    assert model.training
    # each text as by itself: padding is not seen
    np.testing.assert_allclose(texts[:1], encoder.encode_texts(["a wing"]), atol=1e-5)
    assert (texts[0] - texts[1]).abs().max() > 0.01
    assert images.std(0).max() > 0.01
    model.eval()
    levels = (IMAGES * 255).round().to(torch.uint8).permute(0, 2, 3, 1).numpy()
    pixels = processor.image_processor([Image.fromarray(picture) for picture in levels], return_tensors="pt")
    tokens = Words()(["a wing"], padding=True, truncation=True, return_tensors="pt")
    with torch.no_grad():
        image_states = model.vision_model(**pixels).last_hidden_state
        text_states = (model.text_model if kind == "BlipModel" else model.text_encoder)(**tokens).last_hidden_state
    np.testing.assert_allclose(images, image_states[:, 0], atol=2e-2)
    np.testing.assert_allclose(texts[:1], text_states[:, 0], atol=1e-5)


def test_bad_models(processor, tmp_path):
    with pytest.raises(ValueError, match="with its `processor`, but got BlipModel alone"):
        blip_encoder(transformers.BlipModel(config()))
    with pytest.raises(ValueError, match="holds no BLIP model that can be read"):
        blip_encoder(tmp_path)


def test_code_of_a_model_is_never_run(tmp_path, monkeypatch):
    monkeypatch.setattr("builtins.input", lambda *_: "y")
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    folder = tmp_path / "blip"
    transformers.BlipForImageTextRetrieval(config()).save_pretrained(folder)
    (folder / "own.py").write_text(f"open({str(tmp_path / 'run')!r}, 'w')\nclass Own:\n    pass\n")
    names = {"AutoProcessor": "own.Own", "AutoModel": "own.Own", "AutoConfig": "own.Own"}
    for file in ("preprocessor_config.json", "processor_config.json", "tokenizer_config.json"):
        (folder / file).write_text(json.dumps({"auto_map": names}))
    about = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(about | {"auto_map": names, "model_type": "own"}))
    with pytest.raises(ValueError, match=r"custom code|trust_remote_code|does not recognize"):
        blip_encoder(folder)
    assert not (tmp_path / "run").exists()
