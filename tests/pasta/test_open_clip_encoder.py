import importlib
import json
import logging
import sys
import types
from copy import deepcopy

import huggingface_hub
import numpy as np
import open_clip
import pytest
import torch
from PIL import Image
from safetensors.torch import save_file

import quantus_concepts
from quantus_concepts.pasta.encoders import downloads
from quantus_concepts.pasta.encoders.embedded_encoder import EmbeddedEncoder
from quantus_concepts.pasta.encoders.encoder import PARTS
from quantus_concepts.pasta.encoders.object_encoder import as_encoder
from quantus_concepts.pasta.encoders.open_clip_encoder import PRESETS, OpenClipEncoder
from tiny_encoders import CONFIG, tiny_open_clip

IMAGES = torch.rand(4, 3, 40, 40, generator=torch.Generator().manual_seed(0))


@pytest.fixture(scope="module")
def encoder():
    return tiny_open_clip()


@pytest.fixture(scope="module")
def weights(encoder):
    encoder.encode_images(IMAGES)
    return {name: tensor.contiguous().clone() for name, tensor in encoder.parts.model.state_dict().items()}


def test_agrees_with_open_clip_itself(encoder):
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        model = open_clip.CLIP(**deepcopy(CONFIG)).eval()
    preprocess = open_clip.image_transform(32, is_train=False)
    levels = (IMAGES * 255).round().to(torch.uint8)
    pictures = [Image.fromarray(image.permute(1, 2, 0).numpy()) for image in levels]
    with torch.no_grad():
        images = model.encode_image(torch.stack([preprocess(picture) for picture in pictures]))
        texts = model.encode_text(open_clip.SimpleTokenizer(context_length=32)(["a red wing, ", "beak, "]))
    # images differ by the few 8-bit levels of their preprocessing
    assert torch.nn.functional.cosine_similarity(encoder.encode_images(IMAGES), images).min() > 0.9999
    np.testing.assert_allclose(encoder.encode_texts(["a red wing, ", "beak, "]), texts, atol=1e-5)


def test_embeddings_are_not_normalised_and_float32(encoder):
    for embeddings in (encoder.encode_images(IMAGES), encoder.encode_texts(["a", "b, c"])):
        assert embeddings.shape[1] == encoder.dim == 16
        assert embeddings.dtype == torch.float32
        assert not embeddings.requires_grad
        assert (embeddings.norm(dim=1) - 1).abs().min() > 0.05
    assert encoder.encode_images(IMAGES.double()).dtype == torch.float32
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert torch.equal(encoder.encode_images(IMAGES), encoder.encode_images(IMAGES))
        inside = encoder.encode_images(IMAGES)
    assert torch.equal(inside, encoder.encode_images(IMAGES))


def test_images_of_8_bits_need_no_way_over_floats(encoder):
    levels = (IMAGES * 255).round()
    assert torch.equal(encoder.encode_levels(levels.to(torch.uint8)), encoder.encode_images(levels / 255))


def test_seeds_and_the_users_generators(caplog):
    before = torch.get_rng_state()
    with caplog.at_level(logging.WARNING):
        first, again, other = (tiny_open_clip(seed=seed).encode_images(IMAGES) for seed in (1, 1, 2))
    assert torch.equal(first, again)
    assert not torch.allclose(first, other, atol=0.01)
    assert torch.equal(before, torch.get_rng_state())
    assert not caplog.records


def test_constructing_is_nothing_and_the_cache_key_needs_no_library(monkeypatch):
    # Imported anew, as where none of the libraries was imported before.
    monkeypatch.setattr(quantus_concepts, "pasta", quantus_concepts.pasta)
    for name in [name for name in sys.modules if name.startswith("quantus_concepts.pasta")]:
        monkeypatch.delitem(sys.modules, name)
    libraries = ("open_clip", "timm", "huggingface_hub")
    for library in libraries:
        monkeypatch.delitem(sys.modules, library, raising=False)
    encoders, embedders = (
        importlib.import_module(f"quantus_concepts.pasta.{name}") for name in ("encoders.open_clip_encoder", "embedder")
    )
    assert encoders.OpenClipEncoder is not OpenClipEncoder
    for name in PRESETS:
        encoder = encoders.OpenClipEncoder.preset(name)
        assert encoder.dim == PRESETS[name].dim
        assert encoder.fingerprint
        embedders.Embedder(encoder, cache="nowhere")
    assert not sys.modules.keys() & {*libraries}


