"""The twelve perturbations: torchvision's where they are, unchanged at 0, seeded, and never outside [0, 1]."""

from __future__ import annotations

import random

import numpy as np
import pytest
import torch
from torch import Tensor
from torchvision.transforms import v2

from quantus_concepts.pasta.perturbations import PERTURBATIONS, Perturbation, as_perturbations, perturb

F = v2.functional
NAMES = tuple(PERTURBATIONS)
SEEDED = tuple(name for name, each in PERTURBATIONS.items() if each.n_draws)


@pytest.fixture
def images() -> Tensor:
    """Return images with structure, for noise blurs to grey, of uneven size."""
    generator = torch.Generator().manual_seed(0)
    coarse = torch.rand(6, 3, 5, 6, generator=generator)
    fine = torch.nn.functional.interpolate(coarse, (30, 41), mode="bilinear").clamp(0, 1)
    fine[:, :, 0, 0] = 1
    fine[:, :, 1, 1] = 0
    return fine


def test_there_are_the_twelve_of_the_paper():
    assert len(NAMES) == 12
    assert set(SEEDED) == {
        "brightness jitter",
        "contrast jitter",
        "random resized crop",
        "perspective",
        "random patches",
    }
    assert all(each.name == name and 0 < each.light < each.strong <= 1 for name, each in PERTURBATIONS.items())


@pytest.mark.parametrize("name", NAMES)
def test_changes_nothing_at_0_and_more_the_larger_the_magnitude(images, name):
    before = images.clone()
    same = perturb(images, name, 0)
    assert torch.equal(same, images)
    assert same.data_ptr() != images.data_ptr()
    change = []
    for magnitude in (1e-3, 0.3, 1):
        changed = perturb(images, name, magnitude)
        assert changed.shape == images.shape
        assert changed.dtype == images.dtype
        assert changed.min() >= 0
        assert changed.max() <= 1
        change.append(float((changed - images).abs().mean()))
    assert torch.equal(images, before)
    assert 0 <= change[0] < change[1] < change[2]
    # A little is little, but for what counts in whole bits and patches.
    assert change[0] < (0.02 if name in ("posterise", "random patches") else 0.005)
    assert change[2] > 0.02


@pytest.mark.parametrize("name", NAMES)
def test_depends_on_the_seed_and_the_place_of_an_image_alone(images, name):
    changed = perturb(images, name, 0.6, seed=3)
    assert torch.equal(changed, perturb(images, name, 0.6, seed=3))
    torch.testing.assert_close(perturb(images[:2], name, 0.6, seed=3), changed[:2])
    other = perturb(images, name, 0.6, seed=4)
    assert torch.equal(other, changed) == (name not in SEEDED)
    perturbation = PERTURBATIONS[name]
    draws = perturbation.draws(6, 3)
    part = perturbation(images[[5, 2]], 0.6, draws=draws[[5, 2]])
    torch.testing.assert_close(part, changed[[5, 2]])
    # Images of one batch are changed each in its own way.
    twins = images[:1].repeat(6, 1, 1, 1)
    assert bool((perturb(twins, name, 0.6)[1:] != perturb(twins, name, 0.6)[:1]).any()) == (name in SEEDED)


def test_perturbations_do_not_share_their_draws():
    first, second = (PERTURBATIONS[name].draws(50)[:, 0] for name in ("brightness jitter", "contrast jitter"))
    assert abs(np.corrcoef(first, second)[0, 1]) < 0.4


@pytest.mark.parametrize("name", NAMES)
def test_no_global_generator_is_touched(images, name):
    states = torch.get_rng_state(), np.random.get_state()[1].copy(), random.getstate()  # noqa: NPY002
    perturb(images.requires_grad_(), name, 0.7)
    assert images.grad is None
    assert torch.equal(states[0], torch.get_rng_state())
    assert (states[1] == np.random.get_state()[1]).all()  # noqa: NPY002
    assert states[2] == random.getstate()


@pytest.mark.parametrize("name", NAMES)
def test_in_double_precision_too(images, name):
    torch.testing.assert_close(
        perturb(images.double(), name, 0.5).float(), perturb(images, name, 0.5), atol=1e-4, rtol=0
    )
    assert perturb(images.double(), name, 0.5).dtype == torch.float64


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("brightness", lambda x: F.adjust_brightness(x, 0.55)),
        ("colour", lambda x: F.adjust_saturation(x, 3.0)),
        ("contrast", lambda x: F.adjust_contrast(x, 3.0)),
        ("sharpness", lambda x: F.adjust_sharpness(x, 10.5)),
        ("posterise", lambda x: F.posterize(x, 4)),
        ("solarise", lambda x: F.solarize(x, 0.5)),
        ("Gaussian blur", lambda x: F.gaussian_blur(x, [7, 7], [0.75, 0.75])),
    ],
)
def test_are_torchvisions(images, name, expected):
    torch.testing.assert_close(perturb(images, name, 0.5), expected(images), atol=1e-6, rtol=0)


