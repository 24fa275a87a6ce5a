from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from captum_concepts import build_method
from quantus_concepts import IDR, IIR, MCS
from quantus_concepts.studies.attribution.collect import Attributed, Subject, collect
from quantus_concepts.studies.attribution.records import (
    BARE_MODEL,
    BARE_MODEL_PATCHED,
    OBJECT_MODEL,
    SCENE_MODEL,
    SCENE_MODEL_BARE,
    Defined,
    random_regions,
    score_records,
)
from quantus_concepts.studies.records import find
from quantus_concepts.studies.training import seeded

N, SIZE, N_CLASSES = 24, 12, 3
THRESHOLD = 0.3


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


class World:
    """Objects as squares of noise in noise, three models, and labels that each gets partly right."""

    def __init__(self) -> None:
        generator = torch.Generator().manual_seed(0)
        self.bare = torch.rand(N, 3, SIZE, SIZE, generator=generator)
        self.masks = torch.zeros(N, 1, SIZE, SIZE, dtype=torch.bool)
        for i, mask in enumerate(self.masks):
            mask[:, 1 + i % 4 : 7 + i % 4, 2 + i % 5 : 7 + i % 5] = True
        noise = torch.rand(N, 3, SIZE, SIZE, generator=generator)
        self.full = torch.where(self.masks, noise, self.bare)
        # Weak patches for most images, and strong ones that no model overlooks.
        strength = torch.where(torch.arange(N) % 4 == 0, 1.0, 0.02).view(-1, 1, 1, 1)
        self.patched = torch.where(self.masks, self.bare + strength * (noise - self.bare), self.bare)
        self.models = {name: network(seed) for seed, name in enumerate(("f_o", "f_s", "f_0"))}
        self.objects = self._labels("f_o", self.full, every=3)
        self.scenes = self._labels("f_s", self.full, every=5)
        self.plain = self._labels("f_0", self.bare, every=7)

    def _labels(self, model: str, images: Tensor, every: int) -> Tensor:
        answers = self.models[model](images).argmax(1)
        return torch.where(torch.arange(N) % every == 0, (answers + 1) % N_CLASSES, answers)

    def subjects(self) -> dict[str, Subject]:
        def subject(model: str, images: Tensor, labels: Tensor) -> Subject:
            return Subject(self.models[model], lambda rows: images[rows], labels)

        return {
            OBJECT_MODEL: subject("f_o", self.full, self.objects),
            SCENE_MODEL: subject("f_s", self.full, self.scenes),
            SCENE_MODEL_BARE: subject("f_s", self.bare, self.scenes),
            BARE_MODEL: subject("f_0", self.bare, self.plain),
            BARE_MODEL_PATCHED: subject("f_0", self.patched, self.plain),
        }

    def defined(self, subjects: dict[str, Subject]) -> Defined:
        right = {name: subject.correct(7) for name, subject in subjects.items()}
        before, after = (self.models["f_0"](images) for images in (self.bare, self.patched))
        distance = (after - before).norm(dim=1) / before.norm(dim=1)
        return Defined(
            contrast=right[OBJECT_MODEL] & right[SCENE_MODEL],
            dependence=right[SCENE_MODEL] & right[SCENE_MODEL_BARE],
            independence=right[BARE_MODEL] & right[BARE_MODEL_PATCHED],
            converged=(distance <= 0.05) & (before.argmax(1) == after.argmax(1)),
        )


def numbers(*arrays: Tensor) -> list[np.ndarray]:
    return [array.numpy() for array in arrays]