def test_presets_are_what_open_clip_has():
    for preset in PRESETS.values():
        assert preset.tag in open_clip.list_pretrained_tags_by_model(preset.model_name)
        assert open_clip.get_model_config(preset.model_name)["embed_dim"] == preset.dim


def test_names():
    assert OpenClipEncoder().name == "siglip"
    assert as_encoder("eva02").name == "eva02"
    assert as_encoder("ViT-B-32/openai").name == "ViT-B-32/openai"
    assert tiny_open_clip(seed=3).name == "tiny, random weights of seed 3"
    for name in ("siglip", "ViT-B-32/openai"):
        assert as_encoder(as_encoder(name).name).fingerprint == as_encoder(name).fingerprint


@pytest.mark.parametrize("suffix", [".safetensors", ".pt"])
def test_weights_from_a_file(tmp_path, encoder, weights, suffix):
    path = tmp_path / f"tiny{suffix}"
    if suffix == ".pt":
        torch.save({"state_dict": {f"module.{name}": tensor for name, tensor in weights.items()}}, path)
    else:
        save_file(weights, path)
    loaded = tiny_open_clip(pretrained=path, seed=5)
    assert loaded.name == f"tiny (tiny{suffix})"
    assert torch.equal(loaded.encode_images(IMAGES), encoder.encode_images(IMAGES))
    assert torch.equal(loaded.encode_texts(["a"]), encoder.encode_texts(["a"]))


class Malicious:
    def __reduce__(self):
        return print, ("executed",)


@pytest.mark.parametrize("kind", ["truncated", "malicious", "other keys", "other size", "text"])
@pytest.mark.parametrize("suffix", [".safetensors", ".pth"])
def test_wrong_files_are_explained_in_one_sentence(tmp_path, weights, kind, suffix, capsys):
    path = tmp_path / f"wrong{suffix}"
    content = dict(weights)
    if kind == "other keys":
        content = {f"net.{i}.weight": torch.ones(i + 1) for i in range(9)}
    if kind == "other size":
        content["token_embedding.weight"] = torch.ones(7, 16)
    if kind == "malicious":
        content["extra"] = Malicious()
    if kind == "text":
        path.write_text("not found")
    elif suffix == ".safetensors" and kind != "malicious":
        save_file(content, path)
    else:
        torch.save(content, path)
    if kind == "truncated":
        path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
    encoder = tiny_open_clip(pretrained=path)
    with pytest.raises(ValueError, match=str(path)) as raised:
        encoder.encode_images(IMAGES)
    message = str(raised.value)
    assert "\n" not in message
    assert len(message) < 700
    if kind == "other keys":
        assert "net.0.weight" in message
        assert "missing: positional_embedding" in message
    if kind == "other size":
        assert "token_embedding.weight" in message
        assert "[7, 16]" in message
    assert "executed" not in capsys.readouterr().out


def test_a_file_of_weights_of_a_known_model_wants_its_tag(tmp_path):
    path = tmp_path / "vit.safetensors"
    save_file({"a": torch.ones(1)}, path)
    with pytest.raises(ValueError, match=r"ViT-B-32 want their images.*argument `tag`.*openai"):
        OpenClipEncoder("ViT-B-32", path)
    assert OpenClipEncoder("ViT-B-32", path, tag="openai").name == "ViT-B-32 (vit.safetensors)"
    assert as_encoder("ViT-B-32/openai", weights=path).tag == "openai"
    assert as_encoder("clip", weights=path).tag == "openai"
    assert as_encoder("clip", weights=path).dim == 768
    # all weights of this one want the same
    OpenClipEncoder("ViT-B-16-SigLIP", path)


