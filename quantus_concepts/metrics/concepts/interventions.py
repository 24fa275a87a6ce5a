"""Test-time interventions: the class predicted after people answered for some concepts, and plots of its accuracy."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Unpack, cast

import numpy as np
import pandas as pd
import torch
from matplotlib import pyplot as plt
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import NullLocator
from quantus.helpers.enums import ScoreDirection
from torch import Tensor, nn

from captum_concepts.models.interventions import Levels, check_value_levels
from captum_concepts.pictures.gallery import TextFigure, figure_of
from captum_concepts.support.checks import as_list, check_choice, check_range, check_shape, check_whole
from captum_concepts.support.running import at_least_float32
from quantus_concepts.functional.arguments import Numbers
from quantus_concepts.functional.concepts.interventions import (
    ORDERS,
    checked_costs,
    intervene_values,
    intervention_counts,
    intervention_ranks,
    simulate_answers,
    spent_ranks,
)
from quantus_concepts.metrics.concepts import names as col
from quantus_concepts.metrics.concepts.leakage import OfValues
from quantus_concepts.metrics.host.model import head_gradient, head_logits
from quantus_concepts.metrics.host.plotting import check_table, checked_axes
from quantus_concepts.metrics.host.predictions import ConceptPredictions
from quantus_concepts.metrics.host.record import QuantusArguments
from quantus_concepts.metrics.host.scores import MetricScores

#: Columns of a table of curves.
CURVE_COLUMNS = ("model", "order", "labels", "count", "value", "low", "high", "n")
#: Values of an absent and a present concept: of all models, or by name; of controls a list.
ModelLevels = Levels | Mapping[str, Levels | Sequence[Levels] | None]
CONTROL = "#B4B4B4"
#: Okabe and Ito's, which colour-blind readers tell apart.
COLOURS = dict(zip(ORDERS, ("#0072B2", "#009E73", "#D55E00"), strict=True))


class InterventionAccuracy(OfValues):
    """Accuracy of the class after people answered for some concepts, one of the metrics of `score_concepts`.

    Test-time intervention of Koh et al. (2020), "Concept Bottleneck Models", section 5: concept values are set to what
    the concept labels say, and the head predicts the class again, without a pass of the backbone. Beside it stands the
    same with every answer turned into its opposite, and of baseline models one order and right answers.
    `intervention_curve` gives these numbers alone.

    People err: `error_rate` and `abstention_rate` simulate it (`functional.simulate_answers`). After Chauhan et al.
    (2023), "Interactive Concept Bottleneck Models", a group of concepts has a cost, and numbers of answers are then
    budgets. The order does not know which answers are wrong, and one by uncertainty may lose to a random one.

    Parameters
    ----------
    counts : sequence of int, optional
        After how many answers; by default 0, 1, 2, 4, ... and all (`functional.intervention_counts`). With `costs`
        budgets: groups are asked about in order, until the next one costs more than is left.
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
    concept_labels : array_like, optional
        (N, L) of 0 and 1: what people answer about the samples of a call. Batches, or the `truth` of `score_concepts`,
        may have it under this name.
    labels : array_like, optional
        (N,) true classes; ``y_batch`` of a call if None.
    error_rate : float
        Probability that an answer is wrong.
    abstention_rate : float
        Probability that there is no answer: the value stays, and the question is paid for.
    costs : array_like, optional
        (G,) of int from 1: the cost of each group, or concept without `groups`, in a unit of your choice.
    **quantus : Unpack[QuantusArguments]
        What every Quantus metric takes, by keyword; no attribution enters.

    Raises
    ------
    ValueError
        If an argument is out of its range.

    Notes
    -----
    Higher is better. A call of Quantus gives each image the share of the numbers of answers after which its class is
    right, in the first order, of images with a concept model, or at the bottleneck of concept values (N, L) with the
    head as ``model``.

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
    score_direction = ScoreDirection.HIGHER

    def __init__(
        self,
        counts: Sequence[int] | None = None,
        orders: Sequence[str] = ORDERS,
        groups: Numbers | None = None,
        levels: ModelLevels | None = None,
        seed: int = 0,
        concept_labels: Numbers | None = None,
        labels: Numbers | None = None,
        error_rate: float = 0.0,
        abstention_rate: float = 0.0,
        costs: Numbers | None = None,
        **quantus: Unpack[QuantusArguments],
    ) -> None:
        """Set orders and numbers of answers. A score of 1 says that the class is right after every answer.

        A score of 0 says that it never is.
        """
        super().__init__(**quantus)
        for order in as_list("orders", orders):
            check_choice("orders", order, ORDERS)
        if not len(orders) or (counts is not None and not len(as_list("counts", counts))):
            raise ValueError("Expected arguments `orders` and `counts` to hold at least one value but one is empty.")
        self.counts = None if counts is None else tuple(check_whole("counts", count, 0) for count in counts)
        self.orders, self.groups, self.costs = tuple(orders), groups, costs
        check_range("error_rate", error_rate, 0, 1)
        check_range("abstention_rate", abstention_rate, 0, 1)
        self.error_rate, self.abstention_rate = error_rate, abstention_rate
        # Of one model, once `for_model` has chosen it.
        self.levels: Any = levels
        self.seed, self._answers = check_whole("seed", seed, 0), ("", col.WRONG_LABELS)
        self._bind(concept_labels=concept_labels, labels=labels)

    def for_model(self, name: str, rows: ConceptPredictions, control: int | None) -> InterventionAccuracy | None:
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
        if own is None and not rows.about["bounded"]:
            if self.optional:
                return None
            raise _no_levels(name)
        return self.vary(levels=None if own is None else check_value_levels(own, None))

    def missing(self, rows: ConceptPredictions) -> str:
        """Return the name of what rows have to have and lack, "" for nothing."""
        return super().missing(rows) or ("head" if rows.head is None else "")

    def score_rows(self, rows: ConceptPredictions) -> MetricScores:
        """Return whether classes are right: a column for each order, number of answers, and right or wrong answers."""
        if self.levels is None and not rows.about["bounded"]:
            raise _no_levels(rows.about["kind"])
        n_concepts, names, parts = rows.shape[1], list[tuple[str, int, str]](), []
        counts = self._counts_of(n_concepts)
        for chunk in rows.chunks(len(counts) * n_concepts // 64 or 1):
            names, right = self._right(rows[chunk], counts, chunk.start)
            parts.append(right)
        own = {"metric": self.name}
        fields = [own | {"explanation": order, "l": count, "baseline": answer} for order, count, answer in names]
        scores = torch.cat(parts).double().numpy()
        # People's answers are often those of the class.
        return MetricScores(fields, scores, clusters=rows.labels.int().numpy(), path=range(len(counts)))

    @torch.no_grad()
    def _right(
        self, rows: ConceptPredictions, counts: Sequence[int], first: int
    ) -> tuple[list[tuple[str, int, str]], Tensor]:
        """Return orders, numbers of answers and "" or "wrong labels" (V), and whether classes (n, V) are right then."""
        values, head = cast(Tensor, rows.values), cast(nn.Module, rows.head)
        present, labels = rows.truth["concept_labels"] > 0.5, rows.labels
        low, high = self.levels or (torch.zeros(values.shape[1]), torch.ones(values.shape[1]))
        check_shape("levels", low, ("L",), (values.shape[1],))
        low, high = low.to(values), high.to(values)
        options: dict[str, Any] = {"groups": self.groups, "seed": self.seed, "first": first}
        options["boundary"] = (low + high) / 2 if rows.threshold is None else rows.threshold
        if "contribution" in self.orders:
            # For the classes predicted, whatever is explained.
            predicted = cast(Tensor, rows.predicted)
            theta = rows.theta[predicted] if rows.theta is not None else head_gradient(head, values, predicted)
            options["weights"] = theta.to(at_least_float32(values).dtype)
        names, columns, ranks = list[tuple[str, int, str]](), [], dict[str, Tensor]()
        rates: dict[str, Any] = {"error_rate": self.error_rate, "abstention_rate": self.abstention_rate}
        answers = simulate_answers(present, **rates, seed=self.seed, first=first)
        for answer in self._answers:
            shown = ~present if answer else answers > 0.5
            targets = torch.where(answers.isnan(), values, torch.where(shown, high, low))
            for order in self.orders:
                if order not in ranks or order == "contribution":
                    # The others do not depend on the answers.
                    ranks[order] = intervention_ranks(order, values, targets, **options)
                    if self.costs is not None:
                        ranks[order] = spent_ranks(ranks[order], self.costs, self.groups)
                after = intervene_values(values, targets, ranks[order], counts)
                # One call for all counts: a call of a head costs more than its product.
                classes = head_logits(head, after.flatten(0, 1)).argmax(1).view(len(counts), -1)
                columns.append((classes == labels.to(classes)).T)
                names += [(order, count, answer) for count in counts]
        return names, torch.cat(columns, 1).cpu()

    def _counts_of(self, n_concepts: int) -> Sequence[int]:
        """Return after how many answers, or raise where there are not as many to give."""
        total = int(checked_costs(self.costs, self.groups, n_concepts).sum())
        if self.counts is None:
            return intervention_counts(total)
        for count in self.counts:
            check_whole("counts", count, 0, total)
        return self.counts


def _no_levels(name: str) -> ValueError:
    return ValueError(
        "Expected argument `levels` to give the values of an absent and a present concept of "
        f"{name!r}, since its values are not bounded: `model.value_levels(loader)` of the training images does."
    )


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
    panel.set_xlabel("concepts answered by people, or their cost")
    panel.grid(axis="y", color="#E4E4E4", linewidth=0.8)
