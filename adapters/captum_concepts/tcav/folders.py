"""TCAV of concepts in folders, compared with sets of random images, and its plot."""

from __future__ import annotations

import math
import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import matplotlib as mpl
import numpy as np
import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from torch import Tensor, nn

from captum_concepts.attributions.outputs import Targets
from captum_concepts.bank.folders import Transform, find_concept_folders, image_loader, warn_without_transform
from captum_concepts.pictures.gallery import TextFigure, figure_of
from captum_concepts.support.checks import check_folder
from captum_concepts.support.running import progress
from captum_concepts.tcav.experiments import Experiments, prepare_experiments
from captum_concepts.tcav.score import (
    LayerScore,
    TCAVScore,
    check_test,
    judge,
    needed_directions,
    permutation_score,
    random_splits,
    warn_of_few,
)
from captum_concepts.texts import clip_text, describe, readable_name

if TYPE_CHECKING:
    import pandas as pd

_RANDOM = "#9a9a9a"


class TCAVScores(dict[str, TCAVScore]):
    """TCAV of several concepts for a class, by concept, as `tcav_folders` returns it."""

    def __repr__(self) -> str:
        return describe(self, *(_verdict(name, score) for name, score in self.items()))

    def to_frame(self) -> pd.DataFrame:
        """Return a table with a row for each concept and layer.

        Returns
        -------
        DataFrame
            ``concept`` and ``layer``, then ``score``, ``random_mean``, ``derivative``, ``p_score``, ``p_value``,
            ``p_adjusted``, ``passed`` and ``n_negative``, as in `TCAVScore`.
        """
        import pandas as pd

        columns = ("score", "random_mean", "derivative", "p_score", "p_value", "p_adjusted", "passed", "n_negative")
        rows = [
            {"concept": concept, "layer": name, **{column: getattr(layer, column) for column in columns}}
            for concept, score in self.items()
            for name, layer in score.layers.items()
        ]
        return pd.DataFrame(rows, columns=["concept", "layer", *columns])

    def plot(self, ax: Axes | None = None) -> tuple[Figure, Axes]:
        """Draw the scores as bars: a group for each concept, a bar for each layer, and the random images at the end.

        The bar of random images is the mean of their scores, its line reaches from the smallest to the largest. A star
        marks a layer that passed its test. The dashed line is chance, 0.5.

        The test rests on the mean derivative, not on the score, which may be 0 or 1 for random directions
        too. A new figure therefore has a second panel, with the stars: each mean derivative, divided by the root mean
        square of its random directions, in front of their whole range in grey. It is ``figure.axes[1]``.

        Parameters
        ----------
        ax : Axes, optional
            Axes to draw the scores on; None for a new figure, which is not registered with pyplot.

        Returns
        -------
        tuple of Figure and Axes
            The axes of the scores, to go on drawing, or ``fig.savefig(path)``; nothing is shown or saved.

        Raises
        ------
        ValueError
            If there is no concept.
        """
        if not self:
            raise ValueError("Expected the scores of at least one concept but there is none.")
        layers = list(next(iter(self.values())).layers)
        labels = [*(clip_text(readable_name(name), 24) for name in self), "random"]
        below = None
        if ax is None:
            # So many inches that neighbouring names do not touch.
            letters = max(map(len, labels))
            width = 1.5 + (len(self) + 1) * max(0.8, 0.35 * len(layers), 0.3 + 0.085 * letters)
            ax, below = TextFigure(figsize=(width, 5.2), layout="constrained").subplots(2, sharex=True)
        share = 0.8 / len(layers)
        colours = mpl.colormaps["viridis"](np.linspace(0.1, 0.8, len(layers)))
        for k, layer in enumerate(layers):
            of_layer = {name: score.layers[layer] for name, score in self.items()}
            offset = (k - (len(layers) - 1) / 2) * share
            for place, result in enumerate(of_layer.values()):
                _draw_bar(ax, place + offset, share, (result.score,), colours[k], layer if place == 0 else None)
                if below is not None:
                    _draw_derivative(below, place + offset, share, result, colours[k])
                elif result.passed:
                    ax.text(place + offset, result.score + 0.02, "*", ha="center", va="bottom")
            _draw_bar(ax, len(self) + offset, share, _random_scores(of_layer), _RANDOM, None)
        ax.axhline(0.5, color="black", linestyle="--", linewidth=0.8)
        ax.set_xticks(range(len(self) + 1), labels, parse_math=False)
        ax.set_ylim(0, 1.12)
        ax.set_yticks(np.linspace(0, 1, 5))
        ax.set_ylabel("TCAV score")
        ax.spines[["top", "right"]].set_visible(False)
        figure = figure_of(ax)
        if len(layers) > 1:
            ax.legend(fontsize="small", frameon=False, loc="upper left", bbox_to_anchor=(1, 1))
        if below is not None:
            below.axhline(0, color="black", linewidth=0.8)
            # Room for the stars.
            below.margins(y=0.12)
            below.set_ylabel("mean derivative /\nRMS of random directions")
            below.spines[["top", "right"]].set_visible(False)
        tested = [layer for score in self.values() for layer in score.layers.values()]
        few = next((layer.caution for layer in tested if layer.caution), "")
        star = f"* mean derivative differs from random images\n(permutation test, corrected){few}"
        (ax if below is None else below).set_title(star, fontsize="small", loc="right")
        return figure, ax


