import json

import numpy as np
import pytest
import torch
from PIL import Image

from quantus_concepts.datasets.ratings.explanations import ConceptExplanation, DrawingExplanation, MapExplanation
from quantus_concepts.pasta.cache import EmbeddingCache
from quantus_concepts.pasta.embedder import Embedder
from quantus_concepts.pasta.encoders.overlay import masked_levels, overlay_maps, resize, unit_maps
from tiny_encoders import PoolingEncoder

GENERATOR = torch.Generator().manual_seed(0)
IMAGES = torch.rand(7, 3, 30, 40, generator=GENERATOR)
MAPS = torch.randn(7, 5, 6, generator=GENERATOR)
NAMES = ["red wing", "long leg", "beak", "tail"]
VALUES = torch.randn(5, 4, generator=GENERATOR)


def explanations():
    """Maps of images of three sizes, and concepts, mixed."""
    small = torch.rand(3, 3, 20, 20, generator=torch.Generator().manual_seed(1))
    mixed = [MapExplanation(image, heat) for image, heat in zip(IMAGES, MAPS, strict=True)]
    mixed += [ConceptExplanation({"a": 1.0, "b": -2.0}), ConceptExplanation({"a": 1.0, "b": -2.0}, ascending=True)]
    mixed += [MapExplanation(image, heat) for image, heat in zip(small, MAPS[:3], strict=True)]
    return [mixed[i] for i in (0, 7, 9, 1, 2, 10, 8, 3, 11, 4, 5, 6)]


def pillow_resized(images, size):
    """As the release does it: 8 bits, Pillow's default for resizing, which is bicubic."""
    levels = (images * 255).round().byte().permute(0, 2, 3, 1).numpy()
    rows = [np.asarray(Image.fromarray(picture).resize((size, size))) for picture in levels]
    return torch.from_numpy(np.stack(rows)).permute(0, 3, 1, 2).float() / 255


def assert_same_levels(pictures, expected):
    """Up to the order of Pillow's two passes, each rounded to 8 bits, and the division by the largest value."""
    difference = (pictures - expected).abs() * 255
    assert difference.max() <= 3
    assert difference.mean() < 0.25


def test_what_the_encoder_sees_is_the_overlay():
    encoder = PoolingEncoder()
    embedder = Embedder(encoder, batch_size=7)
    embeddings = embedder.embed_maps(IMAGES, MAPS)
    overlays = overlay_maps(pillow_resized(IMAGES, 224), resize(unit_maps(MAPS)[:, None], (224, 224))[:, 0])
    assert_same_levels(encoder.batches[-1], overlays)
    assert torch.equal(embedder.pictures(IMAGES, MAPS), encoder.batches[-1])
    assert torch.equal(embeddings, PoolingEncoder().encode_images(encoder.batches[-1]))
    # only the order of a map's values, up to a scale, is seen
    assert torch.equal(embedder.embed_maps(IMAGES, 4 * MAPS), embeddings)
    np.testing.assert_allclose(embedder.embed_maps(IMAGES, 3 * MAPS - 8), embeddings, atol=1e-4)


def test_other_ways_of_showing_maps():
    encoder = PoolingEncoder()
    Embedder(encoder, saliency="masked", size=32, normalise="shap").embed_maps(IMAGES, MAPS)
    heat = resize(unit_maps(MAPS, "shap")[:, None], (32, 32))[:, 0]
    assert_same_levels(encoder.batches[-1], masked_levels(pillow_resized(IMAGES, 32), heat) / 255)
    Embedder(encoder, weight=0.2, colours="jet", size=30).embed_maps(IMAGES, MAPS)
    heat = resize(unit_maps(MAPS)[:, None], (30, 30))[:, 0]
    assert_same_levels(encoder.batches[-1], overlay_maps(pillow_resized(IMAGES, 30), heat, weight=0.2, colours="jet"))


