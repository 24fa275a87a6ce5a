"""Painting a picture: polygons, patterns and colours of the bird, and what is under, in front of and behind it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
from PIL import Image, ImageDraw

from quantus_concepts.datasets.birds.anatomy import (
    CODE,
    DARK,
    FRAMES,
    LEAF,
    LINE,
    PERCH,
    SECOND,
    TRUNK,
    Frame,
    Outlines,
    Pose,
    pose_bird,
)
from quantus_concepts.datasets.birds.attributes import COLOURS, NEUTRAL, PARTS

_UNIT = {"small": 0.34, "medium": 0.42, "large": 0.51}  # one unit of a frame, as a share of the image
_PERCHES = ("branch", "mound", "none")
_PERCH_ODDS = np.cumsum((0.45, 0.35))
_COVERS = ("none", "grass", "trunk at tail", "trunk at bill", "leaves")
_COVER_ODDS = np.cumsum((0.60, 0.13, 0.09, 0.06))
# As shares of the image. Only the places of perch and cover follow the bird: were their measures to do so too,
# they would tell of its size and shape. A trunk is as wide as the longest tail of the largest bird is long.
_LEAF_LENGTH, _BLADE_LENGTH, _TRUNK_WIDTH = 0.19, 0.05, 0.37
# Top and bottom of sky, dusk, foliage, water, sand, field; and how much of each is fine texture.
_BACKGROUNDS = np.array(
    [
        [(140, 185, 226), (206, 224, 238)],
        [(150, 132, 168), (236, 196, 164)],
        [(70, 104, 72), (150, 176, 112)],
        [(112, 160, 178), (164, 200, 204)],
        [(204, 190, 158), (222, 208, 176)],
        [(178, 202, 214), (146, 164, 104)],
    ],
    dtype=np.float32,
)
_FINENESS = (0.15, 0.15, 0.9, 0.3, 0.3, 0.4)
_WATER = 3
_BARK = np.array([(112, 86, 64), (142, 126, 110), (92, 76, 70), (176, 166, 152)], dtype=np.float32)
_LEAVES = np.array([(86, 128, 62), (120, 142, 70), (60, 104, 74), (160, 132, 66)], dtype=np.float32)
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


class Scene(NamedTuple):
    """All of one picture that is not an attribute of the bird, drawn once and kept in a substitution."""

    left_facing: bool
    zoom: float
    place: tuple[float, float]
    pose: Pose
    phase: float
    light: np.ndarray
    perch: str
    cover: str
    numbers: np.ndarray


class Placement(NamedTuple):
    """From the units of a frame to pixels: x' = x unit flip + x0, y' = y unit + y0."""

    unit: float
    flip: int
    x0: float
    y0: float

    def to_pixels(self, points: np.ndarray) -> np.ndarray:
        """Return points (n, 2) of a frame in pixels."""
        return points * np.array([self.unit * self.flip, self.unit]) + np.array([self.x0, self.y0])


def draw_scene(rng: np.random.Generator) -> Scene:
    """Draw what is not an attribute of the bird."""
    u = rng.random(16).tolist()
    tint = 0.94 + 0.12 * rng.random(4)
    return Scene(
        left_facing=u[0] < 0.5,
        zoom=0.96 + 0.08 * u[1],
        place=(u[2], u[3]),
        pose=Pose(16 * u[4] - 8, 24 * u[5] - 12, 20 * u[6] - 10, 0.16 * u[7]),
        phase=u[8],
        light=(tint[3] * (0.5 + 0.5 * tint[:3])).astype(np.float32),
        perch=_PERCHES[int(np.searchsorted(_PERCH_ODDS, u[9], side="right"))],
        cover=_COVERS[int(np.searchsorted(_COVER_ODDS, u[10], side="right"))],
        numbers=rng.random(64),
    )


def place_bird(frame: Frame, scene: Scene, size: str, side: int) -> Placement:
    """Return where a bird goes."""
    unit = _UNIT[size] * scene.zoom * side
    left, top, right, bottom = frame.box
    flip = -1 if scene.left_facing else 1
    # A little more than the room there is, so that some birds are cut off.
    room_x = max(side - unit * (right - left), 0) + 0.06 * side
    room_y = max(side - unit * (bottom - top), 0) + 0.02 * side
    middle_x = side / 2 + (scene.place[0] - 0.5) * room_x
    middle_y = side / 2 + (scene.place[1] - 0.5) * room_y
    return Placement(unit, flip, middle_x - flip * unit * (left + right) / 2, middle_y - unit * (top + bottom) / 2)


def paint_perch(draw: ImageDraw.ImageDraw, frame: Frame, scene: Scene, placement: Placement) -> None:
    """Paint what the bird stands on."""
    u = scene.numbers
    side = draw.im.size[0]
    x0 = placement.x0
    feet = placement.y0 + placement.unit * frame.ground
    if scene.perch == "branch":
        slope = 0.16 * (u[0] - 0.5)
        thick = side * (0.02 + 0.02 * u[1])
        left, right = feet - slope * x0, feet + slope * (side - x0)
        edges = [0, left, side, right, side, right + thick, 0, left + 1.5 * thick]
        draw.polygon(edges, fill=PERCH, outline=PERCH + LINE)
    elif scene.perch == "mound":
        reach = side * (0.36 + 0.4 * u[0])
        box = [x0 - reach, feet - 0.012 * side, x0 + reach, feet + 2 * side]
        draw.ellipse(box, fill=PERCH, outline=PERCH + LINE)


def paint_cover(draw: ImageDraw.ImageDraw, frame: Frame, scene: Scene, placement: Placement) -> None:
    """Paint what is in front of the bird."""
    if scene.cover == "grass":
        _paint_grass(draw, frame, scene, placement)
    elif scene.cover == "leaves":
        _paint_leaves(draw, frame, scene, placement)
    elif scene.cover != "none":
        _paint_trunk(draw, frame, scene, placement)


def paint_background(scene: Scene, size: int, rng: np.random.Generator) -> np.ndarray:
    """Paint what is behind the bird."""
    u = scene.numbers
    kind = int(u[56] * len(_BACKGROUNDS))
    ends = _BACKGROUNDS[kind] + 36 * (u[57:63].reshape(2, 3).astype(np.float32) - 0.5)
    coarse = rng.random((5, 5), dtype=np.float32)
    detail = rng.random((14, 14), dtype=np.float32)
    down = np.linspace(0, 1, size, dtype=np.float32)[:, None]
    clouds = np.asarray(Image.fromarray(coarse).resize((size, size), Image.Resampling.BICUBIC)) - 0.5
    leaves = np.asarray(Image.fromarray(detail).resize((size, size), Image.Resampling.BILINEAR)) - 0.5
    blend = down + 0.7 * clouds + _FINENESS[kind] * leaves
    if kind == _WATER:
        blend += 0.22 * np.sin(down * 70 + 3 * clouds)
    return ends[0] + np.clip(blend, -0.3, 1.3)[..., None] * (ends[1] - ends[0])


def scenery_colours(scene: Scene) -> dict[int, np.ndarray]:
    """Return the colours of perch and cover."""
    u = scene.numbers
    colours: dict[int, np.ndarray] = {}
    for code, choices, k in ((PERCH, _BARK, 48), (TRUNK, _BARK, 50), (LEAF, _LEAVES, 52)):
        base = choices[int(u[k] * len(choices))] * (0.85 + 0.3 * u[k + 1])
        colours[code], colours[code + LINE] = base, 0.78 * base
    return colours


def _paint_grass(draw: ImageDraw.ImageDraw, frame: Frame, scene: Scene, placement: Placement) -> None:
    side = draw.im.size[0]
    # The notches are above where the legs come out of the body, so that no leg is seen.
    notch = placement.y0 + placement.unit * 0.85 * frame.depth
    x = np.linspace(-0.05 * side, 1.05 * side, 36)
    for shade, high, first in ((LINE, 1.5, 8), (0, 1.0, 28)):
        y = np.full(36, notch)
        y[::2] -= side * _BLADE_LENGTH * high * (0.4 + scene.numbers[first : first + 18])
        edge = np.stack([x, y], axis=1).ravel().tolist()
        draw.polygon([*edge, 1.1 * side, side + 1, -0.1 * side, side + 1], fill=LEAF + shade)


def _paint_trunk(draw: ImageDraw.ImageDraw, frame: Frame, scene: Scene, placement: Placement) -> None:
    u = scene.numbers
    side = draw.im.size[0]
    if scene.cover == "trunk at bill":
        near, away = frame.head[0] + 0.7 * frame.skull, placement.flip
    else:
        near, away = 0.04 - frame.length * np.cos(np.deg2rad(frame.tilt)), -placement.flip
    edge = placement.x0 + placement.unit * placement.flip * near
    low, high = sorted((edge, edge + away * _TRUNK_WIDTH * side))
    flare = 0.03 * side * u[8:12]
    trunk = [low - flare[0], 0, high + flare[1], 0, high + flare[2], side, low - flare[3], side]
    draw.polygon(trunk, fill=TRUNK, outline=TRUNK + LINE)
    for k in range(6):
        x, y = low + (high - low) * u[12 + k], side * u[18 + k]
        draw.line([x, y, x + 0.01 * side, y + 0.12 * side], fill=TRUNK + LINE, width=2)


def _paint_leaves(draw: ImageDraw.ImageDraw, frame: Frame, scene: Scene, placement: Placement) -> None:
    u = scene.numbers
    left, top, right, bottom = frame.box
    middle = np.array([[left + (right - left) * u[8], top + (bottom - top) * u[9]]])
    twig = placement.to_pixels(middle)
    blade = np.array([(0, 0), (0.27, -0.2), (0.64, -0.19), (1, 0), (0.64, 0.19), (0.27, 0.2)])
    for k in range(6):
        angle = np.deg2rad(60 * k + 50 * u[10 + k])
        c, s = np.cos(angle), np.sin(angle)
        length = draw.im.size[0] * _LEAF_LENGTH * (0.85 + 0.3 * u[16 + k])
        corners = (twig + length * blade @ np.array([[c, s], [-s, c]])).ravel().tolist()
        draw.polygon(corners, fill=LEAF, outline=LEAF + LINE)
        draw.line([*corners[:2], *corners[6:8]], fill=LEAF + LINE)


def paint_values(look: Mapping[str, str], scene: Scene, image_size: int, without: str | None = None) -> np.ndarray:
    """Paint part codes and shades, three times as fine as the image, of all parts or of all but one."""
    look = {**_DEFAULT_LOOK, **look}
    frame = FRAMES[look["has_shape"]]
    side = image_size * FINE
    placement = place_bird(frame, scene, look["has_size"], side)
    shapes = (look[f"has_{what}_shape"] for what in ("bill", "tail", "wing", "crown"))
    outlines = pose_bird(frame, scene.pose, *shapes)
    picture = Image.new("L", (side, side))
    draw = ImageDraw.Draw(picture)
    paint_perch(draw, frame, scene, placement)
    boxes = _paint_bird(draw, outlines, placement, CODE.get(without or ""))
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
    visible = counts >= max(1, round(middle.size / 2304))
    visible[len(PARTS) + 1 :] = False
    return np.where(visible, np.arange(16), 0).astype(np.uint8)[middle]


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
    visible, first = np.unique(part[order], return_index=True)
    centres = np.full((len(PARTS), 2), np.nan, dtype=np.float32)
    centres[visible] = np.stack([x, y], axis=1)[order[first]]
    return centres


def _paint_bird(
    draw: ImageDraw.ImageDraw, outlines: Outlines, placement: Placement, without: int | None
) -> dict[int, Box]:
    points = placement.to_pixels(outlines.points)
    flat = points.ravel().tolist()
    boxes: dict[int, Box] = {}
    start = 0
    for value, end in zip(outlines.values, outlines.ends, strict=True):
        # The eye has a ring of its own.
        detail = value >= SECOND or value == CODE["eye"]
        if value & 15 != without:
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
