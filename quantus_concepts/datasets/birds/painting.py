"""Painting a bird: polygons on a fine grid, patterns, colours; and reading off where its parts are."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from PIL import Image, ImageDraw

from quantus_concepts.datasets.birds.anatomy import CODE, DARK, FRAMES, LINE, SECOND, Outlines, pose_bird
from quantus_concepts.datasets.birds.attributes import COLOURS, NEUTRAL, PARTS
from quantus_concepts.datasets.birds.scenery import (
    Placement,
    Scene,
    paint_background,
    paint_cover,
    paint_perch,
    place_bird,
    scenery_colours,
)

# Painted this many times finer than the image, then averaged: odd, so that a pixel has a middle.
FINE = 3
# What a bird is like whose groups were left out.
_DEFAULT_LOOK = {
    "has_bill_shape": "cone",
    "has_tail_shape": "rounded",
    "has_wing_shape": "rounded",
    "has_crown_shape": "smooth",
    "has_size": "medium",
    "has_shape": "perching-like",
}
_COLOUR_GROUPS = {code: f"has_{'bill' if part == 'beak' else part}_color" for part, code in CODE.items()}
_PATTERN_GROUPS = {CODE[part]: f"has_{part}_pattern" for part in ("breast", "wing", "belly", "tail")}
# Multi-coloured behind, by this share of the part, and not below: the wing hides the upper half of the belly.
_REAR_SHARE = {CODE["belly"]: 0.5, CODE["tail"]: 0.33}

Box = tuple[int, int, int, int]


def paint_values(look: Mapping[str, str], scene: Scene, image_size: int) -> np.ndarray:
    """Paint part codes and shades, three times as fine as the image."""
    look = {**_DEFAULT_LOOK, **look}
    frame = FRAMES[look["has_shape"]]
    side = image_size * FINE
    placement = place_bird(frame, scene, look["has_size"], side)
    shapes = (look[f"has_{what}_shape"] for what in ("bill", "tail", "wing", "crown"))
    outlines = pose_bird(frame, scene.pose, *shapes)
    picture = Image.new("L", (side, side))
    draw = ImageDraw.Draw(picture)
    paint_perch(draw, frame, scene, placement)
    boxes = _paint_bird(draw, outlines, placement)
    paint_cover(draw, frame, scene, placement)
    values = np.array(picture)
    for code, group in _PATTERN_GROUPS.items():
        pattern = look.get(group, "solid")
        if pattern != "solid":
            _paint_pattern(values, code, pattern, boxes[code], placement, scene)
    return values


def paint_image(values: np.ndarray, look: Mapping[str, str], scene: Scene, rng: np.random.Generator) -> np.ndarray:
    """Give the painted values their colours and put the background behind them."""
    side = len(values)
    size = side // FINE
    coloured = np.take(_palette(look, scene), values)
    # The background is (0, 0, 0, 0), so that averages are colours times coverage. Said to be RGBA, Pillow would
    # divide them by the coverage.
    picture = Image.frombuffer("RGBX", (side, side), coloured.tobytes(), "raw", "RGBX", 0, 1).reduce(FINE)
    bird = np.asarray(picture, dtype=np.float32)
    image = bird[..., :3] + (1 - bird[..., 3:] / 255) * paint_background(scene, size, rng)
    grain = np.frombuffer(rng.bytes(size * size), dtype=np.int8).reshape(size, size, 1)
    image += grain * np.float32(0.055)
    return np.clip(image, 0, 255).astype(np.uint8)


def map_parts(values: np.ndarray) -> np.ndarray:
    """Return which part each pixel of the image shows: the one painted at the pixel's middle."""
    # A part of which less than one pixel in 2,304 of the image is seen (4 at 96 pixels, 2 at 64) is hidden and has
    # no pixels.
    middle = values[FINE // 2 :: FINE, FINE // 2 :: FINE] & 15
    counts = np.bincount(middle.ravel(), minlength=16)
    seen = counts >= max(1, round(middle.size / 2304))
    seen[len(PARTS) + 1 :] = False
    return np.where(seen, np.arange(16), 0).astype(np.uint8)[middle]


def map_touches(values: np.ndarray) -> np.ndarray:
    """Return which pixels of the image each part has a share in, however small."""
    size = len(values) // FINE
    codes = (values & 15).reshape(size, FINE, size, FINE)
    return np.stack([(codes == code).any(axis=(1, 3)) for code in CODE.values()])


def locate_parts(parts: np.ndarray) -> np.ndarray:
    """Return the centre of each part: of its pixels, the one nearest to their mean."""
    y, x = np.nonzero(parts)
    part = parts[y, x] - 1
    counts = np.maximum(np.bincount(part, minlength=len(PARTS)), 1)
    mean_x = np.bincount(part, x, minlength=len(PARTS)) / counts
    mean_y = np.bincount(part, y, minlength=len(PARTS)) / counts
    distance = (x - mean_x[part]) ** 2 + (y - mean_y[part]) ** 2
    order = np.lexsort((distance, part))
    found, first = np.unique(part[order], return_index=True)
    centres = np.full((len(PARTS), 2), np.nan, dtype=np.float32)
    centres[found] = np.stack([x, y], axis=1)[order[first]]
    return centres


def _paint_bird(draw: ImageDraw.ImageDraw, outlines: Outlines, placement: Placement) -> dict[int, Box]:
    points = placement.to_pixels(outlines.points)
    flat = points.ravel().tolist()
    boxes: dict[int, Box] = {}
    start = 0
    for value, end in zip(outlines.values, outlines.ends, strict=True):
        # The eye has a ring of its own.
        detail = value >= SECOND or value == CODE["eye"]
        draw.polygon(flat[2 * start : 2 * end], fill=value, outline=None if detail else value + LINE)
        if value in _PATTERN_GROUPS:
            (left, top), (right, bottom) = points[start:end].min(0), points[start:end].max(0)
            boxes[value] = (int(left), int(top), int(right) + 2, int(bottom) + 2)
        start = end
    return boxes


def _paint_pattern(values: np.ndarray, code: int, pattern: str, box: Box, placement: Placement, scene: Scene) -> None:
    left, top, right, bottom = box
    rear = _REAR_SHARE.get(code, 0.0) * (right - left)
    rear_x, low_y = left + rear if placement.flip > 0 else right - rear, 0.44 * top + 0.56 * bottom
    left, top = max(left, 0), max(top, 0)
    region = values[top : max(bottom, 0), left : max(right, 0)]
    rows, columns = np.arange(region.shape[0]) + top, np.arange(region.shape[1]) + left
    # In the bird's own units, so that a pattern moves, grows and turns round with the bird.
    x = ((columns - placement.x0) * (placement.flip / placement.unit))[None]
    y = ((rows - placement.y0) / placement.unit)[:, None]
    if pattern == "striped":
        across = 4.2 * x + 9.5 * y + scene.phase
        second = across - np.floor(across) < 0.44
    elif pattern == "spotted":
        down = 8.0 * y + scene.phase
        across = 7.0 * x + 0.5 * (np.floor(down) % 2)
        second = (across - np.floor(across) - 0.5) ** 2 + (down - np.floor(down) - 0.5) ** 2 < 0.105
    elif code in _REAR_SHARE:
        second = ((columns - rear_x) * placement.flip < 0)[None]
    else:
        second = (rows > low_y)[:, None]
    region[second & (region == code)] += SECOND


def _shades(base: tuple[int, int, int]) -> np.ndarray:
    # The second colour and the line stand out from a dark colour as from a bright one.
    colour = np.array(base, dtype=np.float32)
    brightness = float(colour @ np.array([0.299, 0.587, 0.114]))
    second = 0.28 * colour if brightness > 110 else 0.3 * colour + 173
    line = 0.62 * colour if brightness > 60 else 0.85 * colour + 20
    return np.stack([colour, second, line, np.full(3, 18, dtype=np.float32)])


_SHADES = {name: _shades(base) for name, base in {**COLOURS, "": NEUTRAL}.items()}


def _palette(look: Mapping[str, str], scene: Scene) -> np.ndarray:
    # (64,) colours, each four bytes in one word: red, green, blue, coverage.
    colours = np.zeros((64, 4), dtype=np.float32)
    for code, group in _COLOUR_GROUPS.items():
        colours[code : code + DARK + 1 : SECOND, :3] = _SHADES[look.get(group, "")]
    # The ring of a black eye is bright, else ring, iris and pupil would be one.
    colours[CODE["eye"] + LINE, :3] = 200 if look.get("has_eye_color") == "black" else 30
    for value, colour in scenery_colours(scene).items():
        colours[value, :3] = colour
    colours[:, :3] *= scene.light
    colours[1:, 3] = 255
    return np.clip(colours, 0, 255).astype(np.uint8).view(np.uint32).ravel()