def test_a_drawing_goes_to_the_encoder_as_it_is(tmp_path):
    encoder = PoolingEncoder()
    embedder = Embedder(encoder, saliency="masked", normalise="shap", cache=tmp_path)
    pictures = (torch.rand(3, 3, 20, 31, generator=torch.Generator().manual_seed(2)) * 255).round() / 255
    embeddings = embedder.embed_drawings(pictures)
    assert torch.equal(encoder.batches[-1], pictures)
    assert torch.equal(embeddings, PoolingEncoder().encode_images(pictures))
    # In the cache they are found by their content: nothing but the encoder changes a drawing.
    again = PoolingEncoder()
    mixed = [DrawingExplanation(pictures[2]), ConceptExplanation({"a": 1.0}), DrawingExplanation(pictures[0])]
    embeddings_of_all = Embedder(again, cache=tmp_path, size=32).embed(mixed)
    assert torch.equal(embeddings_of_all[[2, 0]], embeddings[[0, 2]])
    assert not again.images_seen


def test_a_map_may_have_its_own_way_to_the_unit_range(tmp_path):
    mixed = [MapExplanation(IMAGES[0], MAPS[0], "shap"), MapExplanation(IMAGES[0], MAPS[0])]
    embeddings = Embedder(PoolingEncoder(), cache=tmp_path).embed(mixed)
    shap = Embedder(PoolingEncoder(), normalise="shap")
    np.testing.assert_allclose(embeddings[0], shap.embed_maps(IMAGES[:1], MAPS[:1])[0], atol=1e-6)
    np.testing.assert_allclose(embeddings[1], Embedder(PoolingEncoder()).embed_maps(IMAGES, MAPS)[0], atol=1e-6)


def test_the_sentence_of_the_release():
    encoder = PoolingEncoder()
    embedder = Embedder(encoder, sentence="release", n_top=3)
    written = {"hair (Target = cat) ": 2.0, "No counterfactual": float("inf")}
    of_release = ConceptExplanation({"hair": 2.0}, True, written, ("tail", "hair", "arm", "leg"))
    # Without a list of concepts those of the explanation are the list.
    without_list = ConceptExplanation({"a": 1.0, "b": -2.0, "c": 1.0})
    embeddings = embedder.embed([of_release, without_list])
    assert torch.equal(embeddings, encoder.encode_texts(["arm, hair, leg, ", "b, c, a, "]))


def test_one_by_one_and_together_are_the_same():
    together = Embedder(PoolingEncoder(), batch_size=4).embed(explanations())
    alone = torch.cat([Embedder(PoolingEncoder()).embed([explanation]) for explanation in explanations()])
    np.testing.assert_allclose(together, alone, atol=1e-6)
    assert Embedder(PoolingEncoder()).embed([]).shape == (0, 27)


def test_concepts_by_hand():
    encoder = PoolingEncoder()
    values = torch.tensor([[0.1, -3.0, 2.0, 0.0], [1.0, 1.0, 1.0, 1.0]])
    Embedder(encoder, n_top=3).embed_concepts(values, NAMES)
    Embedder(encoder, n_top=2, ascending=True, template="I see {}.", trailing_comma=False).embed_concepts(
        values[:1], NAMES
    )
    assert encoder.texts_seen == ["long leg, beak, red wing, ", "tail, red wing, long leg, ", "I see tail, red wing."]


def test_weighted_sum_of_equation_15():
    encoder = PoolingEncoder()
    embeddings = Embedder(encoder, concepts="weighted").embed_concepts(VALUES, NAMES)
    names = PoolingEncoder().encode_texts(NAMES).numpy()
    for row, values in zip(embeddings, VALUES.numpy(), strict=True):
        expected = sum(v * e for v, e in zip(values, names, strict=True)) / np.sqrt((values**2).sum())
        np.testing.assert_allclose(row, expected, rtol=1e-4)
    assert encoder.texts_seen == NAMES
    assert not Embedder(encoder, concepts="weighted").embed_concepts(VALUES[:1] * 0, NAMES).any()
    mixed = [ConceptExplanation({"beak": 2.0}), ConceptExplanation({"tail": -1.0, "beak": 0.0})]
    np.testing.assert_allclose(Embedder(encoder, concepts="weighted").embed(mixed), [names[2], -names[3]])


