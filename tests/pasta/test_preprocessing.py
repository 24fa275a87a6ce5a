import numpy as np
import pytest
import torch
from open_clip.transform import PreprocessCfg, image_transform, image_transform_v2
from PIL import Image
from torchvision.transforms import CenterCrop, Compose, Normalize, Resize, ToTensor

from quantus_concepts.pasta.encoders import overlay, preprocessing
from quantus_concepts.pasta.encoders.preprocessing import Preprocessing, batched_form


def picture(height, width, seed=0):
    """Return noise, flat areas and hard edges: the hardest case for an interpolation that overshoots."""
    rng = np.random.default_rng(seed)
    levels = rng.integers(0, 256, (height, width, 3)).astype(np.uint8)
    levels[: height // 2, : width // 2] = 255 * (rng.random((height // 2, width // 2, 1)) > 0.5)
    levels[height // 2 :, width // 2 :] = 7
    return levels


def batch(levels):
    return torch.from_numpy(levels).permute(2, 0, 1)[None].float() / 255


PILLOWS_RESIZE = Image.Image.resize


def x_before_y(image, size, *args, **kwargs):
    """Pillow of any version in the order of the old ones: a step along one axis has no order."""
    wide = PILLOWS_RESIZE(image, (size[0], image.height), *args, **kwargs)
    return PILLOWS_RESIZE(wide, size, *args, **kwargs)


@pytest.mark.parametrize(
    ("size", "mode", "interpolation", "shape"),
    [
        (96, "squash", "bicubic", (64, 64)),
        (64, "shortest", "bicubic", (100, 61)),
        (48, "squash", "bilinear", (57, 90)),
        ((40, 56), "squash", "bicubic", (100, 61)),
        (224, "shortest", "bilinear", (57, 90)),
    ],
)
@pytest.mark.parametrize("kernel", ["bytes", "floats"])
def test_agrees_with_open_clip_and_pillow(size, mode, interpolation, shape, kernel, monkeypatch):
    config = PreprocessCfg(size=size, interpolation=interpolation, resize_mode=mode)
    reference = image_transform_v2(config, is_train=False)
    sides = (size, size) if isinstance(size, int) else size
    ours = Preprocessing(sides, mode, interpolation)
    if kernel == "floats":
        # As on an accelerator.
        monkeypatch.setattr(preprocessing, "resized_levels", overlay._two_passes)
    if shape != (64, 64) or not isinstance(size, int):
        monkeypatch.setattr(Image.Image, "resize", x_before_y)
    levels = picture(*shape)
    prepared, expected = ours(batch(levels))[0], reference(Image.fromarray(levels))
    assert prepared.shape == expected.shape
    std = torch.tensor(config.std)[:, None, None]
    difference = ((prepared - expected) * std * 255).abs().round()
    assert difference.max() <= 2
    assert (difference == 0).float().mean() > 0.9


def test_of_the_encoders_size_nothing_is_lost():
    levels = picture(32, 32)
    prepared = Preprocessing((32, 32), mean=(0.0, 0.0, 0.0), std=(1.0, 1.0, 1.0))(batch(levels))
    np.testing.assert_allclose(prepared[0].permute(1, 2, 0) * 255, levels, atol=1e-4)


def test_each_image_by_itself():
    images = torch.cat([batch(picture(50, 40, seed)) for seed in range(3)])
    ours = Preprocessing((32, 32))
    assert torch.equal(ours(images), torch.cat([ours(images[i : i + 1]) for i in range(3)]))


@pytest.mark.parametrize(("mode", "size"), [("squash", (64, 64)), ("squash", (40, 56)), ("shortest", (64, 64))])
def test_open_clips_own_are_recognised(mode, size):
    sides = size[0] if mode == "shortest" else size
    transform = image_transform(sides, is_train=False, mean=(0.1, 0.2, 0.3), std=(0.4, 0.5, 0.6), resize_mode=mode)
    assert batched_form(transform) == Preprocessing(size, mode, "bicubic", (0.1, 0.2, 0.3), (0.4, 0.5, 0.6))


def test_others_are_not_taken_for_open_clips():
    normalise = Normalize((0.5,) * 3, (0.5,) * 3)
    assert batched_form(lambda image: image) is None
    assert batched_form(Compose([Resize(32), CenterCrop(24), ToTensor(), normalise])) is None
    assert batched_form(Compose([Resize(32), ToTensor(), normalise])) is None
    assert batched_form(Compose([Resize((32, 32), interpolation=0), ToTensor(), normalise])) is None