def _verdict(name: str, score: TCAVScore) -> str:
    """Return a concept with its score, if a layer passed, and the smallest p-value of its layers."""
    decided = [layer for layer in score.layers.values() if not math.isnan(layer.shown_p)]
    first = min(decided, key=lambda layer: layer.shown_p, default=None)
    p = "no p-value" if first is None else f"p = {first.shown_p:.2g}{first.caution}"
    return f"{name}: {p}" if math.isnan(score.score) else f"{name}: {score.score:.2f} with {p}"


def _random_scores(layer: Mapping[str, LayerScore]) -> tuple[float, ...]:
    """Return the scores of random sets, which are the same for each concept that was compared with them."""
    return max((score.random_scores for score in layer.values()), key=len)


def _draw_bar(
    ax: Axes, place: float, width: float, scores: tuple[float, ...], colour: object, label: str | None
) -> None:
    defined = np.array(scores)[~np.isnan(scores)]
    if not len(defined):
        ax.text(place, 0.02, "undefined", ha="center", va="bottom", rotation=90, fontsize="x-small")
        return
    mean, low, high = defined.mean(), defined.min(), defined.max()
    ax.bar(place, mean, width * 0.9, color=colour, label=label)
    if low < high:
        ax.errorbar(place, mean, [[mean - low], [high - mean]], color="black", capsize=3, linewidth=1)


def _draw_derivative(ax: Axes, place: float, width: float, result: LayerScore, colour: object) -> None:
    """Draw a mean derivative in front of the range of its random directions, in units of their root mean square."""
    random = np.array(result.random_derivatives)
    random = random[~np.isnan(random)]
    unit = math.sqrt(np.square(random).mean()) if len(random) else 0.0
    if not unit or math.isnan(result.derivative):
        ax.text(place, 0, "undefined", ha="center", va="bottom", rotation=90, fontsize="x-small")
        return
    height, low, high = result.derivative / unit, random.min() / unit, random.max() / unit
    ax.bar(place, high - low, width * 0.9, bottom=low, color=_RANDOM, alpha=0.4)
    ax.bar(place, height, width * 0.5, color=colour)
    if result.passed:
        above = height > 0
        ax.annotate(
            "*",
            (place, max(height, high) if above else min(height, low)),
            xytext=(0, 1 if above else -1),
            textcoords="offset points",
            ha="center",
            va="bottom" if above else "top",
        )