def test_activation_and_images_follow_the_tag():
    from quantus_concepts.pasta.encoders.open_clip_models import recipe_of

    assert recipe_of("ViT-L-14-336", "openai")["quick_gelu"]
    assert recipe_of("ViT-L-16-SigLIP-384", "webli")["resize_mode"] == "squash"
    assert recipe_of("ViT-B-32", None, random=True) == {}
    assert recipe_of("tiny", None) == {}


@pytest.fixture
def no_network(monkeypatch):
    calls = []

    class Session:
        def head(self, address, timeout):
            calls.append((address, timeout))
            raise ConnectionError("Name or service not known\nand much more")

    monkeypatch.setattr(huggingface_hub, "get_session", Session)
    monkeypatch.setattr(huggingface_hub, "try_to_load_from_cache", lambda *args, **kwargs: None)
    monkeypatch.setattr(open_clip, "download_pretrained", lambda *args: pytest.fail("asked for a minute"))
    return calls


@pytest.mark.parametrize("name", ["siglip"])
def test_a_missing_download_is_explained_in_one_sentence(no_network, name):
    with pytest.raises(ValueError, match="cannot be downloaded") as raised:
        as_encoder(name).encode_images(IMAGES)
    message = str(raised.value)
    assert "--encoder-weights FILE" in message
    assert "ConnectionError: Name or service not known)" in message
    assert f"{PRESETS[name].model_name}/{PRESETS[name].tag}" in message
    assert "open_clip_model.safetensors" in message
    assert "\n" not in message
    assert raised.value.__cause__ is None
    assert raised.value.__suppress_context__
    assert len(no_network) == 1
    assert no_network[0][1] <= 10


def test_what_was_downloaded_before_is_found_without_network(monkeypatch, tmp_path, no_network, weights):
    path = tmp_path / "open_clip_model.safetensors"
    save_file(weights, path)
    monkeypatch.setattr(huggingface_hub, "try_to_load_from_cache", lambda repository, name, revision: str(path))
    assert downloads.fetch_weights("a", {"hf_hub": "b/c/"}, lambda source: "") == path
    assert not no_network


def test_the_tokenizer_is_explained_too(no_network):
    config = deepcopy(CONFIG)
    config["text_cfg"]["hf_tokenizer_name"] = "timm/ViT-B-16-SigLIP"
    encoder = tiny_open_clip(model_config=config)
    # images need none
    assert encoder.encode_images(IMAGES).shape == (4, 16)
    with pytest.raises(ValueError, match=r"The tokenizer of tiny .*tokenizer.json.*--encoder-tokenizer FOLDER"):
        encoder.encode_texts(["a"])
    own = tiny_open_clip(model_config=config, tokenizer=open_clip.SimpleTokenizer(context_length=32))
    assert torch.equal(own.encode_texts(["a"]), tiny_open_clip().encode_texts(["a"]))


