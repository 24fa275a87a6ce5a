"""What painted birds differ in: attribute groups, their options and colours, and the tables of classes."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

#: The 12 parts of the paper's Table 4 in its order, left and right together; its "head" is the forehead.
PARTS = ("back", "beak", "belly", "breast", "crown", "forehead", "eye", "leg", "wing", "nape", "tail", "throat")

COLOURS = {
    "red": (206, 44, 40),
    "orange": (243, 128, 24),
    "yellow": (248, 208, 52),
    "green": (52, 146, 76),
    "blue": (44, 98, 206),
    "purple": (128, 66, 172),
    "pink": (242, 140, 178),
    "brown": (124, 76, 40),
    "grey": (138, 143, 152),
    "black": (38, 36, 42),
    "white": (244, 242, 236),
}
NEUTRAL = (164, 152, 138)  # of a part whose colour group is left out; no option has it

_PLUMAGE = ("red", "blue", "yellow", "black", "white", "green")
_PATTERNS = ("solid", "striped", "spotted", "multi-colored")


class AttributeGroup(NamedTuple):
    """A group of attributes of which a bird has exactly one."""

    name: str
    part: str | None
    options: tuple[str, ...]

    @property
    def is_colour(self) -> bool:
        """Whether the options are colours."""
        return self.name.endswith("_color")


# In the order in which they are taken: first one group for each of the twelve parts and one for the whole bird.
CATALOGUE = (
    AttributeGroup("has_wing_color", "wing", _PLUMAGE),
    AttributeGroup("has_breast_color", "breast", _PLUMAGE),
    AttributeGroup("has_bill_shape", "beak", ("cone", "needle", "hooked", "spatulate", "dagger")),
    AttributeGroup("has_crown_color", "crown", _PLUMAGE),
    AttributeGroup("has_tail_shape", "tail", ("forked", "fan-shaped", "pointed", "rounded")),
    AttributeGroup("has_leg_color", "leg", ("orange", "grey", "yellow", "black", "pink")),
    AttributeGroup("has_belly_color", "belly", _PLUMAGE),
    AttributeGroup("has_size", None, ("small", "large", "medium")),
    AttributeGroup("has_back_color", "back", ("red", "blue", "green", "black", "brown", "grey")),
    AttributeGroup("has_throat_color", "throat", _PLUMAGE),
    AttributeGroup("has_nape_color", "nape", ("red", "blue", "yellow", "black", "white", "purple")),
    AttributeGroup("has_forehead_color", "forehead", _PLUMAGE),
    AttributeGroup("has_eye_color", "eye", ("red", "blue", "yellow", "black")),
    AttributeGroup("has_breast_pattern", "breast", _PATTERNS),
    AttributeGroup("has_wing_pattern", "wing", _PATTERNS),
    AttributeGroup("has_shape", None, ("perching-like", "long-legged-like", "upright-perching-like", "duck-like")),
    AttributeGroup("has_tail_color", "tail", ("red", "blue", "yellow", "black", "white", "brown")),
    AttributeGroup("has_bill_color", "beak", ("orange", "grey", "yellow", "black", "red")),
    AttributeGroup("has_belly_pattern", "belly", _PATTERNS),
    AttributeGroup("has_tail_pattern", "tail", _PATTERNS),
    AttributeGroup("has_crown_shape", "crown", ("smooth", "crested")),
    AttributeGroup("has_wing_shape", "wing", ("rounded", "pointed")),
)
MAX_CONCEPTS = sum(len(group.options) for group in CATALOGUE)
MIN_CONCEPTS = 4

_SPECIES = """
    Finch Warbler Sparrow Heron Wren Tanager Oriole Thrush Vireo Bunting Grosbeak Flycatcher Swallow
    Jay Kingfisher Woodpecker Gull Tern Duck Grebe Plover Sandpiper Rail Crake Coot Stilt Avocet
    Ibis Egret Stork Pipit Lark Wagtail Robin Chat Starling Myna Bulbul Tit Nuthatch Creeper Dipper
    Shrike Cuckoo Roller Hoopoe Barbet Toucan Parrot Lory Dove Pigeon Quail Grouse Pheasant Curlew
    Godwit Snipe Jacana Weaver