def test_jitter_is_torchvisions_with_a_factor_for_each_image(images):
    for name, function in (("brightness jitter", F.adjust_brightness), ("contrast jitter", F.adjust_contrast)):
        draws = PERTURBATIONS[name].draws(6, 7)[:, 0].tolist()
        expected = [function(image[None], 1 - 0.9 * 0.8 * u) for image, u in zip(images, draws, strict=True)]
        torch.testing.assert_close(perturb(images, name, 0.8, seed=7), torch.cat(expected), atol=1e-6, rtol=0)


def test_crop_and_perspective_by_hand():
    image = torch.arange(16.0).view(1, 1, 4, 4).repeat(1, 3, 1, 1) / 15
    crop = PERTURBATIONS["random resized crop"]
    # A quarter of each side is one pixel, which fills the image: the last row, the second column.
    found = crop(image, 1.0, draws=torch.tensor([[0.999999, 0.3]]).double())
    assert torch.equal(found, torch.full_like(image, 13 / 15))
    perspective = PERTURBATIONS["perspective"]
    assert torch.allclose(perspective(image, 1.0, draws=torch.zeros(1, 8).double()), image, atol=1e-5)
    # All corners drawn in by the same share: the image shrinks to its middle, and its surroundings are black.
    shrunk = perspective(torch.ones(1, 3, 41, 41), 1.0, draws=torch.full((1, 8), 0.5).double())[0, 0]
    assert torch.allclose(shrunk[8:32, 8:32], torch.ones(24, 24), atol=1e-3)
    # torchvision's corners are half a pixel off the centres, so that one line more is seen in part.
    surroundings = shrunk.clone()
    surroundings[8:33, 8:33] = 0
    assert surroundings.abs().max() == 0


def test_patches_by_hand():
    patches = PERTURBATIONS["random patches"]
    draws = torch.zeros(1, 50).double()
    draws[0, :4] = torch.tensor([0, 0, 0.9999, 0.5])
    # The sides are 0.15 of 20 pixels. Two twenty-fifths are two patches: at the top left, at the bottom in the middle.
    changed = patches(torch.ones(1, 3, 20, 21), 0.08, draws=draws)[0]
    expected = torch.ones(3, 20, 21)
    expected[:, :3, :3] = 0
    expected[:, 17:, 9:12] = 0
    assert torch.equal(changed, expected)
    one = patches(torch.ones(50, 3, 20, 20), 0.04)
    assert ((one == 0).sum((1, 2, 3)) == 3 * 9).all()


@pytest.mark.parametrize("name", NAMES)
def test_of_the_smallest_and_of_no_images(name):
    tiny = torch.rand(3, 3, 2, 3, generator=torch.Generator().manual_seed(0))
    assert perturb(tiny, name, 1.0).shape == tiny.shape
    assert perturb(torch.zeros(0, 3, 8, 8), name, 1.0).shape == (0, 3, 8, 8)


def test_bad_input(images):
    with pytest.raises(ValueError, match="Did you mean 'solarise'"):
        perturb(images, "solarize", 0.5)
    with pytest.raises(ValueError, match=r"`magnitude` to lie in \[0, 1\] but got 1.1"):
        perturb(images, "contrast", 1.1)
    with pytest.raises(ValueError, match=r"`images` to hold images in \[0, 1\] but got values from -2 .*Undo"):
        perturb(images * 4 - 2, "contrast", 0.5)
    with pytest.raises(ValueError, match=r"`images` to hold images"):
        perturb(images * torch.nan, "contrast", 0.5)
    with pytest.raises(ValueError, match=r"`images` to have shape \(N, 3, H, W\)"):
        perturb(images[:, :1], "contrast", 0.5)
    with pytest.raises(TypeError, match="`images` to be of a floating-point dtype"):
        perturb((255 * images).byte(), "contrast", 0.5)
    with pytest.raises(ValueError, match="`seed` to be at least 0"):
        perturb(images, "contrast", 0.5, seed=-1)
    with pytest.raises(ValueError, match=r"`draws` to have shape \(N, n_draws\) = \(6, 1\)"):
        PERTURBATIONS["contrast jitter"](images, 0.5, draws=torch.zeros(6, 2))
    with pytest.raises(ValueError, match=r"`light` to lie in \[0, 1\]"):
        Perturbation("own", lambda x, m, d: x, "nothing", 2, 3)


def test_chosen_by_name_or_as_they_are():
    own = Perturbation("own", lambda x, m, d: 1 - x, "inverts", 0.1, 1)
    assert as_perturbations(["contrast", own]) == (PERTURBATIONS["contrast"], own)
    assert len(as_perturbations()) == 12
    with pytest.raises(TypeError, match=r"\['contrast'\] is a list"):
        as_perturbations("contrast")
    with pytest.raises(ValueError, match="each once"):
        as_perturbations(["contrast", "contrast"])
    with pytest.raises(ValueError, match="at least one"):
        as_perturbations([])
    with pytest.raises(TypeError, match="names or Perturbation but got int"):
        as_perturbations([3])
