"""The picture of a trial: scores against the size of damage."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from captum_concepts.support.checks import check_choice
from quantus_concepts.testing.damages import DAMAGES
from quantus_concepts.testing.expected import WORSE
from quantus_concepts.testing.trial import DAMAGE, START, noticed

#: Colours of findings, and what a panel says of them.
_FINDINGS = {
    "misses": "#c0392b",
    "rewards": "#c0392b",
    "moves": "#e08e0b",
    "out of order": "#e08e0b",
    "gets better": "#7d3c98",
}
#: Room between two panels of a row, each of which with it is 1 wide.
_GAP = 0.07
_AS_EXPECTED, _NO_CLAIM = "#1f6fb2", "#888888"
LEGEND = (
    "x: size of the damage.  grey band: two worlds that differ by luck alone.  ▾ must get worse.  blue: does.  "
    "red: misses the damage, or rewards it.  orange: moves where it must not, or not in order.  "
    "purple: gets better without a claim."
)


def plot_trial(
    frame: pd.DataFrame,
    metrics: Sequence[str] | None = None,
    damages: Sequence[str] | None = None,
    *,
    legend: bool = True,
) -> tuple[Figure, np.ndarray]:
    """Draw scores against the size of damage: a row for each metric, a column for each damage.

    Parameters
    ----------
    frame : DataFrame
        Result of `meta_evaluate`.
    metrics : sequence of str, optional
        Metrics to draw, in this order; all by default.
    damages : sequence of str, optional
        Damages to draw, in this order; all by default.
    legend : bool
        Whether a line below says what colours mean.

    Returns
    -------
    tuple of Figure and array of Axes
        Axes (metrics,), in which the damages stand side by side. Nothing is shown or saved.

    Raises
    ------
    ValueError
        If `frame` is no result of `meta_evaluate`, or has no such metric or damage.

    Examples
    --------
    >>> from quantus_concepts import ConceptAUC
    >>> from quantus_concepts.testing import meta_evaluate, plot_trial
    >>> settings = {"damages": ["names permuted"], "sizes": [0.5, 1.0]}
    >>> frame = meta_evaluate([ConceptAUC()], **settings, worlds=2, repetitions=1)
    >>> figure, axes = plot_trial(frame)
    >>> len(axes)
    1
    """
    found = noticed(frame)
    found = found[found["kind"] == DAMAGE].set_index(["metric", "damage"])
    known = [list(dict.fromkeys(found.index.get_level_values(level))) for level in (0, 1)]
    for name, wanted, there in (("metrics", metrics, known[0]), ("damages", damages, known[1])):
        for each in wanted or ():
            check_choice(name, each, there)
    rows, columns = [*(metrics or known[0])], [*(damages or known[1])]
    width, height = 1.25 * len(columns) + 1.9, 0.78 * len(rows) + 0.9
    # One axes a row, in which each damage has its place: hundreds of axes would take minutes.
    figure, axes = plt.subplots(len(rows), 1, figsize=(width, height), squeeze=False, layout="none")
    figure.subplots_adjust(left=1.75 / width, right=0.99, top=1 - 0.5 / height, bottom=0.62 / height, hspace=0.16)
    for axis, metric in zip(axes[:, 0], rows, strict=True):
        own = frame[frame["metric"] == metric]
        starts = own[own["kind"] == START].set_index("world")["value"]
        values = own[(own["kind"] == DAMAGE) & own["damage"].isin(columns)]
        ends = pd.Series([*values.groupby(["damage", "t"])["value"].mean(), *starts]).dropna()
        # A score may be undefined everywhere.
        low, high = (ends.min(), ends.max()) if len(ends) else (0.0, 1.0)
        margin = 0.08 * (high - low) + 1e-3
        axis.set(xlim=(0, len(columns) - _GAP), ylim=(low - margin, high + margin), xticks=[])
        for place, damage in enumerate(columns):
            if (metric, damage) in found.index:
                _draw(axis, place, values[values["damage"] == damage], starts, found.loc[(metric, damage)])
        for place in range(1, len(columns)):
            axis.axvspan(place - _GAP, place, color="white", lw=0, zorder=4)
            for edge in (place - _GAP, place):
                axis.axvline(edge, color="#bbbbbb", lw=0.6, zorder=5)
        axis.tick_params(labelsize=6, length=2)
        for spine in axis.spines.values():
            spine.set(color="#bbbbbb", linewidth=0.6)
        axis.set_ylabel(_in_lines(metric), rotation=0, ha="right", va="center", fontsize=7.5, labelpad=6)
    for place, damage in enumerate(columns):
        title = DAMAGES[damage].title if damage in DAMAGES else damage
        at = (place + (1 - _GAP) / 2, 1.06)
        axes[0, 0].text(*at, title, transform=axes[0, 0].get_xaxis_transform(), fontsize=7.5, ha="center", va="bottom")
    axes[-1, 0].set_xticks([0, 1 - _GAP], ["0", "1"])
    if legend:
        figure.text(0.01, 0.1 / height, _in_lines(LEGEND, int(18 * width)), fontsize=6.5, va="bottom")
    return figure, axes[:, 0]


def _draw(axis: Axes, place: int, cases: pd.DataFrame, starts: pd.Series, found: pd.Series) -> None:
    used = starts[starts.index.isin(cases["world"])]
    by_size = cases.groupby("t")["value"]
    sizes = place + (1 - _GAP) * np.r_[0, [*by_size.groups]]
    means, spread = np.r_[used.mean(), by_size.mean()], np.nan_to_num(np.r_[used.std(), by_size.std()])
    finding = found["finding"]
    colour = _FINDINGS.get(finding, _AS_EXPECTED if found["expected"] == WORSE else _NO_CLAIM)
    band = [found["start"] - found["luck"], found["start"] + found["luck"]]
    axis.fill_between([place, place + 1 - _GAP], *band, color="#eeeeee", lw=0)
    axis.fill_between(sizes, means - spread, means + spread, color=colour, alpha=0.2, lw=0)
    axis.plot(sizes, means, color=colour, lw=1.5)
    scale = axis.get_xaxis_transform()
    if found["expected"] == WORSE:
        axis.plot(place + 0.06, 0.1, "v", ms=3, color="#333333", transform=scale)
    if finding:
        low, high = axis.get_ylim()
        is_high = np.nan_to_num(means[-1], nan=low) > (low + high) / 2
        y, side = (0.06, "bottom") if is_high else (0.94, "top")
        box = {"boxstyle": "square,pad=.1", "fc": "white", "ec": "none", "alpha": 0.75}
        style: dict[str, Any] = {
            "fontsize": 6,
            "color": colour,
            "weight": "bold",
            "bbox": box,
            "ha": "right",
            "va": side,
        }
        axis.text(place + 1 - _GAP - 0.02, y, finding, transform=scale, **style)


def _in_lines(text: str, width: int = 22) -> str:
    return "\n".join(textwrap.wrap(text, width))
