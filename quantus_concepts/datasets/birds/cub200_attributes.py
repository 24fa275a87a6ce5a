"""What CUB-200-2011 annotates: attributes, their order, and the parts they are about."""

from __future__ import annotations

from quantus_concepts.datasets.birds.attributes import PARTS

N_ATTRIBUTES = 312

ATTRIBUTE_GROUPS = (
    ("has_bill_shape", 9),
    ("has_wing_color", 15),
    ("has_upperparts_color", 15),
    ("has_underparts_color", 15),
    ("has_breast_pattern", 4),
    ("has_back_color", 15),
    ("has_tail_shape", 6),
    ("has_upper_tail_color", 15),
    ("has_head_pattern", 11),
    ("has_breast_color", 15),
    ("has_throat_color", 15),
    ("has_eye_color", 14),
    ("has_bill_length", 3),
    ("has_forehead_color", 15),
    ("has_under_tail_color", 15),
    ("has_nape_color", 15),
    ("has_belly_color", 15),
    ("has_wing_shape", 5),
    ("has_size", 5),
    ("has_shape", 14),
    ("has_back_pattern", 4),
    ("has_tail_pattern", 4),
    ("has_belly_pattern", 4),
    ("has_primary_color", 15),
    ("has_leg_color", 15),
    ("has_bill_color", 15),
    ("has_crown_color", 15),
    ("has_wing_pattern", 4),
)
"""Groups of the 312 attributes in the order of the official ``attributes.txt``, with their sizes."""

# fmt: off
CBM_ATTRIBUTES = (
    1, 4, 6, 7, 10, 14, 15, 20, 21, 23, 25, 29, 30, 35, 36, 38, 40, 44, 45, 50, 51, 53, 54, 56, 57, 59,
    63, 64, 69, 70, 72, 75, 80, 84, 90, 91, 93, 99, 101, 106, 110, 111, 116, 117, 119, 125, 126, 131,
    132, 134, 145, 149, 151, 152, 153, 157, 158, 163, 164, 168, 172, 178, 179, 181, 183, 187, 188, 193,
    194, 196, 198, 202, 203, 208, 209, 211, 212, 213, 218, 220, 221, 225, 235, 236, 238, 239, 240, 242,
    243, 244, 249, 253, 254, 259, 260, 262, 268, 274, 277, 283, 289, 292, 293, 294, 298, 299, 304, 305,
    308, 309, 310, 311,
)
# fmt: on
"""The 112 attributes, from 0, that concept bottleneck models use: present in the majority of the training
images of at least ten classes (Koh et al., 2020)."""

OFFICIAL_PARTS = (
    "back",
    "beak",
    "belly",
    "breast",
    "crown",
    "forehead",
    "left eye",
    "left leg",
    "left wing",
    "nape",
    "right eye",
    "right leg",
    "right wing",
    "tail",
    "throat",
)
"""The 15 parts in the order of the official ``parts.txt``."""

# Prefixes of the group names, without "has_"; what is not here (upperparts, underparts, primary, size,
# shape) is about no part.
_PART_OF_GROUP = {
    "back": "back",
    "belly": "belly",
    "bill": "beak",
    "breast": "breast",
    "crown": "crown",
    "eye": "eye",
    "forehead": "forehead",
    "head": "forehead",
    "leg": "leg",
    "nape": "nape",
    "tail": "tail",
    "throat": "throat",
    "under_tail": "tail",
    "upper_tail": "tail",
    "wing": "wing",
}


def attribute_group(attribute: int) -> str:
    """Return the group of an attribute, from its official place."""
    end = 0
    for name, size in ATTRIBUTE_GROUPS:
        end += size
        if 0 <= attribute < end:
            return name
    raise ValueError(f"Expected argument `attribute` to lie in [0, {N_ATTRIBUTES - 1}] but got {attribute}.")


def part_of_attribute(name: str) -> int:
    """Return the part an attribute is about."""
    group = name.split("::", 1)[0].removeprefix("has_")
    region = group.rsplit("_", 1)[0]
    part = _PART_OF_GROUP.get(region)
    return -1 if part is None else PARTS.index(part)


def places_of_part(part: int) -> list[int]:
    """Return the official parts that one of the 12 stands for."""
    name = PARTS[part]
    return [i for i, official in enumerate(OFFICIAL_PARTS) if official in (name, f"left {name}", f"right {name}")]
