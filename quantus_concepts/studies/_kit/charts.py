"""Charts of reports, declared over a tidy frame: bars, curves, histograms and a plane of two metrics."""

from __future__ import annotations

import io
import math
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import matplotlib as mpl
import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch, Rectangle
from matplotlib.text import Text
from matplotlib.ticker import FuncFormatter, MaxNLocator, NullFormatter

from quantus_concepts.studies._kit.findings import number
from quantus_concepts.studies._kit.results import names, one, pick

#: Dots per inch of a figure: twice the size it is shown at, so that it is sharp.
DPI = 170
INK = "#333333"
#: Colours of the band in which 95 % of a random baseline lie, and of bars that are baselines.
BAND, GREY = "#C9C9C9", "#9A9A9A"
#: Okabe and Ito's colours, which colour-blind readers tell apart.
PALETTE = ("#D55E00", "#0072B2", "#009E73", "#CC79A7", "#56B4E9", "#E69F00", "#F0E442", "#8A8A8A")
MARKERS = "osD^vP*Xd"
WIDTH = 7.6
#: Numbers further apart than this are drawn on a logarithmic scale, where a chart may have one.
LOG_FROM = 20.0


class Drawing(Protocol):
    """A chart as it is declared."""

    def draw(self) -> tuple[Figure, Any]:
        """Return the figure and its axes."""


@dataclass(frozen=True)
class Chart:
    """A figure of a page: ``figures/NAME.png`` and the caption below it."""

    name: str
    caption: str
    figure: Drawing | Figure | bytes
    wide: bool = False
    unverified: str = ""


