"""Plot of a summary: each number with its interval, chance and a baseline."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Mapping, Sequence
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from captum_concepts.pictures.gallery import TextFigure
from quantus_concepts.functional.statistics.intervals import baseline_coverage
from quantus_concepts.metrics.concepts.names import SCORE
from quantus_concepts.metrics.host.model import RANDOM_BANKS
from quantus_concepts.metrics.host.plotting import (
    CHANCE,
    SCORES,
    check_table,
    checked_axes,
    direction_text,
    draw_range,
    draw_references,
    show_names_literally,
)
from quantus_concepts.metrics.streaming.table import kinds_of_rows
from quantus_concepts.results.summary import SUMMARY_COLUMNS

#: Panels in a row, and letters in a line of a method's and of a metric's name.
_PER_ROW, _METHOD, _METRIC = 4, 32, 26


def plot_summary(
    summary: pd.DataFrame,
    ax: Axes | Sequence[Axes] | np.ndarray | None = None,
    *,
    metrics: Mapping[str, object] | None = None,
) -> tuple[Figure, np.ndarray]:
    """Draw a summary: a panel for each metric, a point with its interval for each method, chance and control as lines.

    The number of scores behind a point is at its right, and how many there would be where some are undefined.

    Parameters
    ----------
    summary : DataFrame
        Result of `summarise` or `evaluate`; or a table of `score_concepts`, of which one variant of each metric is
        drawn, with the smallest ``l`` and ``alpha``, over all images where it has them, and its control as the range.
    ax : array of matplotlib Axes, optional
        One for each metric; a new figure of up to four panels in a row if None.
    metrics : dict, optional
        The metrics by name, as `summarise` takes them: the panels then say whether higher or lower is better.

    Returns
    -------
    tuple
        Figure and array of axes, one for each metric. Nothing is shown or saved.

    Raises
    ------
    TypeError
        If `ax` holds something else than Axes.
    ValueError
        If `summary` lacks a column or holds nothing, or there are too few axes.
    """
    if isinstance(summary, pd.DataFrame) and {"model", "explanation", "item"} <= {*summary}:
        summary = _rows_of_score_table(summary)
    check_table("summary", summary, SUMMARY_COLUMNS, "summarise")
    metrics = metrics or {}
    if "call" in summary:
        summary = summary.assign(method=summary["method"].astype(str) + ", " + summary["call"].astype(str))
    names = list(dict.fromkeys(summary["metric"]))
    methods = list(dict.fromkeys(summary["method"]))
    labels = [_wrap_name(method, _METHOD) for method in methods]
    is_new_figure = ax is None
    if is_new_figure:
        ax = _new_axes(len(names), labels)
    axes = checked_axes(ax, len(names), "metric")
    for panel, name in zip(axes, names, strict=False):
        rows = summary[summary["metric"] == name].drop_duplicates("method").set_index("method").reindex(methods)
        _draw_metric(panel, rows, labels)
        panel.set_title(_wrap_name(name, _METRIC), fontsize="medium")
        panel.set_xlabel(direction_text(metrics.get(name)), fontsize="small")
    figure = axes[0].figure
    legend_entries = {
        label: handle
        for panel in axes[: len(names)]
        for handle, label in zip(*panel.get_legend_handles_labels(), strict=True)
    }
    if legend_entries and is_new_figure:
        # Over the panels, where it covers no point.
        places: dict[str, Any] = {"loc": "outside upper left", "ncols": 2}
        figure.legend(legend_entries.values(), legend_entries.keys(), **places, frameon=False, fontsize="small")
    elif legend_entries:
        axes[0].legend(frameon=False, fontsize="small")
    show_names_literally(figure)
    return figure, axes[: len(names)]


def _rows_of_score_table(table: pd.DataFrame) -> pd.DataFrame:
    """Return a table of `score_concepts` in the columns of a summary: the models as methods, with their baselines."""
    overall = table[kinds_of_rows(table) == SCORE]
    keys = ["metric", "explanation", "item_kind"]
    rows = overall.sort_values(["l", "alpha", "set"], kind="stable").drop_duplicates(["model", *keys]).sort_index()
    by = rows["explanation"].where(rows["explanation"] == "", " by " + rows["explanation"])
    of = rows["item_kind"].where(rows["item_kind"] == "", " of each " + rows["item_kind"])
    rows = rows.assign(method=rows["model"], metric=rows["metric"] + by + of, reason="", control=math.nan)
    controls = rows[rows["method"] == RANDOM_BANKS].set_index("metric")
    rows = rows[rows["method"] != RANDOM_BANKS]
    for name, column in (("control", "value"), ("control_low", "low"), ("control_high", "high")):
        rows = rows.assign(**{name: rows["metric"].map(controls[column]).astype(float)})
    coverage = rows["metric"].map(controls["n"].map(baseline_coverage)).astype(float)
    return rows.assign(control_coverage=coverage)[[*SUMMARY_COLUMNS, "control_low", "control_high", "control_coverage"]]


def _new_axes(n: int, labels: list[str]) -> np.ndarray:
    """Return axes for so many panels, those of a row with the methods' names at the first."""
    columns = min(n, _PER_ROW)
    rows = math.ceil(n / columns)
    lines = sum(0.18 + 0.14 * (label.count("\n") + 1) for label in labels)
    letters = max(len(line) for label in labels for line in label.split("\n"))
    size = (0.8 + 0.075 * letters + 2.6 * columns, 0.4 + (1.1 + lines) * rows)
    _, axes = plt.subplots(
        rows, columns, figsize=size, sharey=True, squeeze=False, layout="constrained", FigureClass=TextFigure
    )
    for panel in axes.ravel()[n:]:
        panel.set_visible(False)
    return np.asarray(axes)


