"""Patches that a model does not see."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from quantus_concepts import Patch, optimise_patch
from reference import attribution as reference
from untouched import untouched

N, SIZE = 5, 8


class Mean(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x.mean((2, 3))


class Blind(nn.Module):
    """Sees nothing inside a region."""

    def __init__(self, model: nn.Module, region: Tensor) -> None:
        super().__init__()
        self.model, self.region = model, region

    def forward(self, x: Tensor) -> Tensor:
        return self.model(torch.where(self.region, 0.0, x))


@pytest.fixture
def generator():
    return torch.Generator().manual_seed(0)


@pytest.fixture
def net(generator):
    layers = nn.Sequential(nn.Conv2d(3, 4, 3), nn.Tanh(), Mean(), nn.Linear(4, 3)).double()
    with torch.no_grad():
        for parameter in layers.parameters():
            parameter.copy_(torch.randn(parameter.shape, generator=generator, dtype=torch.float64))
    return layers.eval()


@pytest.fixture
def images(generator):
    return torch.rand(N, 3, SIZE, SIZE, generator=generator, dtype=torch.float64)


@pytest.fixture
def objects(generator):
    return torch.rand(N, 3, SIZE, SIZE, generator=generator, dtype=torch.float64)


@pytest.fixture
def masks():
    masks = torch.zeros(N, 1, SIZE, SIZE, dtype=torch.bool)
    for i in range(N):
        masks[i, :, i // 2 : i // 2 + 4, 1:6] = True
    return masks


@pytest.mark.parametrize(
    "settings", [{}, {"step_size": 2000.0, "eta1": 0.05, "eta2": 0.2}, {"squared": True, "step_size": 5.0}]
)
def test_ten_steps_agree_with_the_reference(settings, net, images, masks, objects):
    result = optimise_patch(net, images, masks, objects, steps=10, early_stop=False, **settings)
    weights = (net[0].weight, net[0].bias, net[3].weight, net[3].bias)
    slow = reference.ConvNet(*(weight.detach().numpy() for weight in weights))
    for i in range(N):
        x, mask, init = (part[i].double().numpy() for part in (images * 255, masks, objects * 255))
        expected = reference.patched(slow, x, mask, init, **{"steps": 10, "step_size": 500.0, **settings})
        np.testing.assert_allclose(result.images[i] * 255, expected, atol=1e-6)
        before, after = slow.logits(x / 255), slow.logits(expected / 255)
        distance = np.linalg.norm(after - before)
        np.testing.assert_allclose(result.logit_distance[i], distance, atol=1e-9)
        np.testing.assert_allclose(result.relative_distance[i], distance / np.linalg.norm(before), atol=1e-9)
        np.testing.assert_allclose(result.patch_size[i], np.linalg.norm(expected - x), atol=1e-6)
    assert (result.patch_size > 100).all()


def test_one_step_by_hand():
    # f(x) = x_1 / 50 of two pixels; the mask is the first, x = (100, 7), the object (150, 9)
    model = nn.Sequential(nn.Flatten(), nn.Linear(2, 2, bias=False))
    model[1].weight.data = torch.tensor([[0.02, 0.0], [0.0, 0.0]])
    images, masks = torch.tensor([[[[100.0, 7.0]]]]), torch.tensor([[[[1, 0]]]])
    init = torch.tensor([[[[150.0, 9.0]]]])
    result = optimise_patch(model, images, masks, init, pixel_range=(0, 255), steps=1, step_size=100)
    # gradient 0.02 of the distance less 0.01 of the size: 50 - 100 * 0.01 = 49
    np.testing.assert_allclose(result.images, [[[[149.0, 7.0]]]], atol=1e-4)
    np.testing.assert_allclose(result.logit_distance, [0.98], atol=1e-5)
    np.testing.assert_allclose(result.relative_distance, [0.49], atol=1e-5)
    np.testing.assert_allclose(result.patch_size, [49.0], atol=1e-4)
    assert result.converged.tolist() == [False]
    looser = optimise_patch(model, images, masks, init, pixel_range=(0, 255), steps=1, step_size=100, tolerance=0.495)
    assert looser.converged.tolist() == [True]


def test_a_patch_does_not_stop_where_rounding_decides():
    # The distance is .9995 of the tolerance at the start: not yet less than what a patch may stop at.
    model = nn.Sequential(nn.Flatten(), nn.Linear(2, 2, bias=False))
    model[1].weight.data = torch.tensor([[0.02, 0.0], [0.0, 0.0]])
    images, masks = torch.tensor([[[[100.0, 7.0]]]]), torch.tensor([[[[1, 0]]]])
    for distance, stops in ((0.0495 * 0.9995, True), (0.05 * 0.9995, False)):
        init = torch.tensor([[[[100 * (1 + distance), 9.0]]]])
        result = optimise_patch(model, images, masks, init, pixel_range=(0, 255), steps=1, step_size=10)
        assert torch.allclose(result.images[0, 0, 0, 0], init[0, 0, 0, 0], rtol=0, atol=1e-3) == stops
        assert result.converged.all()


def test_a_patch_that_changes_the_class_has_not_converged():
    # logits (x_1, 100): the class is 1 for the image, 0 for the object, and only 2 % of the norm lie between them
    model = nn.Sequential(nn.Flatten(), nn.Linear(2, 2))
    model[1].weight.data, model[1].bias.data = torch.tensor([[1.0, 0.0], [0.0, 0.0]]), torch.tensor([0.0, 100.0])
    images, masks = torch.tensor([[[[99.0, 7.0]]]] * 2), torch.tensor([[[[1, 0]]]] * 2)
    init = torch.tensor([[[[102.0, 7.0]]], [[[96.0, 7.0]]]])
    result = optimise_patch(model, images, masks, init, pixel_range=(0, 255), steps=1, step_size=1e-9)
    assert (result.relative_distance < 0.05).all()
    assert result.converged.tolist() == [False, True]


def test_outside_the_masks_to_the_bit(net, images, masks, objects):
    images, net = images.float(), net.float()
    result = optimise_patch(net, images, masks, objects, steps=3)
    outside = ~masks.expand_as(images)
    assert torch.equal(result.images[outside], images[outside])
    assert (result.images[~outside] != images[~outside]).float().mean() > 0.9
    patch = Patch((objects - 0.4) / 0.3, mean=(0.4,) * 3, std=(0.3,) * 3, steps=3)
    normalised = (images - 0.4) / 0.3
    assert torch.equal(patch.make(net, normalised, masks).images[outside], normalised[outside])


@pytest.mark.parametrize("pixel_range", [(0.0, 255.0), (-1.0, 1.0)])
def test_the_step_is_of_0_to_255_for_every_range(pixel_range, net, images, masks, objects):
    expected = optimise_patch(net, images, masks, objects, steps=10)
    low, width = pixel_range[0], pixel_range[1] - pixel_range[0]

    def in_range(x):
        return low + x * width

    undone = {"pixel_range": pixel_range, "preprocess": lambda pixels: (pixels - low) / width}
    result = optimise_patch(net, in_range(images), masks, in_range(objects), **undone, steps=10)
    np.testing.assert_allclose(result.images, in_range(expected.images), atol=1e-10 * width)
    for tensor, expected_tensor in zip(result[1:], expected[1:], strict=True):
        np.testing.assert_allclose(tensor, expected_tensor, atol=1e-9)


def test_normalised_images_get_the_same_patch(net, images, masks, objects):
    mean, std = torch.tensor([0.4, 0.5, 0.3]).double(), torch.tensor([0.2, 0.3, 0.25]).double()

    def normalise(x):
        return (x - mean[:, None, None]) / std[:, None, None]

    expected = optimise_patch(net, images, masks, objects, preprocess=normalise, steps=10)
    patch = Patch(normalise(objects), mean=mean.tolist(), std=std.tolist(), steps=10)
    result = patch.make(net, normalise(images), masks)
    np.testing.assert_allclose(result.images, normalise(expected.images), atol=1e-9)
    np.testing.assert_allclose(result.patch_size, expected.patch_size, atol=1e-8)
    # the model without its normalisation makes another patch
    assert not np.allclose(optimise_patch(net, images, masks, objects, steps=10).images, expected.images, atol=1e-3)
    for_all = Patch(normalise(objects)[0], mean=mean, std=std, steps=10).make(net, normalise(images), masks)
    np.testing.assert_allclose(for_all.images[0], result.images[0], atol=1e-9)


class TestControls:
    def test_a_model_blind_to_the_region_is_not_disturbed(self, net, images, masks, objects):
        blind = Blind(net, masks[0])
        same = masks[:1].expand(N, -1, -1, -1)
        result = optimise_patch(blind, images, same, objects, steps=10, early_stop=False)
        assert not result.logit_distance.any()
        assert result.converged.all()
        # it stays the object, and more of it
        start = optimise_patch(blind, images, same, objects, steps=1, step_size=1e-9)
        assert (result.patch_size > start.patch_size).all()
        alignment = ((result.images - images) * (objects - images) * same).flatten(1).sum(1)
        length = torch.linalg.vector_norm(((objects - images) * same).flatten(1), dim=1)
        assert (alignment / length / (result.patch_size / 255) > 0.95).all()

    def test_a_linear_model_is_deceived(self, images, masks, generator):
        model = nn.Sequential(nn.Flatten(), nn.Linear(3 * SIZE * SIZE, 3)).double()
        with torch.no_grad():
            model[1].weight.copy_(0.05 * torch.randn(3, 3 * SIZE * SIZE, generator=generator))
            model[1].bias.copy_(torch.tensor([6.0, 2.0, -2.0]))
        objects = 0.25 + 0.5 * torch.rand(N, 3, SIZE, SIZE, generator=generator, dtype=torch.float64)
        start = optimise_patch(model, images, masks, objects, steps=1, step_size=1e-9, tolerance=5e-3)
        assert not start.converged.any()
        result = optimise_patch(model, images, masks, objects, eta1=1e-4, tolerance=5e-3, early_stop=False)
        assert result.converged.all()
        assert (result.logit_distance < 0.1 * start.logit_distance).all()
        # it is still most of the object
        assert (result.patch_size > 0.5 * start.patch_size).all()


@pytest.mark.parametrize("context", [torch.no_grad, torch.inference_mode])
def test_nothing_is_changed(context, net, images, masks, objects):
    model = nn.Sequential(nn.BatchNorm2d(3), net, nn.Dropout(0.5)).double()
    expected = optimise_patch(model.eval(), images, masks, objects, steps=3)
    model.train()
    model[1].eval()
    model[1][0].weight.requires_grad_(False)
    patch = Patch((objects - 0.5) / 0.5, mean=(0.5,) * 3, std=(0.5,) * 3, steps=3)
    with untouched(model, images, objects, masks), context():
        result = optimise_patch(model, images, masks, objects, steps=3)
        patch.make(model, (images.numpy() - 0.5) / 0.5, masks.numpy())
    assert torch.equal(result.images, expected.images)
    assert not any(part.requires_grad for part in result)


def test_masks_without_a_channel_and_one_object(net, images, masks, objects):
    expected = optimise_patch(net, images, masks, objects[:1].expand(N, -1, -1, -1), steps=3)
    result = optimise_patch(net, images.numpy(), masks[:, 0].numpy().astype(float), objects[0].numpy(), steps=3)
    assert torch.equal(result.images, expected.images)


def test_a_patch_that_diverges_is_finite_and_has_not_converged(net, images, masks, objects):
    net[1] = nn.Identity()
    result = optimise_patch(net, images, masks, objects, steps=200, step_size=1e4, squared=True, early_stop=False)
    assert result.images.isfinite().all()
    assert not result.converged.any()
    # Pixels end in their range.
    assert result.images.min() >= 0
    assert result.images.max() <= 1


class TestEarlyStop:
    """A patch leaves its batch as soon as it has converged."""

    @staticmethod
    def model() -> nn.Module:
        # f(x) = (x_1 / 50, 10): logits differ by (x_1 - 100) / 50, of a norm of |(2, 10)| = 10.198
        model = nn.Sequential(nn.Flatten(), nn.Linear(2, 2)).double()
        model[1].weight.data = torch.tensor([[0.02, 0.0], [0.0, 0.0]]).double()
        model[1].bias.data = torch.tensor([0.0, 10.0]).double()
        return model

    def test_by_hand(self):
        # 5 % of the norm is .5099, that is 25.5 levels; each step takes 100 * (.02 - .01) = 1 of them
        images, masks = torch.tensor([[[[100.0, 7.0]]]]).double(), torch.tensor([[[[1, 0]]]])
        init = torch.tensor([[[[150.0, 9.0]]]]).double()
        settings = {"pixel_range": (0, 255), "steps": 30, "step_size": 100}
        result = optimise_patch(self.model(), images, masks, init, **settings)
        np.testing.assert_allclose(result.images, [[[[125.0, 7.0]]]], atol=1e-9)
        np.testing.assert_allclose(result.relative_distance, [0.5 / 104**0.5], atol=1e-12)
        assert result.converged.all()
        further = optimise_patch(self.model(), images, masks, init, **settings, early_stop=False)
        np.testing.assert_allclose(further.images, [[[[120.0, 7.0]]]], atol=1e-9)

    def test_what_cannot_be_shown_has_not_converged(self):
        # Out of range both logits cancel each other; the pixel that is shown, 255, is seen.
        class Peak(nn.Module):
            def __init__(self):
                super().__init__()
                self.weight = nn.Parameter(torch.tensor(1.0))

            def forward(self, x):
                pixel = x[:, 0, 0, :1]
                return torch.cat([self.weight * ((pixel > 200) & (pixel < 256)) + 0 * pixel, 0 * pixel + 10], 1)

        images, masks = torch.tensor([[[[100.0, 7.0]]]]), torch.tensor([[[[1, 0]]]])
        init = torch.tensor([[[[255.0, 9.0]]]])
        # the weight of the size alone drives it: 300 after the first step
        result = optimise_patch(
            Peak(), images, masks, init, pixel_range=(0, 255), steps=3, step_size=4500, eta2=0.0, tolerance=0.05
        )
        assert result.images[0, 0, 0, 0] == 255
        assert not result.converged.any()

    def test_alone_or_with_others(self, net, images, masks, objects):
        settings = {"steps": 100, "step_size": 200.0, "tolerance": 0.02}
        together = optimise_patch(net, images, masks, objects, **settings)
        full = optimise_patch(net, images, masks, objects, **settings, early_stop=False)
        # they leave at different steps, or nothing is shown
        assert together.converged.any()
        assert not torch.equal(together.images[together.converged], full.images[together.converged])
        for rows, chunk_size in (([3], None), ([3, 0, 1, 2, 4], 2)):
            some = optimise_patch(net, images[rows], masks[rows], objects[rows], **settings, chunk_size=chunk_size)
            for alone, other in zip(some, together, strict=True):
                np.testing.assert_allclose(alone[0], other[3], atol=1e-10)

    def test_the_run_ends_when_all_have(self):
        batch_sizes = []
        model = self.model()
        model.register_forward_hook(lambda module, inputs, output: batch_sizes.append(len(output)))
        images = torch.tensor([[[[100.0, 7.0]]]] * 2).double()
        init = torch.tensor([[[[130.0, 7.0]]], [[[128.0, 7.0]]]]).double()
        masks = torch.tensor([[[[1, 0]]]] * 2)
        optimise_patch(model, images, masks, init, pixel_range=(0, 255), steps=300, step_size=100)
        # The images; then steps, each patch once more, clipped, where it may be done; the result.
        assert batch_sizes == [2, 2, 2, 2, 2, 1, 1, 1, 1, 2, 2]


PHOTOGRAPHS = np.random.default_rng(0).random((2, 3, SIZE, SIZE))
REFUSED = {
    "a mean without a deviation": (lambda net: Patch(PHOTOGRAPHS[0], mean=[0.5] * 3), "`mean` and `std` together"),
    "a deviation that is none": (lambda net: Patch(PHOTOGRAPHS[0], mean=[0.0], std=[-1.0]), "`std`"),
    "squared norms without a step": (lambda net: Patch(PHOTOGRAPHS[0], squared=True), "`step_size` with squared=True"),
    "an object that is not finite": (lambda net: Patch(PHOTOGRAPHS[0] * np.nan), "`init`"),
    "normalised images": (
        lambda net: Patch(PHOTOGRAPHS[0]).objects(PHOTOGRAPHS * 4 - 2),
        r"`x_batch` to lie in the pixel range \[0, 1\].* `mean` and `std`",
    ),
    "images of 0 to 1 said to be of 0 to 255": (
        lambda net: Patch(PHOTOGRAPHS[0], pixel_range=(0, 255)).objects(PHOTOGRAPHS),
        r"`x_batch` to use the pixel range \[0, 255\]",
    ),
    "nowhere to patch": (
        lambda net: optimise_patch(net, PHOTOGRAPHS, np.eye(SIZE)[None] * [[[1]], [[0]]], PHOTOGRAPHS),
        r"`masks` to say where each patch goes but it is empty for image 1",
    ),
}


@pytest.mark.parametrize(("call", "message"), REFUSED.values(), ids=REFUSED)
def test_refused(call, message, net, images, masks):
    with pytest.raises(ValueError, match=message):
        call(net)
    # Whole numbers may be nearly black photographs of 0 to 255.
    dark = (images > 0.99).double()
    optimise_patch(net, dark, masks, dark, pixel_range=(0, 255), steps=1)
