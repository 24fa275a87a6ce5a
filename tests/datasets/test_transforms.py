"""Points stay on what they point at, whatever the transform."""

import pytest
import torch
from torch import nn
from torchvision import transforms as v1
from torchvision import tv_tensors
from torchvision.transforms import v2

from quantus_concepts.datasets.transforms import PartPoints, apply_transform, default_transform

BILINEAR = v2.InterpolationMode.BILINEAR


def _dot(x, y, height, width, spread=1.5):
    rows, columns = torch.meshgrid(torch.arange(height), torch.arange(width), indexing="ij")
    return torch.exp(-((rows - y) ** 2 + (columns - x) ** 2) / (2 * spread**2))[None]


@pytest.mark.parametrize("size", [(61, 48), (40, 75)])
@pytest.mark.parametrize(
    "transform",
    [
        v2.Resize(30),
        v2.RandomHorizontalFlip(p=1),
        v2.RandomVerticalFlip(p=1),
        v2.Pad([3, 5, 7, 2]),
        v2.RandomCrop(40, padding=6),
        v2.RandomResizedCrop((64, 50)),
        v2.RandomRotation(40, BILINEAR, expand=True),
        v2.RandomAffine(20, (0.1, 0.1), (0.8, 1.2), 10, BILINEAR),
        v2.RandomPerspective(p=1, distortion_scale=0.3),
        v2.ElasticTransform(30.0, 6.0),
        v2.RandomZoomOut(p=1),
        v2.Compose([v2.Resize(80), v2.RandomHorizontalFlip(p=1), v2.CenterCrop(61), v2.Normalize([0.5], [2.0])]),
        nn.Sequential(v2.RandomHorizontalFlip(p=1), v2.RandomApply([v2.Pad(3)], p=1)),
    ],
    ids=lambda t: str(t).replace("\n", "")[:40],
)
def test_the_dot_is_at_the_moved_point(transform, size):
    height, width = size
    generator = torch.Generator().manual_seed(0)
    n_visible = 0
    for seed in range(12):
        x = int(torch.randint(8, width - 8, (1,), generator=generator))
        y = int(torch.randint(8, height - 8, (1,), generator=generator))
        with torch.random.fork_rng():
            torch.manual_seed(seed)
            image, points = apply_transform(_dot(x, y, height, width), torch.tensor([[[x, y]]]).float(), transform)
        if points.isnan().any():
            continue
        weight = (image[0] - image[0].min()) ** 2
        new_x, new_y = points[0, 0].tolist()
        rows, columns = torch.meshgrid(*(torch.arange(n) for n in weight.shape), indexing="ij")
        if min(new_x, new_y, weight.shape[1] - 1 - new_x, weight.shape[0] - 1 - new_y) < 8:
            continue
        # The centre of gravity of the dot is finer than its brightest pixel.
        assert abs(float((weight * columns).sum() / weight.sum()) - new_x) < 0.5
        assert abs(float((weight * rows).sum() / weight.sum()) - new_y) < 0.5
        n_visible += 1
    assert n_visible >= 2


@pytest.mark.parametrize(
    ("transform", "expected"),
    [
        (v2.Resize((20, 40)), (4.5, 8.5)),  # (x + 0.5) * 2 - 0.5
        (v2.RandomHorizontalFlip(p=1), (17.0, 4.0)),  # 20 - 1 - x
        (v2.RandomVerticalFlip(p=1), (2.0, 5.0)),  # 10 - 1 - y
        (v2.Pad([3, 1, 0, 0]), (5.0, 5.0)),
        (v2.CenterCrop((10, 18)), (1.0, 4.0)),
        (v2.RandomRotation((180, 180)), (17.0, 5.0)),
    ],
    ids=lambda value: type(value).__name__,
)
def test_by_hand(transform, expected):
    image, before = torch.rand(3, 10, 20), torch.tensor([[[2.0, 4.0]]])
    kept = image.clone(), before.clone()
    _, points = apply_transform(image, before, transform)
    assert torch.equal(image, kept[0])
    assert torch.equal(before, kept[1])
    torch.testing.assert_close(points, torch.tensor([[expected]]))


