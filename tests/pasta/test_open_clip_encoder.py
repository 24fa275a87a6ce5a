import json
import types
from copy import deepcopy

import huggingface_hub
import numpy as np
import open_clip
import pytest
import torch
from PIL import Image
from safetensors.torch import save_file

from quantus_concepts.pasta.encoders.downloads import fetch_weights
from quantus_concepts.pasta.encoders.embedded_encoder import EmbeddedEncoder
from quantus_concepts.pasta.encoders.encoder import PARTS
from quantus_concepts.pasta.encoders.object_encoder import as_encoder
from quantus_concepts.pasta.encoders.open_clip_encoder import PRESETS, OpenClipEncoder
from quantus_concepts.pasta.encoders.open_clip_models import recipe_of
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
        assert not embeddings.requires_grad
        assert (embeddings.norm(dim=1) - 1).abs().min() > 0.05
    with torch.autocast("cpu", dtype=torch.bfloat16):
        inside = encoder.encode_images(IMAGES.double())
    assert inside.dtype == torch.float32
    np.testing.assert_allclose(inside, encoder.encode_images(IMAGES), atol=1e-6)


def test_seeds_and_the_users_generators():
    before = torch.get_rng_state()
    first, again, other = (tiny_open_clip(seed=seed).encode_images(IMAGES) for seed in (1, 1, 2))
    assert torch.equal(first, again)
    assert not torch.allclose(first, other, atol=0.01)
    assert torch.equal(before, torch.get_rng_state())


@pytest.mark.parametrize("suffix", [".safetensors", ".pt"])
def test_weights_from_a_file(tmp_path, encoder, weights, suffix):
    path = tmp_path / f"tiny{suffix}"
    if suffix == ".pt":
        torch.save({"state_dict": {f"module.{name}": tensor for name, tensor in weights.items()}}, path)
    else:
        save_file(weights, path)
    loaded = tiny_open_clip(pretrained=path, seed=5)
    assert torch.equal(loaded.encode_images(IMAGES), encoder.encode_images(IMAGES))
    assert torch.equal(loaded.encode_texts(["a"]), encoder.encode_texts(["a"]))


@pytest.mark.parametrize("name", ["net.0.weight", "token_embedding.weight"])
def test_weights_of_another_model_are_refused(tmp_path, weights, name):
    path = tmp_path / "wrong.pth"
    changed = {
        "net.0.weight": {f"net.{i}.weight": torch.ones(i + 1) for i in range(9)},
        "token_embedding.weight": weights | {"token_embedding.weight": torch.ones(7, 16)},
    }[name]
    torch.save(changed, path)
    with pytest.raises(ValueError, match=f"{path}.*{name}"):
        tiny_open_clip(pretrained=path).encode_images(IMAGES)


def test_a_file_of_weights_of_a_known_model_wants_its_tag(tmp_path):
    path = tmp_path / "vit.safetensors"
    save_file({"a": torch.ones(1)}, path)
    with pytest.raises(ValueError, match=r"ViT-B-32 in open_clip need images.*argument `tag`.*openai"):
        OpenClipEncoder("ViT-B-32", path)
    assert as_encoder("ViT-B-32/openai", weights=path).tag == as_encoder("clip", weights=path).tag == "openai"
    assert as_encoder("clip", weights=path).dim == 768
    # all weights of this one want the same
    OpenClipEncoder("ViT-B-16-SigLIP", path)


def test_activation_and_images_follow_the_tag():
    for preset in PRESETS.values():
        assert preset.tag in open_clip.list_pretrained_tags_by_model(preset.model_name)
        assert open_clip.get_model_config(preset.model_name)["embed_dim"] == preset.dim
    assert recipe_of("ViT-L-14-336", "openai")["quick_gelu"]
    assert recipe_of("ViT-L-16-SigLIP-384", "webli")["resize_mode"] == "squash"
    assert recipe_of("ViT-B-32", None, random=True) == recipe_of("tiny", None) == {}


