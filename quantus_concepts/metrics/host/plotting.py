"""Plots of a metric's scores, and the repr of a metric."""

from __future__ import annotations

import inspect
import math
import textwrap
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, ClassVar

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure, SubFigure
from matplotlib.text import Text
from matplotlib.ticker import MaxNLocator
from quantus.helpers.enums import ScoreDirection

from captum_concepts.pictures.gallery import TextFigure, figure_of
from captum_concepts.support.checks import as_list, check_kind, to_array
from captum_concepts.texts import describe, readable_name
from quantus_concepts.functional.arguments import Numbers
from quantus_concepts.functional.statistics.intervals import baseline_coverage, distribution
from quantus_concepts.metrics.host.record import DEFAULTS, QuantusArguments, Record

SCORES, CHANCE, CONTROL = "#3b6ea5", "#777777", "#c4522f"
#: Largest number of concepts or classes that are all drawn; of more, only the highest and the lowest.
MANY_ITEMS = 30
#: Largest number of different scores that are drawn as bars; more are a histogram.
_FEW_VALUES = 12
_LETTERS = 40


def check_table(name: str, table: pd.DataFrame, columns: Sequence[str], source: str) -> None:
    """Raise where a table to be drawn lacks a column of what `source` returns, or holds nothing."""
    lacking = [column for column in columns if column not in getattr(table, "columns", [])]
    if lacking or table.empty:
        raise ValueError(
            f"Expected argument `{name}` to be what `{source}` returns but "
            f"{f'it has no column {lacking}' if lacking else 'it is empty'}."
        )


def checked_axes(ax: Axes | Sequence[Axes] | np.ndarray | None, n: int, panel_of: str) -> np.ndarray:
    """Return the axes (n or more,) for as many panels, or raise."""
    axes = np.asarray(ax, dtype=object).ravel()
    if not all(isinstance(panel, Axes) for panel in axes):
        raise TypeError("Expected argument `ax` to hold nothing but Axes of matplotlib.")
    if len(axes) < n:
        raise ValueError(f"Expected argument `ax` to hold {n} axes, one for each {panel_of}, but got {len(axes)}.")
    return axes


def direction_text(metric: object) -> str:
    """Return which scores of a metric are the better ones, "" where it does not say so."""
    names = {ScoreDirection.HIGHER: "higher is better", ScoreDirection.LOWER: "lower is better"}
    return names.get(getattr(metric, "score_direction", None), "")  # type: ignore[arg-type]


def draw_references(ax: Axes, chance: float, control: Numbers | None, digits: bool = True) -> None:
    """Draw chance and the mean of the controls as lines, and the range of two controls or more."""
    values = np.asarray(math.nan if control is None else control, dtype=float).ravel()
    mean, low, high = distribution(values)
    for name, at, style, colour in (("chance", chance, "--", CHANCE), ("control", mean, ":", CONTROL)):
        if math.isfinite(at):
            ax.axvline(at, color=colour, linestyle=style, label=f"{name} {at:.3f}" if digits else name)
    n = int(np.isfinite(values).sum())
    if n >= 2:
        draw_range(ax, low, high, baseline_coverage(n))


def draw_range(ax: Axes, low: float, high: float, coverage: float) -> None:
    """Shade the range of a baseline's draws, and say which share of further draws it encloses."""
    if not math.isfinite(high - low):
        return
    ax.axvspan(low, high, color=CONTROL, alpha=0.15, lw=0, zorder=0, label=f"{100 * coverage:.0f} % of controls")


def show_names_literally(figure: Figure | SubFigure) -> None:
    """Show every text of a figure as it is: a $ in a name begins no formula."""
    for text in figure.findobj(Text):
        text.set_parse_math(False)


