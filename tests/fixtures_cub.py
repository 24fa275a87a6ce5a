"""A small data set in the official layout of CUB-200-2011."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from PIL import Image, ImageDraw

COLOURS = "blue brown iridescent purple rufous grey yellow olive green pink orange black white red buff"
PATTERNS = "solid spotted striped multi-colored"
# Groups in their official order, with their values.
GROUPS = {
    "has_bill_shape": "curved_(up_or_down) dagger hooked needle hooked_seabird spatulate all-purpose cone specialized",
    "has_wing_color": COLOURS,
    "has_upperparts_color": COLOURS,
    "has_underparts_color": COLOURS,
    "has_breast_pattern": PATTERNS,
    "has_back_color": COLOURS,
    "has_tail_shape": "forked_tail rounded_tail notched_tail fan-shaped_tail pointed_tail squared_tail",
    "has_upper_tail_color": COLOURS,
    "has_head_pattern": "spotted malar crested masked unique_pattern eyebrow eyering plain eyeline striped capped",
    "has_breast_color": COLOURS,
    "has_throat_color": COLOURS,
    "has_eye_color": COLOURS.replace("iridescent ", ""),
    "has_bill_length": "about_the_same_as_head longer_than_head shorter_than_head",
    "has_forehead_color": COLOURS,
    "has_under_tail_color": COLOURS,
    "has_nape_color": COLOURS,
    "has_belly_color": COLOURS,
    "has_wing_shape": "rounded-wings pointed-wings broad-wings tapered-wings long-wings",
    "has_size": "large_(16_-_32_in) small_(5_-_9_in) very_large_(32_-_72_in) medium_(9_-_16_in) very_small_(3_-_5_in)",
    "has_shape": (
        "upright-perching_water-like chicken-like-marsh long-legged-like duck-like owl-like gull-like hummingbird-like "
        "pigeon-like tree-clinging-like hawk-like sandpiper-like upland-ground-like swallow-like perching-like"
    ),
    "has_back_pattern": PATTERNS,
    "has_tail_pattern": PATTERNS,
    "has_belly_pattern": PATTERNS,
    "has_primary_color": COLOURS,
    "has_leg_color": COLOURS,
    "has_bill_color": COLOURS,
    "has_crown_color": COLOURS,
    "has_wing_pattern": PATTERNS,
}
ATTRIBUTES = [f"{group}::{value}" for group, values in GROUPS.items() for value in values.split()]
PARTS = [
    "back", "beak", "belly", "breast", "crown", "forehead", "left eye", "left leg", "left wing", "nape",
    "right eye", "right leg", "right wing", "tail", "throat",
]  # fmt: skip
CLASSES = ["001.Black_footed_Albatross", "002.Laysan_Albatross", "003.Sooty_Albatross"]
IMAGES_PER_CLASS = 4


def write_cub(root: Path, attributes: str = "inside", extra_columns: bool = True, seed: int = 0) -> Path:
    """Write the data set and return the folder ``CUB_200_2011``.

    Three classes of four images of different sizes (70 to 100 pixels), the first two of each class for training.
    Each attribute belongs to two classes of three (to one where its number is divisible by 4), and one training
    and one test image deviate in it from their class, so that every attribute is present in some and absent in
    some. A white dot of 5 x 5 pixels is painted at the beak, which is always visible as other parts are not, and
    the class of an image is its background colour. `attributes` says where
    ``attributes.txt`` goes: "inside" (``attributes/``), "up" (``CUB_200_2011``) or "outside" (`root`); with
    `extra_columns` some lines of ``image_attribute_labels.txt`` have one column more, as in the original.
    """
    rng = np.random.default_rng(seed)
    cub = root / "CUB_200_2011"
    for folder in ("attributes", "parts", "images"):
        (cub / folder).mkdir(parents=True)
    place = {"inside": cub / "attributes", "up": cub, "outside": root}[attributes]
    _write(place / "attributes.txt", [f"{i} {name}" for i, name in enumerate(ATTRIBUTES, 1)])
    _write(cub / "parts" / "parts.txt", [f"{i} {name}" for i, name in enumerate(PARTS, 1)])
    _write(cub / "classes.txt", [f"{i} {name}" for i, name in enumerate(CLASSES, 1)])

    number = np.arange(len(ATTRIBUTES))
    table = np.stack([(number + k) % 3 != 0 for k in range(len(CLASSES))])
    table[:, number % 4 == 0] ^= True
    names, labels, splits, boxes, marks, places = [], [], [], [], [], []
    shares = np.zeros(table.shape)
    for k, folder in enumerate(CLASSES):
        (cub / "images" / folder).mkdir()
        for j in range(IMAGES_PER_CLASS):
            i = len(names) + 1
            height, width = (int(size) for size in rng.integers(70, 101, 2))
            points = np.stack([rng.integers(6, width - 6, 15), rng.integers(6, height - 6, 15)], 1)
            visible = rng.random(15) > 0.2
            visible[1] = True
            present = table[k] ^ ((number + i) % 6 == 0)
            certainty = rng.integers(1, 5, len(ATTRIBUTES))
            names.append(f"{i} {folder}/{folder[4:]}_{j + 1:04d}_{i}.jpg")
            labels.append(f"{i} {k + 1}")
            splits.append(f"{i} {int(j < IMAGES_PER_CLASS // 2)}")
            boxes.append(f"{i} 1.0 1.0 {width - 2}.0 {height - 2}.0")
            for a in number:
                extra = " 0" if extra_columns and (a * 7 + i) % 100 == 0 else ""
                marks.append(f"{i} {a + 1} {int(present[a])} {certainty[a]}{extra} {rng.random() * 20:.3f}")
            for p in range(15):
                x, y = (f"{value}.0" for value in points[p]) if visible[p] else ("0.0", "0.0")
                places.append(f"{i} {p + 1} {x} {y} {int(visible[p])}")
            shares[k] += present * 100 / IMAGES_PER_CLASS
            _paint(cub / "images" / names[-1].split(" ")[1], k, height, width, points[1], rng)
    _write(cub / "images.txt", names)
    _write(cub / "image_class_labels.txt", labels)
    _write(cub / "train_test_split.txt", splits)
    _write(cub / "bounding_boxes.txt", boxes)
    _write(cub / "attributes" / "image_attribute_labels.txt", marks)
    _write(cub / "parts" / "part_locs.txt", places)
    _write(
        cub / "attributes" / "class_attribute_labels_continuous.txt",
        [" ".join(f"{value:.6f}" for value in row) for row in shares],
    )
    return cub


def _paint(path: Path, k: int, height: int, width: int, beak: np.ndarray, rng: np.random.Generator) -> None:
    pixels = rng.integers(0, 40, (height, width, 3)).astype(np.uint8)
    pixels[..., k] += 80
    image = Image.fromarray(pixels)
    x, y = (int(value) for value in beak)
    ImageDraw.Draw(image).rectangle((x - 2, y - 2, x + 2, y + 2), fill=(255, 255, 255))
    image.save(path, quality=95)


def _write(path: Path, lines: list[str]) -> None:
    path.write_text("\n".join(lines) + "\n")
