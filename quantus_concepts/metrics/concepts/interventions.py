"""Test-time interventions: the class predicted after people answered for some concepts, and plots of its accuracy."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pandas as pd
import torch
from matplotlib import pyplot as plt
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import NullLocator
from torch import Tensor

from captum_concepts.models.interventions import Levels
from captum_concepts.pictures.gallery import TextFigure, figure_of
from captum_concepts.support.checks import check_shape, check_whole
from quantus_concepts.functional.arguments import Numbers
from quantus_concepts.functional.concepts.interventions import (
    ORDERS,
    checked_groups,
    intervene_values,
    intervention_counts,
    intervention_ranks,
)
from quantus_concepts.metrics.concepts import names as col
from quantus_concepts.metrics.host.model import ConceptModel, class_logits, concept_importances
from quantus_concepts.metrics.host.observing import Batch, Observed, Observer, Result, same
from quantus_concepts.metrics.host.plotting import check_table, checked_axes

#: Columns of a table of curves.
COLUMNS = ("model", "order", "labels", "count", "value", "low", "high", "n")
CONTROL = "#B4B4B4"
#: Okabe and Ito's, which colour-blind readers tell apart.
COLOURS = dict(zip(ORDERS, ("#0072B2", "#009E73", "#D55E00"), strict=True))


def interventions_after(counts: Sequence[int], seed: int) -> Interventions | None:
    """Return interventions in every order after these numbers of answers; None if there are none."""
    return Interventions(tuple(counts), ORDERS, None, seed) if counts else None


@dataclass(frozen=True)
class Interventions:
    """After how many answers, in which orders, about which concepts together; the doubling numbers without `counts`."""

    counts: tuple[int, ...] | None
    orders: tuple[str, ...]
    groups: Numbers | None
    seed: int
    answers: tuple[str, ...] = ("", col.WRONG_LABELS)

    def of_controls(self) -> Interventions:
        """Return the interventions on baseline models, of which there are many: one order, and right answers."""
        return replace(self, orders=self.orders[:1], answers=("",))

    def counts_of(self, n_concepts: int) -> tuple[int, ...]:
        """Return after how many answers, or raise where there are not as many to give."""
        n_groups = int(checked_groups(self.groups, n_concepts).max()) + 1
        if self.counts is None:
            return intervention_counts(n_groups)
        for count in self.counts:
            check_whole("counts", count, 0, n_groups)
        return self.counts

    def predictions(
        self,
        model: ConceptModel,
        values: Tensor,
        predicted: Tensor,
        present: Tensor,
        levels: Levels | None,
        boundary: float | None,
        first: int,
    ) -> Iterator[tuple[tuple[str, int, None, str], Tensor]]:
        """Yield the classes (N,) predicted by the head, with order, number of answers and "" or "wrong labels"."""
        low, high = levels or (torch.zeros(values.shape[1]), torch.ones(values.shape[1]))
        check_shape("levels", low, ("L",), (values.shape[1],))
        low, high = low.to(values), high.to(values)
        options: dict[str, Any] = {"groups": self.groups, "seed": self.seed, "first": first}
        options["boundary"] = (low + high) / 2 if boundary is None else boundary
        if "contribution" in self.orders:
            options["weights"] = concept_importances(model, values, predicted, ("weight",))["weight"]
        counts, ranks = self.counts_of(values.shape[1]), dict[str, Tensor]()
        for answer in self.answers:
            targets = torch.where(~present if answer else present, high, low)
            for order in self.orders:
                if order not in ranks or order == "contribution":
                    # The others do not depend on the answers.
                    ranks[order] = intervention_ranks(order, values, targets, **options)
                after = intervene_values(values, targets, ranks[order], counts)
                # One call for all counts: a call of a head costs more than its product.
                classes = class_logits(model, after.flatten(0, 1)).argmax(1).view(len(counts), -1)
                yield from (((order, count, None, answer), row) for count, row in zip(counts, classes, strict=True))


@dataclass(frozen=True, kw_only=True)
class Intervened(Observed):
    """Whether classes are right (n, V) after interventions of V names: order, number of answers, None, baseline."""

    names: tuple[Any, ...] = same()
    right: Tensor
    labels: Tensor


class InterventionAccuracy(Observer):
    """The accuracy of the class after each of several interventions."""

    name = col.INTERVENED

    def __init__(self, interventions: Interventions) -> None:
        self._interventions = interventions

    def of_controls(self) -> InterventionAccuracy:
        """Return the accuracy of baseline models."""
        return InterventionAccuracy(self._interventions.of_controls())

    @classmethod
    def observe(cls, metrics: Sequence[InterventionAccuracy], batch: Batch) -> Intervened:
        """Predict the classes of some samples anew."""
        if "concept_labels" not in batch.truth:
            raise ValueError(
                "Interventions need concept labels: give argument `concept_labels`, or a `loader` of (images, labels, "
                "concept labels)."
            )
        answered = [
            *metrics[0]._interventions.predictions(
                *(batch.model, batch.values, batch.predicted, batch.of("concept_labels") > 0.5),
                *(batch.levels, batch.threshold, batch.number),
            )
        ]
        right = torch.stack([classes == batch.labels for _, classes in answered], 1)
        return Intervened(names=tuple(name for name, _ in answered), right=right, labels=batch.labels.int())

    def numbers(self, observed: Intervened) -> list[tuple[dict[str, Any], Result]]:
        """Return the fields of each row of a table, and its numbers. People's answers are often those of the class."""
        columns = observed.right.T.double().numpy()
        return [
            (
                {"metric": self.name, "explanation": order, "l": count, "baseline": answer},
                Result(column, {}, clusters=observed.labels.numpy()),
            )
            for (order, count, _, answer), column in zip(observed.names, columns, strict=True)
        ]


