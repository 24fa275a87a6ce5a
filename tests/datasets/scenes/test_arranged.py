"""Composed images whose classes take turns, and objects of other sizes and places."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from block_sources import Blocks, Plains
from quantus_concepts.datasets import ObjectsOnScenes
from quantus_concepts.datasets.scenes.arranged import Interleaved, PlacedObjects
from quantus_concepts.studies.attribution.data import CHANGES


@pytest.fixture(scope="module")
def data():
    return ObjectsOnScenes(Blocks(), Plains(), split="test", n_per_pair=2, image_size=16, test_share=0.3)


def test_the_first_images_show_all_classes_in_all_views(data):
    order = Interleaved(data)
    pairs = list(zip(order.object_labels.tolist(), order.scene_labels.tolist(), strict=True))
    assert len(set(pairs[:12])) == len(set(pairs)) == 12
    assert sorted(order.order) == list(range(len(data)))
    rows = [5, 0, 17]
    there = [order.order[row] for row in rows]
    for view in ("os", "og", "0s"):
        viewed = order.with_view(view)
        assert torch.equal(viewed.images(rows), data.with_view(view).images(there))
        assert torch.equal(viewed[5].image, data.with_view(view)[there[0]].image)
    assert torch.equal(order.masks(rows), data.masks(there))
    assert torch.equal(order.boxes(rows), data.boxes(there))


SIZE = 32
SETTINGS = {"n_per_pair": 2, "image_size": SIZE, "split": "test", "test_share": 0.4}


def changed(change: str) -> PlacedObjects:
    return PlacedObjects(Blocks(), Plains(), **SETTINGS, **CHANGES[change])


def boxes(data: ObjectsOnScenes) -> np.ndarray:
    return np.array([data.pasted(i).box for i in range(len(data))])


def test_one_thing_changes_at_a_time() -> None:
    usual = ObjectsOnScenes(Blocks(), Plains(), **SETTINGS)
    before = boxes(usual)
    for change in CHANGES:
        data = changed(change)
        assert torch.equal(data.object_labels, usual.object_labels)
        assert torch.equal(data.with_view("0s").images(), usual.with_view("0s").images())
        after = boxes(data)
        # Blocks are 20 x 40, so that their width governs.
        sides = (after[:, 3] - after[:, 1]) / SIZE
        low, high = {"smaller": (0.34, 0.46), "larger": (0.79, 0.91)}.get(change, (0.57, 0.72))
        assert ((sides >= low) & (sides <= high)).all()
        if change in ("centre", "corner"):
            np.testing.assert_array_equal(after[:, 2:] - after[:, :2], before[:, 2:] - before[:, :2])


def test_places_by_hand() -> None:
    usual, centre, corner = ObjectsOnScenes(Blocks(), Plains(), **SETTINGS), changed("centre"), changed("corner")
    for i, (row0, col0, row1, col1) in enumerate(boxes(usual)):
        height, width = row1 - row0, col1 - col0
        assert centre.pasted(i).box[:2] == ((SIZE - height) // 2, (SIZE - width) // 2)
        above, left = row0 + row1 <= SIZE, col0 + col1 <= SIZE
        assert corner.pasted(i).box[:2] == (0 if above else SIZE - height, 0 if left else SIZE - width)
    # the mask goes with the object, in every view
    assert torch.equal(corner.masks(), corner.with_view("og").masks())
    differing = corner.images() != corner.with_view("0s").images()
    assert not (differing & ~corner.masks()).any()