def test_a_tokenizer_from_a_folder(tmp_path):
    pytest.importorskip("transformers", reason="tokenizers of Hugging Face need transformers")
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    words = {"<pad>": 0, "<unk>": 1, "red": 2, "wing": 3}
    tokenizer = Tokenizer(models.WordLevel(words, unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    PreTrainedTokenizerFast(tokenizer_object=tokenizer, pad_token="<pad>", unk_token="<unk>").save_pretrained(tmp_path)
    encoder = tiny_open_clip(tokenizer=tmp_path)
    tokens = torch.tensor([[2, 3] + [0] * 30])
    by_hand = tiny_open_clip(tokenizer=lambda texts: tokens)
    assert torch.equal(encoder.encode_texts(["red wing"]), by_hand.encode_texts(["x"]))
    assert encoder.fingerprint != tiny_open_clip().fingerprint


def test_code_of_a_tokenizer_is_never_run(tmp_path, monkeypatch):
    pytest.importorskip("transformers", reason="tokenizers of Hugging Face need transformers")
    monkeypatch.setattr("builtins.input", lambda *_: "y")
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    folder = tmp_path / "tokenizer"
    folder.mkdir()
    about = {"auto_map": {"AutoTokenizer": ["own.Own", None]}, "tokenizer_class": "Own"}
    (folder / "tokenizer_config.json").write_text(json.dumps(about))
    (folder / "own.py").write_text(f"open({str(tmp_path / 'run')!r}, 'w')\nclass Own:\n    pass\n")
    with pytest.raises(ValueError, match=r"`tokenizer`.*(custom code|trust_remote_code)"):
        tiny_open_clip(tokenizer=folder).encode_texts(["red wing"])
    assert not (tmp_path / "run").exists()


def test_tokens_the_model_does_not_know():
    config = deepcopy(CONFIG)
    config["text_cfg"]["vocab_size"] = 100
    with pytest.raises(ValueError, match=r"`tokenizer` to give tokens below 100"):
        tiny_open_clip(model_config=config).encode_texts(["a"])


def test_fingerprints_differ_where_embeddings_do(tmp_path, weights):
    path = tmp_path / "tiny.safetensors"
    save_file(weights, path)
    other = deepcopy(CONFIG)
    other["vision_cfg"]["layers"] = 2
    encoders = [
        tiny_open_clip(),
        tiny_open_clip(seed=1),
        tiny_open_clip(model_config=other),
        tiny_open_clip(pretrained=path),
        tiny_open_clip(tokenizer=open_clip.SimpleTokenizer(context_length=32, clean="canonicalize")),
        as_encoder("siglip"),
        as_encoder("ViT-B-32/openai"),
        as_encoder("ViT-B-32/laion400m_e32"),
        as_encoder("clip", weights=path),
        as_encoder("eva02", weights=path),
    ]
    assert len({encoder.fingerprint for encoder in encoders}) == len(encoders)
    assert tiny_open_clip().fingerprint == tiny_open_clip(device="cpu").fingerprint


def test_a_replaced_file_is_another_encoder(tmp_path, weights):
    path = tmp_path / "tiny.safetensors"
    save_file(weights, path)
    before = tiny_open_clip(pretrained=path).fingerprint
    save_file({name: tensor + 1 if tensor.is_floating_point() else tensor for name, tensor in weights.items()}, path)
    assert tiny_open_clip(pretrained=path).fingerprint != before


def test_the_configuration_is_the_encoders_own():
    config = deepcopy(CONFIG)
    encoder = tiny_open_clip(model_config=config)
    before, text = encoder.fingerprint, json.dumps(config)
    encoder.encode_images(IMAGES)
    assert json.dumps(config) == text
    config["embed_dim"] = 5
    assert (encoder.dim, encoder.fingerprint) == (16, before)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: as_encoder("siglib"), r"`encoder` to be one of .*Did you mean 'siglip'"),
        (lambda: OpenClipEncoder("ViT-B-33", None), r"`model_name` to be a model of open_clip.*Nearest: .*ViT-B-32"),
        (lambda: OpenClipEncoder("ViT-B-32", "openia"), r"`pretrained` to be one of .*Did you mean 'openai'"),
        (lambda: tiny_open_clip(pretrained="webli"), "open_clip has no weights of a model it does not know"),
        (
            lambda: tiny_open_clip(pretrained="nowhere.pt"),
            r"`pretrained` .* to name a file of weights",
        ),
        (lambda: tiny_open_clip(tokenizer="nowhere"), "`tokenizer` to be a function of texts, or the folder"),
        (
            lambda: OpenClipEncoder("tiny", None, model_config={"embed_dim": 4}),
            r"`model_config` to have \['vision_cfg'",
        ),
        (lambda: OpenClipEncoder.preset("clip", weights="nowhere"), "`pretrained`"),
    ],
)
def test_bad_arguments(make, message):
    with pytest.raises(ValueError, match=message):
        make()


@pytest.mark.parametrize(
    ("images", "error", "message"),
    [
        (torch.zeros(1, 3, 4, 4, dtype=torch.uint8), TypeError, r"uint8. Pass images / 255"),
        (torch.linspace(-2, 2, 48).reshape(1, 3, 4, 4), ValueError, r"from -2 to 2.*mean= and std="),
    ],
)
def test_bad_images(encoder, images, error, message):
    for embedding_encoder in (
        encoder,
        EmbeddedEncoder(),
        as_encoder(types.SimpleNamespace(**dict.fromkeys(PARTS, pytest.fail))),
    ):
        with pytest.raises(error, match=message):
            embedding_encoder.encode_images(images)
