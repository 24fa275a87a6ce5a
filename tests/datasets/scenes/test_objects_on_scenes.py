"""Objects pasted on scenes."""

import numpy as np
import pytest
import torch

from block_sources import Blocks, Discs, Noise, Plains
from quantus_concepts.datasets.scenes.objects_on_scenes import ObjectsOnScenes, split_groups, take_turns
from quantus_concepts.datasets.scenes.sources import Cutout, place, plain_mask, premultiply
from reference.pasting import scale_cutout
from untouched import untouched


def test_a_mask_may_have_three_equal_channels_but_no_others():
    mask = np.eye(4, dtype=np.uint8)[..., None].repeat(3, 2) * 255
    assert (plain_mask("mask", mask) == np.eye(4, dtype=bool)).all()
    mask[0, 0, 2] = 0
    with pytest.raises(ValueError, match="mask to be"):
        plain_mask("mask", mask)


def _composed(**changes):
    settings = {"n_per_pair": 3, "image_size": 64, "test_share": 0.3} | changes
    return ObjectsOnScenes(Discs(), Noise(), **settings)


def test_literal_image():
    data = ObjectsOnScenes(Blocks(shape=(5, 10)), Plains(), image_size=64, n_per_pair=1, scale=(0.5, 0.5))
    sample = data[0]
    row0, col0, row1, col1 = sample.box.tolist()
    assert (row1 - row0, col1 - col0) == (16, 32)  # half of 64, in the proportions of 5 x 10
    red, blue = data.cutout_indices[0] + 1, data.scene_indices[0] + 1
    expected = torch.zeros(3, 64, 64, dtype=torch.uint8)
    expected[2] = int(blue)
    expected[:, row0:row1, col0:col1] = torch.tensor([int(red), 0, 0], dtype=torch.uint8)[:, None, None]
    assert torch.equal(data.images([0])[0], expected)
    assert torch.equal(sample.image, expected.float() / 255)
    mask = torch.zeros(1, 64, 64, dtype=torch.bool)
    mask[:, row0:row1, col0:col1] = True
    assert torch.equal(sample.mask, mask)
    grey = data.with_view("og").images([0])[0]
    assert torch.equal(grey, torch.where(mask, expected, torch.tensor(128, dtype=torch.uint8)))


def test_views_agree_to_the_bit():
    data = _composed()
    pairs = [(o, s) for o in range(3) for s in range(4)]
    assert list(zip(data.object_labels.tolist(), data.scene_labels.tolist(), strict=True)) == pairs * 3
    assert (Discs().labels[data.cutout_indices] == data.object_labels.numpy()).all()
    assert (Noise().labels[data.scene_indices] == data.scene_labels.numpy()).all()
    on_scene, grey, bare = (data.with_view(view).images() for view in ("os", "og", "0s"))
    masks = data.masks()
    assert torch.equal(on_scene.where(~masks, bare), bare)
    assert torch.equal(on_scene.where(masks, grey), grey)
    assert bool((grey.where(~masks, torch.tensor(128, dtype=torch.uint8)) == 128).all())
    assert not torch.equal(on_scene, bare)
    for view in ("og", "0s"):
        other = data.with_view(view)
        assert torch.equal(other.masks(), masks)
        assert torch.equal(other.boxes(), data.boxes())


def test_batches_and_samples_agree():
    data = _composed()
    order = [7, 0, 35, -1, 7]
    images, masks, boxes = data.images(order), data.masks(torch.tensor(order)), data.boxes(np.array(order))
    for row, index in enumerate(order):
        sample = data[index]
        assert torch.equal(sample.image, images[row].float() / 255)
        assert torch.equal(sample.mask, masks[row])
        assert torch.equal(sample.box, boxes[row])
        assert sample.object_label == data.object_labels[index]
        assert sample.scene_label == data.scene_labels[index]
    assert data.images([]).shape == (0, 3, 64, 64)
    for call in (data.images, data.masks, data.boxes):
        with pytest.raises(IndexError, match="below the number of images"):
            call([0, len(data)])


@pytest.mark.parametrize("shape", [(30, 47), (9, 7)])
def test_scaling_against_reference(shape):
    cutout, size = Discs(shape=shape)[3], 32
    pasted = place(premultiply(cutout), size, (0.6, 0.6), np.random.default_rng(0))
    longest = int(0.6 * size)
    new = tuple(max(1, round(side * longest / max(shape))) for side in shape)
    colours, cover = scale_cutout(cutout.pixels, cutout.mask, new)
    rows, cols = np.flatnonzero((cover >= 0.5).any(1)), np.flatnonzero((cover >= 0.5).any(0))
    tight = slice(rows[0], rows[-1] + 1), slice(cols[0], cols[-1] + 1)
    cover, colours = cover[tight], colours[tight]
    assert pasted.mask.shape == cover.shape
    sure = abs(cover - 0.5) > 2 / 255
    assert sure.mean() > 0.9
    assert (pasted.mask == (cover >= 0.5))[sure].all()
    assert abs(pasted.pixels[pasted.mask] - colours[pasted.mask]).max() <= 3  # rounded twice, at a cover of a half


