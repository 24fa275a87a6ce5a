"""Test-time interventions: the class predicted after people answered for some concepts, and plots of its accuracy."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
import torch
from matplotlib import pyplot as plt
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import NullLocator
from torch import Tensor

from captum_concepts.models.interventions import Levels, check_value_levels
from captum_concepts.pictures.gallery import TextFigure, figure_of
from captum_concepts.support.checks import as_list, check_choice, check_shape, check_whole
from quantus_concepts.functional.arguments import Numbers
from quantus_concepts.functional.concepts.interventions import (
    ORDERS,
    checked_groups,
    intervene_values,
    intervention_counts,
    intervention_ranks,
)
from quantus_concepts.metrics.concepts import names as col
from quantus_concepts.metrics.host.batch import Batch
from quantus_concepts.metrics.host.model import class_logits, concept_importances
from quantus_concepts.metrics.host.observing import Observed, Observer, Result, same
from quantus_concepts.metrics.host.plotting import check_table, checked_axes

#: Columns of a table of curves.
CURVE_COLUMNS = ("model", "order", "labels", "count", "value", "low", "high", "n")
#: Values of an absent and a present concept: of all models, or by name; of controls a list.
ModelLevels = Levels | Mapping[str, Levels | Sequence[Levels] | None]
CONTROL = "#B4B4B4"
#: Okabe and Ito's, which colour-blind readers tell apart.
COLOURS = dict(zip(ORDERS, ("#0072B2", "#009E73", "#D55E00"), strict=True))


@dataclass(frozen=True, kw_only=True)
class Intervened(Observed):
    """Whether classes are right (n, V) after interventions of V names: order, number of answers, baseline."""

    names: tuple[Any, ...] = same()
    right: Tensor
    labels: Tensor


class InterventionAccuracy(Observer):
    """Accuracy of the class after people answered for some concepts, one of the metrics of `score_concepts`.

    Test-time intervention of Koh et al. (2020), "Concept Bottleneck Models", section 5: concept values are set to what
    the concept labels say, and the head predicts the class again, without a pass of the backbone. Beside it stands the
    same with every answer turned into its opposite, and of baseline models one order and right answers.
    `intervention_curve` gives these numbers alone.

    Parameters
    ----------
    counts : sequence of int, optional
        After how many answers; by default 0, 1, 2, 4, ... and all (`functional.intervention_counts`).
    orders : sequence of str
        Order in which the concepts of an image are corrected: "random", "uncertainty" or "contribution".
    groups : array_like, optional
        (L,) of int from 0: concepts that are answered together, and counted as one.
    levels : Levels or dict, optional
        Values of an absent and a present concept if values are not bounded, of all models or by name:
        `captum_concepts.PostHocCBM.value_levels`. Elsewhere 0 and 1. Under the name of controls a list, one for each:
        these are then intervened on too.
    seed : int
        Random seed of the random order, which is another one for each image.

    Raises
    ------
    ValueError
        If an argument is out of its range.

    Examples
    --------
    >>> import torch
    >>> from torch import nn
    >>> from captum_concepts import BottleneckCBM
    >>> from quantus_concepts.metrics import InterventionAccuracy, score_concepts
    >>> head = nn.Linear(2, 2, bias=False)
    >>> head.weight.data = torch.eye(2)  # each class is a concept
    >>> model = BottleneckCBM(nn.Identity(), nn.Linear(3, 2), head)
    >>> images, labels = torch.rand(4, 3), torch.tensor([0, 1, 0, 1])
    >>> metric = InterventionAccuracy(counts=[2], orders=["random"])
    >>> table = score_concepts(model, [(images, labels, torch.eye(2)[labels])], [metric])
    >>> table[["baseline", "l", "value"]].values.tolist()
    [['', 2.0, 1.0], ['wrong labels', 2.0, 0.0]]
    """

    name = col.INTERVENED
    sample_truth = needed = ("concept_labels",)

    def __init__(
        self,
        counts: Sequence[int] | None = None,
        orders: Sequence[str] = ORDERS,
        groups: Numbers | None = None,
        levels: ModelLevels | None = None,
        seed: int = 0,
    ) -> None:
        for order in as_list("orders", orders):
            check_choice("orders", order, ORDERS)
        if not len(orders) or (counts is not None and not len(as_list("counts", counts))):
            raise ValueError("Expected arguments `orders` and `counts` to hold at least one value but one is empty.")
        self.counts = None if counts is None else tuple(check_whole("counts", count, 0) for count in counts)
        self.orders, self.groups = tuple(orders), groups
        # Of one model, once `for_model` has chosen it.
        self.levels: Any = levels
        self.seed, self._answers = check_whole("seed", seed, 0), ("", col.WRONG_LABELS)

    def for_model(self, name: str, model: Any, control: int | None) -> InterventionAccuracy | None:
        """Return the accuracy of a model by its own levels; of baseline models only of those with levels."""
        own: Any = self.levels.get(name) if isinstance(self.levels, Mapping) else None
        if control is not None:
            if own is None:
                return None
            if isinstance(own, Levels) or control >= len(as_list("levels", own, "levels of controls")):
                raise ValueError(
                    f"Expected argument `levels` to hold a list of levels for {name!r}, one for each of its models."
                )
            return self.vary(levels=check_value_levels(own[control], None), orders=self.orders[:1], _answers=("",))
        own = own if isinstance(self.levels, Mapping) else self.levels
        if own is None and not getattr(model, "bounded", True):
            if self.optional:
                return None
            raise ValueError(
                "Expected argument `levels` to give the values of an absent and a present concept of "
                f"{name!r}, since its values are not bounded: `model.value_levels(loader)` of the training images does."
            )
        return self.vary(levels=None if own is None else check_value_levels(own, None))

    def predictions(self, batch: Batch) -> Iterator[tuple[tuple[str, int, str], Tensor]]:
        """Yield the classes (n,) predicted by the head, with order, number of answers and "" or "wrong labels"."""
        values, present = batch.values, batch.tensor("concept_labels") > 0.5
        low, high = self.levels or (torch.zeros(values.shape[1]), torch.ones(values.shape[1]))
        check_shape("levels", low, ("L",), (values.shape[1],))
        low, high = low.to(values), high.to(values)
        options: dict[str, Any] = {"groups": self.groups, "seed": self.seed, "first": batch.number}
        options["boundary"] = (low + high) / 2 if batch.threshold is None else batch.threshold
        if "contribution" in self.orders:
            options["weights"] = concept_importances(batch.model, values, batch.predicted, ("weight",))["weight"]
        counts, ranks = self._counts_of(values.shape[1]), dict[str, Tensor]()
        for answer in self._answers:
            targets = torch.where(~present if answer else present, high, low)
            for order in self.orders:
                if order not in ranks or order == "contribution":
                    # The others do not depend on the answers.
                    ranks[order] = intervention_ranks(order, values, targets, **options)
                after = intervene_values(values, targets, ranks[order], counts)
                # One call for all counts: a call of a head costs more than its product.
                classes = class_logits(batch.model, after.flatten(0, 1)).argmax(1).view(len(counts), -1)
                yield from (((order, count, answer), row) for count, row in zip(counts, classes, strict=True))

    def _counts_of(self, n_concepts: int) -> Sequence[int]:
        """Return after how many answers, or raise where there are not as many to give."""
        n_groups = int(checked_groups(self.groups, n_concepts).max()) + 1
        if self.counts is None:
            return intervention_counts(n_groups)
        for count in self.counts:
            check_whole("counts", count, 0, n_groups)
        return self.counts

    @classmethod
    def observe(cls, metrics: Sequence[InterventionAccuracy], batch: Batch) -> Intervened:
        """Predict the classes of some samples anew."""
        answered = [*metrics[0].predictions(batch)]
        right = torch.stack([classes == batch.labels for _, classes in answered], 1)
        return Intervened(names=tuple(name for name, _ in answered), right=right, labels=batch.labels.int())

    def numbers(self, observed: Intervened) -> list[tuple[dict[str, Any], Result]]:
        """Return the fields of each row of a table, and its numbers. People's answers are often those of the class."""
        columns = observed.right.T.double().numpy()
        return [
            (
                {"metric": self.title or self.name, "explanation": order, "l": count, "baseline": answer},
                Result(column, {}, clusters=observed.labels.numpy()),
            )
            for (order, count, answer), column in zip(observed.names, columns, strict=True)
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
    check_table("table", table, CURVE_COLUMNS, "intervention_curve")
    if control is not None:
        check_table("control", control, CURVE_COLUMNS, "intervention_curve")
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