@dataclass(frozen=True, kw_only=True)
class Bars:
    """Bars with 95 % intervals: a group for each value of the column `groups`, a bar in it for each of `series`.

    The series `band` is a random baseline: a band behind its group, with its mean and upper end over the bars. `lines`
    are series drawn as a line across their group. `reference` is a value at which a line crosses all bars, and its
    name. `write` writes each value at its bar. Bars are `flat` where groups have long names, and `points` where
    nothing is held against 0. `grey` are groups that are baselines; `singles` are rows drawn as small points, such as
    the single seeds; `base` is where bars begin; `gap_after` parts the first groups from the others.
    """

    frame: pd.DataFrame
    groups: str
    series: str = ""
    label: str = ""
    order: Sequence[str] = ()
    colours: Mapping[str, str] = field(default_factory=dict)
    band: str = ""
    band_label: str = "95 % of random baselines (— mean, -- 97.5 %)"
    lines: Mapping[str, Any] = field(default_factory=dict)
    reference: tuple[float, str] | None = None
    scale: float = 1.0
    limits: tuple[float | None, float | None] | None = None
    write: Callable[[float], str] | None = number
    flat: bool = False
    points: bool = False
    logarithmic: bool = False
    grey: Collection[str] = ()
    singles: pd.DataFrame | None = None
    base: float = 0.0
    gap_after: int = 0

    def draw(self) -> tuple[Figure, Axes]:
        """Draw on new axes."""
        frame = self.frame if self.series else self.frame.assign(series="")
        groups, column = names(frame, self.groups), self.series or "series"
        bars = [name for name in names(frame, column, self.order) if name not in {*self.lines, self.band or None}]
        places = [place + (0 < self.gap_after <= place) for place in range(len(groups))]
        height = 0.9 + (0.29 if len(bars) < 2 else 0.2 + 0.16 * len(bars)) * (len(groups) + bool(self.gap_after))
        fig, ax = new_axes(WIDTH, height if self.flat else 4.0)
        colours, width = colours_of(bars, self.colours), 0.8 / max(1, len(bars))
        for place, group in zip(places, groups, strict=True):
            band = one(frame, **{self.groups: group, column: self.band}) if self.band else None
            if band is not None:
                self._band(ax, band, place)
            for index, name in enumerate(bars):
                at = place + (index - (len(bars) - 1) / 2) * width
                colour = GREY if group in self.grey else colours[name]
                self._bar(ax, at, one(frame, **{self.groups: group, column: name}), 0.9 * width, colour, band)
                if self.singles is not None:
                    values = self.scale * pick(self.singles, **{self.groups: group, column: name})["value"].dropna()
                    ax.scatter(
                        [at] * len(values), values, s=13, color=INK, zorder=6, edgecolors="white", linewidths=0.5
                    )
            for name, style in self.lines.items():
                row = one(frame, **{self.groups: group, column: name})
                if row is not None:
                    self._line(ax, place, self.scale * row["value"], colours_of([name], self.colours)[name], style)
        self._finish(
            ax, frame[column], [str(group) for group in groups], places, {name: colours[name] for name in bars}
        )
        return fig, ax

    def _band(self, ax: Axes, row: pd.Series, place: float) -> None:
        low, high, mean = (self.scale * row[name] for name in ("low", "high", "value"))
        ends = (place - 0.46, place + 0.46)
        (ax.fill_betweenx if self.flat else ax.fill_between)(ends, low, high, color=BAND, linewidth=0, zorder=1)
        # On top of the bars too, with white beneath, so that both lines show on any of them.
        for height, style in ((mean, "-"), (high, (0, (3, 2)))) if not self.flat else ():
            ax.plot(ends, [height] * 2, color="white", linewidth=3, zorder=4, solid_capstyle="butt")
            ax.plot(ends, [height] * 2, color=INK, linewidth=1.4, linestyle=style, zorder=5)

    def _line(self, ax: Axes, place: float, value: float, colour: str, style: Any) -> None:
        across, along = (place - 0.43, place + 0.43), (value, value)
        ax.plot(*((along, across) if self.flat else (across, along)), color=colour, linestyle=style, lw=2, zorder=5)

    def _bar(
        self, ax: Axes, place: float, row: pd.Series | None, width: float, colour: str, band: pd.Series | None
    ) -> None:
        if row is None:
            if self.flat and self.write is not None and not self.series:
                note(ax, "not defined", (self.base, place), (4, 0), va="center")
            return
        value, low, high = (self.scale * row[name] for name in ("value", "low", "high"))
        at = (value, place) if self.flat else (place, value)
        if self.points:
            ax.plot(*at, "o", color=colour, markersize=7, zorder=5)
        elif self.flat:
            ax.barh(place, value - self.base, width, left=self.base, color=colour, zorder=2)
        else:
            ax.bar(place, value - self.base, width, bottom=self.base, color=colour, zorder=2)
        ends = [value] if math.isnan(low) else [value, low, high]
        if len(ends) > 1:
            spread: dict[str, Any] = {
                "xerr" if self.flat else "yerr": [[max(0.0, value - low)], [max(0.0, high - value)]]
            }
            ax.errorbar(*at, **spread, color=INK, capsize=2.5, linewidth=1.1, zorder=3 + self.points)
        if self.write is None:
            return
        ends += [self.scale * band["high"]] if self.points and band is not None else []
        # Behind the far end, on the side to which the bar points.
        up = value >= self.base or self.points
        end, sign = (max(ends), 1) if up else (min(ends), -1)
        if self.flat:
            note(ax, self.write(row["value"]), (end, place), (4 * sign, 0), va="center", ha="left" if up else "right")
        else:
            note(ax, self.write(row["value"]), (place, end), (0, 2.5 * sign), ha="center", va="bottom" if up else "top")

    def _finish(
        self, ax: Axes, series: pd.Series, groups: list[str], places: list[int], colours: Mapping[str, str]
    ) -> None:
        handles: dict[str, Any] = {name: Patch(color=colour) for name, colour in colours.items() if len(colours) > 1}
        for name, style in self.lines.items():
            handles[name] = Line2D([], [], color=colours_of([name], self.colours)[name], linestyle=style, linewidth=2)
        if self.band in set(series):
            handles |= {self.band_label: Patch(color=BAND)} if not self.flat else {}
        if self.reference is not None:
            value, name = self.reference
            crossing = ax.axvline if self.flat else ax.axhline
            line = crossing(value, color=INK, linewidth=1.2, linestyle="--" if name else "-", zorder=4)
            handles |= {name: line} if name else {}
        if handles:
            above: dict[str, Any] = {
                "loc": "lower center",
                "bbox_to_anchor": (0.5, 1.0),
                "frameon": False,
                "fontsize": 9,
            }
            ax.legend(handles.values(), [*handles], ncols=2 if len(handles) > 3 else len(handles), **above)
        axis, values = ("y", "x") if self.flat else ("x", "y")
        ax.set(**{f"{axis}ticks": places, f"{axis}ticklabels": groups, f"{values}label": self.label})
        if self.limits is not None:
            ax.set(**{f"{values}lim": self.limits})
        else:
            ax.margins(x=0.12) if self.flat else ax.margins(y=0.12)
        if self.logarithmic:
            self._logarithmic(ax)
        tidy(ax, grid=values)
        if self.flat:
            ax.set_ylim(max(places, default=0) + 0.6, -0.6)
            ax.tick_params(axis="y", length=0, labelsize=9)
            for tick, group in zip(ax.get_yticklabels(), groups, strict=True):
                tick.set_color("#6B6B6B" if group in self.grey else INK)
            if self.gap_after:
                ax.axhline(self.gap_after, color="#BBBBBB", linewidth=0.9, linestyle=(0, (4, 4)))

    def _logarithmic(self, ax: Axes) -> None:
        values = self.frame["value"].dropna()
        if len(values) and values.min() > 0 and values.max() > LOG_FROM * values.min():
            (ax.set_xscale if self.flat else ax.set_yscale)("log")
            axis = ax.xaxis if self.flat else ax.yaxis
            axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
            axis.set_minor_formatter(NullFormatter())


