"""Scenes that are hard to tell: each with some of a scene of another class in it."""

from __future__ import annotations

import numpy as np

from captum_concepts._support.checks import (
    check_index,
)
from captum_concepts._support.constraints import Seed, check_arguments
from quantus_concepts.datasets.base import check_pair
from quantus_concepts.datasets.scenes.sources import SceneSource, check_source

_STREAM = 71


class MixedScenes(SceneSource):
    """Scenes blended with scenes of other classes, so that an object which goes with a scene helps to tell it.

    If scenes are always recognised, no classifier needs a common feature, and its importance cannot fall as it
    becomes more common. Each scene of `others` is blended into one scene only: where a split parts the scenes, their
    admixtures are parted too.

    Parameters
    ----------
    scenes : SceneSource
        Scenes to recognise, with as many scenes in each class.
    others : SceneSource
        Other scenes of the same classes, at least as many of each, of the same sizes.
    share : (float, float)
        Limits of the share of the other scene, each in [0, 0.5): less than half, so that the label stays right.
    seed : int
        Random seed of the classes and the shares.

    Raises
    ------
    ValueError
        If classes or numbers of the two sources differ, there is only one class, or `share` is out of its range.
        On access to a scene: if the two have different sizes.

    Examples
    --------
    >>> from quantus_concepts.datasets import MixedScenes, PaintedScenes
    >>> scenes = PaintedScenes(n_per_class=2, size=32, seed=0)
    >>> others = PaintedScenes(n_per_class=2, size=32, seed=1)
    >>> mixed = MixedScenes(scenes, others, share=(0.3, 0.4))
    >>> len(mixed), mixed[0].shape
    (20, (32, 32, 3))
    >>> (mixed.labels == scenes.labels).all().item()
    True
    """

    @check_arguments(seed=Seed())
    def __init__(
        self, scenes: SceneSource, others: SceneSource, share: tuple[float, float] = (0.2, 0.4), seed: int = 0
    ) -> None:
        check_source("scenes", scenes, SceneSource)
        check_source("others", others, SceneSource)
        share = check_pair("share", share)
        if not 0 <= share[0] <= share[1] < 0.5:
            raise ValueError(
                f"Expected argument `share` to be (low, high) with 0 <= low <= high < 0.5 but got {share}."
            )
        n_classes = len(scenes.class_names)
        counts, available = (np.bincount(source.labels, minlength=n_classes) for source in (scenes, others))
        if others.class_names != scenes.class_names or n_classes < 2 or (counts != counts[0]).any():
            raise ValueError(
                "Expected arguments `scenes` and `others` to have the same two classes or more, with as many scenes in "
                f"each, but got {dict(zip(scenes.class_names, counts.tolist(), strict=True))} and {others.class_names}."
            )
        if (available < counts).any():
            raise ValueError(
                f"Expected argument `others` to have {counts[0]} scenes of each class, as `scenes`, but got "
                f"{available.min()} of one."
            )
        self.scenes, self.others, self.share, self.seed = scenes, others, share, seed
        self.class_names, self.labels = scenes.class_names, scenes.labels
        own, other = (_by_class(source.labels, n_classes) for source in (scenes, others))
        # Number r of each class is blended with number r of the class so many further on: no scene twice.
        further = np.random.default_rng([seed, _STREAM]).integers(1, n_classes, counts[0])
        self._partner = np.empty(len(self.labels), dtype=np.int64)
        for label in range(n_classes):
            for number, shift in enumerate(further):
                self._partner[own[label][number]] = other[(label + shift) % n_classes][number]

    def __getitem__(self, index: int) -> np.ndarray:
        """Return one scene."""
        index = check_index(index, len(self))
        scene, other = self.scenes[index], self.others[int(self._partner[index])]
        if scene.shape != other.shape:
            raise ValueError(f"Expected scenes of one size but got {scene.shape} and {other.shape}.")
        share = np.random.default_rng([self.seed, _STREAM, index]).uniform(*self.share)
        return np.rint((1 - share) * scene + share * other).astype(np.uint8)


def _by_class(labels: np.ndarray, n_classes: int) -> list[np.ndarray]:
    return [np.flatnonzero(labels == label) for label in range(n_classes)]
