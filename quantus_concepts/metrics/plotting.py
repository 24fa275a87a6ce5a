"""The picture of a metric's scores."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import matplotlib.pyplot as plt
import numpy as np


def plot_scores(scores: Sequence[float], title: str = "", ax: Any = None) -> tuple[Any, Any]:
    """Draw a histogram of scores.

    Parameters
    ----------
    scores : sequence of float
        Scores; NaN are left out and counted in the title.
    title : str
        What the scores are of.
    ax : matplotlib Axes, optional
        Where to draw; a new figure if None.

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
        ax.legend(frameon=False)
    ax.set(
        xlabel="score",
        ylabel="count",
        title=f"{title}: {defined.size} defined, {values.size - defined.size} undefined",
    )
    return ax.figure, ax