@dataclass(frozen=True, kw_only=True)
class Curves:
    """Lines over the column `x` with 95 % intervals, one for each value of `series`, in a panel for each of `panels`.

    The series `band` is a random baseline: a grey band and its mean. `styles` are the styles of lines, "-" by default;
    a dotted one (":") is without marks and intervals, for what is known beforehand. `across` is how many panels a row
    has; by default all stand in one.
    """

    frame: pd.DataFrame
    x: str
    series: str
    panels: str = ""
    label_x: str = ""
    label: str = ""
    order: Sequence[str] = ()
    colours: Mapping[str, str] = field(default_factory=dict)
    styles: Mapping[str, str] = field(default_factory=dict)
    band: str = ""
    band_label: str = "95 % of random baselines"
    ticks: Mapping[float, str] = field(default_factory=dict)
    scale: float = 1.0
    limits: tuple[float, float] | None = None
    main: str = ""
    across: int = 0

    def draw(self) -> tuple[Figure, np.ndarray]:
        """Draw on new axes."""
        frame = self.frame if self.panels else self.frame.assign(panel="")
        column = self.panels or "panel"
        panels = names(frame, column)
        series = [name for name in names(frame, self.series, self.order) if name != self.band]
        colours = colours_of([name for name in series if self.styles.get(name) != ":"], self.colours)
        size = (WIDTH, 4.6) if len(panels) < 2 else (1.6 + 3.75 * len(panels), 3.9)
        columns = self.across or max(1, len(panels))
        rows_of_panels = math.ceil(len(panels) / columns) or 1
        if self.across:
            size = (2.5 * columns, 0.8 + 2.1 * rows_of_panels)
        fig = Figure(figsize=size, layout="constrained")
        axes = fig.subplots(rows_of_panels, columns, sharex=True, sharey=True, squeeze=False).ravel()
        for spare in axes[len(panels) :]:
            spare.set_visible(False)
        # Shifted sideways a little, or intervals of equal numbers hide each other.
        room = 0.012 * float(np.ptp(frame[self.x])) if len(series) > 1 and len(frame) else 0.0
        shifts = dict(zip(series, np.linspace(-room, room, len(series)), strict=True))
        for number_of_panel, (ax, panel) in enumerate(zip(axes, panels, strict=False)):
            rows = pick(frame, **{column: panel}).sort_values(self.x, kind="stable")
            self._band(ax, rows)
            for place, name in enumerate(series):
                points = pick(rows[rows["value"].notna()], **{self.series: name})
                self._line(ax, points, name, colours.get(name, INK), place, shifts[name])
            ax.set_title(str(panel), fontsize=10)
            # Only below the last panel of a column.
            ax.set_xlabel(self.label_x if number_of_panel + columns >= len(panels) else "")
            if self.ticks:
                ax.set_xticks([*self.ticks], [*self.ticks.values()])
            if self.limits is not None:
                ax.set_ylim(*self.limits)
            tidy(ax)
        for ax in axes[::columns]:
            ax.set_ylabel(self.label)
        if self.across:
            legends = [ax.get_legend_handles_labels() for ax in axes]
            keys = {label: handle for handles, labels in legends for handle, label in zip(handles, labels, strict=True)}
            fig.legend(keys.values(), [*keys], loc="outside upper center", ncols=max(1, len(keys)), frameon=False)
        else:
            legend_right(axes[-1])
        return fig, axes

    def _band(self, ax: Axes, rows: pd.DataFrame) -> None:
        band = pick(rows, **{self.series: self.band}) if self.band else rows.iloc[:0]
        if len(band):
            low, high, mean = (self.scale * band[name].astype(float) for name in ("low", "high", "value"))
            ax.fill_between(band[self.x], low, high, color=BAND, alpha=0.6, lw=0, zorder=1, label=self.band_label)
            ax.plot(
                band[self.x], mean, color=GREY, marker="D", markersize=4, linewidth=1.4, zorder=2, label="their mean"
            )

    def _line(self, ax: Axes, rows: pd.DataFrame, name: str, colour: str, place: int, shift: float) -> None:
        style, dotted = self.styles.get(name, "-"), self.styles.get(name) == ":"
        if rows.empty:
            return
        if dotted:
            ax.plot(rows[self.x], self.scale * rows["value"], color=INK, linestyle=":", lw=1.3, zorder=1, label=name)
            return
        ax.errorbar(
            rows[self.x].to_numpy() + shift,
            self.scale * rows["value"].to_numpy(),
            whiskers(rows, self.scale),
            label=name,
            color=colour,
            marker=MARKERS[place % len(MARKERS)],
            markersize=6,
            linestyle=style,
            linewidth=2.6 if name == self.main else 1.7,
            capsize=2.5,
            elinewidth=1.1,
            zorder=4 if name == self.main else 3,
        )


