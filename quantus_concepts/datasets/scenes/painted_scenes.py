"""Painted scenes of ten classes that differ in texture and not in colour, to paste objects on."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np
from PIL import Image, ImageDraw

from captum_concepts.support.checks import check_index, check_whole
from quantus_concepts.datasets.base import check_side
from quantus_concepts.datasets.scenes.painted_objects import draw_colours, labels_in_turn
from quantus_concepts.datasets.scenes.sources import SceneSource

# Of the random numbers: objects with the same seed use others.
_STREAM = 2
# Painted this many times finer than the scene, then averaged.
_FINE = 2


class PaintedScenes(SceneSource):
    """Ten classes of painted scenes.

    They are bamboo forest, brick wall, chequered floor, city windows, cloudy sky, hills, pebbles, rain, sunburst and
    waves. What tells a class is a texture that covers the whole picture, so that a part of it is enough. A scene is
    painted between two colours, each of which changes a little from one end to the other; they come from the palette of
    the painted objects, and the class has no influence on them, nor on which of the two is the ground.

    Scenes are painted on access, and not kept. Scene i depends on `seed`, `size` and i only, so that the first
    scenes of a larger source are those of a smaller one, and the same arguments give the same bits in any order of
    access. The classes take turns: label i is i modulo 10.

    Parameters
    ----------
    n_per_class : int
        Scenes of each class, at least 1.
    size : int or (int, int)
        Height and width in pixels, from 32 to 512.
    seed : int
        Random seed of all that is random.

    Raises
    ------
    ValueError
        If an argument is outside its range.

    Examples
    --------
    >>> from quantus_concepts.datasets import PaintedScenes
    >>> scenes = PaintedScenes(n_per_class=2, size=32)
    >>> len(scenes), scenes.class_names[:2]
    (20, ['bamboo forest', 'brick wall'])
    >>> scenes[0].shape
    (32, 32, 3)
    """

    def __init__(self, n_per_class: int = 60, size: int | Sequence[int] = 128, seed: int = 0) -> None:
        self.n_per_class, self.size = check_whole("n_per_class", n_per_class, 1), check_side("size", size, 32, 512)
        self.seed = seed
        self.class_names = list(_PAINTERS)
        self.labels = labels_in_turn(self.n_per_class, len(self.class_names))

    def __getitem__(self, index: int) -> np.ndarray:
        """Return one scene."""
        index = check_index(index, len(self))
        rng = np.random.default_rng([self.seed, _STREAM, index])
        canvas = _Canvas(self.size * _FINE)
        _PAINTERS[self.class_names[self.labels[index]]](canvas, rng)
        return _colour(np.asarray(canvas.picture.reduce(_FINE)), rng)


class _Canvas:
    """A square picture in one channel; places and lengths are shares of its side."""

    def __init__(self, side: int) -> None:
        self.side = side
        self.picture = Image.new("L", (side, side))
        self.draw = ImageDraw.Draw(self.picture)

    def fill(self, value: float) -> None:
        self.picture.paste(int(value), (0, 0, self.side, self.side))

    def polygons(self, points: np.ndarray, values: Sequence[float] | np.ndarray) -> None:
        for corners, value in zip((self.side * points).reshape(len(points), -1).tolist(), values, strict=True):
            self.draw.polygon(corners, fill=int(value))

    def box(self, left: float, top: float, right: float, bottom: float, value: float) -> None:
        # Ends are exclusive, and in a small picture at least one pixel is left between them.
        x, y = self.side * left, self.side * top
        self.draw.rectangle([x, y, max(self.side * right - 1, x), max(self.side * bottom - 1, y)], fill=int(value))


def _colour(values: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    size = len(values)
    drift = rng.uniform(-14, 14, (2, 3)).astype(np.float32)
    colours = draw_colours(rng, 2)
    # (ends of the picture, ground and figure, channels)
    corners = np.maximum(np.minimum(np.stack([colours - drift, colours + drift]), 255), 0)
    place = np.linspace(0, 1, size, dtype=np.float32)[:, None]
    if rng.random() < 0.5:
        place = place.T
    share = values * np.float32(1 / 255)
    picture = np.empty((size, size, 3), dtype=np.uint8)
    for channel in range(3):
        first, last = corners[:, :, channel]
        ground, figure = first[:, None, None] + (last - first)[:, None, None] * place
        picture[..., channel] = ground + share * (figure - ground)
    return picture


def _bamboo_forest(canvas: _Canvas, rng: np.random.Generator) -> None:
    canvas.fill(rng.uniform(0, 30))
    # Thin dark stalks behind, then thick bright ones: their sides, their middle, and a light on it.
    for n_stalks, values, width, parts in (
        (9, (50, 90), 0.03, [(-1, 1, 0.8)]),
        (int(rng.integers(6, 9)), (165, 225), 0.07, [(-1, 1, 0.72), (-0.65, 0.65, 1), (-0.35, 0.05, 1.13)]),
    ):
        x = (np.arange(n_stalks) + rng.uniform(0.15, 0.85, n_stalks)) / n_stalks
        foot = x + rng.uniform(-0.03, 0.03, n_stalks)
        half = 0.5 * width * rng.uniform(0.8, 1.15, n_stalks)
        value = rng.uniform(*values, n_stalks)
        for left, right, shade in parts:
            corners = np.stack([x + left * half, x + right * half, foot + right * half, foot + left * half], axis=1)
            canvas.polygons(np.stack([corners, np.broadcast_to((0, 0, 1, 1), corners.shape)], axis=2), shade * value)
    gaps, starts = rng.uniform(0.16, 0.26, n_stalks), rng.random(n_stalks)
    for k in range(n_stalks):
        for y in np.arange(gaps[k] * starts[k], 1, gaps[k]).tolist():
            middle = x[k] + y * (foot[k] - x[k])
            canvas.box(middle - 1.25 * half[k], y, middle + 1.25 * half[k], y + 0.02, 250)
            canvas.box(middle - half[k], y + 0.02, middle + half[k], y + 0.034, 20)


def _brick_wall(canvas: _Canvas, rng: np.random.Generator) -> None:
    high = rng.uniform(0.085, 0.12)
    wide, joint = high * rng.uniform(1.9, 2.5), rng.uniform(0.014, 0.02)
    y, shift = -high * rng.random(), rng.random()
    row = 0
    while y < 1:
        x = -wide * ((shift + 0.5 * row) % 1)
        while x < 1:
            canvas.box(x + joint, y + joint, x + wide, y + high, rng.uniform(160, 255))
            x += wide
        y += high
        row += 1


def _chequered_floor(canvas: _Canvas, rng: np.random.Generator) -> None:
    step, angle = rng.uniform(0.1, 0.15), math.radians(rng.uniform(22, 68))
    c, s = step * math.cos(angle), step * math.sin(angle)
    reach = math.ceil(0.75 / step)
    i, j = np.meshgrid(np.arange(-reach, reach), np.arange(-reach, reach))
    odd = (i + j) % 2 == 1
    places = np.stack([i[odd], j[odd]], axis=1)[:, None] + np.array([(0, 0), (1, 0), (1, 1), (0, 1)])
    squares = places @ np.array([[c, s], [-s, c]]) + 0.5 + rng.uniform(-0.1, 0.1, 2)
    visible = (squares.max(axis=1) > 0).all(axis=1) & (squares.min(axis=1) < 1).all(axis=1)
    canvas.polygons(squares[visible], rng.uniform(215, 255, int(visible.sum())))


def _city_windows(canvas: _Canvas, rng: np.random.Generator) -> None:
    canvas.fill(150)
    x = -0.2 * rng.random()
    while x < 1:
        wide = rng.uniform(0.24, 0.36)
        top = rng.uniform(0, 0.18)
        canvas.box(x, top, x + wide, 1, rng.uniform(0, 60))
        n_columns, storey = int(rng.integers(3, 5)), rng.uniform(0.075, 0.1)
        step = (wide - 0.02) / n_columns
        lit = rng.random((16, n_columns)) < 0.7
        for i, j in np.argwhere(lit).tolist():
            left, up = x + 0.02 + j * step, top + 0.03 + i * storey
            canvas.box(left, up, left + step - 0.022, up + storey - 0.035, 255 if lit[i, j - 1] else 205)
        x += wide + rng.uniform(0, 0.015)


def _cloudy_sky(canvas: _Canvas, rng: np.random.Generator) -> None:
    side = canvas.side // _FINE
    total = np.zeros((side, side), dtype=np.float32)
    for places, weight in ((4, 1.0), (8, 0.6), (16, 0.3)):
        noise = Image.fromarray(rng.random((places, places), dtype=np.float32))
        total += weight * np.asarray(noise.resize((side, side), Image.Resampling.BICUBIC))
    values = np.maximum(np.minimum(127.5 + 110 / total.std() * (total - total.mean()), 255), 0)
    canvas.picture = Image.fromarray(values.astype(np.uint8)).resize((canvas.side,) * 2, Image.Resampling.NEAREST)


def _hills(canvas: _Canvas, rng: np.random.Generator) -> None:
    canvas.fill(255)
    x = np.linspace(0, 1, 33)
    n_ridges = int(rng.integers(5, 7))
    for k in range(n_ridges):
        level = (k + 0.4 + 0.2 * rng.random()) / n_ridges
        ridge = level + 0.05 * np.sin(2 * np.pi * (rng.uniform(0.8, 1.6) * x + rng.random()))
        ridge += 0.025 * np.sin(2 * np.pi * (rng.uniform(2, 3) * x + rng.random()))
        edge = np.concatenate([np.stack([x, ridge], axis=1), [(1, 1.01), (0, 1.01)]])
        canvas.polygons(edge[None], [210 - 210 * k / (n_ridges - 1)])


def _pebbles(canvas: _Canvas, rng: np.random.Generator) -> None:
    n_rows = int(rng.integers(7, 9))
    u = rng.random((6, n_rows + 1, n_rows + 1))
    i, j = np.mgrid[: n_rows + 1, : n_rows + 1]
    middles = np.stack([j + 0.5 * (i % 2) + 0.3 * (u[0] - 0.5), i + 0.3 * (u[1] - 0.5)], axis=-1) / n_rows
    long, c, s = (0.42 + 0.14 * u[2]) / n_rows, np.cos(np.pi * u[3]), np.sin(np.pi * u[3])
    flat = 0.65 + 0.3 * u[4]
    axes = long[..., None, None] * np.stack([np.stack([c, s], -1), flat[..., None] * np.stack([-s, c], -1)], axis=-2)
    turn = np.linspace(0, 2 * np.pi, 10, endpoint=False)
    stones = np.stack([np.cos(turn), np.sin(turn)], axis=1) @ axes
    middles, stones = middles.reshape(-1, 1, 2), stones.reshape(-1, len(turn), 2)
    values = 140 + 90 * u[5].ravel()
    canvas.polygons(middles + stones, values)
    canvas.polygons(middles - 0.012 + 0.5 * stones[:, ::2], values + 25)


def _rain(canvas: _Canvas, rng: np.random.Generator) -> None:
    slant = rng.uniform(0.3, 0.7) * (-1 if rng.random() < 0.5 else 1)
    u = rng.random((170, 4))
    tops = 1.1 * u[:, :2] - (0.05, 0.1)
    ends = tops + (0.05 + 0.08 * u[:, 2:3]) * (slant, 1)
    width = max(1, round(0.011 * canvas.side))
    for corners, value in zip((canvas.side * np.hstack([tops, ends])).tolist(), 150 + 105 * u[:, 3], strict=True):
        canvas.draw.line(corners, fill=int(value), width=width)


def _sunburst(canvas: _Canvas, rng: np.random.Generator) -> None:
    middle = rng.uniform(0.25, 0.75, 2)
    n_rays = int(rng.integers(11, 16))
    edges = np.pi * (np.arange(2 * n_rays) + rng.random() + rng.uniform(-0.15, 0.15, 2 * n_rays)) / n_rays
    far = (middle + 2 * np.stack([np.cos(edges), np.sin(edges)], axis=1)).reshape(n_rays, 2, 2)
    rays = np.concatenate([np.broadcast_to(middle, (n_rays, 1, 2)), far], axis=1)
    canvas.polygons(rays, rng.uniform(215, 255, n_rays))
    radius = rng.uniform(0.08, 0.13)
    for share, value in ((1.0, 255), (0.75, 60)):
        low, high = canvas.side * (middle - share * radius), canvas.side * (middle + share * radius)
        canvas.draw.ellipse([*low.tolist(), *high.tolist()], fill=value)


def _waves(canvas: _Canvas, rng: np.random.Generator) -> None:
    n_rows = int(rng.integers(8, 11))
    length, high = rng.uniform(0.14, 0.22), rng.uniform(0.6, 0.9) / n_rows
    x = np.linspace(0, 1, 41)
    rows = np.arange(n_rows + 1)[:, None] / n_rows
    crests = rows - high * np.abs(np.sin(np.pi * (x / length + rng.random((n_rows + 1, 1)))))
    water = rng.uniform(110, 160, n_rows + 1)
    # From crest to crest of the next row: foam, a line, water.
    for k in range(n_rows + 1):
        for drop, value in ((0.0, 255), (0.3, 0), (0.55, water[k])):
            edge = np.stack([x, crests[k] + drop / n_rows], axis=1)
            foot = (k + 1.6) / n_rows
            canvas.polygons(np.concatenate([edge, [(1, foot), (0, foot)]])[None], [value])


_PAINTERS: dict[str, Callable[[_Canvas, np.random.Generator], None]] = {
    "bamboo forest": _bamboo_forest,
    "brick wall": _brick_wall,
    "chequered floor": _chequered_floor,
    "city windows": _city_windows,
    "cloudy sky": _cloudy_sky,
    "hills": _hills,
    "pebbles": _pebbles,
    "rain": _rain,
    "sunburst": _sunburst,
    "waves": _waves,
}
