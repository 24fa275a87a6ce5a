from __future__ import annotations

import re

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from captum_concepts import build_method
from quantus_concepts.studies.attribution.collect import Subject, batches, collect
from quantus_concepts.studies.training import seeded
from reference import attribution as reference

N, SIZE, N_CLASSES = 7, 12, 3


class Images:
    """Noise, and the numbers of images asked for."""

    def __init__(self, seed: int = 0, as_float: bool = False) -> None:
        self.pixels = torch.randint(0, 256, (N, 3, SIZE, SIZE), generator=torch.Generator().manual_seed(seed)).byte()
        self.as_float = as_float
        self.asked: list[int] = []

    def __call__(self, rows: list[int]) -> Tensor:
        self.asked.append(len(rows))
        return self.pixels[rows] / 255 if self.as_float else self.pixels[rows]


def network(seed: int) -> nn.Module:
    with seeded(seed):
        parts = (
            nn.Conv2d(3, 6, 3, stride=2),
            nn.ReLU(),
            nn.AdaptiveAvgPool2d(1),
            nn.Flatten(),
            nn.Linear(6, N_CLASSES),
        )
        return nn.Sequential(*parts).eval()


def masks(rows: list[int]) -> Tensor:
    """Row i is marked from its top to line i + 1."""
    return torch.arange(SIZE)[None, None, :, None].expand(len(rows), 1, SIZE, SIZE) <= torch.tensor(rows).view(
        -1, 1, 1, 1
    )


def elsewhere(rows: list[int]) -> Tensor:
    return ~masks(rows)


def subjects(**images: Images) -> dict[str, Subject]:
    labels = torch.arange(N) % N_CLASSES
    return {name: Subject(network(place), each, labels) for place, (name, each) in enumerate(images.items())}


def pixels(model, inputs, targets, **kwargs):
    """An explanation that is known: the image itself, less the class's share."""
    return inputs - 0.2 * np.asarray(targets)[:, None, None, None]


def expected(images: Images, regions: Tensor) -> np.ndarray:
    raw = images.pixels.double().numpy() / 255 - 0.2 * (np.arange(N) % N_CLASSES)[:, None, None, None]
    return reference.concept_attribution(reference.positive_percentile(raw), regions.numpy())


@pytest.mark.parametrize("batch_size", [1, 3, N, 100])
def test_each_subject_is_reduced_to_the_attribution_of_its_regions(batch_size):
    first, second = Images(0), Images(1, as_float=True)
    found = collect(
        {"pixels": pixels},
        subjects(first=first, second=second),
        masks,
        elsewhere={"first": elsewhere},
        keep={"second": [5, 2]},
        batch_size=batch_size,
    )["pixels"]
    every = list(range(N))
    np.testing.assert_allclose(found.inside["first"], expected(first, masks(every)), atol=1e-6)
    np.testing.assert_allclose(found.inside["second"], expected(second, masks(every)), atol=1e-6)
    np.testing.assert_allclose(found.elsewhere["first"], expected(first, elsewhere(every)), atol=1e-6)
    assert set(found.elsewhere) == {"first"}
    assert found.failure == ""
    # Only the maps asked for, in the order asked for.
    assert {name: maps.shape for name, maps in found.maps.items()} == {"second": (2, SIZE, SIZE)}
    raw = second.pixels[[5, 2]].double().numpy() / 255 - 0.2 * np.array([2, 2])[:, None, None, None]
    np.testing.assert_allclose(found.maps["second"], reference.positive_percentile(raw)[:, 0], atol=1e-6)
    # Memory: never more than a batch, and each image once however many methods there are.
    assert max(first.asked) <= batch_size
    assert sum(first.asked) == N


def test_images_are_composed_once_for_all_methods():
    images = Images()
    collect({"one": pixels, "two": pixels, "three": pixels}, subjects(only=images), masks, batch_size=3)
    assert images.asked == [3, 3, 1]


@pytest.mark.parametrize("name", ["vanilla gradient", "Grad-CAM", "SmoothGrad", "random"])
def test_methods_do_not_depend_on_the_batch_size(name):
    method = {name: build_method(name, n_samples=2)}
    one, all_ = (collect(method, subjects(only=Images()), masks, batch_size=size)[name] for size in (1, N))
    np.testing.assert_allclose(one.inside["only"], all_.inside["only"], atol=1e-5)


def fails(model, inputs, targets):
    raise RuntimeError("out\nof   luck")