def test_thin_objects_do_not_vanish():
    thin = Cutout(np.full((200, 200, 3), 9, np.uint8), np.eye(200, dtype=bool))
    pasted = place(premultiply(thin), 32, (0.6, 0.6), np.random.default_rng(0))
    assert 15 <= max(pasted.mask.shape) <= 19


def test_sizes_and_places_are_uniform():
    data = ObjectsOnScenes(Blocks(), Plains(), n_per_pair=200)
    boxes = data.boxes().numpy()
    heights, widths = boxes[:, 2] - boxes[:, 0], boxes[:, 3] - boxes[:, 1]
    assert len(boxes) == 2400
    counts = np.bincount(widths)
    assert np.flatnonzero(counts).tolist() == list(range(74, 91))  # 128 / sqrt(3) = 73.9 to 128 / sqrt(2) = 90.5
    expected = len(boxes) / 17
    assert ((counts[74:91] - expected) ** 2 / expected).sum() < 39.3  # chi square, 16 degrees of freedom, p = 0.001
    assert (abs(heights - widths / 2) <= 0.5).all()
    for start, extent in ((boxes[:, 0], heights), (boxes[:, 1], widths)):
        shares = (start + 0.5) / (128 - extent + 1)
        assert shares.min() < 0.02
        assert shares.max() > 0.98
        assert abs(shares.mean() - 0.5) < 3 * np.sqrt(1 / 12 / len(boxes))


def test_scenes_of_other_sizes_keep_their_middle():
    class Stripe(Plains):
        def __getitem__(self, index):
            pixels = np.zeros((256, 300, 3), dtype=np.uint8)
            pixels[:, 22:278] = 200
            return pixels

    images = ObjectsOnScenes(Blocks(), Stripe(), image_size=64, n_per_pair=1, view="0s").images([0, 1])
    assert images.shape == (2, 3, 64, 64)
    assert int(images[..., 2:-2, 2:-2].min()) == 200


def test_deterministic_in_any_order_and_shared_by_sizes_without_global_random_numbers():
    with untouched():
        expected = _composed().images()
        assert torch.equal(_composed().images(range(35, -1, -1)).flip(0), expected)
        assert torch.equal(_composed(n_per_pair=5).images(range(36)), expected)  # the first of a larger data set
        assert not torch.equal(_composed(seed=1).images(), expected)


@pytest.mark.parametrize("seed", range(5))
def test_splits_share_neither_group_nor_scene(seed):
    # Groups of two and of three, some across classes.
    groups = [0, 0, 1, 2, 3, 4, 4, 5, 6, 6, 7, 8, 9, 1, 10, 11, 12, 13, 14, 15, 0, 16, 17, 18, 18, 19, 20]
    objects = Blocks(9, groups=groups)
    train, test = (
        ObjectsOnScenes(objects, Plains(), split=split, n_per_pair=9, seed=seed, test_share=0.25)
        for split in ("train", "test")
    )
    groups = [set(objects.groups[data.cutout_indices]) for data in (train, test)]
    assert not groups[0] & groups[1]
    assert not set(train.scene_indices) & set(test.scene_indices)
    # Together they use everything: 9 uses of each pair are more than there are members.
    assert groups[0] | groups[1] == set(objects.groups)
    assert set(train.scene_indices) | set(test.scene_indices) == set(range(20))