@dataclass(frozen=True, kw_only=True)
class Histograms:
    """Histograms of the values, a panel for each pair of values of the columns `rows` and `columns`.

    The first of `series` is filled, the others are outlines; ▾ is a mean. Rows of `bands`, with ``low`` and ``high``
    and the same two columns, are grey bands.
    """

    frame: pd.DataFrame
    rows: str
    columns: str
    series: str
    order: Sequence[str] = ()
    titles: Mapping[tuple[Any, Any], str] = field(default_factory=dict)
    label: str = ""
    count: Mapping[Any, str] = field(default_factory=dict)
    colours: Mapping[str, str] = field(default_factory=dict)
    bands: pd.DataFrame | None = None
    band_label: str = "95 % of random baselines"
    limits: tuple[float, float] = (0.0, 1.0)
    bins: int = 20

    def draw(self) -> tuple[Figure, np.ndarray]:
        """Draw on new axes."""
        rows, columns = names(self.frame, self.rows), names(self.frame, self.columns)
        series = [name for name in self.order if name in set(self.frame[self.series])] or names(self.frame, self.series)
        colours = colours_of(series, self.colours)
        size = (4.1 * max(1, len(columns)), 0.4 + 2.35 * max(1, len(rows)))
        fig = Figure(figsize=size, layout="constrained")
        axes = fig.subplots(max(1, len(rows)), max(1, len(columns)), sharex=True, squeeze=False)
        edges = np.linspace(*self.limits, self.bins + 1).tolist()
        for place in np.ndindex(len(rows), len(columns)):
            key = rows[place[0]], columns[place[1]]
            panel: Any = axes[place]
            chosen = {self.rows: key[0], self.columns: key[1]}
            for turn, name in enumerate(series):
                values = pick(self.frame, **chosen, **{self.series: name})["value"].dropna()
                look: dict[str, Any] = {"histtype": "step", "linewidth": 1.9, "zorder": 3}
                if not turn:
                    look = {"alpha": 0.8, "edgecolor": "white", "linewidth": 0.6, "zorder": 2}
                if len(values):
                    panel.hist(values, edges, color=colours[name], **look)
                    top = panel.get_xaxis_transform()
                    panel.plot(values.mean(), 0.95, "v", markersize=7, color=colours[name], transform=top, zorder=5)
            for _, band in (self.frame.iloc[:0] if self.bands is None else pick(self.bands, **chosen)).iterrows():
                panel.axvspan(band["low"], band["high"], color=BAND, alpha=0.75, linewidth=0, zorder=1)
            panel.set_title(self.titles.get(key, f"{key[0]}, {key[1]}"), fontsize=10)
            panel.set_ylabel(self.count.get(key[1], ""))
            panel.set(xlim=self.limits, xticks=np.linspace(*self.limits, 5))
            panel.yaxis.set_major_locator(MaxNLocator(nbins=5, integer=True))
            panel.margins(y=0.25)
            panel.set_xlabel(self.label if place[0] == len(rows) - 1 else "")
            tidy(panel)
        handles: dict[str, Any] = {f"{name} (▾ mean)": Patch(color=colours[name]) for name in series}
        if self.bands is not None and len(self.bands):
            handles[self.band_label] = Patch(color=BAND)
        fig.legend(handles.values(), [*handles], loc="outside upper center", ncols=max(1, len(handles)), frameon=False)
        return fig, axes


