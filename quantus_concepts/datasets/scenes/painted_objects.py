"""Painted objects of ten classes that differ in shape and not in colour, to be pasted on scenes."""

from __future__ import annotations

import numpy as np
from PIL import Image, ImageDraw

from captum_concepts._support.checks import check_index, check_whole
from quantus_concepts.datasets.scenes.object_shapes import INK, MAIN, NOTHING, PATTERN, SHAPES, Drawing, draw_shape
from quantus_concepts.datasets.scenes.palette import draw_colours, labels_in_turn
from quantus_concepts.datasets.scenes.pasting import cut_out
from quantus_concepts.datasets.scenes.sources import Cutout, ObjectSource

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

    What tells a class is its shape. Colours come from one palette for all classes, and every object has a dark line
    with a light rim around it, like a sticker, so that it stands out from any background. Proportions, mirroring, a
    small rotation, a pattern (none, stripes, dots or two halves) and a shading are drawn for each object. The class has
    no influence on colours and pattern.

    Objects are painted when asked for, and not kept. Object i depends on `seed`, `size` and i only, so that the first
    objects of a larger source are those of a smaller one, and the same arguments give the same bits in any order of
    access. The classes take turns: label i is i modulo 10. Each object is a group of its own.

    Parameters
    ----------
    n_per_class : int
        Objects of each class, at least 1.
    size : int
        The longer side of an object in pixels, from 24 to 512; cropped to its mask it can be two pixels less.
    seed : int
        Of all that is random.

    Raises
    ------
    TypeError
        If an argument is not a whole number.
    ValueError
        If an argument is outside its range.
    """

    def __init__(self, n_per_class: int = 60, size: int = 96, seed: int = 0) -> None:
        self.n_per_class = check_whole("n_per_class", n_per_class, 1, 10**6)
        self.size = check_whole("size", size, 24, 512)
        self.seed = check_whole("seed", seed, 0, 2**32 - 1)
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