def test_members_take_turns():
    turns = take_turns(np.array([3, 5, 8]), 8, [0, 1])
    assert sorted(turns[:3]) == sorted(turns[3:6]) == [3, 5, 8]
    assert len(set(turns[6:])) == 2
    assert (take_turns(np.array([3, 5, 8]), 4, [0, 1]) == turns[:4]).all()
    data = ObjectsOnScenes(Blocks(10), Plains(10), n_per_pair=6, test_share=0.2)
    for indices, n_classes, n_images in ((data.cutout_indices, 3, 24), (data.scene_indices, 4, 18)):
        counts = np.unique(indices, return_counts=True)[1]
        assert len(counts) == 8 * n_classes
        assert {*counts} <= {n_images // 8, -(-n_images // 8)}


def test_common_feature_is_all_that_changes():
    data = {k: _composed(commonality=k, common_object="cow") for k in (0.5, 1.0)}
    full, half = data[1.0], data[0.5]
    assert half.scene_labels.tolist() == [0, 1, 2, 3] * 9
    chosen = torch.isin(half.scene_labels, torch.tensor(half.classes_with_object))
    assert half.object_labels.tolist() == torch.where(chosen, 1, -1).tolist()
    assert torch.equal(half.images()[chosen], full.images()[chosen])
    bare = full.with_view("0s").images()
    assert torch.equal(half.images()[~chosen], bare[~chosen])
    assert torch.equal(half.with_view("0s").images(), bare)
    assert not half.masks()[~chosen].any()
    assert set(half.boxes()[~chosen].flatten().tolist()) == {-1}
    assert bool((half.with_view("og").images()[~chosen] == 128).all())
    # The paper's choice, where it is there.
    assert (data[1.0].target_scene, _composed(commonality=0.1).common_object) == (1, 2)
    assert _composed(commonality=0.1, target_scene=3).classes_with_object == [3]


@pytest.mark.parametrize(("k", "count"), [(0.01, 1), (0.15, 2), (0.3, 3), (0.95, 10), (1.0, 10)])
def test_commonality_is_rounded(k, count):
    scenes = Plains(2, names=[f"s{i}" for i in range(10)])
    chosen, half = (
        set(ObjectsOnScenes(Blocks(), scenes, commonality=share, n_per_pair=1).classes_with_object)
        for share in (k, 0.5)
    )
    assert len(chosen) == count
    assert chosen <= half or half <= chosen


def test_transform_sees_the_image_only():
    data = _composed(transform=lambda image: 1 - image)
    plain = _composed()
    assert torch.equal(data[4].image, 1 - plain[4].image)
    assert torch.equal(data[4].mask, plain[4].mask)
    assert torch.equal(data.images([4]), plain.images([4]))
    assert torch.equal(data.with_view("0s")[4].image, 1 - plain.with_view("0s")[4].image)
    with pytest.raises(ValueError, match=r"transform.*\(C, 64, 64\).*image_size"):
        _composed(transform=lambda image: image[:, 1:])[0]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"common_object": "dog"}, "`commonality` with `common_object`"),
        ({"commonality": 1.0, "common_object": "dgo"}, "Did you mean 'dog'"),
        ({"split": "val"}, "`split`"),
        ({"view": "so"}, "`view`"),
        ({"test_share": 1.0}, "`test_share`"),
        ({"commonality": 0.0}, "`commonality`"),
        ({"scale": (0.5, 0.4)}, "`scale` to be"),
        ({"image_size": (32, 48)}, "`image_size` to be the side of square images"),
        ({"image_size": 15}, "`image_size` to be at least 16"),
    ],
)
def test_settings_out_of_range_are_refused(changes, message):
    with pytest.raises(ValueError, match=message):
        _composed(**changes)
    with pytest.raises(ValueError, match="`view`"):
        _composed(image_size=(48, 48)).with_view("both")


@pytest.mark.parametrize(
    ("objects", "scenes", "message"),
    [
        (Blocks(), Plains(1), "class 'attic' has 1 scenes"),
        (Blocks(groups=[*range(6), *[6] * 6, *range(7, 13)]), Plains(), "'cow' has 6 cut-outs in 1 groups"),
        (Blocks(names=("a", "a", "b")), Plains(), "different names"),
        (Blocks(groups=np.zeros(17, dtype=int)), Plains(), r"groups.*\(18,\)"),
    ],
)
def test_sources_that_contradict_themselves_or_are_too_small(objects, scenes, message):
    with pytest.raises(ValueError, match=message):
        ObjectsOnScenes(objects, scenes)
    beyond = Plains()
    beyond.labels = beyond.labels + 1
    with pytest.raises(ValueError, match=r"`scenes.labels` to lie in \[0, 3\], .* they lie in \[1, 4\]"):
        ObjectsOnScenes(Blocks(), beyond)
    with pytest.raises(ValueError, match="shared with other classes"):
        split_groups(np.array([0, 1, 2, 0, 1, 2]), np.array([0, 0, 1, 1, 2, 2]), ["a", "b", "c"], 0.5, [0], "cut-out")


@pytest.mark.parametrize(
    ("kind", "item", "message"),
    [
        (Blocks, Cutout(np.zeros((4, 5, 3), np.uint8), np.zeros((4, 5), bool)), r"cut-out \d+ to touch all four sides"),
        (Blocks, Cutout(np.zeros((4, 5, 3), np.uint8), np.ones((4, 4), bool)), r"cut-out \d+ to have pixels"),
        (Blocks, Cutout(np.zeros((4, 5, 3), np.uint8), np.full((4, 5), 0.5)), r"mask of cut-out \d+ .* 0 and 1"),
        (Plains, np.zeros((4, 5), np.uint8), r"scene \d+ to have shape \(h, w, 3\)"),
    ],
)
def test_bad_cutouts_and_scenes_are_numbered(monkeypatch, kind, item, message):
    monkeypatch.setattr(kind, "__getitem__", lambda self, index: item)
    with pytest.raises(ValueError, match=message):
        ObjectsOnScenes(Blocks(), Plains())[0]
