"""Small networks, their training, and augmentation."""

from __future__ import annotations

import pytest
import torch

from quantus_concepts.datasets import PaintedBirds
from quantus_concepts.painted.images import KeptImages
from quantus_concepts.painted.networks import SmallResNet
from quantus_concepts.painted.training import (
    Augmentation,
    train,
    train_together,
)


@pytest.fixture(scope="module")
def birds() -> KeptImages:
    return KeptImages(PaintedBirds(96, image_size=32, n_classes=3, n_concepts=8, deviation=0.0))


def test_kept_images_are_those_of_the_data_set(birds):
    original = PaintedBirds(96, image_size=32, n_classes=3, n_concepts=8, deviation=0.0)
    assert birds.images.shape == (96, 3, 32, 32)
    assert birds.images.dtype == torch.uint8
    for index in (0, 95):
        in_memory, painted = birds[index], original[index]
        assert torch.equal(in_memory.image, painted.image)
        assert torch.equal(in_memory.concepts, painted.concepts)
        assert torch.equal(in_memory.points.nan_to_num(-1), painted.points.nan_to_num(-1))
        assert in_memory.label == painted.label


def test_maps_have_stride_8_and_are_averaged_before_the_last_layer():
    network = SmallResNet(5, channels=16).eval()
    images = torch.rand(2, 3, 96, 64, generator=torch.Generator().manual_seed(0))
    maps = network.features(images)
    assert maps.shape == (2, 16, 12, 8)
    assert torch.equal(network(images), network.classifier(maps.mean((2, 3))))


@pytest.mark.parametrize("bfloat16", [False, True])
def test_training_learns_classes_and_concepts(birds, bfloat16):
    predicted = {}
    for targets, n_outputs in ((birds.labels, 3), (birds.concept_labels, 8)):
        network = SmallResNet(n_outputs, channels=32)
        train(network, birds.images, targets, epochs=12, batch_size=16, bfloat16=bfloat16)
        assert all(weight.dtype == torch.float32 for weight in network.parameters())
        with torch.no_grad():
            predicted[n_outputs] = network(birds.images / 255)
        assert not network.training
        assert all(parameter.grad is None for parameter in network.parameters())
    # Chance is one third.
    assert (predicted[3].argmax(1) == birds.labels).float().mean() > 0.9
    right = ((predicted[8] > 0) == (birds.concept_labels > 0.5)).float().mean()
    always_absent = 1 - birds.concept_labels.mean()
    assert right > always_absent + 0.05


def test_the_same_seed_gives_the_same_network_and_the_global_generator_is_left_alone(birds):
    before = torch.random.get_rng_state()

    def weights(seed: int) -> torch.Tensor:
        network = SmallResNet(3, channels=8, seed=seed)
        train(network, birds.images[:32], birds.labels[:32], epochs=1, batch_size=16, seed=seed)
        return network.classifier.weight.detach()

    assert torch.equal(weights(1), weights(1))
    assert not torch.equal(weights(1), weights(2))
    assert torch.equal(torch.random.get_rng_state(), before)


def test_training_together_gives_what_training_alone_gives_and_puts_the_threads_back(birds):
    before = torch.get_num_threads()
    images, targets = birds.images[:32], (birds.labels[:32], birds.concept_labels[:32])
    alone = [SmallResNet(count, channels=8) for count in (3, 8)]
    together = [SmallResNet(count, channels=8) for count in (3, 8)]
    for network, target in zip(alone, targets, strict=True):
        train(network, images, target, epochs=2, seed=5)
    jobs = {str(i): job for i, job in enumerate(zip(together, targets, strict=True))}
    train_together(jobs, images, epochs=2, seed=5)
    assert torch.get_num_threads() == before
    for network, other in zip(alone, together, strict=True):
        # More threads add up in another order.
        assert torch.allclose(network.classifier.weight, other.classifier.weight, atol=1e-4)
        assert not other.training


def test_an_error_in_one_training_ends_the_others(birds):
    # Ten thousand epochs would take an hour.
    jobs = {"wrong": (SmallResNet(3, channels=8), birds.labels[:5]), "long": (SmallResNet(3, channels=8), birds.labels)}
    with pytest.raises(ValueError, match="`targets`"):
        train_together(jobs, birds.images, epochs=10_000)


def generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def numbered(n: int, height: int, width: int) -> torch.Tensor:
    return torch.arange(n * 3 * height * width, dtype=torch.float32).reshape(n, 3, height, width)


def test_every_image_is_itself_or_its_mirror_image():
    images = numbered(64, 4, 5)
    changed = Augmentation(flip=True, shift=0)(images, generator())
    mirrored = 0
    for image, result in zip(images, changed, strict=True):
        mirrored += torch.equal(result, image.flip(2))
        assert torch.equal(result, image) or torch.equal(result, image.flip(2))
    assert 16 < mirrored < 48


def test_shifts_repeat_the_border_and_reach_every_offset():
    images = numbered(400, 4, 5)
    changed = Augmentation(flip=False, shift=1)(images, generator())
    offsets = set()
    for image, result in zip(images, changed, strict=True):
        for down in (-1, 0, 1):
            for right in (-1, 0, 1):
                rows = (torch.arange(4) + down).clamp(0, 3)
                columns = (torch.arange(5) + right).clamp(0, 4)
                if torch.equal(result, image[:, rows][:, :, columns]):
                    offsets.add((down, right))
                    break
            else:
                continue
            break
        else:
            pytest.fail("no shift of the image")
    assert len(offsets) == 9
    augment = Augmentation(shift=2)
    assert torch.equal(augment(images, generator(1)), augment(images, generator(1)))
    assert not torch.equal(augment(images, generator(1)), augment(images, generator(2)))


@pytest.mark.parametrize("n_steps", [1, 2, 9])
def test_any_number_of_steps_is_a_schedule(birds, n_steps):
    network = SmallResNet(3, channels=8)
    start = network.classifier.weight.detach().clone()
    train(network, birds.images[: 2 * n_steps], birds.labels[: 2 * n_steps], epochs=1, batch_size=2)
    assert network.classifier.weight.isfinite().all()
    assert not torch.equal(network.classifier.weight, start)
    with pytest.raises(ValueError, match="length N = 2, as `images`, but got 3"):
        train(network, birds.images[:2], birds.labels[:3])
    with pytest.raises(ValueError, match="at least 2 images but got 1"):
        train(network, birds.images[:1], birds.labels[:1])