def _draw_metric(panel: Axes, rows: pd.DataFrame, labels: list[str]) -> None:
    places = np.arange(len(rows))
    value = rows["value"].to_numpy(float)
    reach = np.stack([value - rows["low"].to_numpy(float), rows["high"].to_numpy(float) - value])
    draw_references(panel, rows["chance"].mean(), rows["control"].astype(float).mean(), digits=False)
    if "control_low" in rows and rows["control_low"].notna().any():
        draw_range(panel, *(float(rows[f"control_{name}"].mean()) for name in ("low", "high", "coverage")))
    panel.errorbar(value, places, xerr=np.nan_to_num(reach).clip(min=0), fmt="o", color=SCORES, capsize=3)
    for place, (_, row) in enumerate(rows.iterrows()):
        missing = "undefined" if row["n"] == 0 else "infinite" if np.isinf(row["value"]) else ""
        if missing:
            panel.text(0.5, place, missing, ha="center", va="center", transform=panel.get_yaxis_transform())
    if not np.isfinite(value).any():
        panel.set_xticks([])
    panel.set_yticks(places, labels, fontsize="small")
    panel.text(1.03, 1.0, "n", va="bottom", fontsize="x-small", color=CHANCE, transform=panel.transAxes)
    panel.set_ylim(len(rows) - 0.5, -0.5)
    counts = panel.secondary_yaxis("right")
    counts.set_ticks(places, [_count_text(row) for _, row in rows.iterrows()], fontsize="x-small", color=CHANCE)
    counts.tick_params(length=0, pad=2)
    counts.spines["right"].set_visible(False)


def _count_text(row: pd.Series) -> str:
    if pd.isna(row["n"]):
        return ""
    n, undefined = int(row["n"]), int(row["undefined"])
    return f"{n} of {n + undefined}" if undefined else f"{n}"


def _wrap_name(name: str, width: int) -> str:
    """Return a name in lines, broken between words where it can be."""
    return "\n".join(textwrap.wrap(str(name), width)) or str(name)
