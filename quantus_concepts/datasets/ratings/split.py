"""A split of rated explanations in which no image and, where there are enough, no explainer is in two parts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from captum_concepts.support.checks import check_axes, check_range, to_numpy
from captum_concepts.texts import in_one_line

PARTS = ("train", "validation", "test")
#: With fewer explainers too little would be left of each part: only images are kept apart.
MIN_EXPLAINERS = 8


@in_one_line
@dataclass(frozen=True, eq=False)
class Split:
    """Which items are for training, validation and testing.

    Attributes
    ----------
    train : np.ndarray
        (n,) int64: items for training, ascending.
    validation : np.ndarray
        Items for choosing the best epoch, likewise.
    test : np.ndarray
        Items for the figures, likewise.
    dropped : int
        How many items are in no part, because their image is in one and their explainer in another.
    images : dict of str to list of str
        For "train", "validation" and "test": the ids of the images of its items, sorted.
    explainers : dict of str to list of str
        Likewise, of the explainers.
    by_image_only : bool
        Whether explainers are in several parts, because there are fewer than 8.

    Examples
    --------
    >>> from quantus_concepts.datasets import leak_free_split
    >>> images = [image for image in "abcdefghij" for _ in range(10)]
    >>> split = leak_free_split(images, list("0123456789") * 10)
    >>> len(split.train) + len(split.validation) + len(split.test) + split.dropped
    100
    """

    train: np.ndarray
    validation: np.ndarray
    test: np.ndarray
    dropped: int
    images: dict[str, list[str]]
    explainers: dict[str, list[str]]
    by_image_only: bool = False

    def summary(self) -> str:
        """Say how many items, images and explainers each part has.

        Returns
        -------
        str
            Plain sentences.
        """
        sizes = dict(zip(PARTS, (len(self.train), len(self.validation), len(self.test)), strict=True))
        text = "; ".join(
            f"{part}: {_count(size, 'item')} of {_count(len(self.images[part]), 'image')} by "
            f"{_count(len(self.explainers[part]), 'explainer')}"
            for part, size in sizes.items()
        )
        total = sum(sizes.values()) + self.dropped
        more = f"{self.dropped} of {_count(total, 'item')} left out, with image and explainer in different parts."
        if self.by_image_only:
            more = f"Split by image only: with fewer than {MIN_EXPLAINERS} explainers all are in every part."
        return f"{text[0].upper()}{text[1:]}. {more}"


def leak_free_split(
    image_ids: ArrayLike, explainer_ids: ArrayLike, *, train_share: float = 0.7, seed: int = 0
) -> Split:
    """Split items so that no image and, of 8 explainers or more, no explainer is in two parts.

    Images and explainers are divided independently of each other: `train_share` of the ids for training, and half of
    the others each for validation and testing. An item is kept where its image and its explainer fall into the same
    part. Of a full design, with the default share, 0.7 * 0.7 + 2 * 0.15 * 0.15 = 53.5 % are kept, and 2 % each are for
    validation and testing: with few explainers little is left (see `Split.summary`). Of fewer than 8 explainers only
    the images are divided: the test is then on new images by explainers that the scorer knows.

    The paper (appendix D.1) splits so. Its released code divides the remaining *items* into validation and test, which
    therefore share images and explainers; this is not followed.

    Parameters
    ----------
    image_ids : array_like
        (N,) of str: the image of each item. Ids of different data sets must differ.
    explainer_ids : array_like
        (N,) of str: the explainer of each item.
    train_share : float
        Share of the images and of the explainers for training, in (0, 1). At least one is taken, and at least two are
        left.
    seed : int
        Random seed of the choice, which does not depend on the order of the items.

    Returns
    -------
    Split
        The three parts, none of them empty.

    Raises
    ------
    ValueError
        If there are fewer than three images, or a part gets no item.

    Examples
    --------
    >>> from quantus_concepts.datasets import leak_free_split
    >>> images = [image for image in "abcdefghij" for _ in range(10)]
    >>> split = leak_free_split(images, list("0123456789") * 10)
    >>> len(split.train), split.dropped
    (49, 46)
    >>> set(split.images["train"]) & set(split.images["test"])
    set()
    """
    images, explainers = (np.asarray(to_numpy(ids), dtype=str) for ids in (image_ids, explainer_ids))
    check_axes(image_ids=(images, "N"), explainer_ids=(explainers, "N"))
    check_range("train_share", train_share, 0, 1)
    of_image = _divide(images, train_share, [seed, 0], "image")
    by_image_only = len(np.unique(explainers)) < MIN_EXPLAINERS
    of_explainer = of_image if by_image_only else _divide(explainers, train_share, [seed, 1], "explainer")
    items = {
        name: np.flatnonzero((of_image == part) & (of_explainer == part)).astype(np.int64)
        for part, name in enumerate(PARTS)
    }
    if empty := [name for name, part in items.items() if not len(part)]:
        raise ValueError(
            f"Expected items in every part but the split of {_count(len(images), 'item')} of "
            f"{_count(len(np.unique(images)), 'image')} by {_count(len(np.unique(explainers)), 'explainer')} leaves "
            f"none for {' and '.join(empty)}. Take another seed, or rate more of the pairs."
        )
    return Split(
        train=items["train"],
        validation=items["validation"],
        test=items["test"],
        dropped=len(images) - sum(map(len, items.values())),
        images={name: np.unique(images[part]).tolist() for name, part in items.items()},
        explainers={name: np.unique(explainers[part]).tolist() for name, part in items.items()},
        by_image_only=by_image_only,
    )


def _divide(ids: np.ndarray, train_share: float, seed: Sequence[int], noun: str) -> np.ndarray:
    """Return the part (0, 1, 2) of each item by its id alone."""
    names, numbers = np.unique(ids, return_inverse=True)
    if len(names) < len(PARTS):
        raise ValueError(
            f"Expected at least {len(PARTS)} {noun}s, one each for training, validation and testing, but got "
            f"{_count(len(names), noun)} in {_count(len(ids), 'item')}."
        )
    train = min(max(round(train_share * len(names)), 1), len(names) - 2)
    validation = (len(names) - train) // 2
    parts = np.empty(len(names), dtype=np.int64)
    order = np.random.default_rng(seed).permutation(len(names))
    parts[order] = np.repeat([0, 1, 2], [train, validation, len(names) - train - validation])
    return parts[numbers.reshape(-1)]


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" + ("" if number == 1 else "s")
