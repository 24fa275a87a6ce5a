"""Names of a few points of a figure, put where they overlap nothing."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product

import numpy as np
from matplotlib.axes import Axes

from quantus_concepts.studies.charts import INK

SIZE = 6.8
#: Mean width of a letter, and height of a line, as a share of the size of the type.
LETTER, LINE = 0.58, 1.15
#: Distance of a name from its point, and what a point itself covers, in points.
GAP, RADIUS = 4.0, 2.8
SIDES = ((1, 0), (-1, 0), (0, 1), (0, -1), (1, 1), (-1, 1), (1, -1), (-1, -1))
#: How many times further a name may go where there is no room beside its point; a line then leads to it.
FAR = 3.5
LEADER = {"arrowstyle": "-", "color": "#9A9A9A", "linewidth": 0.6, "shrinkA": 0, "shrinkB": 2}


def extremes(places: np.ndarray) -> list[int]:
    """Return which points of (x, y) stand out."""
    if not len(places):
        return []
    apart = places[:, 1] - places[:, 0]
    order = [apart.argmax(), apart.argmin()]
    for axis in (0, 1):
        order += [places[:, axis].argmin(), places[:, axis].argmax()]
    return list(dict.fromkeys(int(index) for index in order))


def label_points(ax: Axes, names: Sequence[str], places: np.ndarray) -> list[str]:
    """Name the points that stand out, each where its name covers no other name and no point."""
    window, dpi = ax.get_window_extent(), ax.figure.dpi
    size = np.array([window.width, window.height]) * 72 / dpi
    start = np.array([ax.get_xlim()[0], ax.get_ylim()[0]])
    spans = np.array([np.ptp(ax.get_xlim()), np.ptp(ax.get_ylim())])
    at = (places - start) / spans * size
    taken = [np.concatenate([point - RADIUS, point + RADIUS]) for point in at]
    written = []
    for index in extremes(places):
        box = np.array([LETTER * SIZE * len(names[index]), LINE * SIZE])
        for reach, side in product((1, FAR), SIDES):
            centre = at[index] + np.array(side) * (box / 2 + GAP * reach)
            found = np.concatenate([centre - box / 2, centre + box / 2])
            inside = (found[:2] >= 0).all() and (found[2:] <= size).all()
            if inside and not any(_overlap(found, other) for other in taken):
                offset = centre - at[index]
                ax.annotate(
                    names[index],
                    places[index],
                    xytext=offset,
                    textcoords="offset points",
                    ha="center",
                    va="center",
                    fontsize=SIZE,
                    color=INK,
                    arrowprops=LEADER if reach > 1 else None,
                )
                taken.append(found)
                written.append(names[index])
                break
    return written


def _overlap(first: np.ndarray, second: np.ndarray) -> bool:
    return bool((first[:2] < second[2:]).all() and (second[:2] < first[2:]).all())
