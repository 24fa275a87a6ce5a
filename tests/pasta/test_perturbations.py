"""The twelve perturbations: the release's magnitudes, torchvision's transforms, seeded, and never outside [0, 1]."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import Tensor
from torchvision.transforms import v2

from quantus_concepts.pasta.applications.perturbations import PERTURBATIONS, perturb

F = v2.functional
NAMES = tuple(PERTURBATIONS)


@pytest.fixture
def images() -> Tensor:
    generator = torch.Generator().manual_seed(0)
    coarse = torch.rand(6, 3, 5, 6, generator=generator)
    fine = torch.nn.functional.interpolate(coarse, (30, 41), mode="bilinear").clamp(0, 1)
    fine[:, :, 0, 0] = 1
    fine[:, :, 1, 1] = 0
    return fine


@pytest.mark.parametrize("name", NAMES)
def test_changes_more_the_larger_the_magnitude(images, name):
    unchanged = perturb(images, name, 0)
    if name == "posterise":
        # As in the release 7 bits are left at 0: the last one is gone.
        assert torch.equal((unchanged * 255).round(), (images * 255).round() // 2 * 2)
    elif name != "random resized crop":
        # A perspective of no corner is resampled all the same.
        torch.testing.assert_close(unchanged, images, atol=2e-5, rtol=0)
    changed = [perturb(images, name, magnitude) for magnitude in (1, 2.5, 5)]
    assert all(((batch >= 0) & (batch <= 1)).all() for batch in changed)
    differences = [float((batch - images).abs().mean()) for batch in changed]
    assert 0 < differences[0] < differences[1] <= differences[2] > 0.015


@pytest.mark.parametrize("name", NAMES)
def test_depends_on_the_seed_and_the_place_of_an_image_alone(images, name):
    seeded = bool(PERTURBATIONS[name].n_draws)
    state = torch.get_rng_state()
    changed = perturb(images, name, 1.6, seed=3)
    assert torch.equal(state, torch.get_rng_state())
    torch.testing.assert_close(perturb(images[:2], name, 1.6, seed=3), changed[:2])
    assert torch.equal(perturb(images, name, 1.6, seed=4), changed) != seeded
    draws = PERTURBATIONS[name].draws(6, 3)
    part = PERTURBATIONS[name](images[[5, 2]], 1.6, draws=draws[[5, 2]])
    torch.testing.assert_close(part, changed[[5, 2]])
    # Images of one batch are changed each in its own way.
    twins = perturb(images[:1].repeat(6, 1, 1, 1), name, 1.6)
    assert bool((twins[1:] != twins[:1]).any()) == seeded


def test_perturbations_do_not_share_their_draws():
    first, second = (PERTURBATIONS[name].draws(50)[:, 0] for name in ("brightness jitter", "contrast jitter"))
    assert abs(np.corrcoef(first, second)[0, 1]) < 0.4


def levels(images):
    """As the release has images: Pillow's, of 8 bits."""
    return [F.to_pil_image(image) for image in (images * 255).round().to(torch.uint8)]


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("brightness", lambda x: F.adjust_brightness(x, 2.25)),
        ("colour", lambda x: F.adjust_saturation(x, 6.0)),
        ("contrast", lambda x: F.adjust_contrast(x, 3.5)),
        ("sharpness", lambda x: F.adjust_sharpness(x, 13.5)),
        # 8 - 3.5 = 4.5 bits are 4.
        ("posterise", lambda x: F.posterize(x, 4)),
        ("solarise", lambda x: F.solarize(x, 243.5)),
        ("Gaussian blur", lambda x: F.gaussian_blur(x, [15, 15], [5.00002, 5.00002])),
    ],
)
def test_magnitudes_are_those_of_the_release(images, name, expected):
    ours = perturb(images, name, 2.5)
    theirs = torch.stack([F.pil_to_tensor(expected(picture)) for picture in levels(images)]) / 255
    # Half a level of rounding before, times the factor, and one after; sharpness and contrast round a mean besides.
    assert (ours - theirs).abs().mean() * 255 < 2.5
    assert name not in ("posterise", "solarise") or (ours - theirs).abs().max() * 255 <= 0.51


def test_jitter_is_torchvisions_with_a_factor_for_each_image(images):
    # tanh(0.5 * 1.5) = 0.635149.
    for name, function in (("brightness jitter", F.adjust_brightness), ("contrast jitter", F.adjust_contrast)):
        draws = PERTURBATIONS[name].draws(6, 7)[:, 0].tolist()
        factors = [1 - 0.635149 + 2 * 0.635149 * u for u in draws]
        expected = [function(image[None], factor) for image, factor in zip(images, factors, strict=True)]
        torch.testing.assert_close(perturb(images, name, 1.5, seed=7), torch.cat(expected), atol=2e-6, rtol=0)


def test_crop_and_perspective_by_hand():
    image = torch.arange(64.0).view(1, 1, 8, 8).repeat(1, 3, 1, 1) / 63
    crop = PERTURBATIONS["random resized crop"]
    draws = torch.full((1, 12), 0.5).double()
    draws[0, 10:] = torch.tensor([0.999999, 0.2])
    # 1 - tanh(0.3 m) = 1/4 of the area at m = 3.243252: 4 of 8 pixels of each side, the last rows, from column 1.
    cropped = crop(image, 3.2432517, draws=draws)
    expected = F.resized_crop(image, 4, 1, 4, 4, [8, 8], antialias=True)
    torch.testing.assert_close(cropped, expected, atol=1e-6, rtol=0)
    # A window that does not fit is drawn again; at 0 only the square fits, which is the image.
    draws[0, :9] = 0.9
    torch.testing.assert_close(crop(image, 0.0, draws=draws), image, atol=1e-6, rtol=0)
    perspective = PERTURBATIONS["perspective"]
    assert torch.allclose(perspective(image, 1.0, draws=torch.zeros(1, 8).double()), image, atol=1e-5)
    # Half of half a side, 10 of 41 pixels: all corners drawn in by 5 of these 10.
    shrunk = perspective(torch.ones(1, 3, 41, 41), 1.0, draws=torch.full((1, 8), 0.5).double())[0, 0]
    assert torch.allclose(shrunk[6:34, 6:34], torch.ones(28, 28), atol=1e-3)
    surroundings = shrunk.clone()
    surroundings[4:37, 4:37] = 0
    assert surroundings.abs().max() == 0


def test_patches_by_hand():
    patches = PERTURBATIONS["random patches"]
    draws = torch.zeros(1, 128).double()
    # Rows from 2 of 20 to 2 + 18/2, columns from 0 to 0; then the outermost corner, just outside, and a pixel.
    draws[0, :12] = torch.tensor([0.1, 0.5, 0, 0, 0.9999, 0, 0.9999, 0, 0.5, 0, 0.5, 0])
    changed = patches(torch.ones(1, 3, 20, 21), 3.9, draws=draws)[0]
    expected = torch.ones(3, 20, 21)
    expected[:, 2:12, 0] = 0
    expected[:, 10, 11] = 0
    assert torch.equal(changed, expected)
    # Below 1 there is none.
    assert torch.equal(patches(torch.ones(2, 3, 4, 4), 0.99), torch.ones(2, 3, 4, 4))


def test_bad_arguments(images):
    with pytest.raises(ValueError, match=r"`magnitude` to lie in"):
        perturb(images, "brightness", -1)
    with pytest.raises(ValueError, match=r"`images` to hold images in \[0, 1\]"):
        perturb(2 + images, "brightness", 1.0)
