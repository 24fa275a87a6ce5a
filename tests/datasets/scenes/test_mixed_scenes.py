from __future__ import annotations

import numpy as np
import pytest

from quantus_concepts.datasets import MixedScenes, SceneSource


class Plain(SceneSource):
    """Scenes of one value each: 10 times the class, plus the number within the class."""

    def __init__(self, n_per_class: int = 4, n_classes: int = 3, offset: int = 0, side: int = 2) -> None:
        self.class_names = [f"c{label}" for label in range(n_classes)]
        self.labels = np.arange(n_classes * n_per_class) % n_classes
        self.offset, self.side = offset, side

    def __getitem__(self, index: int) -> np.ndarray:
        value = 10 * self.labels[index] + index // len(self.class_names) + self.offset
        return np.full((self.side, self.side, 3), value, dtype=np.uint8)


def test_a_share_by_hand() -> None:
    mixed = MixedScenes(Plain(1, 2), Plain(1, 2, offset=100), (0.25, 0.25))
    # two classes: each is mixed with the other; 0.75 * 0 + 0.25 * 110 and 0.75 * 10 + 0.25 * 100
    np.testing.assert_array_equal(mixed[0], np.full((2, 2, 3), 28))
    np.testing.assert_array_equal(mixed[1], np.full((2, 2, 3), 32))


def test_every_admixture_is_of_another_class_and_used_once() -> None:
    others = Plain(n_per_class=6, n_classes=5)
    mixed = MixedScenes(Plain(n_per_class=6, n_classes=5), others, seed=1)
    assert (others.labels[mixed._partner] != mixed.labels).all()
    assert len(set(mixed._partner.tolist())) == len(mixed)


def test_same_seed_same_bits_in_any_order() -> None:
    first, second = (MixedScenes(Plain(), Plain(offset=100), seed=3) for _ in range(2))
    forwards = [first[index] for index in range(len(first))]
    backwards = [second[index] for index in reversed(range(len(second)))][::-1]
    np.testing.assert_array_equal(forwards, backwards)
    other = MixedScenes(Plain(), Plain(offset=100), seed=4)
    assert any((other[index] != forwards[index]).any() for index in range(len(other)))


@pytest.mark.parametrize(
    ("scenes", "others", "share", "match"),
    [
        (Plain(n_classes=1), Plain(n_classes=1), (0.2, 0.3), "two classes"),
        (Plain(), Plain(n_classes=4), (0.2, 0.3), "same two classes"),
        (Plain(5), Plain(4), (0.2, 0.3), "5 scenes of each class"),
        (Plain(), Plain(side=3), (0.2, 0.3), "one size"),
        (Plain(), Plain(), (0.3, 0.2), "`share` to be"),
        (Plain(), Plain(), (0.1, 0.5), "`share` to be"),
    ],
)
def test_scenes_and_shares_that_do_not_fit_are_refused(
    scenes: SceneSource, others: SceneSource, share: tuple[float, float], match: str
) -> None:
    with pytest.raises(ValueError, match=match):
        MixedScenes(scenes, others, share)[0]