@pytest.mark.parametrize(
    ("transform", "expected"),
    [
        (v2.CenterCrop((10, 10)), [[torch.nan] * 2, [5.0, 5.0], [torch.nan] * 2, [torch.nan] * 2]),  # 15 - 5 is outside
        (v2.ElasticTransform(0.0, 1.0), [[2.0, 5.0], [10.0, 5.0], [torch.nan] * 2, [15.0, 9.0]]),
    ],
)
def test_points_that_leave_the_image_become_nan_and_nan_stays(transform, expected):
    points = torch.tensor([[[2.0, 5.0], [10.0, 5.0]], [[torch.nan, torch.nan], [15.0, 9.0]]])
    _, moved = apply_transform(torch.zeros(3, 10, 20), points, transform)
    torch.testing.assert_close(moved.reshape(4, 2), torch.tensor(expected), equal_nan=True)


def test_no_transform_drops_only_points_outside():
    points = torch.tensor([[[0.0, 0.0]], [[19.0, 9.0]], [[20.0, 9.0]], [[3.0, -0.6]]])
    _, moved = apply_transform(torch.zeros(3, 10, 20), points, None)
    assert moved[:, 0, 0].isnan().tolist() == [False, False, True, True]
    torch.testing.assert_close(moved[:2], points[:2])


def test_every_operation_that_moves_boxes_moves_part_points():
    """A new one of torchvision would leave them where they were."""
    registry = v2.functional._utils._KERNEL_REGISTRY
    moving = {function for function, kernels in registry.items() if tv_tensors.BoundingBoxes in kernels}
    missing = {function.__name__ for function in moving if PartPoints not in registry[function]}
    assert missing <= {"get_size", "to_dtype"}


@pytest.mark.parametrize(
    ("transform", "error", "message"),
    [
        (lambda image: image, TypeError, "torchvision.transforms.v2"),
        (v1.Compose([v2.CenterCrop(5), v1.ToTensor()]), TypeError, "got torchvision.transforms.transforms.ToTensor"),
        (v2.Lambda(lambda x: x * 2), TypeError, r"v2.Lambda\(fn, tv_tensors.Image\)"),
        (v2.ToPILImage(), TypeError, "return an image tensor"),
        (
            v2.Lambda(lambda x: x[..., ::2, ::2], tv_tensors.Image),
            ValueError,
            r"\(5, 10\) and the points .* \(10, 20\)",
        ),
    ],
)
def test_transforms_that_do_not_move_points_are_refused(transform, error, message):
    with pytest.raises(error, match=message):
        apply_transform(torch.zeros(3, 10, 20), torch.tensor([[[2.0, 4.0]]]), transform)
    # Without points any callable will do.
    assert apply_transform(torch.ones(3, 10, 20), torch.zeros(0, 1, 2), v1.CenterCrop(5))[0].shape == (3, 5, 5)


@pytest.mark.parametrize(("image", "points"), [((4, 4), (1, 1, 2)), ((3, 4, 4), (1, 2)), ((3, 4, 4), (1, 1, 3))])
def test_images_and_points_of_another_shape_are_refused(image, points):
    with pytest.raises(ValueError, match="to have shape"):
        apply_transform(torch.zeros(image), torch.zeros(points), None)


def test_default_transform():
    image = torch.arange(6 * 8 * 3).float().reshape(3, 6, 8) / 200
    points = torch.zeros(0, 1, 2)
    assert apply_transform(image, points, default_transform(12))[0].shape == (3, 12, 12)
    cropped = apply_transform(image, points, default_transform(4, "centre_crop", [0.5] * 3, [2.0] * 3))[0]
    torch.testing.assert_close(cropped, (image[:, 1:5, 2:6] - 0.5) / 2)
    for changes, expected in (
        ({"mean": [0.1, 0.2, 0.3]}, image - torch.tensor([0.1, 0.2, 0.3])[:, None, None]),
        ({"std": [0.5] * 3}, image * 2),
    ):
        torch.testing.assert_close(apply_transform(image, points, default_transform((6, 8), **changes))[0], expected)


@pytest.mark.parametrize("changes", [{"image_size": 0}, {"mode": "crop"}, {"std": [0.0, 1.0, 1.0]}])
def test_settings_that_make_no_transform_are_refused(changes):
    with pytest.raises(ValueError, match=f"`{next(iter(changes))}`"):
        default_transform(**{"image_size": 8} | changes)