class DrawsScores:
    """The repr of a metric, and plots of its scores."""

    name: ClassVar[str]
    of_samples: bool
    bounds: tuple[float, float]
    quantus_defaults: ClassVar[QuantusArguments]
    records: deque[Record]
    evaluation_scores: Any
    default_plot_func: Callable[..., Any] | None

    def __repr__(self) -> str:
        defaults = {**DEFAULTS, **self.quantus_defaults}
        of_quantus = ("abs", "normalise", "return_aggregate")
        changed = {name: getattr(self, name) for name in of_quantus if getattr(self, name) != defaults[name]}
        settings = {name: getattr(self, name, None) for name in inspect.signature(type(self)).parameters}
        # Settings that are off are left out.
        shown_settings = {name: setting for name, setting in settings.items() if setting is not False}
        return describe(self, **shown_settings, **changed)

    def plot_scores(
        self,
        scores: Numbers | None = None,
        ax: Axes | None = None,
        *,
        control: Numbers | None = None,
        names: Sequence[str] | None = None,
    ) -> tuple[Figure, Axes]:
        """Draw scores, by default those of the last call with its chance and reasons.

        Scores of samples are a histogram; those of concepts or classes (`CGIM`) have a bar each, the highest first, of
        more than 30 the 15 highest and the 15 lowest. Lines show the mean, chance and what controls score.

        Parameters
        ----------
        scores : sequence of float, optional
            Scores; NaN are counted in the title.
        ax : matplotlib Axes, optional
            Axes to draw on; a new figure if None.
        control : float or sequence of float, optional
            Scores of one or many baselines by the same metric; the range of two or more is shaded.
        names : sequence of str, optional
            Names of the concepts or classes, one for each score.

        Returns
        -------
        tuple
            Figure and axes.

        Raises
        ------
        TypeError
            If `ax` is no Axes, or `names` no sequence.
        ValueError
            If `scores` or `control` is not (n,) of numbers, or `names` are not as many as scores.
        """
        last = self.records[-1] if scores is None and self.records else None
        last_scores: Any = self.evaluation_scores if last is None else last.values
        values = np.atleast_1d(to_array("scores", last_scores if scores is None else scores)).astype(float)
        if values.ndim > 1:
            raise ValueError(f"Expected argument `scores` to have shape (n,) but got {values.shape}.")
        if control is not None:
            control = to_array("control", control).astype(float)
        items = None if self.of_samples and names is None else _item_names(names, len(values))
        check_kind("ax", ax, Axes | None, "Axes of matplotlib")
        defined = values[np.isfinite(values)]
        # Beside the bars where the figure is ours.
        place: dict[str, Any] = {}
        if ax is None:
            place = {"loc": "upper left", "bbox_to_anchor": (1, 1)}
            height = 3.2 if items is None else 1.5 + 0.2 * min(len(items), MANY_ITEMS + 1)
            _, ax = plt.subplots(
                figsize=(5 if items is None else 6, height), layout="constrained", FigureClass=TextFigure
            )
        if not defined.size:
            why = ["no score is defined", *(() if last is None else last.reasons)]
            lines = [textwrap.fill(line, 50) for line in why]
            ax.text(0.5, 0.5, "\n".join(lines), ha="center", va="center", transform=ax.transAxes)
            ax.set(xticks=[], yticks=[])
        elif items is None:
            _draw_samples(ax, defined, self.bounds)
        else:
            _draw_items(ax, values, items)
        if defined.size:
            ax.axvline(defined.mean(), color="black", lw=1.2, label=f"mean {defined.mean():.3f}")
            draw_references(ax, math.nan if last is None else last.chance, control)
            ax.legend(frameon=False, fontsize="small", **place)
        direction = direction_text(self)
        ax.set_xlabel(f"score ({direction})" if direction else "score")
        # Not with wrap=True, which measures names as formulas.
        counted = f"{self.name}: {defined.size} defined, {values.size - defined.size} undefined"
        ax.set_title(textwrap.fill(counted, 60), fontsize="medium")
        figure = figure_of(ax)
        show_names_literally(figure)
        return figure, ax

    def plot(
        self,
        plot_func: Callable[..., object] | None = None,
        show: bool = True,
        path_to_save: str | None = None,
        *args: object,
        **kwargs: object,
    ) -> None:
        """Draw, save and show, in this order; Quantus shows before it saves. A figure that is not shown is closed.

        Further arguments go to `plot_func`, which is `plot_scores` unless the metric was given another: ``control=``,
        the scores of baselines, and ``names=`` of concepts or classes.
        """
        # Once shown, a figure may be empty when it is saved.
        plot_func = self.default_plot_func if plot_func is None else plot_func
        if not callable(plot_func):
            raise TypeError(f"Expected argument `plot_func` to be callable but got {type(plot_func).__name__}.")
        before = set(plt.get_fignums())
        try:
            plot_func(*args, **kwargs)
            if path_to_save:
                plt.savefig(fname=path_to_save, dpi=400)
            if show:
                plt.show()
        finally:
            if not show:
                for number in set(plt.get_fignums()) - before:
                    plt.close(number)


def _draw_samples(ax: Axes, values: np.ndarray, bounds: tuple[float, float]) -> None:
    """Draw how many samples have which score."""
    different, counts = np.unique(values, return_counts=True)
    inside = all(map(math.isfinite, bounds)) and bounds[0] <= different[0] and different[-1] <= bounds[1]
    span = bounds if inside else (different[0], different[-1])
    if len(different) <= _FEW_VALUES:
        width = 0.04 * ((span[1] - span[0]) or 1.0)
        ax.bar(different, counts, width=width, color=SCORES)
    else:
        ax.hist(values, bins=20, range=span, color=SCORES, edgecolor="white")
    if inside:
        room = 0.04 * (span[1] - span[0])
        ax.set_xlim(span[0] - room, span[1] + room)
    ax.set_ylabel("samples")
    ax.yaxis.set_major_locator(MaxNLocator(integer=True))


def _draw_items(ax: Axes, values: np.ndarray, names: Sequence[str]) -> None:
    """Draw the score of each concept or class, or of the highest and lowest of many."""
    order = np.argsort(-values, kind="stable")[: int(np.isfinite(values).sum())]
    rows = [(_shorten(readable_name(names[j])), float(values[j])) for j in order]
    if len(rows) > MANY_ITEMS:
        half = MANY_ITEMS // 2
        rows = [*rows[:half], (f"... {len(rows) - 2 * half} between", math.nan), *rows[-half:]]
    places = np.arange(len(rows))
    ax.barh(places, [score for _, score in rows], height=0.7, color=SCORES, alpha=0.85)
    ax.set_yticks(places, [name for name, _ in rows], fontsize="small")
    ax.set_ylim(len(rows) - 0.4, -0.6)


def _shorten(name: str) -> str:
    """Shorten a long name in the middle; its end distinguishes it from others of its group."""
    return name if len(name) <= _LETTERS else f"{name[: _LETTERS // 2 - 1]}...{name[2 - _LETTERS // 2 :]}"


def _item_names(names: Sequence[str] | None, n: int) -> list[str]:
    item_names = [str(place) for place in range(n)] if names is None else as_list("names", names, "names")
    if len(item_names) != n:
        raise ValueError(f"Expected argument `names` to hold a name for each of {n} scores but got {len(item_names)}.")
    return [str(name) for name in item_names]
