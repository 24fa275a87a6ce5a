"""TCAV of concepts in folders, compared with sets of random images, and its plot."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from itertools import combinations
from typing import Any

import matplotlib as mpl
import numpy as np
import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from torch import Tensor, nn

from captum_concepts._support.constraints import AXES, Function, Location, Whole, check_arguments
from captum_concepts._support.progress import progress
from captum_concepts._support.shown import clip_text, describe
from captum_concepts._support.visualise import figure_of
from captum_concepts.bank.folders import (
    LEAST_SETS,
    find_concept_folders,
    image_loader,
    set_p_values,
    warn_few_sets,
    warn_without_transform,
)
from captum_concepts.tcav.experiments import Experiments, mean_of, prepare_experiments
from captum_concepts.tcav.score import SHARED, LayerScore, TCAVScore, layer_score, summarise_layers

_RANDOM = "#9a9a9a"


class TCAVScores(dict[str, TCAVScore]):
    """TCAV of several concepts for a class, by concept, as `tcav_folders` returns it."""

    def __repr__(self) -> str:
        return describe(self, **{name: score.score for name, score in self.items()})

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
            of_layer = {name: score.layers[layer] for name, score in self.items()}
            offset = (k - (len(layers) - 1) / 2) * share
            for place, result in enumerate(of_layer.values()):
                _draw_bar(ax, place + offset, share, result.scores, colours[k], layer if place == 0 else None)
                if result.passed:
                    ax.text(place + offset, max(result.scores) + 0.02, "*", ha="center", va="bottom")
            _draw_bar(ax, len(self) + offset, share, _random_scores(of_layer), _RANDOM, None)
        ax.axhline(0.5, color="black", linestyle="--", linewidth=0.8)
        ax.set_xticks(range(len(self) + 1), [*(clip_text(name, 24) for name in self), "random"], parse_math=False)
        ax.set_ylim(0, 1.12)
        ax.set_yticks(np.linspace(0, 1, 5))
        ax.set_ylabel("TCAV score")
        ax.spines[["top", "right"]].set_visible(False)
        figure = figure_of(ax)
        if len(layers) > 1:
            ax.legend(fontsize="small", frameon=False, loc="upper left", bbox_to_anchor=(1, 1))
        ax.set_title("* differs from random images", fontsize="small", loc="right")
        return figure, ax


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
    mean = defined.mean()
    ax.bar(place, mean, width * 0.9, color=colour, label=label)
    ax.errorbar(place, mean, [[mean - defined.min()], [defined.max() - mean]], color="black", capsize=3, linewidth=1)


@check_arguments(
    **SHARED,
    root=Location("folder", "a folder with one folder of images for each concept"),
    transform=Function(),
    num_workers=Whole(),
)
def tcav_folders(
    model: nn.Module,
    layers: Sequence[str],
    root: str | os.PathLike[str],
    inputs: Tensor,
    target: int | Tensor,
    *,
    transform: Callable[[Any], Any] | None = None,
    random: str = "random",
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

    The folder is that of `ConceptBank.from_folders`: a folder of images for each concept, and at least five of random
    images. At each layer the images of a concept against each random set give a direction, and so do random sets
    against each other; the TCAV score of a direction is the share of inputs whose logit rises along it.

    A layer passes if the mean score of the concept lies as far from the mean scores of random sets in its place as
    chance would not bring it: the test of `ConceptBank.from_folders`, two-sided, for a class may also avoid a concept.
    Captum's practice of Welch's test over repetitions takes those as independent, though all share the images of the
    concept: of 96 random sets in the place of a concept, against seven others, it passed a third at .05, this test
    none. The price: scores end at 0 and 1, and where random sets score 0 or 1 themselves, as in front of a linear head,
    no concept can pass, whatever its score.

    Parameters
    ----------
    model : nn.Module
        As in `tcav_score`.
    layers : sequence of str
        Dotted names, as in `tcav_score`.
    root : path
        The folder. Concepts that have images without them of their own (`positive` and `negative`) get one score and
        no test.
    inputs : Tensor
        (N, C, H, W), the images whose logits are explained, as `transform` gives them.
    target : int or Tensor
        Class explained, one for all or (N,).
    transform : callable, optional
        As in `ConceptBank.from_folders`, like the next.
    random : str
        Name of the folders of random images, with numbers after it.
    alpha : float
        A layer passes with a p-value of at most this.
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
        Random seed of the solver; nothing is drawn.
    display_progressbar : bool
        Whether to show progress over the layers.

    Returns
    -------
    TCAVScores
        A dict from concept to `TCAVScore`, with a method `plot`. Of each layer `scores` has one for each random set,
        `random_scores` the mean of each random set against the others; `p_value` is NaN, with a warning, for fewer
        than five sets.

    Raises
    ------
    FileNotFoundError
        If there is no folder `root`.
    ValueError
        As in `tcav_score` and `ConceptBank.from_folders`, or if images of the folder and `inputs` differ in shape.
    TypeError
        As in `tcav_score`, or if `transform` cannot be called.

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
    explained = prepare_experiments(model, layers, inputs, target, method, C, batch_size, device, seed)
    folders = find_concept_folders(root, random)
    if transform is None:
        warn_without_transform(model)
    paths = folders.paths()
    rows = {path: row for row, path in enumerate(paths)}
    loader = image_loader(paths, transform, batch_size, num_workers)
    sets = [side for concept in folders.concepts for side in (concept.positive, concept.negative or [])]
    first_set, n_sets = len(sets), len(folders.random_sets)
    sets += folders.random_sets.values()
    groups = [np.array([rows[path] for path in members], dtype=int) for members in sets]
    random_pairs = list(combinations(range(first_set, len(groups)), 2))
    pairs = {
        concept.name: [(2 * j, 2 * j + 1)] if concept.negative else [(2 * j, k) for k in range(first_set, len(groups))]
        for j, concept in enumerate(folders.concepts)
    }
    all_pairs = [*random_pairs, *(pair for concept_pairs in pairs.values() for pair in concept_pairs)]
    if 0 < n_sets < LEAST_SETS:
        warn_few_sets(n_sets)

    by_concept: dict[str, dict[str, LayerScore]] = {name: {} for name in pairs}
    with explained.hold_model():
        for layer in progress(explained.layers, "TCAV layers", show=display_progressbar, leave=True):
            activations = torch.cat([_activations(explained, layer, images) for images in loader])
            scores = dict(zip(all_pairs, explained.scores(layer, activations, groups, all_pairs), strict=True))
            table = np.full((n_sets, n_sets), np.nan)
            for i, k in random_pairs:
                table[i - first_set, k - first_set], table[k - first_set, i - first_set] = scores[i, k]
            for name, concept_pairs in pairs.items():
                concept_scores = np.array([scores[pair][0] for pair in concept_pairs])
                by_concept[name][layer] = _test_concept(concept_scores, table, alpha)
    return TCAVScores({name: summarise_layers(layers) for name, layers in by_concept.items()})


def _activations(explained: Experiments, layer: str, images: Tensor) -> Tensor:
    shape, expected = tuple(images.shape[1:]), tuple(explained.inputs.shape[1:])
    if shape != expected:
        raise ValueError(
            f"Expected argument `transform` to give images of the shape of `inputs`, (C, H, W) = {expected}, but got "
            f"{shape}."
        )
    return explained.activations(layer, images)


def _test_concept(scores: np.ndarray, table: np.ndarray, alpha: float) -> LayerScore:
    """Return the score of a concept against random sets, given those (R, R) of the sets against each other."""
    n_sets = len(table)
    decided = len(scores) == n_sets >= LEAST_SETS and np.isnan(table).sum() == n_sets
    p_value = float(set_p_values(scores[None], table, directed=True)[0]) if decided else np.nan
    return layer_score(scores.tolist(), [mean_of(row) for row in table], p_value, alpha)
