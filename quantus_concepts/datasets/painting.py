"""Painting a bird: polygons on a fine grid, patterns, light, a background, things in front."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
from PIL import Image, ImageDraw

from quantus_concepts.datasets.anatomy import (
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
from quantus_concepts.datasets.bird_attributes import COLOURS, NEUTRAL

# Painted this many times finer than the image, then averaged: odd, so that a pixel has a middle.
FINE = 3
# Of a bird whose groups were left out.
DEFAULT_LOOK = {
    "has_bill_shape": "cone",
    "has_tail_shape": "rounded",
    "has_wing_shape": "rounded",
    "has_crown_shape": "smooth",
    "has_size": "medium",
    "has_shape": "perching-like",
}
_UNIT = {"small": 0.36, "medium": 0.45, "large": 0.56}
_PERCHES = ("branch", "mound", "none")
_PERCH_ODDS = np.cumsum((0.45, 0.35, 0.2))
_COVERS = ("none", "grass", "trunk at tail", "trunk at bill", "leaves")
_COVER_ODDS = np.cumsum((0.60, 0.13, 0.09, 0.06, 0.12))
_PART_COLOURS = {
    code: "has_bill_color" if part == "beak" else f"has_{part}_color" for part, code in CODE.items()
}
_PATTERNED = ("breast", "wing", "belly", "tail")
# Top and bottom of sky, dusk, foliage, water, sand, field.
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
_BARK = np.array([(112, 86, 64), (142, 126, 110), (92, 76, 70), (176, 166, 152)], dtype=np.float32)
_LEAVES = np.array([(86, 128, 62), (120, 142, 70), (60, 104, 74), (160, 132, 66)], dtype=np.float32)
_LUMA = np.array([0.299, 0.587, 0.114])


class Scene(NamedTuple):
    """All of one picture that is not an attribute of the bird, drawn once and kept in a substitution.

    Attributes
    ----------
    left_facing : bool
        Which way the bird looks.
    zoom : float
        Factor on its size, near 1.
    place : tuple of float
        Where in the room left, in [0, 1] across and down.
    pose : Pose
        How it holds itself.
    phase : float
        Where patterns start, in periods.
    light : np.ndarray
        (3,), factor on the colours of the bird.
    perch : str
        What it stands on.
    cover : str
        What is in front of it.
    numbers : np.ndarray
        (64,), uniform in [0, 1): the details of perch, cover and background.
    """

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
    """From the units of a frame to pixels: x' = x unit flip + x0, y' = y unit + y0.

    Attributes
    ----------
    unit : float
        Pixels in one unit.
    flip : int
        1 facing right, -1 facing left.
    x0 : float
        Column of the middle of the bird.
    y0 : float
        Row of the middle of the bird.
    """

    unit: float
    flip: int
    x0: float
    y0: float


def draw_scene(rng: np.random.Generator) -> Scene:
    """Draw what is not an attribute of the bird.

    Parameters
    ----------
    rng : np.random.Generator
        Source of the numbers; as many are used whatever comes out.

    Returns
    -------
    Scene
        Independent of all attributes.
    """
    u = rng.random(16).tolist()
    tint = 0.94 + 0.12 * rng.random(4)
    return Scene(
        left_facing=u[0] < 0.5,
        zoom=0.96 + 0.08 * u[1],
        place=(u[2], u[3]),
        pose=Pose(16 * u[4] - 8, 24 * u[5] - 12, 20 * u[6] - 10, 0.16 * u[7]),
        phase=u[8],
        light=(tint[3] * (0.5 + 0.5 * tint[:3])).astype(np.float32),
        perch=_PERCHES[int(np.searchsorted(_PERCH_ODDS, u[9]))],
        cover=_COVERS[int(np.searchsorted(_COVER_ODDS[:-1], u[10], side="right"))],
        numbers=rng.random(64),
    )


def paint_values(look: Mapping[str, str], scene: Scene, image_size: int) -> np.ndarray:
    """Paint part codes and shades, three times as fine as the image.

    Parameters
    ----------
    look : mapping of str to str
        Option of each group; for groups that are left out a default is taken.
    scene : Scene
        The rest of the picture.
    image_size : int
        Height and width of the image, in pixels.

    Returns
    -------
    np.ndarray
        (3 H, 3 W) of uint8: code plus shade, 0 for the background.
    """
    look = {**DEFAULT_LOOK, **look}
    frame = FRAMES[look["has_shape"]]
    placement = _place(frame, scene, look["has_size"], image_size * FINE)
    outlines = pose_bird(
        frame,
        scene.pose,
        look["has_bill_shape"],
        look["has_tail_shape"],
        look["has_wing_shape"],
        look["has_crown_shape"],
    )
    picture = Image.new("L", (image_size * FINE, image_size * FINE))
    draw = ImageDraw.Draw(picture)
    _paint_perch(draw, frame, scene, placement)
    boxes = _paint_bird(draw, outlines, placement)
    _paint_cover(draw, frame, scene, placement)
    values = np.array(picture)
    for part in _PATTERNED:
        pattern = look.get(f"has_{part}_pattern", "solid")
        if pattern != "solid":
            _paint_pattern(values, CODE[part], pattern, boxes[CODE[part]], placement, scene)
    return values


def map_parts(values: np.ndarray) -> np.ndarray:
    """Return which part each pixel of the image shows: the one painted at its middle.

    Parameters
    ----------
    values : np.ndarray
        (3 H, 3 W), from `paint_values`.

    Returns
    -------
    np.ndarray
        (H, W) of uint8: place among PARTS plus one, 0 where no part is seen.
    """
    middle = values[FINE // 2 :: FINE, FINE // 2 :: FINE] & 15
    return np.where(middle <= len(CODE), middle, 0).astype(np.uint8)


def paint_image(
    values: np.ndarray, look: Mapping[str, str], scene: Scene, rng: np.random.Generator
) -> np.ndarray:
    """Give the painted values their colours and put the background behind them.

    Parameters
    ----------
    values : np.ndarray
        (3 H, 3 W), from `paint_values`.
    look : mapping of str to str
        Option of each group.
    scene : Scene
        The rest of the picture.
    rng : np.random.Generator
        Source of the texture.

    Returns
    -------
    np.ndarray
        (H, W, 3) of uint8.
    """
    fine = len(values)
    size = fine // FINE
    coloured = np.take(_palette(look, scene), values)
    # Background is (0, 0, 0, 0), so that averages are colours times coverage.
    picture = Image.frombuffer("RGBA", (fine, fine), coloured.tobytes(), "raw", "RGBA", 0, 1).reduce(FINE)
    bird = np.asarray(picture, dtype=np.float32)
    behind = 1 - bird[..., 3:] / 255
    image = bird[..., :3] + behind * _paint_background(scene, size, rng)
    grain = np.frombuffer(rng.bytes(size * size), dtype=np.int8).reshape(size, size, 1)
    image += grain * np.float32(0.055)
    return np.clip(image, 0, 255).astype(np.uint8)


def _place(frame: Frame, scene: Scene, size: str, side: int) -> Placement:
    unit = _UNIT[size] * scene.zoom * side
    left, top, right, bottom = frame.box
    flip = -1 if scene.left_facing else 1
    # A little more than the room there is, so that birds are sometimes cut off.
    room_x = max(side - unit * (right - left), 0) + 0.06 * side
    room_y = max(side - unit * (bottom - top), 0) + 0.02 * side
    middle_x = side / 2 + (scene.place[0] - 0.5) * room_x
    middle_y = side / 2 + (scene.place[1] - 0.5) * room_y
    return Placement(
        unit, flip, middle_x - flip * unit * (left + right) / 2, middle_y - unit * (top + bottom) / 2
    )


def _pixels(points: np.ndarray, placement: Placement) -> np.ndarray:
    unit, flip, x0, y0 = placement
    return points * np.array([unit * flip, unit]) + np.array([x0, y0])


def _paint_bird(
    draw: ImageDraw.ImageDraw, outlines: Outlines, placement: Placement
) -> dict[int, tuple[int, int, int, int]]:
    points = _pixels(outlines.points, placement)
    flat = points.ravel().tolist()
    boxes: dict[int, tuple[int, int, int, int]] = {}
    start = 0
    for value, end, line in zip(outlines.values, outlines.ends, outlines.lines, strict=True):
        draw.polygon(flat[2 * start : 2 * end], fill=value, outline=None if line else value + LINE)
        if value < SECOND:
            (left, top), (right, bottom) = points[start:end].min(0), points[start:end].max(0)
            boxes[value] = (max(int(left), 0), max(int(top), 0), max(int(right) + 2, 0), max(int(bottom) + 2, 0))
        start = end
    return boxes


def _paint_perch(draw: ImageDraw.ImageDraw, frame: Frame, scene: Scene, placement: Placement) -> None:
    u = scene.numbers
    side = draw.im.size[0]
    unit, _, x0, y0 = placement
    feet = y0 + unit * frame.ground
    if scene.perch == "branch":
        slope = 0.16 * (u[0] - 0.5)
        thick = unit * (0.05 + 0.04 * u[1])
        left, right = feet - slope * x0, feet + slope * (side - x0)
        draw.polygon(
            [0, left, side, right, side, right + thick, 0, left + 1.5 * thick], fill=PERCH, outline=PERCH + LINE
        )
    elif scene.perch == "mound":
        reach = unit * (1 + u[0])
        draw.ellipse([x0 - reach, feet - 0.03 * unit, x0 + reach, feet + unit * (1 + u[1])], fill=PERCH, outline=PERCH + LINE)


def _paint_cover(draw: ImageDraw.ImageDraw, frame: Frame, scene: Scene, placement: Placement) -> None:
    u = scene.numbers
    side = draw.im.size[0]
    if scene.cover == "grass":
        _, _, _, y0 = placement
        valley = y0 + placement.unit * 0.8 * frame.depth
        for shade, high, seed in ((LINE, 0.16, 8), (0, 0.10, 28)):
            tips = u[seed : seed + 18]
            x = np.linspace(-0.05 * side, 1.05 * side, 36)
            y = np.full(36, valley)
            y[::2] -= placement.unit * high * (0.4 + tips)
            edge = np.stack([x, y], axis=1).ravel().tolist()
            draw.polygon([*edge, 1.1 * side, side + 1, -0.1 * side, side + 1], fill=LEAF + shade)
    elif scene.cover.startswith("trunk"):
        near, far = _trunk_span(frame, scene.cover)
        edges = placement.x0 + placement.unit * placement.flip * np.array([near, far])
        low, high = edges.min(), edges.max()
        lean = (u[8:12] - 0.5) * 0.06 * side
        draw.polygon(
            [low + min(lean[0], 0), 0, high + max(lean[1], 0), 0, high + max(lean[2], 0), side, low + min(lean[3], 0), side],
            fill=TRUNK,
            outline=TRUNK + LINE,
        )
        for k in range(6):
            x, y = low + (high - low) * u[12 + k], side * u[18 + k]
            draw.line([x, y, x + 0.01 * side, y + 0.12 * side], fill=TRUNK + LINE, width=2)
    elif scene.cover == "leaves":
        _paint_leaves(draw, frame, scene, placement)


def _trunk_span(frame: Frame, cover: str) -> tuple[float, float]:
    if cover == "trunk at bill":
        near = frame.head[0] + 0.7 * frame.skull
        return near, near + 0.62
    tilt = np.deg2rad(frame.tilt)
    rear = -frame.length * np.cos(tilt)
    return rear + 0.04, -0.74 * frame.length * np.cos(tilt) - 0.84 * np.cos(tilt + np.deg2rad(frame.tail))


def _paint_leaves(draw: ImageDraw.ImageDraw, frame: Frame, scene: Scene, placement: Placement) -> None:
    u = scene.numbers
    left, top, right, bottom = frame.box
    twig = np.array([left + (right - left) * u[8], top + (bottom - top) * u[9]])
    blade = np.array([(0, 0), (0.12, -0.09), (0.28, -0.085), (0.44, 0), (0.28, 0.085), (0.12, 0.09)])
    for k in range(6):
        angle = np.deg2rad(60 * k + 50 * u[10 + k])
        c, s = np.cos(angle), np.sin(angle)
        leaf = twig + (0.85 + 0.3 * u[16 + k]) * blade @ np.array([[c, s], [-s, c]])
        points = _pixels(np.concatenate([leaf, twig[None]]), placement)
        flat = points.ravel().tolist()
        draw.polygon(flat[:-2], fill=LEAF, outline=LEAF + LINE)
        draw.line([*flat[-2:], *flat[6:8]], fill=LEAF + LINE)


def _paint_pattern(
    values: np.ndarray,
    code: int,
    pattern: str,
    box: tuple[int, int, int, int],
    placement: Placement,
    scene: Scene,
) -> None:
    left, top, right, bottom = box
    region = values[top:bottom, left:right]
    if not region.size:
        return
    # In the bird's own units, so that a pattern moves, grows and turns round with the bird.
    x = (np.arange(left, left + region.shape[1]) - placement.x0) * (placement.flip / placement.unit)
    y = (np.arange(top, top + region.shape[0]) - placement.y0) / placement.unit
    if pattern == "striped":
        drift = (x * 4.2)[None] + (y * 9.5)[:, None] + scene.phase
        second = drift - np.floor(drift) < 0.44
    elif pattern == "spotted":
        row = y * 8.0 + scene.phase
        odd = np.floor(row) % 2
        column = (x * 7.0)[None] + 0.5 * odd[:, None]
        second = (column - np.floor(column) - 0.5) ** 2 + ((row - np.floor(row) - 0.5) ** 2)[:, None] < 0.105
    else:
        level = (bottom + top) / 2 + 0.06 * (bottom - top)
        rows = np.arange(top, top + region.shape[0]) > level
        second = np.broadcast_to(rows[:, None], region.shape)
    region[second & (region == code)] += SECOND


def _palette(look: Mapping[str, str], scene: Scene) -> np.ndarray:
    colours = np.zeros((64, 4), dtype=np.float32)
    for code, group in _PART_COLOURS.items():
        base = np.array(COLOURS[look[group]] if group in look else NEUTRAL, dtype=np.float32)
        bright = float(base @ _LUMA)
        second = base * 0.28 if bright > 110 else base * 0.3 + 255 * 0.68
        line = base * 0.62 if bright > 60 else base * 0.7 + 38
        for shade, colour in ((0, base), (SECOND, second), (LINE, line), (DARK, (18, 16, 20))):
            colours[code + shade, :3] = colour
    if look.get("has_eye_color") == "black":
        # Else ring, iris and pupil would be one.
        colours[CODE["eye"] + LINE, :3] = 200
    else:
        colours[CODE["eye"] + LINE, :3] = 30
    u = scene.numbers
    for code, choices, k in ((PERCH, _BARK, 48), (TRUNK, _BARK, 50), (LEAF, _LEAVES, 52)):
        base = choices[int(u[k] * len(choices))] * (0.85 + 0.3 * u[k + 1])
        colours[code, :3], colours[code + LINE, :3] = base, base * 0.78
    colours[1 : len(CODE) + 1 + DARK, :3] *= scene.light
    colours[1:, 3] = 255
    return np.clip(colours, 0, 255).astype(np.uint8).view(np.uint32).ravel()


def _paint_background(scene: Scene, size: int, rng: np.random.Generator) -> np.ndarray:
    u = scene.numbers
    kind = int(u[56] * len(_BACKGROUNDS))
    ends = _BACKGROUNDS[kind] + 36 * (u[57:63].reshape(2, 3).astype(np.float32) - 0.5)
    coarse = rng.random((5, 5), dtype=np.float32)
    detail = rng.random((14, 14), dtype=np.float32)
    ramp = np.linspace(0, 1, size, dtype=np.float32)[:, None]
    waves = np.asarray(Image.fromarray(coarse).resize((size, size), Image.Resampling.BICUBIC)) - 0.5
    leaves = np.asarray(Image.fromarray(detail).resize((size, size), Image.Resampling.BILINEAR)) - 0.5
    fineness = (0.15, 0.15, 0.9, 0.3, 0.3, 0.4)[kind]
    blend = ramp + 0.7 * waves + fineness * leaves
    if kind == 3:
        blend += 0.22 * np.sin(ramp * 70 + 3 * waves)
    return ends[0] + np.clip(blend, -0.3, 1.3)[..., None] * (ends[1] - ends[0])