def fails_on_the_second_subject(model, inputs, targets):
    if model[0].weight.sum() == network(1)[0].weight.sum():
        raise KeyError("layer")
    return inputs


def gives_nan(model, inputs, targets):
    maps = inputs.copy()
    maps[-1, 0, 0, 0] = np.nan
    return maps


BAD = {
    "raises": (fails, "RuntimeError: out of luck"),
    "raises later": (fails_on_the_second_subject, "KeyError: 'layer'"),
    "NaN": (gives_nan, "Expected finite attributions but got NaN or infinity for 1 of 3 images."),
    "another size": (lambda model, inputs, targets: inputs[:, :, 1:], r"\(3, 3, 11, 12\)"),
    "another number": (lambda model, inputs, targets: inputs[:1], r"\(1, 3, 12, 12\)"),
    "flat": (lambda model, inputs, targets: inputs.reshape(len(inputs), -1), r"\(3, 432\)"),
    "nothing": (lambda model, inputs, targets: None, "but got"),
    "text": (lambda model, inputs, targets: np.full(inputs.shape, "x"), "ValueError"),
}


@pytest.mark.parametrize(("method", "message"), BAD.values(), ids=BAD)
def test_a_method_that_fails_has_no_numbers_and_the_others_go_on(method, message):
    images = {"first": Images(0), "second": Images(1)}
    found = collect(
        {"good": pixels, "bad": method, "last": pixels},
        subjects(**images),
        masks,
        elsewhere={"second": elsewhere},
        keep={"first": [0]},
        batch_size=3,
    )
    assert list(found) == ["good", "bad", "last"]
    bad = found["bad"]
    assert re.search(message, bad.failure), bad.failure
    assert "\n" not in bad.failure
    assert bad.maps == {}
    for values in (bad.inside["first"], bad.inside["second"], bad.elsewhere["second"]):
        assert values.shape == (N,)
        assert values.isnan().all()
    for name in ("good", "last"):
        assert found[name].failure == ""
        np.testing.assert_allclose(
            found[name].inside["second"], expected(images["second"], masks(list(range(N)))), atol=1e-6
        )


def test_a_method_that_fails_is_not_asked_again():
    asked = []

    def method(model, inputs, targets):
        asked.append(len(inputs))
        raise ValueError

    collect({"bad": method}, subjects(one=Images(), two=Images()), masks, batch_size=2)
    assert asked == [2]


def test_interruptions_are_no_failures():
    def interrupted(model, inputs, targets):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        collect({"slow": interrupted}, subjects(only=Images()), masks)


def test_methods_cannot_disturb_each_other():
    def rude(model, inputs, targets):
        model.train()
        maps = inputs.copy()
        inputs[:] = 0
        targets[:] = 0
        return maps

    images = Images(as_float=True)
    both = subjects(one=images)
    found = collect({"rude": rude, "pixels": pixels}, both, masks, batch_size=3)
    np.testing.assert_allclose(found["pixels"].inside["one"], expected(images, masks(list(range(N)))), atol=1e-6)
    assert not both["one"].model.training


def test_maps_may_be_tensors_or_lack_channels_or_be_read_only_or_of_any_scale():
    images = Images()

    def frozen(model, inputs, targets):
        maps = pixels(model, inputs, targets)[:, ::-1]
        maps.flags.writeable = False
        return maps

    methods = {
        "tensor": lambda model, inputs, targets: torch.tensor(pixels(model, inputs, targets), requires_grad=True),
        "frozen": frozen,
        "summed": lambda model, inputs, targets: pixels(model, inputs, targets).clip(0).sum(1),
        "double": lambda model, inputs, targets: 1e-3 * pixels(model, inputs, targets).astype(np.float64),
    }
    found = collect(methods, subjects(only=images), masks, batch_size=4)
    for result in found.values():
        np.testing.assert_allclose(result.inside["only"], expected(images, masks(list(range(N)))), atol=1e-6)


def test_which_images_are_right():
    images = Images()
    model = network(0)
    answers = model(images.pixels / 255).argmax(1)
    labels = answers.clone()
    labels[[1, 4]] += 1
    right = Subject(model, images, labels).correct(batch_size=3)
    assert right.tolist() == [True, False, True, True, False, True, True]
    assert images.asked == [3, 3, 1]


def test_batches():
    assert batches(5, 2) == [[0, 1], [2, 3], [4]]
    assert batches(0, 2) == []
