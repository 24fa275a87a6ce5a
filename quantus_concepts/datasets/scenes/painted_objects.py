"""Painted objects: outlines, colours and textures."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
from PIL import Image, ImageDraw

from captum_concepts.support.checks import check_index, check_whole
from quantus_concepts.datasets.scenes.sources import Cutout, ObjectSource, cut_out

#: What a polygon is filled with. NOTHING cuts a hole; PATTERN is never a polygon: it replaces part of MAIN.
NOTHING, MAIN, SECOND, THIRD, INK, PATTERN = range(6)

Points = Sequence[tuple[float, float]]

#: Colours of all classes of painted objects and painted scenes. Each has a channel at least 60 away from the grey,
#: 128, that objects are pasted on.
PALETTE = np.array(
    [
        (196, 40, 44),
        (232, 128, 32),
        (242, 208, 56),
        (150, 202, 52),
        (36, 128, 62),
        (24, 150, 150),
        (96, 184, 236),
        (38, 74, 186),
        (126, 58, 188),
        (240, 136, 184),
        (112, 62, 28),
        (244, 228, 200),
        (34, 36, 52),
        (206, 206, 232),
    ],
    dtype=np.float32,
)
_LUMA = (PALETTE @ np.array([0.299, 0.587, 0.114], dtype=np.float32)).tolist()
_CONTRAST = 60.0
_JITTER = 24.0

_TURN = np.linspace(0, 2 * np.pi, 24, endpoint=False)
_CIRCLE = np.stack([np.cos(_TURN), np.sin(_TURN)], axis=1)
_HALF = np.linspace(0, 1, 14)


class Polygon(NamedTuple):
    """One polygon of a shape."""

    fill: int
    points: np.ndarray


class Drawing(NamedTuple):
    """Polygons ready to be painted, from back to front."""

    corners: np.ndarray
    fills: list[int]
    lengths: list[int]


Shape = list[Polygon]


def _area(fill: int, points: Points) -> Polygon:
    return Polygon(fill, np.array(points, dtype=np.float64))


def _box(fill: int, left: float, top: float, right: float, bottom: float) -> Polygon:
    return _area(fill, [(left, top), (right, top), (right, bottom), (left, bottom)])


def _oval(fill: int, x: float, y: float, wide: float, high: float, tilt: float = 0.0) -> Polygon:
    angle = math.radians(tilt)
    c, s = math.cos(angle), math.sin(angle)
    return Polygon(fill, _CIRCLE @ np.array([[wide * c, wide * s], [-high * s, high * c]]) + (x, y))


def _ribbon(fill: int, points: Points | np.ndarray, width: float) -> Polygon:
    line = np.array(points, dtype=np.float64)
    along = np.gradient(line, axis=0)
    along /= np.linalg.norm(along, axis=1, keepdims=True)
    aside = 0.5 * width * along[:, ::-1] * (-1, 1)
    return Polygon(fill, np.concatenate([line + aside, (line - aside)[::-1]]))


def _arc(x: float, y: float, wide: float, high: float, start: float, stop: float) -> np.ndarray:
    turn = math.radians(start) + math.radians(stop - start) * _HALF
    return np.stack([x + wide * np.cos(turn), y + high * np.sin(turn)], axis=1)


def _aeroplane(rng: np.random.Generator) -> Shape:
    span, sweep, chord = rng.uniform(0.7, 0.95), rng.uniform(0.2, 0.45), rng.uniform(0.36, 0.48)
    body, tail = rng.uniform(0.14, 0.19), rng.uniform(0.28, 0.4)
    shape: Shape = []
    for side in (-1, 1):
        wing = [(0.3, 0), (0.3 - sweep, side * span), (0.12 - sweep, side * span), (0.3 - chord - 0.1, 0)]
        fin = [(-0.6, 0), (-0.8, side * tail), (-0.95, side * tail), (-0.88, 0)]
        shape += [_area(SECOND, wing), _area(SECOND, fin)]
        for place in (0.4, 0.65)[: rng.integers(1, 3)]:
            shape.append(_oval(INK, 0.32 - sweep * place, side * span * place, 0.13, 0.05))
    shape.append(_oval(MAIN, 0, 0, 1, body))
    shape.append(_oval(THIRD, 0.72, 0, 0.12, 0.6 * body))
    return shape


def _bird(rng: np.random.Generator) -> Shape:
    plump, tilt = rng.uniform(0.27, 0.36), rng.uniform(-32, -8)
    tail, bill = rng.uniform(0.75, 1.05), rng.uniform(0.2, 0.42)
    skull, rise = rng.uniform(0.19, 0.24), rng.uniform(-0.42, -0.3)
    drop = 0.5 * math.sin(math.radians(-tilt))
    shape = [_area(MAIN, [(-0.2, -0.1), (-tail, drop - 0.06), (-tail - 0.05, drop + 0.14), (-0.15, 0.25)])]
    for x in (-0.06, 0.14):
        foot = rng.uniform(0.6, 0.78)
        shape.append(_ribbon(THIRD, [(x, 0.2), (x, foot), (x + 0.01, foot)], 0.07))
        shape.append(_area(THIRD, [(x - 0.06, foot + 0.05), (x, foot - 0.05), (x + 0.18, foot + 0.05)]))
    x, y = 0.44, rise
    shape.append(_area(THIRD, [(x + 0.1, y - 0.1), (x + skull + bill, y + 0.05), (x + 0.1, y + 0.13)]))
    shape.append(_oval(MAIN, 0.02, 0.08, 0.52, plump, tilt))
    shape.append(_oval(MAIN, x, y, skull, skull))
    if rng.random() < 0.3:
        wing = [(0.22, 0.02), (0.05, -0.4), (-0.3, -0.78), (-0.62, -0.88), (-0.55, -0.45), (-0.35, 0.08)]
    else:
        wing = [(0.24, -0.08), (0.16, 0.12), (-0.1, 0.24), (-0.55, 0.26), (-0.3, 0.05), (-0.06, -0.1)]
    shape.append(_area(SECOND, wing))
    shape.append(_oval(INK, x + 0.06, y - 0.03, 0.055, 0.055))
    return shape


def _boat(rng: np.random.Generator) -> Shape:
    high, low = rng.uniform(0.95, 1.15), rng.uniform(0.6, 0.75)
    mast, long = rng.uniform(-0.12, 0.08), rng.uniform(0.75, 0.95)
    deep = rng.uniform(0.28, 0.38)
    foot = 0.16
    shape = [_box(INK, mast - 0.035, -high, mast + 0.035, 0.3)]
    shape.append(_area(MAIN, [(mast - 0.06, -high + 0.05), (mast - 0.06, foot), (mast - low, foot)]))
    shape.append(_area(THIRD, [(mast + 0.07, -0.8 * high), (mast + 0.07, foot), (mast + 0.85 * low, foot)]))
    hull = [(-long, 0.28), (long, 0.28), (0.7 * long, 0.28 + deep), (-0.6 * long, 0.28 + deep)]
    shape.append(_area(SECOND, hull))
    if rng.random() < 0.5:
        shape.append(_area(THIRD, [(mast, -high), (mast - 0.28, -high + 0.08), (mast, -high + 0.16)]))
    return shape


def _butterfly(rng: np.random.Generator) -> Shape:
    up, down = rng.uniform(0.55, 0.7), rng.uniform(0.4, 0.52)
    shape: Shape = []
    for side in (-1, 1):
        shape.append(_oval(SECOND, side * 0.38, 0.38, down, 0.28, side * 48))
        shape.append(_oval(MAIN, side * 0.5, -0.3, up, 0.36, side * -38))
        shape.append(_oval(THIRD, side * 0.62, -0.42, 0.13, 0.13))
        shape.append(_oval(THIRD, side * 0.45, 0.45, 0.1, 0.1))
        shape.append(_ribbon(INK, [(0, -0.4), (side * 0.1, -0.7), (side * 0.22, -0.88)], 0.05))
    shape.append(_oval(INK, 0, 0.05, 0.09, 0.55))
    return shape


def _car(rng: np.random.Generator) -> Shape:
    roof, front, back = rng.uniform(-0.62, -0.45), rng.uniform(0.35, 0.6), rng.uniform(-0.85, -0.55)
    nose, wheel = rng.uniform(0.0, 0.1), rng.uniform(0.2, 0.25)
    top = -0.12
    cabin = [(back, top + 0.1), (back + 0.2, roof), (front - 0.3, roof), (front, top + 0.1)]
    body = [(-1, top + 0.05), (-0.95, top), (front, top), (0.94, top + nose), (1, 0.1), (1, 0.34), (-1, 0.34)]
    shape = [_area(MAIN, cabin), _area(MAIN, body)]
    post = 0.5 * (back + front) - 0.03
    sill = top - 0.02
    shape.append(
        _area(SECOND, [(back + 0.13, sill), (back + 0.25, roof + 0.1), (post - 0.05, roof + 0.1), (post - 0.05, sill)])
    )
    shape.append(
        _area(
            SECOND, [(post + 0.05, sill), (post + 0.05, roof + 0.1), (front - 0.34, roof + 0.1), (front - 0.15, sill)]
        )
    )
    shape.append(_box(THIRD, 0.84, 0.02, 1, 0.14))
    for x in (-0.56, 0.56):
        shape += [_oval(INK, x, 0.36, wheel, wheel), _oval(THIRD, x, 0.36, 0.45 * wheel, 0.45 * wheel)]
    return shape


def _fish(rng: np.random.Generator) -> Shape:
    deep, fork = rng.uniform(0.4, 0.52), rng.uniform(0.05, 0.22)
    tail, crest = rng.uniform(0.42, 0.56), rng.uniform(0.18, 0.32)
    back = _arc(0.12, 0, 0.78, deep, 0, -180)
    outline = np.concatenate([back, back[-2:0:-1] * (1, -1)])
    end = -0.98
    shape = [_area(SECOND, [(-0.5, 0), (end, -tail), (end + fork, 0), (end, tail)])]
    shape.append(_area(SECOND, [(0.4, -0.75 * deep), (-0.05, -deep - crest), (-0.35, -0.6 * deep)]))
    shape.append(_area(SECOND, [(0.25, 0.8 * deep), (-0.1, deep + 0.7 * crest), (-0.15, 0.7 * deep)]))
    shape.append(Polygon(MAIN, outline))
    shape.append(_ribbon(INK, _arc(0.3, 0, 0.16, 0.75 * deep, -60, 60), 0.05))
    shape.append(_area(THIRD, [(0.2, 0.05), (-0.12, -0.02), (-0.12, 0.22)]))
    shape += [_oval(SECOND, 0.62, -0.12, 0.1, 0.1), _oval(INK, 0.64, -0.12, 0.055, 0.055)]
    return shape


def _house(rng: np.random.Generator) -> Shape:
    wide, roof = rng.uniform(0.6, 0.8), rng.uniform(0.5, 0.75)
    eaves, floor = rng.uniform(0.08, 0.2), 0.75
    chimney = rng.choice([-0.5, 0.5]) * wide
    shape = [_box(THIRD, chimney - 0.1, -roof - 0.1, chimney + 0.1, 0)]
    shape.append(_box(MAIN, -wide, 0, wide, floor))
    shape.append(_area(SECOND, [(-wide - eaves, 0.03), (0, -roof - 0.1), (wide + eaves, 0.03)]))
    door = rng.uniform(-0.25, 0.25) * wide
    shape.append(_box(THIRD, door - 0.13, 0.32, door + 0.13, floor))
    for x in (-0.62 * wide, 0.62 * wide):
        shape += [_box(INK, x - 0.16, 0.14, x + 0.16, 0.46), _box(SECOND, x - 0.11, 0.19, x + 0.11, 0.41)]
    return shape


def _key(rng: np.random.Generator) -> Shape:
    bow, hole, thick = rng.uniform(0.37, 0.46), rng.uniform(0.44, 0.55), rng.uniform(0.19, 0.25)
    n_teeth = int(rng.integers(2, 5))
    shape = [_box(MAIN, -0.3, -thick / 2, 1, thick / 2)]
    for k in range(n_teeth):
        x = 0.94 - 0.17 * k
        shape.append(_box(SECOND, x - 0.12, 0, x + 0.02, thick / 2 + rng.uniform(0.18, 0.36)))
    shape.append(_box(THIRD, -0.22, -thick / 2 - 0.06, -0.12, thick / 2 + 0.06))
    shape.append(_oval(MAIN, -0.58, 0, bow, bow * rng.uniform(0.9, 1.15)))
    shape.append(_oval(NOTHING, -0.58, 0, hole * bow, hole * bow))
    return shape


def _mug(rng: np.random.Generator) -> Shape:
    wide, high, taper = rng.uniform(0.45, 0.6), rng.uniform(0.55, 0.75), rng.uniform(0.0, 0.14)
    lip = rng.uniform(0.12, 0.18)
    ear = rng.uniform(0.26, 0.36)
    shape = [_oval(SECOND, wide, 0, ear + 0.08, 0.7 * high), _oval(NOTHING, wide, 0, ear - 0.09, 0.7 * high - 0.17)]
    base = _arc(0, high, wide - taper, lip, 0, 180)
    shape.append(Polygon(MAIN, np.concatenate([[(-wide, -high), (wide, -high)], base])))
    shape.append(_oval(THIRD, 0, -high, wide, lip))
    shape.append(_oval(INK, 0, -high, wide - 0.08, lip - 0.05))
    return shape


def _umbrella(rng: np.random.Generator) -> Shape:
    wide, high, long = rng.uniform(0.85, 1.0), rng.uniform(0.6, 0.8), rng.uniform(0.75, 0.95)
    n_panels = int(rng.integers(4, 7))
    hook = 0.17
    shape = [_box(INK, -0.04, -high - 0.16, 0.04, long)]
    shape.append(_ribbon(INK, _arc(hook, long, hook, hook, 180, -10), 0.09))
    edge = np.linspace(wide, -wide, n_panels + 1)
    hem = [_arc(0.5 * (a + b), 0, 0.5 * (a - b), 0.1, 0, -180) for a, b in itertools.pairwise(edge.tolist())]
    dome = _arc(0, 0, wide, high, 180, 360)
    shape.append(Polygon(MAIN, np.concatenate([dome, *hem])))
    for k in range(n_panels):
        if k % 2:
            panel = [(edge[k], 0), (0, -high), (edge[k + 1], 0)]
            shape.append(_area(SECOND, panel))
    shape.append(_oval(THIRD, 0, -high, 0.1, 0.08))
    return shape


#: The function of each class, in the order of the labels.
SHAPES: dict[str, Callable[[np.random.Generator], Shape]] = {
    "aeroplane": _aeroplane,
    "bird": _bird,
    "boat": _boat,
    "butterfly": _butterfly,
    "car": _car,
    "fish": _fish,
    "house": _house,
    "key": _key,
    "mug": _mug,
    "umbrella": _umbrella,
}


def draw_shape(name: str, rng: np.random.Generator) -> Drawing:
    """Draw one object's proportions and pose."""
    shape = SHAPES[name](rng)
    width = rng.uniform(0.88, 1.12) * (-1 if rng.random() < 0.5 else 1)
    angle = math.radians(rng.uniform(-18, 18))
    c, s = math.cos(angle), math.sin(angle)
    corners = np.concatenate([polygon.points for polygon in shape]) @ np.array([[width * c, width * s], [-s, c]])
    corners -= corners.min(axis=0)
    lengths = [len(polygon.points) for polygon in shape]
    return Drawing(corners / corners.max(), [polygon.fill for polygon in shape], lengths)