@pytest.mark.parametrize("name", ["vanilla gradient", "Grad-CAM"])
def test_the_numbers_are_those_of_the_metric_classes(name):
    world = World()
    method = build_method(name)
    subjects = world.subjects()
    defined = world.defined(subjects)
    moved = random_regions(lambda rows: world.masks[rows], N, 0)
    found = collect(
        {name: method},
        subjects,
        lambda rows: world.masks[rows],
        elsewhere={OBJECT_MODEL: moved, SCENE_MODEL: moved},
        batch_size=5,
    )
    records = score_records(found, defined, threshold=THRESHOLD, seed=3)
    full, bare, patched, masks = numbers(world.full, world.bare, world.patched, world.masks)
    objects, scenes, plain = numbers(world.objects, world.scenes, world.plain)
    model, options = world.models, {"explain_func": method, "batch_size": 9}
    contrast = MCS(model["f_s"], scenes)
    dependence = IDR(bare)
    scores = {
        "MCS": contrast(model["f_o"], full, objects, s_batch=masks, **options),
        "IDR": dependence(model["f_s"], full, scenes, s_batch=masks, **options),
        "IIR": IIR(patched, threshold=THRESHOLD)(model["f_0"], bare, plain, s_batch=masks, **options),
        "perturbation": IIR(patched, average=True)(model["f_0"], bare, plain, s_batch=masks, **options),
    }
    everywhere = moved(list(range(N))).numpy()
    scores["MCS baseline"] = contrast(model["f_o"], full, objects, s_batch=everywhere, **options)
    assert [record.metric for record in records] == ["MCS", "MCS baseline", "IDR", "IIR", "perturbation"]
    for record in records:
        values = np.array(scores[record.metric])
        # Some images are wrong, and some are right, or nothing is tested.
        assert 0 < np.isnan(values).sum() < N - 5
        assert record.value == pytest.approx(np.nanmean(values), abs=1e-6), record.metric
        assert (record.n, record.undefined) == (int((~np.isnan(values)).sum()), int(np.isnan(values).sum()))
        assert (record.method, record.seed) == (name, 3)
        assert record.low <= record.value <= record.high
    inside = found[name].inside
    each = (inside[OBJECT_MODEL] - inside[SCENE_MODEL]).masked_fill(~defined.contrast, torch.nan)
    np.testing.assert_allclose(each, scores["MCS"], atol=1e-6)
    iir = find(records, metric="IIR")
    assert iir.unconverged == find(records, metric="perturbation").unconverged == int((~defined.converged).sum()) > 0
    assert find(records, metric="MCS").reference == find(records, metric="MCS baseline").value
    assert find(records, metric="IDR").reference == 0.5


def test_by_hand():
    g = {
        OBJECT_MODEL: [0.8, 0.6, 0.9],
        SCENE_MODEL: [0.2, 0.4, 0.1],
        SCENE_MODEL_BARE: [0.3, 0.4, 0.0],
        BARE_MODEL: [0.5, 0.0, 0.4, 1.0],
        BARE_MODEL_PATCHED: [0.52, 0.3, 0.2, 1.0],
    }
    inside = {name: torch.tensor(values).double() for name, values in g.items()}
    elsewhere = {name: inside[name] / 2 for name in (OBJECT_MODEL, SCENE_MODEL)}
    defined = Defined(
        contrast=torch.tensor([True, True, False]),
        dependence=torch.tensor([True, True, True]),
        independence=torch.tensor([True, True, True, False]),
        converged=torch.tensor([True, True, True, False]),
    )
    records = score_records({"m": Attributed(inside, elsewhere)}, defined, threshold=0.1, seed=0)
    found = {record.metric: record for record in records}
    assert found["MCS"].value == pytest.approx((0.6 + 0.2) / 2)
    assert found["MCS"].reference == found["MCS baseline"].value == pytest.approx(0.2)
    # Equal is no success.
    assert found["IDR"].value == pytest.approx(1 / 3)
    # 4 % of change, one without attribution, 50 %, and one that is left out.
    assert found["IIR"].value == 0.5
    assert found["perturbation"].value == pytest.approx((0.04 + 0.5) / 2)
    assert (found["IIR"].n, found["IIR"].undefined, found["IIR"].unconverged) == (2, 2, 1)


def test_a_method_without_numbers_has_records_without_numbers():
    nothing = {name: torch.full((4,), torch.nan).double() for name in World().subjects()}
    true = torch.ones(4, dtype=torch.bool)
    records = score_records(
        {"m": Attributed(nothing, nothing, {}, "why")}, Defined(true, true, true, true), threshold=0.1, seed=0
    )
    assert len(records) == 5
    for record in records:
        assert math.isnan(record.value)
        assert (record.n, record.undefined) == (0, 4)


def test_the_baseline_does_not_depend_on_the_batch():
    masks = World().masks
    moved = random_regions(lambda rows: masks[rows], N, 5)
    together = moved(list(range(N)))
    for rows in ([3], [7, 3, 0], list(range(10, 20))):
        assert torch.equal(moved(rows), together[rows])
    assert torch.equal(together.sum((1, 2, 3)), masks.sum((1, 2, 3)))
    assert (together != masks).any((1, 2, 3)).float().mean() > 0.8
    again, other = (random_regions(lambda rows: masks[rows], N, seed)(list(range(N))) for seed in (5, 6))
    assert torch.equal(again, together)
    assert not torch.equal(other, together)


def test_random_regions_touch_no_global_generator():
    before = torch.get_rng_state()
    masks = World().masks
    random_regions(lambda rows: masks[rows], N, 5)([0, 1])
    assert torch.equal(torch.get_rng_state(), before)
