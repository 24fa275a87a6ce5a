from __future__ import annotations

import pytest
import torch

from quantus_concepts.studies._models.training import Augmentation


def drawn(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def numbered(n: int, height: int, width: int) -> torch.Tensor:
    return torch.arange(n * 3 * height * width, dtype=torch.float32).reshape(n, 3, height, width)


def test_every_image_is_itself_or_its_mirror_image():
    images = numbered(64, 4, 5)
    changed = Augmentation(flip=True, shift=0)(images, drawn())
    mirrored = 0
    for image, result in zip(images, changed, strict=True):
        mirrored += torch.equal(result, image.flip(2))
        assert torch.equal(result, image) or torch.equal(result, image.flip(2))
    assert 16 < mirrored < 48


def test_shifts_repeat_the_border_and_reach_every_offset():
    images = numbered(400, 4, 5)
    changed = Augmentation(flip=False, shift=1)(images, drawn())
    found = set()
    for image, result in zip(images, changed, strict=True):
        for down in (-1, 0, 1):
            for right in (-1, 0, 1):
                rows = (torch.arange(4) + down).clamp(0, 3)
                columns = (torch.arange(5) + right).clamp(0, 4)
                if torch.equal(result, image[:, rows][:, :, columns]):
                    found.add((down, right))
                    break
            else:
                continue
            break
        else:
            pytest.fail("no shift of the image")
    assert len(found) == 9


def test_flip_and_shift_together_are_a_shift_of_the_mirror_image():
    images = numbered(50, 4, 5)
    changed = Augmentation(flip=True, shift=1)(images, drawn())
    # Rows are whole whatever the shift: a result's middle columns are three neighbours, forwards or backwards.
    steps = changed[:, 0, 1, 2] - changed[:, 0, 1, 1]
    assert set(steps.tolist()) <= {1.0, -1.0}
    assert len(set(steps.tolist())) == 2


def test_the_generator_alone_decides():
    images = numbered(8, 6, 6)
    augment = Augmentation(shift=2)
    assert torch.equal(augment(images, drawn(1)), augment(images, drawn(1)))
    assert not torch.equal(augment(images, drawn(1)), augment(images, drawn(2)))
    assert torch.equal(Augmentation(flip=False, shift=0)(images, drawn()), images)


def test_a_negative_shift_is_refused():
    with pytest.raises(ValueError, match=r"`shift` to lie in \[0"):
        Augmentation(shift=-1)
