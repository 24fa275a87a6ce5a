"""The leak-free split, over many random designs."""

import numpy as np
import pytest

from quantus_concepts.datasets.ratings.split import PARTS, leak_free_split


def _full(n_images, n_explainers):
    images, explainers = np.meshgrid(np.arange(n_images), np.arange(n_explainers), indexing="ij")
    return images.ravel().astype(str), explainers.ravel().astype(str)


def test_no_image_and_no_explainer_is_in_two_parts():
    done = 0
    for seed in range(60):
        rng = np.random.default_rng(seed)
        images, explainers = _full(int(rng.integers(3, 40)), int(rng.integers(8, 50)))
        chosen = rng.permutation(len(images))[: int(len(images) * rng.uniform(0.5, 1))]
        images, explainers = images[chosen], explainers[chosen]
        share = float(rng.uniform(0.05, 0.95))
        if not _fails(images, explainers, seed=seed, train_share=share):
            _check(leak_free_split(images, explainers, train_share=share, seed=seed), images, explainers)
            done += 1
    # Refusing every design would be no proof.
    assert done > 45


def _check(split, images, explainers):
    items = [getattr(split, part) for part in PARTS]
    for ids, names_of_part in ((images, split.images), (explainers, split.explainers)):
        sets = [set(ids[part].tolist()) for part in items]
        assert len(set.union(*sets)) == sum(map(len, sets))
        assert all(sets)
        assert [set(names_of_part[part]) for part in PARTS] == sets
    everything = np.concatenate(items)
    assert len(np.unique(everything)) == len(everything)
    assert split.dropped == len(images) - len(everything)
    # Nothing is left out without reason: its image and its explainer are of different parts.
    of_image, of_explainer = (
        {name: part for part in PARTS for name in names_of_part[part]}
        for names_of_part in (split.images, split.explainers)
    )
    for i in np.setdiff1d(np.arange(len(images)), everything):
        parts = of_image.get(images[i]), of_explainer.get(explainers[i])
        assert None in parts or parts[0] != parts[1]


def test_shares_of_a_full_design():
    images, explainers = _full(100, 40)
    split = leak_free_split(images, explainers)
    assert [len(split.images[part]) for part in PARTS] == [70, 15, 15]
    assert [len(split.explainers[part]) for part in PARTS] == [28, 6, 6]
    assert [len(split.train), len(split.validation), len(split.test)] == [70 * 28, 90, 90]
    assert split.dropped == 4000 - 70 * 28 - 180
    assert (np.diff(split.train) > 0).all()
    assert split.summary().startswith("Train: 1960 items of 70 images by 28 explainers; validation: 90 items of ")


def test_few_explainers_are_all_in_every_part():
    images, explainers = _full(40, 4)
    split = leak_free_split(images, explainers)
    assert split.by_image_only
    assert [len(getattr(split, part)) for part in PARTS] == [28 * 4, 6 * 4, 6 * 4]
    assert split.dropped == 0
    assert not set(split.images["train"]) & set(split.images["test"])
    assert split.explainers["test"] == list("0123")
    assert split.summary().endswith("Split by image only: with fewer than 8 explainers all are in every part.")
    assert not leak_free_split(*_full(40, 8)).by_image_only


def test_the_seed_decides_and_the_order_does_not():
    images, explainers = _full(12, 9)
    first = leak_free_split(images, explainers, seed=1)
    again = leak_free_split(images, explainers, seed=1)
    assert first.images == again.images
    assert first.train.tolist() == again.train.tolist()
    assert leak_free_split(images, explainers, seed=2).images != first.images
    order = np.random.default_rng(0).permutation(len(images))
    shuffled = leak_free_split(images[order], explainers[order], seed=1)
    assert shuffled.images == first.images
    assert shuffled.explainers == first.explainers
    assert sorted(order[shuffled.test].tolist()) == first.test.tolist()
    # Images and explainers are drawn independently of each other.
    square = leak_free_split(*_full(10, 10))
    assert square.images != square.explainers


@pytest.mark.parametrize(
    ("images", "explainers", "share", "message"),
    [
        (*_full(2, 5), 0.7, "at least 3 images"),
        (["a", "b"], ["a"], 0.7, "`explainer_ids` to have shape"),
        (*_full(3, 3), 1.1, "`train_share` to lie in"),
    ],
)
def test_refused(images, explainers, share, message):
    with pytest.raises(ValueError, match=message):
        leak_free_split(images, explainers, train_share=share)


def test_an_empty_part_raises_and_another_seed_helps():
    images, explainers = list("abcdefgh" * 3), list("bcdefgha" + "cdefghab" + "defghabc")
    fails = [_fails(images, explainers, seed=seed) for seed in range(40)]
    assert True in fails
    assert False in fails
    with pytest.raises(ValueError, match=r"24 items of 8 images by 8 explainers leaves none for"):
        leak_free_split(images, explainers, seed=fails.index(True))


def _fails(images, explainers, **arguments):
    try:
        leak_free_split(images, explainers, **arguments)
    except ValueError as error:
        return "leaves none for" in str(error)
    return False
