"""Digests of what arrays and modules hold: equal for equal content, other for any change."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from torch import nn

from captum_concepts.content import changed_settings, digest_of, fingerprint, row_digests


class Scaled(nn.Module):
    """A network with an attribute of every kind."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.Dropout(0.5))
        self.scale = 2.0
        self.sizes = [1, (2, 3)]
        self.names = {"a": {1, 2}}
        self.table = np.arange(3)
        self.config = SimpleNamespace(width=4)
        self.function: Callable[..., torch.Tensor] = torch.relu
        self.passes = 0

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        self.passes += 1
        return self.function(self.layers(images)) * self.scale


def model() -> Scaled:
    torch.manual_seed(0)
    return Scaled().eval()


CHANGES: dict[str, Callable[[Scaled], object]] = {
    "one weight": lambda m: m.layers[0].weight.data[0, 0, 0, 0].add_(1e-7),
    "one weight, last bit": lambda m: m.layers[0].weight.data.view(torch.int32)[1, 0, 0, 0].bitwise_xor_(1),
    "the signs of all weights": lambda m: m.layers[0].weight.data.neg_(),
    "two weights swapped": lambda m: m.layers[0].weight.data.copy_(m.layers[0].weight.data.flip(0)),
    "a buffer": lambda m: m.layers[1].running_mean.add_(1),
    "memory format": lambda m: m.to(memory_format=torch.channels_last),
    "precision": lambda m: m.double(),
    "mode": lambda m: m.layers[2].train(),
    "a number": lambda m: setattr(m, "scale", 3.0),
    "a number in a list": lambda m: m.sizes.__setitem__(0, 2),
    "a set in a dict": lambda m: m.names["a"].add(3),
    "an array": lambda m: m.table.__setitem__(0, 9),
    "an object's field": lambda m: setattr(m.config, "width", 5),
    "a function": lambda m: setattr(m, "function", torch.tanh),
    "another layer": lambda m: m.layers.__setitem__(2, nn.Identity()),
    "a hook": lambda m: m.layers[0].register_forward_hook(lambda *_: None),
    "another kernel": lambda m: setattr(m.layers[0], "padding", (1, 1)),
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES.keys())
def test_a_change_is_seen_and_a_copy_is_the_same(change: Callable[[Scaled], object]) -> None:
    one = model()
    before = fingerprint(one).digest()
    assert fingerprint(one).digest() == before
    change(one)
    assert fingerprint(one).digest() != before


def test_weights_are_compared_by_what_they_hold() -> None:
    one, other = model(), model()
    assert fingerprint(one).weights == fingerprint(other).weights
    assert fingerprint(one, with_weights=False).weights != fingerprint(one).weights


def test_what_a_pass_counts_is_found_and_left_unread() -> None:
    one = model()
    before = fingerprint(one)
    one(torch.zeros(1, 3, 8, 8))
    counted = changed_settings(before, fingerprint(one))
    assert counted == {("", "passes")}
    first = fingerprint(one, counted).digest()
    one(torch.zeros(1, 3, 8, 8))
    assert fingerprint(one, counted).digest() == first


@pytest.mark.parametrize(
    ("before", "after"), [(1, True), (1, 1.0), (0.0, -0.0), ([1], [1.0]), ((1,), [1]), ("1", b"1"), (None, "None")]
)
def test_equal_looking_settings_differ(before: object, after: object) -> None:
    one = model()
    one.scale = before
    held = fingerprint(one)
    one.scale = after
    assert fingerprint(one).digest() != held.digest()
    assert changed_settings(held, fingerprint(one)) == {("", "scale")}


def test_an_attribute_without_a_value_is_another_than_none_at_all() -> None:
    one = model()
    held = fingerprint(one)
    one.cache = None
    assert changed_settings(held, fingerprint(one)) == {("", "cache")}
    one.scale = float("nan")
    assert changed_settings(fingerprint(one), fingerprint(one)) == set()


def test_an_object_that_is_gone_is_named_no_more() -> None:
    one = model()
    one.function = lambda values: values + 1
    read = fingerprint(one)
    assert read.still_named()
    one.function = torch.relu
    assert not read.still_named()


@pytest.mark.parametrize(
    "other",
    [
        np.arange(12.0).reshape(4, 3),
        np.arange(12.0, dtype=np.float32).reshape(3, 4),
        -np.arange(12.0).reshape(3, 4),
        np.arange(12.0).reshape(3, 4)[::-1],
        np.full((3, 4), np.nan),
    ],
)
def test_arrays_differ_by_numbers_shape_and_type(other: np.ndarray) -> None:
    array = np.arange(12.0).reshape(3, 4)
    assert digest_of(array) == digest_of(array.copy()) == digest_of(np.asfortranarray(array))
    assert digest_of(array) != digest_of(other)
    assert digest_of(torch.as_tensor(array)) == digest_of(torch.as_tensor(array.copy()))


def test_each_row_has_its_digest() -> None:
    images = np.random.default_rng(0).random((4, 3, 5, 5))
    rows = row_digests(images)
    assert rows.shape == (4, 16)
    assert (row_digests(images[1:3]) == rows[1:3]).all()
    images[2, 0, 0, 0] += 1e-9
    assert (row_digests(images) == rows).all(1).tolist() == [True, True, False, True]