"""
SPECIES = tuple(_SPECIES.split())


def choose_groups(n_concepts: int) -> list[AttributeGroup]:
    """Return the groups, shortened where needed, that have `n_concepts` options together."""
    # One group is taken for every four concepts, in the order of the catalogue, but all of the first thirteen
    # (every part and the whole bird) where there are two concepts for each. Every group starts with its first two
    # options; the rest are given out one at a time to the group that has fewest (the first of those), until the
    # number is reached; where the groups run out of options, the next group joins with two.
    n_groups = min(len(CATALOGUE), max(n_concepts // 4, min(n_concepts // 2, 13)))
    while sum(len(group.options) for group in CATALOGUE[:n_groups]) < n_concepts:
        n_groups += 1
    counts = [2] * n_groups
    for _ in range(n_concepts - 2 * n_groups):
        growing = [g for g in range(n_groups) if counts[g] < len(CATALOGUE[g].options)]
        counts[min(growing, key=lambda g: counts[g])] += 1
    return [
        group._replace(options=group.options[:count]) for group, count in zip(CATALOGUE[:n_groups], counts, strict=True)
    ]


def class_table(groups: list[AttributeGroup], n_classes: int, correlation: float, seed: int) -> np.ndarray:
    """Draw the attributes of the classes."""
    # Within a group the options are shared out evenly among the classes, in random order. Then every class draws a
    # place in the lists of colours, and each of its colour groups takes the colour at that place with probability
    # `correlation`. Options that no class has left are given to a class with a frequent one, and of two equal
    # classes the later is changed in one attribute, until all differ.
    sizes = np.array([len(group.options) for group in groups])
    # log2, since the product itself overflows.
    if np.log2(sizes).sum() < np.log2(n_classes) + 1:
        raise ValueError(
            f"Expected argument `n_classes` to be at most {int(np.prod(sizes.astype(float))) // 2}, half the number of "
            f"different birds of these concepts, but got {n_classes}. Ask for more concepts (n_concepts) or fewer "
            "classes (n_classes)."
        )
    rng = np.random.default_rng([seed, 2])
    table = np.stack([rng.permutation(np.arange(n_classes) % size) for size in sizes], axis=1)
    coloured = np.array([group.is_colour for group in groups])
    place = rng.permutation(np.arange(n_classes) % sizes[coloured].max())
    bound = (rng.random(table.shape) < correlation) & coloured
    table = np.where(bound, place[:, None] % sizes, table)
    for _ in range(100):
        _restore_lost_options(table, sizes, rng)
        twins = _later_twins(table)
        if not len(twins):
            return table
        for k in twins:
            g = int(rng.integers(len(groups)))
            table[k, g] = (table[k, g] + 1 + rng.integers(sizes[g] - 1)) % sizes[g]
    raise ValueError(
        f"Expected argument `n_classes` to leave room for different classes but found no table of {n_classes} "
        f"classes with {int(sizes.sum())} concepts. Ask for more concepts (n_concepts) or fewer classes "
        "(n_classes)."
    )


def _restore_lost_options(table: np.ndarray, sizes: np.ndarray, rng: np.random.Generator) -> None:
    for g, size in enumerate(sizes):
        counts = np.bincount(table[:, g], minlength=size)
        for option in np.flatnonzero(counts == 0):
            commonest = int(counts.argmax())
            if counts[commonest] > 1:
                k = rng.choice(np.flatnonzero(table[:, g] == commonest))
                table[k, g] = option
                counts[commonest] -= 1
                counts[option] += 1


def _later_twins(table: np.ndarray) -> np.ndarray:
    _, first = np.unique(table, axis=0, return_index=True)
    return np.setdiff1d(np.arange(len(table)), first)
