"""The mixture of explainers: for each image the explanation that people would rate best."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator
from numpy.typing import ArrayLike
from torch import Tensor

from captum_concepts.support.checks import check_numbers, check_shape
from captum_concepts.texts import in_one_line
from quantus_concepts.datasets.ratings.explanations import Question, question_named
from quantus_concepts.functional.statistics.intervals import t_interval

#: In `Mixture.choice`, where no explainer has a score.
UNDEFINED = -1
#: With more explainers, those that are best of no image are counted and not drawn.
_MANY = 20


@in_one_line
@dataclass(frozen=True)
class Mixture:
    """Which explainer was chosen for each image.

    Attributes
    ----------
    names : tuple of str
        The M explainers.
    choice : np.ndarray
        (N,) of int64, indices into `names`, of several best the first; -1 where no explainer has a score.
    scores : np.ndarray
        (N,) scores of the chosen explanations; NaN where there is none.
    question : str
        Whose answer the scores predict.
    tied : int
        For how many images several explainers share the best score, so that the order of the names decided: a
        scorer gives many explanations the lowest score there is.
    leaders : np.ndarray
        (M, N) of bool: whether an explainer has the best score of an image, alone or with others.
    """

    names: tuple[str, ...]
    choice: np.ndarray
    scores: np.ndarray
    question: str
    tied: int
    leaders: np.ndarray

    @property
    def wins(self) -> dict[str, int]:
        """For each explainer, the number of images for which it alone has the best score."""
        best = self.leaders & (self.leaders.sum(0) == 1)
        return dict(zip(self.names, best.sum(1).tolist(), strict=True))

    @property
    def ties(self) -> dict[str, int]:
        """For each explainer, the number of images whose best score it shares with others."""
        shared = self.leaders & (self.leaders.sum(0) > 1)
        return dict(zip(self.names, shared.sum(1).tolist(), strict=True))

    @property
    def undefined(self) -> int:
        """The number of images for which no explainer has a score."""
        return int((self.choice == UNDEFINED).sum())

    @property
    def share(self) -> dict[str, float]:
        """For each explainer, `wins` as a share of the images with a choice; NaN where there are none."""
        n = len(self.choice) - self.undefined
        return {name: wins / n if n else math.nan for name, wins in self.wins.items()}

    def chosen(self, maps: Mapping[str, Tensor | ArrayLike]) -> Any:
        """Return the explanations of the mixture, or other numbers that each explainer has for each image.

        Parameters
        ----------
        maps : mapping of str to array or tensor
            Maps of every explainer (N, ...), all of one shape; more names than the mixture's are left out.

        Returns
        -------
        array or tensor
            (N, ...), those of the chosen explainers; NaN where there is none. Floating where that happens.

        Raises
        ------
        ValueError
            If an explainer is missing, or shapes differ.
        """
        self._check_names("maps", maps)
        values = [
            value.detach() if isinstance(value := maps[name], Tensor) else torch.tensor(np.asarray(value))
            for name in self.names
        ]
        shape = tuple(values[0].shape)
        for name, value in zip(self.names, values, strict=True):
            check_shape(f"maps[{name!r}]", value, ("N", *["..."] * (len(shape) - 1)), (len(self.choice), *shape[1:]))
        choice = torch.as_tensor(self.choice, device=values[0].device)
        mixed = torch.stack(values)[choice, torch.arange(len(choice), device=choice.device)]
        if self.undefined:
            mixed = mixed if mixed.is_floating_point() else mixed.float()
            mixed[choice == UNDEFINED] = math.nan
        return mixed if isinstance(maps[self.names[0]], Tensor) else mixed.numpy()

    def compare(self, values: Mapping[str, Tensor | ArrayLike]) -> pd.DataFrame:
        """Compare the choice with every explainer alone, in faithfulness for instance.

        Parameters
        ----------
        values : mapping of str to array_like
            Values (N,) of every explainer; NaN if undefined.

        Returns
        -------
        pd.DataFrame
            Rows "mixture", "average of explainers" (for each image the mean over the explainers defined there), then
            each explainer in the order of `names`. Columns `mean`, `low` and `high` (Student's 95 % interval of the
            mean over images; NaN for fewer than two), `n` (images with a value), and `difference`,
            `difference_low`, `difference_high`: the mixture minus the row, over the images where both are
            defined, with its paired interval. That one is the test of whether the choice helps, for images
            differ more than explainers do.

        Raises
        ------
        ValueError
            If an explainer is missing, or lengths differ.
        """
        self._check_names("values", values)
        columns = {}
        for name in self.names:
            column = check_numbers(f"values[{name!r}]", values[name]).astype(np.float64)
            check_shape(f"values[{name!r}]", column, ("N",), (len(self.choice),))
            columns[name] = column
        mixture = self.chosen(columns)
        average = pd.DataFrame(columns).where(np.isfinite).mean(axis=1).to_numpy()
        rows = {"mixture": mixture, "average of explainers": average}
        clash = sorted(set(rows) & set(columns))
        if clash:
            raise ValueError(f"Expected explainers with other names than {clash}, which are rows of the comparison.")
        records = []
        for name, row in (rows | columns).items():
            mean, low, high = _interval(row)
            record = {"explainer": name, "mean": mean, "low": low, "high": high, "n": int(np.isfinite(row).sum())}
            against = mixture - row if name != "mixture" else np.full(len(row), np.nan)
            for column_name, value in zip(("", "_low", "_high"), _interval(against), strict=True):
                record[f"difference{column_name}"] = value
            records.append(record)
        return pd.DataFrame.from_records(records, index="explainer")

    def _check_names(self, argument: str, by_name: Mapping[str, object]) -> None:
        missing = [name for name in self.names if name not in by_name]
        if missing:
            raise ValueError(f"Expected argument `{argument}` to have an entry for each explainer but {missing} lack.")


def best_explainer(scores: Mapping[str, Tensor | ArrayLike], question: str | Question = "Q1") -> Mixture:
    """Choose for each image the explainer with the best score.

    Kazmierczak et al., "PASTA", section "Mixture of XAI methods". Of equal scores the first explainer's is chosen, but
    none of them wins; NaN is never chosen.

    Parameters
    ----------
    scores : mapping of str to array_like
        Scores (N,) of every explainer, all on the same images: `PASTAScore`'s, for instance.
    question : str or Question
        "Q1" to "Q6", which the scores answer, or a question of another study. Best is highest, but for questions in
        which low is good, as Q5, where it is lowest.

    Returns
    -------
    Mixture
        The choice, and how often each explainer wins.

    Raises
    ------
    ValueError
        If there is none, lengths differ, a score is infinite, or there is no such question.

    Examples
    --------
    >>> from quantus_concepts.pasta import best_explainer
    >>> best_explainer({"Grad-CAM": [3.0, 2.0], "LIME": [2.5, 4.0]}).wins
    {'Grad-CAM': 1, 'LIME': 1}
    """
    answered = question_named(question)
    sign = answered.sign
    if not scores:
        raise ValueError("Expected argument `scores` to have at least one explainer but got none.")
    names = tuple(scores)
    columns = [check_numbers(f"scores[{name!r}]", scores[name]).astype(np.float64) for name in names]
    for name, column in zip(names, columns, strict=True):
        check_shape(f"scores[{name!r}]", column, ("N",), (len(columns[0]) if columns[0].ndim else None,))
        if np.isinf(column).any():
            raise ValueError(
                f"Expected argument `scores[{name!r}]` to be finite, or NaN where undefined, but got "
                f"{column[np.isinf(column)][0]}."
            )
    table = np.stack(columns)
    ranked = np.where(np.isnan(table), -np.inf, sign * table)
    best = ranked.argmax(0)
    highest = np.take_along_axis(table, best[None], 0)[0]
    undefined = np.isnan(table).all(0)
    leaders = (ranked == ranked.max(0)) & ~undefined
    tied = int((leaders.sum(0) > 1).sum())
    choice, chosen = np.where(undefined, UNDEFINED, best), np.where(undefined, np.nan, highest)
    return Mixture(names, choice, chosen, answered.name, tied, leaders)


def plot_mixture(mixture: Mixture, ax: Axes | None = None) -> tuple[Figure, Axes]:
    """Draw how often each explainer wins, as Figure 7 of the paper.

    Parameters
    ----------
    mixture : Mixture
        Result of `best_explainer`.
    ax : Axes, optional
        Axes to draw on; a new figure if None.

    Returns
    -------
    tuple of Figure and Axes
        Bars sorted by the number of images, the most frequent at the top; paler where the best score is shared. Of
        more than 20 explainers those that are best of no image are only counted, below the axis.
        Nothing is shown or saved.
    """
    wins, ties = mixture.wins, mixture.ties
    names = sorted(mixture.names, key=lambda name: (-wins[name], -ties[name]))
    best = sum(wins[name] + ties[name] > 0 for name in names)
    names = names[:best] if len(names) > _MANY and best else names
    if ax is None:
        # Not pyplot: its figures are global state and stay open.
        fig = Figure(figsize=(6, 0.9 + 0.3 * len(names)), layout="constrained")
        ax = fig.add_subplot()
    else:
        fig = ax.figure  # type: ignore[assignment]
    places = range(len(names))
    n_alone, n_shared = ([counts[name] for name in names] for counts in (wins, ties))
    ax.barh(places, n_alone, color="#3b6ea5", zorder=2, label="alone")
    bars = ax.barh(places, n_shared, left=n_alone, color="#b9cde3", zorder=2, label="shared with others")
    ax.bar_label(bars, [_count_text(wins[name], ties[name], mixture.share[name]) for name in names], padding=3)
    if mixture.tied:
        ax.legend(frameon=False, loc="lower right")
    ax.set_yticks(places, names)
    ax.set_ylim(len(names) - 0.4, -0.6)
    ax.margins(x=0.25)
    for side in ("top", "right"):
        ax.spines[side].set_visible(False)
    ax.grid(axis="x", color="#E4E4E4", linewidth=0.8, zorder=0)
    n_omitted = len(mixture.names) - len(names)
    uncounted = f"; {mixture.undefined} without a score" if mixture.undefined else ""
    uncounted += f"; {mixture.tied} tied" if mixture.tied else ""
    omitted = f"\n{n_omitted} other explainers have it for none" if n_omitted else ""
    ax.xaxis.set_major_locator(MaxNLocator(integer=True))
    ax.set(
        xlabel=f"images for which it has the best score ({mixture.question}){omitted}",
        title=f"{len(mixture.choice) - mixture.undefined} images{uncounted}",
    )
    return fig, ax


def _count_text(n_alone: int, n_shared: int, share: float) -> str:
    text = f"{n_alone} ({share:.0%})" if n_alone else "0"
    return f"{text} + {n_shared} tied" if n_shared else text


def _interval(row: np.ndarray) -> tuple[float, float, float]:
    """Return mean, low and high end of Student's interval over the defined values."""
    values = row[np.isfinite(row)]
    mean = float(values.mean()) if values.size else math.nan
    return mean, *t_interval(values, (-math.inf, math.inf))
