"""Part specificity by hand, against loops, and on maps that do and do not know their part."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from quantus_concepts.datasets import PaintedBirds
from quantus_concepts.functional import interval, part_specificity
from quantus_concepts.functional.attribution import regions
from reference import part_specificity as reference
from refusals import refusals

NAN = float("nan")


def test_by_hand():
    # Own part hit, others 1/2 and 0; own part hidden; no other part visible; weights 1 and 3 of the others.
    hits = torch.tensor([[1, 0.5, 0], [1, NAN, 0], [0.5, NAN, NAN], [0, 1, 0.2]])
    own, elsewhere = part_specificity(hits, torch.tensor([0, 1, 0, 0]))
    difference = own - elsewhere
    np.testing.assert_allclose(elsewhere, [0.25, NAN, NAN, 0.6], atol=1e-7)
    np.testing.assert_allclose(difference, [0.75, NAN, NAN, -0.6], atol=1e-7)
    own, elsewhere = part_specificity(hits, torch.tensor([0, 1, 0, 0]), torch.tensor([9.0, 1, 3]))
    difference = own - elsewhere
    np.testing.assert_allclose(elsewhere, [0.125, NAN, NAN, 0.4], atol=1e-7)
    np.testing.assert_allclose(difference, [0.875, NAN, NAN, -0.4], atol=1e-7)


def test_agrees_with_the_reference():
    generator = torch.Generator().manual_seed(0)
    hits = torch.rand(60, 5, generator=generator)
    hits[torch.rand(60, 5, generator=generator) < 0.5] = NAN
    parts = torch.randint(5, (60,), generator=generator)
    weights = torch.tensor([1.0, 0, 2, 5, 3])
    found = part_specificity(hits, parts, weights)
    for ours, theirs in zip(
        (found.others, found.difference),
        reference.part_specificity(hits.tolist(), parts.tolist(), weights),
        strict=True,
    ):
        np.testing.assert_allclose(ours, np.array(theirs, dtype=float), atol=1e-6)


@pytest.fixture(scope="module")
def birds():
    return PaintedBirds(300, "test", image_size=64, n_classes=10)


def hits_of_parts(birds, maps):
    """Return (N, P), of one map (h, w) for each image."""
    return regions.pixel_hits(maps, regions.pixels_of(birds.points, (64, 64)), (64, 64), (1.0,))[..., 0]


def specificity(birds, hits, concepts):
    """Return (N,), of the concept that the map of each image is said to be of."""
    parts = birds.part_of_concept
    weights = torch.bincount(parts[parts >= 0], minlength=birds.points.shape[1]).float()
    return part_specificity(hits, parts[concepts], weights).difference.numpy()


def draw_concepts(birds, rng):
    eligible = torch.nonzero(birds.part_of_concept >= 0)[:, 0]
    return eligible[rng.integers(0, len(eligible), len(birds))]


def blobs(places, width=3.0, size=64):
    """Return Gaussians (N, size, size) at places (N, 2)."""
    y = torch.arange(size)[:, None]
    distance = (places[:, 0, None, None] - y.T) ** 2 + (places[:, 1, None, None] - y) ** 2
    return torch.exp(-distance.float() / (2 * width**2)).nan_to_num(0)


def test_a_map_at_its_part_beats_one_of_the_object(birds):
    concepts = draw_concepts(birds, np.random.default_rng(0))
    at_part = birds.points[torch.arange(len(birds)), birds.part_of_concept[concepts], 0]
    # Some of the nearest other parts lie in the region too.
    assert np.nanmean(specificity(birds, hits_of_parts(birds, blobs(at_part)), concepts)) > 0.7
    # All visible parts alike: every part is in the region as far as the own one.
    of_object = torch.stack([(blobs(birds.points[i, :, 0]).amax(0) > 0.6).float() for i in range(len(birds))])
    rows = specificity(birds, hits_of_parts(birds, of_object), concepts)
    np.testing.assert_allclose(rows[~np.isnan(rows)], 0, atol=1e-6)


@pytest.mark.parametrize("kind", ["centred Gaussian", "noise on the object", "noise"])
def test_maps_that_know_no_concept_have_a_difference_of_0_in_19_of_20_intervals(birds, kind):
    rng = np.random.default_rng(1)
    middle = torch.full((len(birds), 2), 31.5)
    noise = torch.tensor(rng.random((len(birds), 8, 8)), dtype=torch.float32)
    maps = {
        "centred Gaussian": blobs(middle, 12.0),
        "noise on the object": blobs(middle, 12.0) * torch.nn.functional.interpolate(noise[:, None], (64, 64))[:, 0],
        "noise": noise,
    }[kind]
    hits = hits_of_parts(birds, maps)
    covered = []
    for _ in range(200):
        scores = specificity(birds, hits, draw_concepts(birds, rng))
        low, high = interval(scores, bounds=(-1, 1))
        covered.append(low <= 0 <= high)
    # The bias of the weights, a few thousandths, is left; with equal weights 116 of 200 intervals hold 0.
    assert np.mean(covered) > 0.9


test_refused = refusals(
    (lambda: part_specificity(torch.ones(2, 3) * 2, torch.tensor([0, 1])), r"`hits` to lie in \[0, 1\]"),
    (lambda: part_specificity(torch.ones(2, 3), torch.tensor([0, 3])), r"`parts` to lie in \[0, 2\]"),
    (lambda: part_specificity(torch.ones(2, 3), [0, 1], -torch.ones(3)), r"`weights` to lie in \[0, inf\]"),
)
