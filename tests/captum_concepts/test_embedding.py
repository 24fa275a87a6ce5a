"""What the images of a loader are told about before anything is fitted to them."""

from __future__ import annotations

import traceback
import warnings
from typing import Any

import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from captum_concepts import Backbone, LayerFeatures, embed
from quantus_concepts import score_concepts
from refusals import refusals
from tiny_models import TinyConceptModel

LEVELS = torch.arange(2 * 3 * 4 * 4).reshape(2, 3, 4, 4).float()
FEATURES = nn.Conv2d(3, 5, 1)
WHOLE = nn.Sequential(nn.Conv2d(3, 4, 4), nn.Flatten(), nn.Sequential(nn.Linear(4, 7), nn.Dropout()))


@pytest.mark.parametrize(
    ("images", "warned"), [(LEVELS, True), (LEVELS / 255, False), (LEVELS - 48, False), (LEVELS[:0], False)]
)
def test_levels_of_0_to_255_are_warned_of_once(images: torch.Tensor, warned: bool) -> None:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        embed(FEATURES, [images] * 3)
    assert ["levels of 0 to 255" in str(warning.message) for warning in caught] == [True] * warned


NORMALISED = Backbone(FEATURES, "mean", None, 5, normalisation=((0.5,) * 3, (0.2,) * 3))


@pytest.mark.parametrize(
    ("backbone", "images", "warned"),
    [
        (NORMALISED, LEVELS / LEVELS.max(), True),
        (NORMALISED, NORMALISED.normalise(LEVELS / 255), False),
        (Backbone(FEATURES, "mean", None, 5), LEVELS / 255, False),
        (Backbone(FEATURES, "mean", None, 5, normalisation=((0.0,) * 3, (1.0,) * 3)), LEVELS / 255, False),
    ],
    ids=["as they are", "normalised", "not known", "nothing to do"],
)
def test_images_that_were_not_normalised_are_warned_of_once(backbone, images, warned) -> None:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        embed(backbone, [images] * 2)
    assert ["seem not to be normalised" in str(warning.message) for warning in caught] == [True] * warned


def test_a_data_set_is_taken_in_batches() -> None:
    images, labels = LEVELS[:1] / 255, torch.tensor([1])
    expected = embed(FEATURES, [(images, labels)])
    found = embed(FEATURES, TensorDataset(images, labels))
    assert torch.equal(found.features, expected.features)
    assert torch.equal(found.labels, labels)


def test_batches_by_name_are_those_in_order() -> None:
    labels, concepts = torch.arange(len(LEVELS)), torch.ones(len(LEVELS), 2)
    expected = embed(FEATURES, [(LEVELS, labels, concepts)])
    for names in (("images", "labels", "concept_labels"), ("pixel_values", "label", "concept_labels")):
        by_name = embed(FEATURES, [dict(zip(names, (LEVELS, labels, concepts), strict=True))])
        assert all(map(torch.equal, by_name, expected))
    alone = embed(FEATURES, [{"pixel_values": LEVELS, "concept_labels": concepts, "image_id": ["a"]}])
    assert alone.labels is None
    assert torch.equal(alone.concept_labels, concepts)


@pytest.mark.parametrize(
    ("network", "message"),
    [
        (WHOLE, "the linear '2.0', whose 7 outputs"),
        (LayerFeatures(WHOLE, "2"), "the linear 'model.2.0', whose 7 outputs"),
        (WHOLE[:2], None),
        (nn.Sequential(WHOLE[:2], nn.Sequential(WHOLE[2][0], nn.ReLU())), None),
    ],
)
def test_a_network_with_its_classifier_is_warned_of(network: nn.Module, message: str | None) -> None:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        embed(network, [LEVELS / 255] * 2)
    assert [str(warning.message).count(message or "") for warning in caught] == [1] * (message is not None)


@pytest.mark.parametrize(
    "labels", [[1, 0], [1.0, 0.0], [[1.0], [0.0]], [[0, 1], [1, 0]]], ids=["indices", "floats", "(N, 1)", "one-hot"]
)
def test_class_labels_of_one_meaning_are_taken(labels: list[Any]) -> None:
    found = embed(FEATURES, [(LEVELS / 255, torch.tensor(labels))]).labels
    assert found is not None
    assert found.dtype == torch.int64
    assert found.tolist() == [1, 0]
    for wrong, message in (([-1, 0], "smallest value -1"), ([0, 1, 0], r"`labels` to have shape \(N,\) = \(2,\)")):
        with pytest.raises(ValueError, match=message):
            embed(FEATURES, [(LEVELS / 255, torch.tensor(wrong))])


test_refused = refusals(
    (lambda: embed(FEATURES, []), "`loader` to give at least one batch"),
    (lambda: embed(FEATURES, [{"pixels": LEVELS}]), "`loader` to give dicts with the keys"),
    (lambda: embed(FEATURES, [(LEVELS[0], 3)]), "`loader` to give labels as a tensor but got int"),
    (lambda: embed(FEATURES, [(LEVELS, torch.tensor([0.5, 0.5]))]), "`labels` to hold indices"),
    error=(TypeError, ValueError),
)


def test_errors_of_a_backbone_name_the_shape_of_its_input() -> None:
    with pytest.raises(RuntimeError) as caught:
        embed(nn.Linear(7, 2), [LEVELS / 255])
    assert "type Linear, on images of shape (2, 3, 4, 4)" in caught.value.__notes__[0]


@pytest.mark.parametrize("workers", [0, 1])
def test_images_of_several_sizes_name_the_remedy(workers):
    images = [(torch.rand(3, 8, width), 0, torch.tensor([1, 0])) for width in (8, 9)]
    loader = DataLoader(images, batch_size=2, num_workers=workers)
    for reads in (lambda: embed(nn.Conv2d(3, 6, 3), loader), lambda: score_concepts(TinyConceptModel(), loader)):
        with pytest.raises(ValueError, match=r"`loader` to give images of one size.* Pass `image_size`") as caught:
            reads()
        # The DataLoader is in a cycle with its error; freed by the garbage collection it waits 5 s for its workers.
        traceback.clear_frames(caught.value.__cause__.__traceback__)

    def broken():
        raise RuntimeError("of the user's own")
        yield

    with pytest.raises(RuntimeError, match="of the user's own"):
        embed(nn.Conv2d(3, 6, 3), broken())
