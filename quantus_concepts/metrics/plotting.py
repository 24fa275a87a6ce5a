"""Pictures of a metric's scores."""

from __future__ import annotations

import math
import textwrap
from collections import deque
from collections.abc import Callable
from typing import Any, ClassVar

import matplotlib.pyplot as plt
import numpy as np

from quantus_concepts.metrics.records import Record


class DrawsScores:
    """How a metric draws the scores it remembers."""

    name: ClassVar[str]
    records: deque[Record]
    evaluation_scores: Any
    default_plot_func: Callable[..., Any] | None

    def plot_scores(self, scores: Any = None, ax: Any = None) -> tuple[Any, Any]:
        """Draw a histogram of scores, by default those of the last call with what is known of them.

        Parameters
        ----------
        scores : sequence of float, optional
            Scores; NaN are counted in the title.
        ax : matplotlib Axes, optional
            Where to draw; a new figure if None.

        Returns
        -------
        tuple
            Figure and axes.
        """
        last = self.records[-1] if scores is None and self.records else None
        chance = math.nan if last is None else last.chance
        known: Any = self.evaluation_scores if last is None else last.values
        if ax is None:
            _, ax = plt.subplots(figsize=(5, 3.2), layout="constrained")
        values = np.asarray(known if scores is None else scores, dtype=float)
        defined = values[np.isfinite(values)]
        ax.hist(defined, bins=20, color="#3b6ea5", edgecolor="white")
        if defined.size:
            ax.axvline(defined.mean(), color="#c4522f", label=f"mean {defined.mean():.3f}")
        if math.isfinite(chance):
            ax.axvline(chance, color="#555555", linestyle="--", label=f"chance {chance:.3f}")
        if ax.get_legend_handles_labels()[0]:
            ax.legend(frameon=False)
        ax.set(xlabel="score", ylabel="count")
        counted = f"{self.name}: {defined.size} defined, {values.size - defined.size} undefined"
        # Not with wrap=True, which measures names as formulas.
        ax.set_title(textwrap.fill(counted, 60), parse_math=False)
        return ax.figure, ax

    def plot(
        self,
        plot_func: Callable[..., Any] | None = None,
        show: bool = True,
        path_to_save: str | None = None,
        *args: Any,
        **kwargs: Any,
    ) -> None:
        """Draw, save and show, in this order, as Quantus does in another; a figure that is not shown is closed."""
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
