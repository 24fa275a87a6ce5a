"""The geometry of painted birds: one polygon after the other, each belonging to a part."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import NamedTuple

import numpy as np

from quantus_concepts.datasets.birds.attributes import PARTS

# A painted value is the code of a part (its place among PARTS, plus one) or of scenery, plus one of four
# shades: the part's colour, its second colour, a darker line, near-black.
CODE = {part: i + 1 for i, part in enumerate(PARTS)}
PERCH, TRUNK, LEAF = 13, 14, 15
SECOND, LINE, DARK = 16, 32, 48


class Frame(NamedTuple):
    """How a bird is built, in units of about its own body length, x forward and y down from its middle."""

    length: float
    depth: float
    tilt: float
    head: tuple[float, float]
    skull: float
    neck: float
    ground: float
    hips: float
    tail: float
    box: tuple[float, float, float, float]


FRAMES = {
    "perching-like": Frame(0.47, 0.30, 22, (0.40, -0.37), 0.215, 0.9, 0.50, -0.02, 4, (-0.90, -0.60, 0.94, 0.53)),
    "long-legged-like": Frame(0.40, 0.25, 12, (0.50, -0.62), 0.165, 0.62, 0.74, -0.03, 0, (-0.84, -0.82, 0.98, 0.77)),
    "upright-perching-like": Frame(
        0.48, 0.28, 56, (0.24, -0.60), 0.205, 0.9, 0.52, 0.06, 8, (-0.62, -0.84, 0.78, 0.72)
    ),
    "duck-like": Frame(0.56, 0.29, 3, (0.52, -0.44), 0.195, 0.72, 0.46, -0.06, 12, (-1.00, -0.66, 1.02, 0.49)),
}


class Pose(NamedTuple):
    """How one bird holds itself; small angles in degrees, positive is nose up."""

    body: float
    head: float
    tail: float
    stride: float


class Outlines(NamedTuple):
    """Polygons in the order in which they are painted."""

    values: tuple[int, ...]
    ends: tuple[int, ...]
    points: np.ndarray


def pose_bird(
    frame: Frame, pose: Pose, bill_shape: str, tail_shape: str, wing_shape: str, crown_shape: str
) -> Outlines:
    """Return the polygons of a bird that looks to the right."""
    skeleton, groups = _skeleton(frame, bill_shape, tail_shape, wing_shape, crown_shape)
    points = skeleton.points.copy()
    tail_root = _turn(np.array([-0.8 * frame.length, 0.0]), frame.tilt)
    for group, pivot, angle in (
        ("tail", tail_root, pose.tail),
        ("head", np.array(frame.head), pose.head),
    ):
        points[groups[group]] = pivot + _turn(points[groups[group]] - pivot, angle)
    upper = groups["upper"]
    points[upper] = _turn(points[upper], pose.body)
    # The hips stay where they are: only the feet go apart.
    for group, side in (("near", 1), ("far", -1)):
        leg = points[groups[group]]
        reach = np.clip(leg[:, 1] / frame.ground, 0, 1)
        leg[:, 0] += side * pose.stride / 2 * reach
    return skeleton._replace(points=points)


@lru_cache(maxsize=1024)
def _skeleton(
    frame: Frame, bill_shape: str, tail_shape: str, wing_shape: str, crown_shape: str
) -> tuple[Outlines, dict[str, slice]]:
    far, near = _leg(frame, -0.04), _leg(frame, 0.06)
    tail = _tail(frame, tail_shape)
    torso = _neck(frame) + _torso(frame) + _wing(frame, wing_shape)
    head = _head(frame, bill_shape, crown_shape)
    blocks = {"far": far, "near": near, "tail": tail, "torso": torso, "head": head}
    groups: dict[str, slice] = {}
    start = 0
    for name, pieces in blocks.items():
        stop = start + sum(len(points) for _, points in pieces)
        groups[name] = slice(start, stop)
        start = stop
    groups["upper"] = slice(groups["tail"].start, start)
    flat = [piece for pieces in blocks.values() for piece in pieces]
    outlines = Outlines(
        values=tuple(value for value, _ in flat),
        ends=tuple(np.cumsum([len(points) for _, points in flat]).tolist()),
        points=np.concatenate([points for _, points in flat]),
    )
    outlines.points.flags.writeable = False
    return outlines, groups


Piece = tuple[int, np.ndarray]


def _turn(points: np.ndarray, degrees: float) -> np.ndarray:
    # Counter-clockwise as seen, with y down.
    c, s = np.cos(np.deg2rad(degrees)), np.sin(np.deg2rad(degrees))
    return points @ np.array([[c, -s], [s, c]])


def _smooth(corners: Sequence[tuple[float, float]], steps: int = 5) -> np.ndarray:
    # A closed Catmull-Rom curve; a point given twice is a corner.
    p1 = np.array(corners, dtype=float)
    p0, p2, p3 = np.roll(p1, 1, 0), np.roll(p1, -1, 0), np.roll(p1, -2, 0)
    t = (np.arange(steps) / steps)[None, :, None]
    p0, p1, p2, p3 = (p[:, None] for p in (p0, p1, p2, p3))
    curve = p1 + t / 2 * (p2 - p0 + t * (2 * p0 - 5 * p1 + 4 * p2 - p3 + t * (3 * (p1 - p2) + p3 - p0)))
    return curve.reshape(-1, 2)


def _arc(start: float, stop: float, radii: tuple[float, float], steps: int = 10) -> np.ndarray:
    angles = np.deg2rad(np.linspace(start, stop, steps))
    return np.stack([radii[0] * np.cos(angles), radii[1] * np.sin(angles)], axis=1)


def _bezier(a: np.ndarray, b: np.ndarray, c: np.ndarray, steps: int = 7) -> np.ndarray:
    t = np.linspace(0, 1, steps)[:, None]
    return (1 - t) ** 2 * a + 2 * t * (1 - t) * b + t**2 * c


def _torso_edge(frame: Frame, start: float, stop: float, steps: int = 10) -> np.ndarray:
    # An ellipse that tapers towards the tail and is fuller below than above.
    edge = _arc(start, stop, (frame.length, frame.depth), steps)
    forward = edge[:, 0] / frame.length
    edge[:, 1] *= 1 + 0.16 * forward
    edge[:, 1] *= np.where(edge[:, 1] < 0, 0.92, 1.05)
    return edge


def _torso(frame: Frame) -> list[Piece]:
    middle = np.array([[0.02, -0.02]])
    return [
        (CODE[part], _turn(np.concatenate([_torso_edge(frame, start, stop), middle]), frame.tilt))
        for part, start, stop in (("belly", 62, 192), ("back", 190, 322), ("breast", -40, 64))
    ]


def _neck(frame: Frame) -> list[Piece]:
    head = np.array(frame.head)
    back, middle, front = _turn(_torso_edge(frame, -75, 20, 3), frame.tilt)
    axis = head - _turn(np.array([frame.length * 0.6, 0.0]), frame.tilt)
    axis /= np.hypot(*axis)
    side = np.array([axis[1], -axis[0]]) * frame.skull * frame.neck
    inner = _turn(np.array([0.0, 0.0]), frame.tilt)
    pieces = []
    for part, sign, foot in (("nape", 1, back), ("throat", -1, front)):
        rim = head + sign * side
        bend = (rim + foot) / 2 + (middle - (rim + foot) / 2) * 0.22
        pieces.append((CODE[part], np.concatenate([_bezier(rim, bend, foot), inner[None], head[None]])))
    return pieces


def _wing(frame: Frame, wing_shape: str) -> list[Piece]:
    a, b = frame.length, frame.depth
    if wing_shape == "pointed":
        corners = [
            (0.52, -0.28),
            (0.1, -0.62),
            (-0.5, -0.42),
            (-1.38, -0.02),
            (-1.38, -0.02),
            (-0.45, 0.34),
            (0.15, 0.5),
        ]
    else:
        corners = [
            (0.52, -0.28),
            (0.1, -0.62),
            (-0.45, -0.55),
            (-0.88, -0.22),
            (-0.92, 0.15),
            (-0.6, 0.42),
            (0.1, 0.52),
        ]
    corners.append((0.46, 0.2))
    tip = -1.2 if wing_shape == "pointed" else -0.85
    pieces = [(CODE["wing"], np.array([[a, b]]) * _smooth(corners))]
    for height in (0.06, 0.28):
        feather = np.array(
            [(0.05, height), (tip * 0.55, height + 0.02), (tip, 0.05 + height * 0.3), (tip * 0.5, height + 0.1)]
        )
        pieces.append((CODE["wing"] + LINE, np.array([[a, b]]) * feather))
    return [(value, _turn(points, frame.tilt)) for value, points in pieces]


def _rounded_end(length: float, root: float, width: float, bulge: float) -> list[tuple[float, float]]:
    return [
        *((0.0, -root), (0.0, -root)),
        *((-length, -width), (-length - bulge, 0.0), (-length, width)),
        *((0.0, root), (0.0, root)),
    ]


_TAILS: dict[str, Callable[[], np.ndarray]] = {
    "forked": lambda: np.array(
        [(0, -0.09), (-0.34, -0.13), (-0.66, -0.27), (-0.33, 0.0), (-0.66, 0.25), (-0.34, 0.12), (0, 0.09)]
    ),
    "fan-shaped": lambda: np.array(
        [(0, -0.09), (-0.40, -0.33), *(_arc(215, 145, (0.52, 0.58), 9)).tolist(), (-0.40, 0.33), (0, 0.09)]
    ),
    "pointed": lambda: _smooth(
        [(0, -0.1), (0, -0.1), (-0.36, -0.075), (-0.78, 0.0), (-0.78, 0.0), (-0.36, 0.075), (0, 0.1), (0, 0.1)]
    ),
    "rounded": lambda: _smooth(_rounded_end(0.36, 0.11, 0.17, 0.12)),
}


def _tail(frame: Frame, tail_shape: str) -> list[Piece]:
    root = np.array([-0.74 * frame.length, 0.0])
    outline = _TAILS[tail_shape]()
    spread = outline[len(outline) // 2]
    quill = np.array([(-0.2, -0.012), (spread[0] * 0.9, spread[1]), (-0.2, 0.012)])
    turned = [(CODE["tail"], outline), (CODE["tail"] + LINE, quill)]
    return [(value, _turn(root + _turn(points, frame.tail), frame.tilt)) for value, points in turned]


def _leg(frame: Frame, offset: float) -> list[Piece]:
    hip, foot, width = frame.hips + offset, frame.ground, 0.03
    top = 0.2 * frame.depth
    leg = np.array(
        [
            (hip - width, top),
            (hip + width, top),
            (hip + width, foot - 0.05),
            (hip + 0.15, foot - 0.025),
            (hip + 0.15, foot + 0.02),
            (hip - 0.09, foot + 0.02),
            (hip - 0.09, foot - 0.02),
            (hip - width, foot - 0.05),
        ]
    )
    return [(CODE["leg"], leg)]


_HOOKED = (
    *((-0.06, -0.11), (-0.06, -0.11), (0.16, -0.09), (0.28, 0.04), (0.25, 0.2), (0.25, 0.2)),
    *((0.16, 0.09), (0.06, 0.09), (-0.06, 0.1), (-0.06, 0.1)),
)
_SPATULATE = (
    *((-0.06, -0.06), (-0.06, -0.06), (0.14, -0.03), (0.28, -0.08), (0.4, -0.06), (0.44, 0.03)),
    *((0.4, 0.12), (0.28, 0.12), (0.14, 0.05), (-0.06, 0.07), (-0.06, 0.07)),
)
_BILLS: dict[str, Callable[[], np.ndarray]] = {
    "cone": lambda: np.array([(-0.06, -0.12), (0.08, -0.07), (0.22, 0.03), (0.1, 0.09), (-0.06, 0.12)]),
    "needle": lambda: np.array([(-0.06, -0.045), (0.46, -0.012), (0.46, 0.022), (-0.06, 0.045)]),
    "hooked": lambda: _smooth(_HOOKED, 3),
    "spatulate": lambda: _smooth(_SPATULATE, 3),
    "dagger": lambda: np.array([(-0.06, -0.085), (0.14, -0.06), (0.4, 0.03), (0.14, 0.075), (-0.06, 0.085)]),
}


def _head(frame: Frame, bill_shape: str, crown_shape: str) -> list[Piece]:
    r = frame.skull
    hub = np.array([[0.02 * r, 0.02 * r]])
    scale = r / 0.2
    bill = scale * _BILLS[bill_shape]() + np.array([[0.9 * r, 0.12 * r]])
    pieces = [(CODE["beak"], bill)]
    pieces += [
        (CODE[part], np.concatenate([_arc(start, stop, (r, r)), hub]))
        for part, start, stop in (
            ("throat", 6, 112),
            ("nape", 110, 212),
            ("forehead", -66, 10),
            ("crown", -150, -62),
        )
    ]
    if crown_shape == "crested":
        crest = np.array(
            [(0.62, -0.74), (0.35, -1.2), (-0.3, -1.55), (-1.25, -1.62), (-0.75, -1.2), (-1.35, -1.1), (-0.86, -0.5)]
        )
        pieces.append((CODE["crown"], r * crest))
    eye = np.array([[0.3 * r, -0.12 * r]])
    size = 0.075 if r < 0.18 else 0.084
    for shade, radius in ((LINE, size * 1.18), (0, size), (DARK, size * 0.32)):
        pieces.append((CODE["eye"] + shade, eye + _arc(0, 324, (radius, radius))))
    return [(value, np.array([frame.head]) + points) for value, points in pieces]