def test_what_cannot_be_downloaded_is_explained(monkeypatch):
    class Session:
        def head(self, address, timeout):
            raise ConnectionError("Name or service not known")

    monkeypatch.setattr(huggingface_hub, "get_session", Session)
    monkeypatch.setattr(huggingface_hub, "try_to_load_from_cache", lambda *args, **kwargs: None)
    with pytest.raises(ValueError, match=r"Name or service not known.*--encoder-weights FILE.*--encoder embedded"):
        as_encoder("siglip").encode_images(IMAGES)
    config = CONFIG | {"text_cfg": CONFIG["text_cfg"] | {"hf_tokenizer_name": "timm/ViT-B-16-SigLIP"}}
    with pytest.raises(ValueError, match=r"The tokenizer of tiny .*--encoder-tokenizer FOLDER"):
        tiny_open_clip(model_config=config).encode_texts(["a"])


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


def test_fingerprints_differ_where_embeddings_do(tmp_path, weights):
    files = [tmp_path / "tiny.safetensors", tmp_path / "other.safetensors"]
    for number, path in enumerate(files):
        save_file({name: tensor + number for name, tensor in weights.items() if tensor.is_floating_point()}, path)
    config = CONFIG | {"vision_cfg": CONFIG["vision_cfg"] | {"layers": 2}}
    encoders = [
        *(tiny_open_clip(), tiny_open_clip(seed=1), tiny_open_clip(model_config=config)),
        *(tiny_open_clip(pretrained=path) for path in files),
        tiny_open_clip(tokenizer=open_clip.SimpleTokenizer(context_length=32, clean="canonicalize")),
        *(as_encoder(name) for name in ("siglip", "ViT-B-32/openai", "ViT-B-32/laion400m_e32")),
        *(as_encoder(name, weights=files[0]) for name in ("clip", "eva02")),
    ]
    assert len({encoder.fingerprint for encoder in encoders}) == len(encoders)
    assert tiny_open_clip().fingerprint == tiny_open_clip(device="cpu").fingerprint


FEW_WORDS = CONFIG | {"text_cfg": CONFIG["text_cfg"] | {"vocab_size": 100}}


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: as_encoder("siglib"), r"`encoder` to be one of .*Did you mean 'siglip'"),
        (lambda: OpenClipEncoder("ViT-B-32", "openia"), "`pretrained` to be one of"),
        (lambda: OpenClipEncoder("ViT-B-33", None), "`model_name` to be a model of open_clip.*Nearest: .*ViT-B-32"),
        (lambda: tiny_open_clip(pretrained="webli"), "`pretrained` to be a file or None with `model_config`"),
        (lambda: tiny_open_clip(tokenizer="nowhere"), "`tokenizer` to name the folder of a tokenizer"),
        (lambda: tiny_open_clip(model_config=FEW_WORDS).encode_texts(["a"]), "`tokenizer` to give tokens below 100"),
        (lambda: tiny_open_clip(pretrained="nowhere.pt"), "`pretrained` .* to name a file of weights"),
        (lambda: OpenClipEncoder("tiny", None, model_config={"embed_dim": 4}), "`model_config` to have"),
    ],
)
def test_bad_arguments(make, message):
    with pytest.raises((ValueError, FileNotFoundError), match=message):
        make()


def test_images_of_bytes_are_those_of_the_unit_range(encoder):
    levels = torch.randint(0, 256, (2, 3, 40, 30), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))
    assert torch.equal(encoder.encode_images(levels), encoder.encode_images(levels.float() / 255))


@pytest.mark.parametrize("kind", ["open_clip", "embedded", "object"])
def test_images_that_are_not_in_the_unit_range_are_refused(encoder, kind):
    parts = types.SimpleNamespace(**dict.fromkeys(PARTS, pytest.fail))
    makers = {"open_clip": lambda: encoder, "embedded": EmbeddedEncoder, "object": lambda: as_encoder(parts)}
    with pytest.raises(ValueError, match="from -2 to 2"):
        makers[kind]().encode_images(torch.linspace(-2, 2, 48).reshape(1, 3, 4, 4))


def test_what_was_downloaded_before_is_found_without_network(monkeypatch, tmp_path):
    path = str(tmp_path / "open_clip_model.safetensors")
    monkeypatch.setattr(huggingface_hub, "try_to_load_from_cache", lambda repository, name, revision: path)
    assert str(fetch_weights("a", {"hf_hub": "b/c/"}, lambda source: pytest.fail("asked"))) == path
