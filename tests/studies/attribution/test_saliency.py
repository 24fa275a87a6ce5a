from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn

from block_sources import OBJECTS, SCENES, Blocks, Plains
from quantus_concepts.datasets import ObjectsOnScenes
from quantus_concepts.metrics import RegionAttributions, Subject
from quantus_concepts.studies.attribution.data import Interleaved
from quantus_concepts.studies.attribution.evaluation import saliency_sheets, shown_rows

ROWS = [2, 9]


def test_rows_are_of_different_objects_and_scenes_while_there_are_any():
    chosen = torch.tensor([0, 1, 1, 1, 1, 0, 1]).bool()
    objects = torch.tensor([0, 1, 1, 2, 2, 3, 1])
    scenes = torch.tensor([0, 1, 2, 1, 2, 3, 1])
    # Row 2 has the object of row 1, and row 3 its scene.
    assert shown_rows(chosen, objects, scenes, 2) == [1, 4]
    # Then the first of the others.
    assert shown_rows(chosen, objects, scenes, 3) == [1, 2, 4]
    assert shown_rows(chosen, objects, scenes, 100) == [1, 2, 3, 4, 6]
    # Where none enters, all stand in.
    assert shown_rows(torch.zeros(7).bool(), objects, scenes, 2) == [0, 1]


@pytest.fixture(scope="module")
def data():
    return ObjectsOnScenes(Blocks(), Plains(), split="test", n_per_pair=2, image_size=16, test_share=0.3)


def test_two_lines_for_each_image_and_a_column_for_each_method_that_did_not_fail(data):
    bare = data.with_view("0s")
    views = {name: bare if "0s" in name else data for name in ("f_o", "f_s", "f_s 0s", "f_0 0s", "patched 0s")}
    of = {name: Subject(nn.Identity(), view.images, view.scene_labels) for name, view in views.items()}
    pairs = {"MCS": (of["f_o"], of["f_s"]), "IDR": (of["f_s"], of["f_s 0s"])}
    pairs["IIR"] = (of["f_0 0s"], of["patched 0s"])

    def attributed(seed):
        generator = torch.Generator().manual_seed(seed)
        maps = {each: np.full((len(ROWS), 16, 16), (place + seed) / 10) for place, each in enumerate(of.values())}
        return RegionAttributions({each: torch.rand(len(data), generator=generator) for each in maps}, {}, maps)

    methods = {"a": attributed(0), "broken": RegionAttributions(failure="why"), "b": attributed(1)}
    enters = dict.fromkeys(pairs, torch.ones(len(data)).bool()) | {"IIR": torch.zeros(len(data)).bool()}
    sheets = saliency_sheets(pairs, methods, dict.fromkeys(pairs, ROWS), enters, data)
    assert list(sheets) == ["mcs", "idr", "iir"]
    for (metric, pair), sheet in zip(pairs.items(), sheets.values(), strict=True):
        assert sheet.columns == ["a", "b"]
        assert len(sheet.rows) == 4
        for place, line in enumerate(sheet.rows):
            row, subject = ROWS[place // 2], pair[place % 2]
            np.testing.assert_allclose(line.image, subject.images([row])[0].permute(1, 2, 0).numpy() / 255)
            np.testing.assert_array_equal(line.mask, data.masks([row])[0, 0])
            assert line.values == pytest.approx([float(methods[m].inside[subject][row]) for m in ("a", "b")])
            np.testing.assert_array_equal(line.maps[1], methods["b"].maps[subject][place // 2])
        obj, scene = OBJECTS[data.object_labels[2]], SCENES[data.scene_labels[2]]
        assert (obj if metric == "MCS" else scene) in sheet.rows[0].label
        assert ("None of these images enters IIR" in sheet.caption) == (metric == "IIR")
        assert sheet.draw()[1].shape == (4, 3)


def test_the_first_images_show_all_classes_in_all_views(data):
    order = Interleaved(data)
    assert order.object_labels[:3].tolist() == [0, 1, 2]
    assert order.scene_labels[:3].tolist() == [0, 1, 2]
    pairs = list(zip(order.object_labels.tolist(), order.scene_labels.tolist(), strict=True))
    assert len(set(pairs[:12])) == len(set(pairs)) == 12
    assert sorted(order.order) == list(range(len(data)))
    rows = [5, 0, 17]
    there = [order.order[row] for row in rows]
    for view in ("os", "og", "0s"):
        seen = order.with_view(view)
        assert seen.view == view
        assert torch.equal(seen.images(rows), data.with_view(view).images(there))
        assert torch.equal(seen[5].image, data.with_view(view)[there[0]].image)
    assert torch.equal(order.masks(rows), data.masks(there))
    assert torch.equal(order.boxes(rows), data.boxes(there))
    assert order.view == "os"