def draw_colours(rng: np.random.Generator, n_colours: int) -> np.ndarray:
    """Draw colours that stand out from each other in turn."""
    waiting = rng.permutation(len(PALETTE)).tolist()
    chosen = [waiting.pop(0)]
    while len(chosen) < n_colours:
        last = _LUMA[chosen[-1]]
        position = next(i for i, k in enumerate(waiting) if abs(_LUMA[k] - last) >= _CONTRAST)
        chosen.append(waiting.pop(position))
    jitter = _JITTER * (rng.random((n_colours, 3), dtype=np.float32) - 0.5)
    return np.maximum(np.minimum(PALETTE[chosen] + jitter, 255), 0)


def labels_in_turn(n_per_class: int, n_classes: int) -> np.ndarray:
    """Return labels 0, 1, ..., K - 1, 0, 1, ..."""
    return np.tile(np.arange(n_classes, dtype=np.int64), n_per_class)


# Of the random numbers: scenes with the same seed use others.
_STREAM = 1
# Painted this many times finer than the cut-out, then averaged.
_FINE = 2
# Widths of the dark line around an object and of the light rim around that, as shares of its longer side.
_LINE = 0.025
_RIM = 0.03
# Of 255: where the brightness, and where the cover of a pixel, is more rather than less.
_HALF_SIDE = 127.5