def tcav_folders(
    model: nn.Module,
    layers: Sequence[str],
    root: str | os.PathLike[str],
    inputs: Tensor,
    target: Targets,
    *,
    transform: Transform | None = None,
    random: str = "random",
    n_random: int | None = None,
    alpha: float = 0.05,
    method: str = "svm",
    C: float = 1.0,
    batch_size: int = 64,
    num_workers: int = 0,
    device: torch.device | str | None = None,
    seed: int = 0,
    display_progressbar: bool = False,
) -> TCAVScores:
    r"""Score the concepts in a folder for a class by TCAV, as users of Captum's `TCAV` keep them.

    The folder is that of `ConceptBank.from_folders`: a folder of images for each concept, and one or more of random
    images. At each layer the images of a concept against all random images give a direction. Its TCAV score is the
    share of inputs whose logit rises along it, and its mean directional derivative is how much the logit rises.

    The test is the permutation test of `tcav_score`, in which random images are divided at random in place of concept
    and random images (of a concept with `negative` images of its own these). It is two-sided, for a class may also
    avoid a concept. The p-values are corrected by Holm for all concepts and layers of the call.

    Parameters
    ----------
    model : nn.Module
        As in `tcav_score`.
    layers : sequence of str
        Dotted names, as in `tcav_score`.
    root : path
        The folder.
    inputs : Tensor
        (N, C, H, W), the images whose logits are explained, as `transform` gives them.
    target : int, Tensor, list or array
        Class explained, one for all or (N,).
    transform : callable, optional
        As in `ConceptBank.from_folders`, like the next.
    random : str
        Name of the folders of random images, with numbers after it.
    n_random : int, optional
        Random directions: by default 99, or as many more as Holm's correction needs for one concept to pass at `alpha`.
    alpha : float
        A layer passes with an adjusted p-value of at most this.
    method : str
        "svm" or "mean", as in `ConceptBank.fit`. All images of both sets are used.
    C : float
        Regularisation of the SVM.
    batch_size : int
        Batch size of the model.
    num_workers : int
        Processes that read images, which are read anew for each layer.
    device : torch.device or str, optional
        Device if the model has neither parameters nor buffers.
    seed : int
        Random seed of the random directions.
    display_progressbar : bool
        Whether to show progress over the layers.

    Returns
    -------
    TCAVScores
        A dict from concept to `TCAVScore`, with the methods `plot` and `to_frame`.

    Raises
    ------
    FileNotFoundError
        If there is no folder `root`.
    ValueError
        As in `tcav_score` and `ConceptBank.from_folders`, or if images of the folder and `inputs` differ in shape.
    TypeError
        As in `tcav_score`.

    Warns
    -----
    UserWarning
        If there are fewer than 20 random images.

    Examples
    --------
    >>> import torch
    >>> from torch import nn
    >>> from torchvision.transforms.functional import to_tensor
    >>> from captum_concepts import tcav_folders
    >>> model = nn.Sequential(nn.Conv2d(3, 4, 3), nn.Flatten(), nn.LazyLinear(2))
    >>> images = torch.rand(4, 3, 32, 32)
    >>> scores = tcav_folders(model, ["0"], "concepts", images, 0, transform=to_tensor)
    >>> list(scores)  # the folders in "concepts", without those of random images
    ['dotted', 'striped']
    >>> figure, ax = scores.plot()
    """
    root = check_folder("root", root, "a folder with one folder of images for each concept")
    check_test(n_random, alpha)
    experiments = prepare_experiments(model, layers, inputs, target, method, C, batch_size, device, seed)
    folders = find_concept_folders(root, random)
    if transform is None:
        warn_without_transform(model)
    paths = folders.paths()
    rows = {path: row for row, path in enumerate(paths)}
    loader = image_loader(paths, transform, batch_size, num_workers)

    def rows_of(members: Iterable[Path]) -> np.ndarray:
        return np.array([rows[path] for path in members], dtype=int)

    with experiments.hold_model():
        layers_of_images = (
            (layer, torch.cat([_activations(experiments, layer, images) for images in loader]))
            for layer in progress(experiments.layers, "TCAV layers", show=display_progressbar, leave=True)
        )
        everywhere = dict.fromkeys(path for members in folders.random_sets.values() for path in members)
        splits = {
            concept.name: (
                rows_of(concept.positive),
                rows_of(concept.negative or (path for path in everywhere if path not in {*concept.positive})),
            )
            for concept in folders.concepts
        }
        warn_of_few([len(negative) for _, negative in splits.values()])
        n_random = n_random or needed_directions(len(splits) * len(experiments.layers), alpha)
        by_concept = [random_splits(*split, None, n_random, seed) for split in splits.values()]
        tested: dict[str, dict[str, LayerScore]] = {name: {} for name in splits}
        for layer, activations in layers_of_images:
            statistics = experiments.statistics(layer, activations, [split for group in by_concept for split in group])
            for name, of_concept in zip(splits, np.split(statistics, len(splits)), strict=True):
                tested[name][layer] = permutation_score(of_concept, len(splits[name][1]))
    return TCAVScores(judge(tested, alpha))


def _activations(experiments: Experiments, layer: str, images: Tensor) -> Tensor:
    shape, expected = tuple(images.shape[1:]), tuple(experiments.inputs.shape[1:])
    if shape != expected:
        raise ValueError(
            f"Expected argument `transform` to give images of the shape of `inputs`, (C, H, W) = {expected}, but got "
            f"{shape}."
        )
    return experiments.activations(layer, images)
