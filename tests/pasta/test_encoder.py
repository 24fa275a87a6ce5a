import types

import numpy as np
import open_clip
import pytest
import torch
from torch import nn

from quantus_concepts.pasta.embedder import Embedder
from quantus_concepts.pasta.encoders.encoder import PartsEncoder, is_encoder
from quantus_concepts.pasta.encoders.object_encoder import as_encoder
from refusals import refusals
from tiny_encoders import CONFIG, PoolingEncoder, tiny_open_clip

IMAGES = torch.rand(4, 3, 40, 40, generator=torch.Generator().manual_seed(0))


@pytest.fixture(scope="module")
def parts():
    """As open_clip.create_model_and_transforms and get_tokenizer give them."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        model = open_clip.CLIP(**CONFIG)
    return model, open_clip.image_transform(32, is_train=False), open_clip.SimpleTokenizer(context_length=32)


def bundle(parts, **changes):
    model, preprocess, tokenizer = parts
    members = {
        "encode_image": model.encode_image,
        "encode_text": model.encode_text,
        "preprocess": preprocess,
        "tokenizer": tokenizer,
    }
    return types.SimpleNamespace(**members | changes)


def test_open_clips_parts_embed_as_the_encoder_of_the_same_weights(parts):
    encoder, expected = as_encoder(bundle(parts)), tiny_open_clip()
    assert is_encoder(encoder)
    assert encoder.name == "CLIP"
    assert encoder.dim == 16
    np.testing.assert_allclose(encoder.encode_images(IMAGES), expected.encode_images(IMAGES), atol=1e-5)
    np.testing.assert_allclose(encoder.encode_texts(["a, b, "]), expected.encode_texts(["a, b, "]), atol=1e-5)


def test_a_preprocessing_that_is_not_recognised_is_applied_to_each_image(parts):
    unrecognised = bundle(parts, preprocess=lambda image: parts[1](image))
    difference = as_encoder(unrecognised).encode_images(IMAGES) - as_encoder(bundle(parts)).encode_images(IMAGES)
    assert difference.abs().max() < 0.02


def test_a_cache_needs_a_fingerprint(parts, tmp_path):
    # What a model depends on cannot be seen.
    unnamed = bundle(parts)
    with pytest.raises(ValueError, match=r"attribute `fingerprint`.*cannot know"):
        Embedder(unnamed, cache=tmp_path).embed_maps(IMAGES, IMAGES[:, 0])
    unnamed.fingerprint = "mine"
    embeddings = Embedder(unnamed, cache=tmp_path).embed_maps(IMAGES, IMAGES[:, 0])
    other = bundle(parts, fingerprint="other", encode_image=lambda images: 2 * parts[0].encode_image(images))
    assert not torch.allclose(Embedder(other, cache=tmp_path).embed_maps(IMAGES, IMAGES[:, 0]), embeddings)


def test_an_object_without_modules():
    members = {
        "encode_image": lambda images: images.double().mean((2, 3)),
        "encode_text": lambda tokens: tokens.float(),
        "preprocess": lambda image: torch.from_numpy(np.array(image)).permute(2, 0, 1).float(),
        "tokenizer": lambda texts: torch.tensor([[len(text)] * 3 for text in texts]),
    }
    encoder = as_encoder(types.SimpleNamespace(**members))
    assert as_encoder(encoder) is encoder
    assert encoder.encode_texts(["abc"]).tolist() == [[3, 3, 3]]
    np.testing.assert_allclose(encoder.encode_images(IMAGES), (IMAGES * 255).round().mean((2, 3)), rtol=1e-5)
    assert as_encoder(types.SimpleNamespace(**members, fingerprint="mine")).fingerprint == "mine"
    assert PartsEncoder(types.SimpleNamespace(**members), fingerprint="yours", name="own").name == "own"


def test_modes_are_restored_and_wrong_objects_refused(parts):
    model = parts[0].train()
    dropout = nn.Dropout(0.5)
    members = {"encode_image": lambda images: dropout(model.encode_image(images)), "dropout": dropout, "model": model}
    encoder = as_encoder(bundle(parts, **members))
    assert torch.equal(encoder.encode_images(IMAGES), encoder.encode_images(IMAGES))
    assert dropout.training
    assert all(module.training for module in model.modules())
    with pytest.raises(TypeError, match=r"got CLIP, which lacks preprocess, tokenizer"):
        as_encoder(model)
    with pytest.raises(ValueError, match=r"`encode_image` to have shape \(N, dim\)"):
        as_encoder(bundle(parts, encode_image=lambda images: images)).encode_images(IMAGES)


test_refused = refusals(
    (lambda: PartsEncoder(types.SimpleNamespace(encode_image=len)), "`encoder` to be .* which lacks encode_text"),
    (lambda: as_encoder(PoolingEncoder(), weights="a.pt"), "`weights` only with the name"),
    error=(TypeError, ValueError),
)


def test_an_embedding_that_is_no_tensor_is_refused(parts):
    with pytest.raises(TypeError, match="to return a tensor but got tuple"):
        as_encoder(bundle(parts, encode_image=lambda images: (images, images))).encode_images(IMAGES)
