"""Plot TCAV scores of several concepts next to those of random images."""

from __future__ import annotations

from collections.abc import Mapping

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from captum_concepts._support.constraints import AXES, check_arguments
from captum_concepts._support.shown import clipped, described
from captum_concepts._support.visualise import figure_of
from captum_concepts.tcav.score import LayerScore, TCAVScore

_RANDOM = "#9a9a9a"


class TCAVScores(dict[str, TCAVScore]):
    """TCAV of several concepts for a class, by concept, as `tcav_folders` returns it."""

    def __repr__(self) -> str:
        return described(self, **{name: each.score for name, each in self.items()})

    @check_arguments(ax=AXES)
    def plot(self, ax: Axes | None = None) -> tuple[Figure, Axes]:
        """Draw the scores as bars: a group for each concept, a bar for each layer, and the random images at the end.

        A bar is the mean over the random sets, its line reaches from the smallest to the largest. A star marks a layer
        that passed its test. The dashed line is chance, 0.5.

        Parameters
        ----------
        ax : Axes, optional
            Axes to draw on; None for a new figure, which is not registered with pyplot.

        Returns
        -------
        tuple of Figure and Axes
            To go on drawing, or ``fig.savefig(path)``; nothing is shown or saved.

        Raises
        ------
        TypeError
            If `ax` is no Axes.
        ValueError
            If there is no concept.
        """
        if not self:
            raise ValueError("Expected the scores of at least one concept but there is none.")
        layers = list(next(iter(self.values())).layers)
        if ax is None:
            width = 1.5 + (len(self) + 1) * max(0.8, 0.35 * len(layers))
            ax = Figure(figsize=(width, 3.2), layout="constrained").subplots()
        share = 0.8 / len(layers)
        colours = mpl.colormaps["viridis"](np.linspace(0.1, 0.8, len(layers)))
        for k, layer in enumerate(layers):
            of_layer = {name: each.layers[layer] for name, each in self.items()}
            offset = (k - (len(layers) - 1) / 2) * share
            for place, each in enumerate(of_layer.values()):
                _bar(ax, place + offset, share, each.scores, colours[k], layer if place == 0 else None)
                if each.passed:
                    ax.text(place + offset, max(each.scores) + 0.02, "*", ha="center", va="bottom")
            _bar(ax, len(self) + offset, share, _random(of_layer), _RANDOM, None)
        ax.axhline(0.5, color="black", linestyle="--", linewidth=0.8)
        ax.set_xticks(range(len(self) + 1), [*(clipped(name, 24) for name in self), "random"], parse_math=False)
        ax.set_ylim(0, 1.12)
        ax.set_yticks(np.linspace(0, 1, 5))
        ax.set_ylabel("TCAV score")
        ax.spines[["top", "right"]].set_visible(False)
        figure = figure_of(ax)
        if len(layers) > 1:
            ax.legend(fontsize="small", frameon=False, loc="upper left", bbox_to_anchor=(1, 1))
        ax.set_title("* differs from random images", fontsize="small", loc="right")
        return figure, ax


def _random(layer: Mapping[str, LayerScore]) -> tuple[float, ...]:
    """Return the scores of random sets, which are the same beside each concept that was held against them."""
    return max((each.random_scores for each in layer.values()), key=len)


def _bar(ax: Axes, place: float, width: float, scores: tuple[float, ...], colour: object, label: str | None) -> None:
    known = np.array(scores)[~np.isnan(scores)]
    if not len(known):
        ax.text(place, 0.02, "undefined", ha="center", va="bottom", rotation=90, fontsize="x-small")
        return
    mean = known.mean()
    ax.bar(place, mean, width * 0.9, color=colour, label=label)
    ax.errorbar(place, mean, [[mean - known.min()], [known.max() - mean]], color="black", capsize=3, linewidth=1)