class PaintedObjects(ObjectSource):
    """Ten classes of painted objects: aeroplane, bird, boat, butterfly, car, fish, house, key, mug, umbrella.

    A class is defined by its shape. Colours come from one palette for all classes, and every object has a dark line
    with a light rim around it, like a sticker, so that it stands out from any background. Proportions, mirroring, a
    small rotation, a pattern (none, stripes, dots or two halves) and a shading are drawn for each object. The class has
    no influence on colours and pattern.

    Objects are painted on access, and not kept. Object i depends on `seed`, `size` and i only, so that the first
    objects of a larger source are those of a smaller one, and the same arguments give the same bits in any order of
    access. The classes take turns: label i is i modulo 10. Each object is a group of its own.

    Parameters
    ----------
    n_per_class : int
        Objects of each class, at least 1.
    size : int
        The longer side of an object in pixels, from 24 to 512; cropped to its mask it can be two pixels less.
    seed : int
        Random seed of all that is random.

    Raises
    ------
    ValueError
        If an argument is outside its range.

    Examples
    --------
    >>> from quantus_concepts.datasets import PaintedObjects
    >>> objects = PaintedObjects(n_per_class=2, size=24)
    >>> len(objects), objects.class_names[:3]
    (20, ['aeroplane', 'bird', 'boat'])
    >>> pixels, mask = objects[0]
    >>> pixels.shape[2], pixels.shape[:2] == mask.shape
    (3, True)
    """

    def __init__(self, n_per_class: int = 60, size: int = 96, seed: int = 0) -> None:
        self.n_per_class, self.size = check_whole("n_per_class", n_per_class, 1), check_whole("size", size, 24, 512)
        self.seed = seed
        self.class_names = list(SHAPES)
        self.labels = labels_in_turn(self.n_per_class, len(self.class_names))
        self.groups = np.arange(len(self.labels))

    def __getitem__(self, index: int) -> Cutout:
        """Return one object."""
        index = check_index(index, len(self))
        rng = np.random.default_rng([self.seed, _STREAM, index])
        drawing = draw_shape(self.class_names[self.labels[index]], rng)
        return cut_out(*_paint(drawing, self.size, rng))


