"""Objects pasted on scenes, with labels for both, split for training and test."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from captum_concepts.support.checks import check_choice, check_index, check_range, check_whole
from quantus_concepts.datasets.base import SPLITS, check_side, check_test_share, n_for_testing, position_of
from quantus_concepts.datasets.scenes.composed import GREY, NO_BOX, VIEWS, Box, ComposedDataset
from quantus_concepts.datasets.scenes.sources import (
    Cutout,
    ObjectSource,
    Pasted,
    RecentCache,
    SceneSource,
    check_image_source,
    fit_scene,
    place,
    plain_mask,
    premultiply,
    tight_box,
)


def split_groups(
    labels: np.ndarray,
    groups: np.ndarray,
    class_names: Sequence[str],
    test_share: float,
    seed: Sequence[int],
    noun: str,
) -> np.ndarray:
    """Choose what is for testing, class by class, without dividing a group."""
    # A group may hold members of several classes (a photograph with a dog and a kite). The classes with the fewest
    # groups choose first; what they decided holds for the others.
    numbers = np.unique(groups, return_inverse=True)[1].reshape(-1)
    members = [np.unique(numbers[labels == label]) for label in range(len(class_names))]
    for label, mine in enumerate(members):
        if len(mine) < 2:
            raise ValueError(
                f"Expected at least 2 groups of {noun}s of each class, one for training and one for testing, but class "
                f"{class_names[label]!r} has {int((labels == label).sum())} {noun}s in {len(mine)} groups."
            )
    open_, test = np.ones(numbers.max() + 1, dtype=bool), np.zeros(numbers.max() + 1, dtype=bool)
    for label in sorted(range(len(class_names)), key=lambda label: len(members[label])):
        mine = np.random.default_rng([*seed, label]).permutation(members[label])
        n_test = n_for_testing(len(mine), test_share)
        free = mine[open_[mine]]
        test[free[: max(0, n_test - int(test[mine].sum()))]] = True
        open_[mine] = False
    for label, mine in enumerate(members):
        if test[mine].all() or not test[mine].any():
            raise ValueError(
                f"Expected {noun}s of class {class_names[label]!r} in both splits but all its {len(mine)} groups are "
                "shared with other classes, which leaves none for one of the splits. Take another seed."
            )
    return test[numbers]


def take_turns(members: np.ndarray, count: int, seed: Sequence[int]) -> np.ndarray:
    """Use each member once in random order, then each once more in another order, and so on."""
    rng = np.random.default_rng(seed)
    rounds = -(-count // len(members))
    return np.concatenate([rng.permutation(members) for _ in range(rounds)])[:count]


#: What the paper's common feature is, and the scene that always has it (its Figure 3, bottom).
PAPER_OBJECT, PAPER_SCENE = "dog", "bamboo forest"
_MIN_SIZE = 16
_CACHE_BYTES = 64 * 2**20
# One stream of random numbers for each decision, so that none depends on how much another one draws.
_OBJECT_SPLIT, _SCENE_SPLIT, _OBJECT_ORDER, _SCENE_ORDER, _PLACES, _CLASS_ORDER = range(6)


class ObjectsOnScenes(ComposedDataset):
    """Every class of objects on every class of scenes (X_os, X_og, X_0s), or a common feature (X^k).

    Section 3 of M. Yang and B. Kim, "Benchmarking Attribution Methods with Relative Feature Importance" (2019). A
    cut-out is scaled so that its longer side, which fills the square scene first, is between 1 / sqrt(3) and
    1 / sqrt(2) of the scene's side (the rule of the authors' release; the paper says a third to a half of the
    scene), and pasted at a random place, fully inside. Pasting is hard: where the mask is False, an "os" image
    equals its "0s" image to the bit; where it is True, it equals its "og" image. (The release blends at the edges.)

    Without `commonality` there are ``n_per_pair`` images of each pair of classes, interleaved: with K_o classes of
    objects and K_s of scenes, image ``j * K_o * K_s + o * K_s + s`` is number j of the pair (o, s). The first images
    of a larger data set are therefore those of a smaller one.

    With `commonality` k there are ``n_per_pair * K_o`` images of each class of scenes, image ``j * K_s + s`` being
    number j of class s. The common object is in all images of ``k * K_s`` classes (rounded, at least 1) and in no
    image of the others. The target scene is always among them, and the classes of a smaller k are among those of a
    larger one; apart from whether the object is there, images are the same for all k.

    Train and test share neither a group of cut-outs nor a scene. Within a split, each cut-out and each scene of a
    class is used once in random order before one is used again. The same arguments give the same bits, in any order
    of access. Images are composed on access; of the sources, 64 MiB of cut-outs and of scenes each are kept at
    most.

    Parameters
    ----------
    objects : ObjectSource
        The cut-outs.
    scenes : SceneSource
        The scenes. Of one that is not square the middle is taken, scaled to `image_size`.
    split : str
        "train" or "test".
    view : str
        "os" for objects on scenes, "og" for objects on grey 128, "0s" for scenes alone.
    n_per_pair : int
        Images of each pair of classes.
    image_size : int or (int, int)
        Height and width H = W in pixels, at least 16.
    commonality : float, optional
        k in (0, 1], for X^k; None for all pairs.
    common_object : str or int, optional
        Class of the common object by name or number; None for "dog", where there is none for the first class.
    target_scene : str or int, optional
        The class of scenes that always has it; None for "bamboo forest" (MiniPlaces
        has "bamboo_forest"), where there is none for the first class.
    scale : (float, float)
        Limits of the longer side of an object, in units of `image_size`.
    test_share : float
        Share of the cut-outs and the scenes of each class for testing, in (0, 1); at least one of each.
    seed : int
        Random seed of every choice, not negative.
    transform : callable, optional
        From image (3, H, W) to image of the same height and width.

    Attributes
    ----------
    classes_with_object : list of int
        The classes of scenes that have an object, ascending.
    common_object : int or None
        Number of the class; None without `commonality`.
    target_scene : int or None
        Number of the class; None without `commonality`.

    Raises
    ------
    ValueError
        If an argument is outside its range, there is no such class, a source contradicts itself, or a class has too
        few cut-outs or scenes for two splits. On access to an image: if the source's cut-out or scene has not
        the shape it should.

    Examples
    --------
    >>> from quantus_concepts.datasets import ObjectsOnScenes, PaintedObjects, PaintedScenes
    >>> sources = PaintedObjects(n_per_class=4, size=24), PaintedScenes(n_per_class=4, size=32)
    >>> data = ObjectsOnScenes(*sources, n_per_pair=1, image_size=32)
    >>> without = ObjectsOnScenes(*sources, n_per_pair=1, image_size=32, view="0s")
    >>> len(data), data[0].image.shape, data[0].mask.shape
    (100, torch.Size([3, 32, 32]), torch.Size([1, 32, 32]))
    >>> same = data[0].image == without[0].image
    >>> bool(same[:, ~data[0].mask[0]].all())  # they differ inside the mask only
    True
    """

    def __init__(
        self,
        objects: ObjectSource,
        scenes: SceneSource,
        *,
        split: str = "train",
        view: str = "os",
        n_per_pair: int = 10,
        image_size: int | Sequence[int] = 128,
        commonality: float | None = None,
        common_object: str | int | None = None,
        target_scene: str | int | None = None,
        scale: tuple[float, float] = (3**-0.5, 2**-0.5),
        test_share: float = 0.1,
        seed: int = 0,
        transform: Callable[[Tensor], Tensor] | None = None,
    ) -> None:
        check_choice("split", split, SPLITS)
        check_choice("view", view, VIEWS)
        if commonality is not None:
            check_range("commonality", commonality, 0, 1, open_low=True)
        check_test_share(test_share)
        low, high = self.scale = scale
        if not 0.0 < low <= high <= 1.0:
            raise ValueError(f"Expected argument `scale` to be (low, high) with 0 < low <= high <= 1 but got {scale}.")
        check_image_source("objects", objects)
        check_image_source("scenes", scenes)
        self.objects, self.scenes = objects, scenes
        self.object_names, self.scene_names = list(objects.class_names), list(scenes.class_names)
        self.split, self.view, self.image_size = split, view, check_side("image_size", image_size, _MIN_SIZE)
        self.n_per_pair = check_whole("n_per_pair", n_per_pair, 1)
        self.test_share, self.seed = float(test_share), seed
        self.transform = transform
        self.commonality = commonality
        self.common_object, self.target_scene, self.classes_with_object = self._find_common(common_object, target_scene)
        self._split_number = SPLITS.index(split)
        self._cutout_of, self._scene_of = self._assign()
        self._cutout_cache: RecentCache[Image.Image] = RecentCache(_CACHE_BYTES)
        self._scene_cache: RecentCache[np.ndarray] = RecentCache(_CACHE_BYTES)
        scene_labels = np.asarray(scenes.labels, dtype=np.int64)[self._scene_of]
        object_labels = np.asarray(objects.labels, dtype=np.int64)[self._cutout_of]
        object_labels[~np.isin(scene_labels, self.classes_with_object)] = -1
        self.object_labels = torch.from_numpy(object_labels)
        self.scene_labels = torch.from_numpy(scene_labels)

    @property
    def cutout_indices(self) -> np.ndarray:
        """(N,) of int64: which cut-out of the source each image has, or would have."""
        return self._cutout_of.copy()

    @property
    def scene_indices(self) -> np.ndarray:
        """(N,) of int64: which scene of the source each image has."""
        return self._scene_of.copy()

    def scene(self, index: int) -> np.ndarray:
        """Return the scene of an image, in size.

        Parameters
        ----------
        index : int
            Which image, from 0.

        Returns
        -------
        np.ndarray
            (H, W, 3) of uint8, shared: not to be written to.

        Raises
        ------
        ValueError
            If the source's scene has not the shape it should.
        """
        number = self._scene_of[check_index(index, len(self), "images")]
        return self._scene_cache.get(int(number), self._load_scene)

    def pasted(self, index: int) -> Pasted | None:
        """Return the object of an image, in size and place.

        Parameters
        ----------
        index : int
            Which image, from 0.

        Returns
        -------
        Pasted or None
            None where there is no object in any view.

        Raises
        ------
        ValueError
            If the source's cut-out has not the shape it should.
        """
        index = check_index(index, len(self), "images")
        if self.object_labels[index] < 0:
            return None
        cutout = self._cutout_cache.get(int(self._cutout_of[index]), self._load_cutout)
        kind = int(self.commonality is not None)
        rng = np.random.default_rng([self.seed, _PLACES, self._split_number, kind, index])
        return place(cutout, self.image_size, self.scale, rng)

    def _image(self, index: int) -> np.ndarray:
        return self._show(index, None if self.view == "0s" else self.pasted(index))

    def _mask_and_box(self, index: int) -> tuple[np.ndarray, Box]:
        return self._mask_of(self.pasted(index))

    def _parts(self, index: int) -> tuple[np.ndarray, np.ndarray, Box]:
        pasted = self.pasted(index)
        return self._show(index, None if self.view == "0s" else pasted), *self._mask_of(pasted)

    def _show(self, index: int, pasted: Pasted | None) -> np.ndarray:
        if self.view == "og":
            background = np.full((self.image_size, self.image_size, 3), GREY, dtype=np.uint8)
        else:
            background = self.scene(index)
        return background.copy() if pasted is None else pasted.onto(background)

    def _mask_of(self, pasted: Pasted | None) -> tuple[np.ndarray, Box]:
        if pasted is None:
            return np.zeros((self.image_size, self.image_size), dtype=bool), NO_BOX
        return pasted.full_mask(self.image_size), pasted.box

    def _load_scene(self, number: int) -> tuple[np.ndarray, int]:
        pixels = np.asarray(self.scenes[number])
        if pixels.dtype != np.uint8 or pixels.ndim != 3 or pixels.shape[2] != 3 or not pixels.size:
            raise ValueError(
                f"Expected scene {number} to have shape (h, w, 3) and dtype uint8 but got {pixels.shape} and "
                f"{pixels.dtype}."
            )
        scene = fit_scene(pixels, self.image_size)
        return scene, scene.nbytes

    def _load_cutout(self, number: int) -> tuple[Image.Image, int]:
        image = premultiply(_plain_cutout(self.objects[number], number))
        return image, 4 * image.width * image.height

    def _find_common(
        self, common_object: str | int | None, target_scene: str | int | None
    ) -> tuple[int | None, int | None, list[int]]:
        n_scenes = len(self.scene_names)
        if self.commonality is None:
            for name, value in (("common_object", common_object), ("target_scene", target_scene)):
                if value is not None:
                    raise ValueError(f"Expected argument `commonality` with `{name}`: without it there are all pairs.")
            return None, None, list(range(n_scenes))
        common = find_class("common_object", common_object, self.object_names, PAPER_OBJECT)
        target = find_class("target_scene", target_scene, self.scene_names, PAPER_SCENE)
        order = np.random.default_rng([self.seed, _CLASS_ORDER]).permutation(n_scenes)
        nested = [target, *(int(label) for label in order if label != target)]
        count = max(1, math.floor(self.commonality * n_scenes + 0.5))
        return common, target, sorted(nested[:count])

    def _assign(self) -> tuple[np.ndarray, np.ndarray]:
        """Return which cut-out and which scene each image has, (N,) each."""
        cutouts = self._members(self.objects.labels, self.objects.groups, self.object_names, _OBJECT_SPLIT, "cut-out")
        scene_groups = np.arange(len(self.scenes.labels))
        scenes = self._members(self.scenes.labels, scene_groups, self.scene_names, _SCENE_SPLIT, "scene")
        n_objects, n_scenes = len(cutouts), len(scenes)
        n_each = self.n_per_pair * n_objects
        scene_of = np.stack([self._turns(mine, n_each, _SCENE_ORDER, s) for s, mine in enumerate(scenes)], axis=-1)
        if self.common_object is not None:
            mine = cutouts[self.common_object]
            return self._turns(mine, n_each * n_scenes, _OBJECT_ORDER, self.common_object), scene_of.reshape(-1)
        shape = (self.n_per_pair, n_scenes)
        cutout_of = np.stack(
            [
                self._turns(mine, self.n_per_pair * n_scenes, _OBJECT_ORDER, o).reshape(shape)
                for o, mine in enumerate(cutouts)
            ],
            axis=1,
        )
        return cutout_of.reshape(-1), scene_of.reshape(-1)

    def _members(
        self, labels: np.ndarray, groups: np.ndarray, names: list[str], stream: int, noun: str
    ) -> list[np.ndarray]:
        labels = np.asarray(labels)
        test = split_groups(labels, np.asarray(groups), names, self.test_share, [self.seed, stream], noun)
        here = test == (self.split == "test")
        return [np.flatnonzero(here & (labels == label)) for label in range(len(names))]

    def _turns(self, members: np.ndarray, count: int, stream: int, label: int) -> np.ndarray:
        return take_turns(members, count, [self.seed, stream, self._split_number, label])


def find_class(argument: str, value: str | int | None, names: list[str], default: str) -> int:
    """Return the number of a class given by name or number; of the default, or 0, where it is not given."""
    if value is None:
        # MiniPlaces and other folders write names with "_".
        plain = [name.lower().replace("_", " ") for name in names]
        return plain.index(default) if default in plain else 0
    return position_of(argument, value, names)


def _plain_cutout(cutout: Cutout, number: int) -> Cutout:
    pixels, mask = np.asarray(cutout.pixels), plain_mask(f"the mask of cut-out {number}", cutout.mask)
    if pixels.dtype != np.uint8 or pixels.shape != (*mask.shape, 3):
        raise ValueError(
            f"Expected cut-out {number} to have pixels (h, w, 3) = ({mask.shape[0]}, {mask.shape[1]}, 3) of uint8 but "
            f"got {pixels.dtype} of shape {pixels.shape}."
        )
    if not mask.any() or tight_box(mask) != (0, 0, *mask.shape):
        raise ValueError(f"Expected the mask of cut-out {number} to touch all four sides of its {mask.shape}.")
    return Cutout(pixels, mask)
