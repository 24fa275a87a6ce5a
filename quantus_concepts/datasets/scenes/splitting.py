"""Which cut-outs and scenes are for training and which for testing, and in what order they are used."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np


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
    _check_enough(labels, members, class_names, noun)
    open_, test = np.ones(numbers.max() + 1, dtype=bool), np.zeros(numbers.max() + 1, dtype=bool)
    for label in sorted(range(len(class_names)), key=lambda label: len(members[label])):
        mine = np.random.default_rng([*seed, label]).permutation(members[label])
        wanted = min(max(round(len(mine) * test_share), 1), len(mine) - 1)
        free = mine[open_[mine]]
        test[free[: max(0, wanted - int(test[mine].sum()))]] = True
        open_[mine] = False
    for label, mine in enumerate(members):
        if test[mine].all() or not test[mine].any():
            side = "training" if test[mine].all() else "testing"
            raise ValueError(
                f"Expected {noun}s of class {class_names[label]!r} in both splits but all its {len(mine)} groups are "
                f"shared with other classes, which leaves none for {side}. Add some of its own or take another seed."
            )
    return test[numbers]


def take_turns(members: np.ndarray, count: int, seed: Sequence[int]) -> np.ndarray:
    """Use each member once in random order, then each once more in another order, and so on."""
    rng = np.random.default_rng(seed)
    rounds = -(-count // len(members))
    return np.concatenate([rng.permutation(members) for _ in range(rounds)])[:count]


def _check_enough(labels: np.ndarray, members: list[np.ndarray], class_names: Sequence[str], noun: str) -> None:
    short = [label for label, mine in enumerate(members) if len(mine) < 2]
    if short:
        label = short[0]
        count, groups = int((labels == label).sum()), len(members[label])
        told = f"{count} {noun}s" + (f" in {groups} group" if groups < count else "")
        more = f" So do {len(short) - 1} other classes." if len(short) > 1 else ""
        raise ValueError(
            f"Expected at least 2 {noun}s of each class, one for training and one for testing, but class "
            f"{class_names[label]!r} has {told}.{more} Add {noun}s or leave the class out."
        )