def test_settings_make_the_same_embedder():
    embedder = Embedder(PoolingEncoder(), saliency="masked", n_top=3, template="a {}", size=64)
    settings = json.loads(json.dumps(embedder.settings))
    again = Embedder.from_settings(PoolingEncoder(), settings, batch_size=3)
    assert again.settings == embedder.settings
    assert torch.equal(again.embed_concepts(VALUES, NAMES), embedder.embed_concepts(VALUES, NAMES))
    with pytest.raises(ValueError, match=r"`settings` to have some of .* but it has \['colour'\]"):
        Embedder.from_settings(PoolingEncoder(), {"colour": "bwr"})


def test_the_cache_gives_what_was_computed_and_computes_only_what_is_missing(tmp_path):
    plain = Embedder(PoolingEncoder(), batch_size=4).embed(explanations())
    first, again = PoolingEncoder(), PoolingEncoder()
    embeddings = Embedder(first, cache=tmp_path / "cache", batch_size=4).embed(explanations()[:8])
    assert (first.images_seen, len(first.texts_seen)) == (6, 2)
    embedder = Embedder(again, cache=EmbeddingCache(tmp_path / "cache"))
    assert torch.equal(embedder.embed(explanations()[:8]), embeddings)
    assert torch.equal(embedder.embed_maps(IMAGES[:2], MAPS[:2]), plain[[0, 3]])
    assert (again.images_seen, again.texts_seen) == (0, [])
    np.testing.assert_allclose(embedder.embed(explanations()), plain, atol=1e-6)
    assert again.images_seen == 4


@pytest.mark.parametrize(
    "change",
    [
        {"encoder": PoolingEncoder("another")},
        *({"weight": 0.4}, {"colours": "jet"}, {"size": 200}, {"normalise": "shap"}, {"saliency": "masked"}),
        *({"images": IMAGES + 1e-6 * (IMAGES < 0.5)}, {"maps": MAPS * 1.000001}),
        *({"images": IMAGES.transpose(2, 3)}, {"maps": MAPS.transpose(1, 2)}),
    ],
)
def test_another_explanation_image_encoder_or_setting_is_another_entry(tmp_path, change):
    Embedder(PoolingEncoder(), cache=tmp_path).embed_maps(IMAGES[:3], MAPS[:3])
    encoder = change.pop("encoder", PoolingEncoder())
    images, maps = change.pop("images", IMAGES)[:3], change.pop("maps", MAPS)[:3]
    Embedder(encoder, cache=tmp_path, **change).embed_maps(images, maps)
    assert encoder.images_seen == 3


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda e: e.embed_maps(IMAGES * 255, MAPS), r"`images` to hold images in \[0, 1\].*`mean` and `std`"),
        (lambda e: e.embed_maps(IMAGES, MAPS.sqrt()), r"7 of 7 hold NaN or infinity. .*usable_maps"),
        (lambda e: e.embed([MapExplanation(IMAGES[0], MAPS[0].sqrt())]), "1 of 1 hold NaN or infinity"),
        (lambda e: e.embed_maps(IMAGES, MAPS[:3]), "`maps` to have"),
        (lambda e: e.embed_drawings(2 * IMAGES), "`images` to hold images in"),
        (lambda e: e.embed_concepts(VALUES, ["a", "a", "b", "c"]), "`names` to hold different names"),
        (lambda e: e.embed_concepts(VALUES * np.nan, NAMES), "`values` to be finite"),
        (lambda e: e.embed([{"a": 1.0}]), "`explanations` to hold Map-, .* at 0"),
        (lambda e: Embedder(e.encoder, sentence="release", template="a {}"), "which is fixed"),
    ],
)
def test_refused(call, message):
    embedder = Embedder(PoolingEncoder())
    with pytest.raises((TypeError, ValueError), match=message):
        call(embedder)
    assert not embedder.encoder.images_seen