@dataclass(frozen=True, kw_only=True)
class Plane:
    """Points at the values of two metrics, with both 95 % intervals: a colour for each `series`, a mark for `kinds`.

    The series `band` is a random baseline: the grey rectangle of both its ranges.
    """

    frame: pd.DataFrame
    x: str
    y: str
    series: str
    kinds: str
    label_x: str = ""
    label_y: str = ""
    colours: Mapping[str, str] = field(default_factory=dict)
    band: str = ""
    band_label: str = "95 % of random baselines"
    scale: float = 1.0
    limits: tuple[float, float] | None = None

    def draw(self) -> tuple[Figure, Axes]:
        """Draw on new axes."""
        fig, ax = new_axes(WIDTH, 5.0)
        kinds = names(self.frame, self.kinds)
        colours = colours_of([name for name in names(self.frame, self.series) if name != self.band], self.colours)
        for (name, kind), rows in self.frame.groupby([self.series, self.kinds], sort=False):
            both = self.scale * rows.set_index("metric").reindex([self.x, self.y])[["value", "low", "high"]]
            if both["value"].isna().any():
                continue
            if name == self.band:
                (left, right), (low, high) = both[["low", "high"]].to_numpy(dtype=np.float64)
                ax.add_patch(Rectangle((left, low), right - left, high - low, color=BAND, label=self.band_label))
                continue
            across, up = whiskers(both).T[:, :, None]
            look: dict[str, Any] = {"color": colours[str(name)], "marker": MARKERS[kinds.index(kind)] if kind else "*"}
            look |= {"markersize": 7 if kind else 11, "label": f"{name} ({kind})" if kind else str(name)}
            x, y = both["value"]
            ax.errorbar(x, y, up, across, linestyle="", capsize=2, elinewidth=0.9, zorder=4, **look)
        if self.limits is not None:
            ax.set(xlim=self.limits, ylim=self.limits)
        ax.set(xlabel=self.label_x, ylabel=self.label_y)
        legend_right(ax, 8)
        tidy(ax)
        return fig, ax


def new_axes(width: float, height: float) -> tuple[Figure, Axes]:
    """Return a figure of a size in inches, and its axes."""
    # Not pyplot: its figures are global state and stay open.
    fig = Figure(figsize=(width, height), layout="constrained")
    return fig, fig.add_subplot()


def tidy(ax: Axes, grid: str = "y") -> None:
    """Give axes the look of the report: two spines, a light grid."""
    for side in ("top", "right"):
        ax.spines[side].set_visible(False)
    for side in ("left", "bottom"):
        ax.spines[side].set_color("#888888")
    ax.tick_params(colors=INK, labelcolor=INK)
    ax.xaxis.label.set_color(INK)
    ax.yaxis.label.set_color(INK)
    ax.title.set_color(INK)
    ax.grid(axis="x" if grid == "x" else "y", color="#E4E4E4", linewidth=0.8, zorder=0)
    ax.set_axisbelow(True)


def colours_of(series: Sequence[str], colours: Mapping[str, str]) -> dict[str, str]:
    """Return a colour for each series: its own of `colours`, or one of the palette."""
    free = [colour for colour in PALETTE if colour not in colours.values()] or [INK]
    missing = [name for name in series if name not in colours]
    return {name: colours.get(name) or free[missing.index(name) % len(free)] for name in series}


def note(ax: Axes, text: str, at: tuple[float, float], offset: tuple[float, float], **style: Any) -> None:
    """Write a text next to a place, `offset` in points."""
    ax.annotate(text, at, offset, textcoords="offset points", fontsize=8.5, color=INK, **style)


def legend_right(ax: Axes, fontsize: float = 9) -> None:
    """Put a legend to the right of the axes."""
    ax.legend(loc="upper left", bbox_to_anchor=(1.01, 1.0), frameon=False, fontsize=fontsize)


def whiskers(rows: pd.DataFrame, scale: float = 1.0) -> np.ndarray:
    """Return how far intervals reach down and up (2, n), as `errorbar` takes them; 0 where there is none."""
    spread: np.ndarray = np.abs(scale * (rows[["low", "high"]].to_numpy(dtype=np.float64).T - rows["value"].to_numpy()))
    return np.nan_to_num(spread)


def png(figure: Drawing | Figure | bytes) -> bytes:
    """Return a figure as a PNG, which it may be already."""
    if isinstance(figure, bytes):
        return figure
    if not isinstance(figure, Figure):
        figure = figure.draw()[0]
    buffer = io.BytesIO()
    # A `$` in the name of a class or concept is no formula, here nor in the ticks that drawing makes.
    with mpl.rc_context({"text.parse_math": False}):
        for text in figure.findobj(Text):
            text.set_parse_math(False)
        figure.savefig(buffer, format="png", dpi=DPI, facecolor="white")
    return buffer.getvalue()