def plot_interventions(
    table: pd.DataFrame, ax: Axes | Sequence[Axes] | np.ndarray | None = None, *, control: pd.DataFrame | None = None
) -> tuple[Figure, np.ndarray]:
    """Draw intervention curves: a panel for each model, a line for each order, and dashed the control.

    Parameters
    ----------
    table : DataFrame
        Result of `intervention_curve`.
    ax : matplotlib Axes or array of them, optional
        One for each model; a new figure if None.
    control : DataFrame, optional
        Rows with the same columns, of baseline models: the range of 95 % of them is a grey band in every panel.

    Returns
    -------
    tuple
        Figure and array of axes, one for each model. Nothing is shown or saved.

    Raises
    ------
    TypeError
        If `ax` holds something else than Axes.
    ValueError
        If `table` or `control` lacks a column or holds nothing, or there are too few axes.
    """
    check_table("table", table, COLUMNS, "intervention_curve")
    if control is not None:
        check_table("control", control, COLUMNS, "intervention_curve")
    models = list(dict.fromkeys(table["model"]))
    if ax is None:
        size = (2.8 + 2.6 * len(models), 3.4)
        _, ax = plt.subplots(
            1, len(models), figsize=size, sharey=True, squeeze=False, layout="constrained", FigureClass=TextFigure
        )
    axes = checked_axes(ax, len(models), "model")
    for panel, model in zip(axes, models, strict=False):
        if control is not None:
            _draw_control(panel, control.sort_values("count"))
        _draw(panel, table[table["model"] == model])
        panel.set_title(model, fontsize=10, parse_math=False)
    axes[0].set_ylabel("class accuracy in %")
    # Beside the panels: curves go through every corner of them.
    axes[len(models) - 1].legend(loc="upper left", bbox_to_anchor=(1.01, 1.0), frameon=False, fontsize=9)
    return figure_of(axes[0]), axes[: len(models)]


def _draw_control(panel: Axes, rows: pd.DataFrame) -> None:
    low, high, mean = (100 * rows[name] for name in ("low", "high", "value"))
    panel.fill_between(
        rows["count"], low, high, color=CONTROL, alpha=0.5, lw=0, label=f"95 % of {rows['model'].iloc[0]}"
    )
    panel.plot(rows["count"], mean, color=CONTROL, lw=1.2, zorder=1.5)


def _draw(panel: Axes, rows: pd.DataFrame) -> None:
    for (order, labels), line in rows.groupby(["order", "labels"], sort=False):
        line = line.sort_values("count")
        wrong = labels == col.WRONG_LABELS
        colour = COLOURS.get(order, "#555555")
        panel.plot(
            line["count"],
            100 * line["value"],
            color=colour,
            linestyle="--" if wrong else "-",
            marker="x" if wrong else "o",
            markersize=4,
            label=f"{order}{', wrong labels' if wrong else ''}",
        )
        if not wrong:
            panel.fill_between(line["count"], 100 * line["low"], 100 * line["high"], color=colour, alpha=0.15, lw=0)
    counts = sorted(set(rows["count"]))
    # Doubling the answers is a step of the same width; 0 is next to 1.
    panel.set_xscale("symlog", base=2, linthresh=1)
    panel.set_xticks(counts, [str(count) for count in counts], fontsize=8)
    panel.xaxis.set_minor_locator(NullLocator())
    panel.set_ylim(-2, 102)
    panel.set_xlabel("concepts answered by people")
    panel.grid(axis="y", color="#E4E4E4", linewidth=0.8)
