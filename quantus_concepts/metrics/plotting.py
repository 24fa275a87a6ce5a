"""The picture of a metric's scores."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import matplotlib.pyplot as plt
import numpy as np


def plot_scores(
    scores: Sequence[float] | np.ndarray, title: str = "", ax: Any = None, chance: float = math.nan
) -> tuple[Any, Any]:
    """Draw a histogram of scores.

    Parameters
    ----------
    scores : sequence of float
        Scores; NaN are left out and counted in the title.
    title : str
        What the scores are of, taken as it is: no dollar sign in it starts a formula.
    ax : matplotlib Axes, optional
        Where to draw; a new figure if None.
    chance : float
        Mean score of what knows nothing, drawn as a line; NaN where there is no such number.

    Returns
    -------
    tuple
        Figure and axes. Nothing is shown or saved.
    """
    if ax is None:
        _, ax = plt.subplots(figsize=(5, 3.2), layout="constrained")
    values = np.asarray(scores, dtype=float)
    defined = values[np.isfinite(values)]
    ax.hist(defined, bins=20, color="#3b6ea5", edgecolor="white")
    if defined.size:
        ax.axvline(defined.mean(), color="#c4522f", label=f"mean {defined.mean():.3f}")
    if math.isfinite(chance):
        ax.axvline(chance, color="#555555", linestyle="--", label=f"chance {chance:.3f}")
    if ax.get_legend_handles_labels()[0]:
        ax.legend(frameon=False)
    ax.set(xlabel="score", ylabel="count")
    ax.set_title(
        f"{title}: {defined.size} defined, {values.size - defined.size} undefined", parse_math=False, wrap=True
    )
    return ax.figure, ax


def draw_and_close(draw: Callable[[], Any], show: bool, path: str | None) -> None:
    """Draw, save and show; close what was made for it unless it is shown."""
    before = set(plt.get_fignums())
    try:
        draw()
        if path:
            plt.savefig(fname=path, dpi=400)
        if show:
            plt.show()
    finally:
        if not show:
            for number in set(plt.get_fignums()) - before:
                plt.close(number)