def _paint(drawing: Drawing, size: int, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    side = size * _FINE
    line, rim = max(round(_LINE * side), 1), max(round(_RIM * size), 1)
    edge = line + _FINE * rim + 1
    corners = drawing.corners * (side - 2 * edge) + edge
    # Whole pixels of the cut-out in both directions.
    width, height = (_FINE * np.ceil((corners.max(axis=0) + edge) / _FINE)).astype(int).tolist()
    picture = Image.new("L", (width, height))
    draw = ImageDraw.Draw(picture)
    places, start = corners.ravel().tolist(), 0
    for fill, length in zip(drawing.fills, drawing.lengths, strict=True):
        # A thin line between parts of one colour; a hole gets its line from the outside.
        draw.polygon(places[start : start + 2 * length], fill=fill, outline=INK if fill else NOTHING)
        start += 2 * length
    codes = np.array(picture)
    np.putmask(codes, _draw_pattern(width, height, rng) & (codes == MAIN), PATTERN)
    body = codes != NOTHING
    lined = _grow(body, line)
    np.putmask(codes, lined > body, INK)
    coloured = Image.fromarray(codes)
    coloured.putpalette(_draw_table(rng).tobytes())
    pixels = np.asarray(coloured.convert("RGB").reduce(_FINE))
    covered = np.asarray(Image.fromarray(lined.astype(np.uint8) * 255).reduce(_FINE)) >= _HALF_SIDE
    return _shade(pixels, rng), _grow(covered, rim)


def _draw_table(rng: np.random.Generator) -> np.ndarray:
    ink, rim = rng.uniform(12, 40, 3), rng.uniform(228, 252, 3)
    main, second, third = draw_colours(rng, 3)
    pattern = main + 0.22 * ((rim if main.mean() < _HALF_SIDE else ink) - main)
    # What is not painted has the colour of the rim.
    return np.stack([rim, main, second, third, ink, pattern]).astype(np.uint8)


def _draw_pattern(width: int, height: int, rng: np.random.Generator) -> np.ndarray:
    picture = Image.new("L", (width, height))
    draw = ImageDraw.Draw(picture)
    side = max(width, height)
    kind, angle, phase = int(rng.integers(4)), rng.uniform(0, np.pi), rng.random()
    period = side * rng.uniform(0.1, 0.17)
    c, s = np.cos(angle), np.sin(angle)
    reach = 1.5 * side
    if kind == 1:
        for k in range(-12, 13):
            x, y = width / 2 + (k + phase) * period * c, height / 2 + (k + phase) * period * s
            ends = [x - reach * s, y + reach * c, x + reach * s, y - reach * c]
            draw.line(ends, fill=1, width=round(0.42 * period))
    elif kind == 2:
        lattice = np.stack(np.meshgrid(np.arange(-8, 9), np.arange(-8, 9)), axis=-1).reshape(-1, 2) + phase
        middles = period * lattice @ np.array([[c, s], [-s, c]]) + (width / 2, height / 2)
        radius = 0.27 * period
        inside = ((middles > -radius) & (middles < (width + radius, height + radius))).all(axis=1)
        for x, y in middles[inside].tolist():
            draw.ellipse([x - radius, y - radius, x + radius, y + radius], fill=1)
    elif kind == 3:
        x, y = width * (0.35 + 0.3 * phase), height / 2
        corners = [(x - reach * s, y + reach * c), (x + reach * s, y - reach * c)]
        away = [(x + reach * (s + c), y + reach * (s - c)), (x + reach * (c - s), y + reach * (s + c))]
        draw.polygon(corners + away, fill=1)
    return np.asarray(picture).view(bool)


def _grow(mask: np.ndarray, steps: int) -> np.ndarray:
    # In one row of pixels, which is fastest. Nothing comes around: the object keeps away from the sides.
    width = mask.shape[1]
    grown = mask.ravel()
    for step in range(steps):
        before, grown = grown, grown.copy()
        grown[1:] |= before[:-1]
        grown[:-1] |= before[1:]
        # Diamonds and squares in turn make an octagon, nearly round.
        if step % 2:
            before = grown.copy()
        grown[width:] |= before[:-width]
        grown[:-width] |= before[width:]
    return grown.reshape(mask.shape)


def _shade(pixels: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    height, width = pixels.shape[:2]
    across, down = rng.uniform(-0.07, 0.07, 2)
    columns = 0.97 + across * np.linspace(-1, 1, width, dtype=np.float32)
    light = columns.repeat(3) + down * np.linspace(-1, 1, height, dtype=np.float32)[:, None]
    shaded = np.minimum(pixels.reshape(height, -1) * light, 255)
    return shaded.astype(np.uint8).reshape(pixels.shape)
