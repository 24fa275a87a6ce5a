"""TCAV: how often a concept's direction raises the logit of a class, tested against random directions."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
from scipy import stats
from torch import Tensor, nn

from captum_concepts._support.constraints import (
    POSITIVE,
    SHARE,
    TEXT,
    Choice,
    Constraint,
    Device,
    Flag,
    Instance,
    Items,
    Module,
    Seed,
    Tensors,
    Whole,
    check_arguments,
)
from captum_concepts._support.progress import progress
from captum_concepts._support.shown import describe, show_value
from captum_concepts.bank.directions import METHODS
from captum_concepts.tcav.experiments import check_number_of_images, mean_of, prepare_experiments


@dataclass(frozen=True)
class LayerScore:
    """TCAV at one layer."""

    score: float
    p_value: float
    passed: bool
    random_mean: float
    scores: tuple[float, ...]
    random_scores: tuple[float, ...]

    @property
    def undecided(self) -> int:
        """Number of directions that have no length, and so no score."""
        return int(np.isnan([*self.scores, *self.random_scores]).sum())


@dataclass(frozen=True)
class TCAVScore:
    """TCAV of a concept for a class.

    Attributes
    ----------
    score : float
        Mean of the scores of the layers that passed; NaN if none did.
    random_mean : float
        Mean score of random directions, over all layers that have one; NaN if none has.
    layers : dict of str to LayerScore
        By name: `score`, `p_value` and `passed` (whether it enters `score` above), `random_mean`, and the single
        `scores` and `random_scores`.
    """

    score: float
    random_mean: float
    layers: dict[str, LayerScore]

    def __repr__(self) -> str:
        parts = [f"score={show_value(self.score)}", f"random_mean={show_value(self.random_mean)}"]
        parts += [f"{name}: {layer.score:.2f} with p = {layer.p_value:.3f}" for name, layer in self.layers.items()]
        return describe(self, *parts)


class TCAVContrast(NamedTuple):
    """The model contrast of TCAV.

    Attributes
    ----------
    score : float
        Score of the first model less that of the second; NaN where either has none.
    baseline : float
        The same for random directions.
    """

    score: float
    baseline: float


#: Constraints that `tcav_folders` has as well.
SHARED: dict[str, Constraint] = {
    "model": Module(),
    "layers": Items(TEXT, "names of layers", least=1),
    "inputs": Tensors("N, C, H, W", finite=True),
    "alpha": SHARE,
    "method": Choice(METHODS),
    "C": POSITIVE,
    "batch_size": Whole(1),
    "device": Device(),
    "seed": Seed(),
    "display_progressbar": Flag(),
}


@check_arguments(
    **SHARED,
    concept_images=Tensors("P, C, H, W", finite=True),
    negative_images=Tensors("M, C, H, W", finite=True),
    n_random=Whole(2),
    n_samples=Whole(1),
)
def tcav_score(
    model: nn.Module,
    layers: Sequence[str],
    concept_images: Tensor,
    negative_images: Tensor,
    inputs: Tensor,
    target: int | Tensor,
    *,
    n_random: int = 20,
    n_samples: int = 100,
    alpha: float = 0.01,
    method: str = "svm",
    C: float = 1.0,
    batch_size: int = 64,
    device: torch.device | str | None = None,
    seed: int = 0,
    display_progressbar: bool = False,
) -> TCAVScore:
    r"""Score a concept for a class (Kim et al. 2018), as the benchmark's paper does (Yang and Kim, appendix F).

    At each layer, `n_random` times: `n_samples` images with the concept against as many without give a
    direction (CAV), and other images without it against the same ones a random direction. The TCAV score of
    a direction v is the share of inputs x with :math:`\nabla_a f_k(x) \cdot v > 0`, a being the layer's
    output and f_k the logit. A layer passes if the scores of the two kinds of directions differ in a
    two-sided t-test of Welch, since their variances differ; the result is the mean over these layers.

    Captum's `TCAV` computes directions and scores, with `ConceptBankClassifier` as its classifier and the
    gradients of `LayerGradientXActivation`. It is given activations as coordinates in an orthonormal basis
    of their own span: directions lie in that span, so that all products and fits are the same, but an
    image takes as many numbers as there are images, where Captum would write all activations of every draw
    to disk and turn every direction into Python numbers. What it does write goes to a temporary folder.

    A draw is *undecided*, its score NaN, where the activations of its two sets have the same mean up to rounding: 1e-6
    of the longest activation, or the precision of the model if that is coarser. Its direction then has no length but
    that of rounding errors, and a sign that means nothing. Undecided draws enter neither means nor tests, and
    `LayerScore.undecided` counts them; a dead layer, whose activations are all alike, has nothing else.

    Concepts that lie in folders, with several sets of random images, are for `tcav_folders`.

    Parameters
    ----------
    model : nn.Module
        Gives logits (N, K), or what holds them as `.logits` or first; left as it was. Everything runs on its device,
        while other threads that explain it wait.
    layers : sequence of str
        Dotted names. Their whole outputs are used, flattened.
    concept_images : Tensor
        (P, C, H, W) with the concept, at least `n_samples`.
    negative_images : Tensor
        (M, C, H, W) without it, at least ``2 * n_samples``; more make the draws differ more.
    inputs : Tensor
        (N, C, H, W), the images whose logits are explained.
    target : int or Tensor
        Class explained, one for all or (N,).
    n_random : int
        Draws, each giving one direction of either kind; at least 2. Scores of random directions lie near 0
        and 1 more often than between, so that with few of them even a score of 1 may not pass.
    n_samples : int
        Images on each side of a direction.
    alpha : float
        A layer passes with a p-value of at most this.
    method : str
        "svm" or "mean", as in `ConceptBank.fit`.
    C : float
        Regularisation of the SVM.
    batch_size : int
        Batch size of the model.
    device : torch.device or str, optional
        Device if the model has neither parameters nor buffers.
    seed : int
        Random seed of the draws, not negative.
    display_progressbar : bool
        Whether to show progress over the layers.

    Returns
    -------
    TCAVScore
        With the scores of each layer.

    Raises
    ------
    ValueError
        If a shape or number does not fit, a layer is not found or gives no tensor, there are too few images, the model
        has no output `target`, or it has no gradients (quantised), weights (meta device) or hooks (ScriptModule).
    TypeError
        If `layers` is one string, `target` holds no integers, or a number is none.

    Examples
    --------
    >>> import torch
    >>> from torch import nn
    >>> from captum_concepts import tcav_score
    >>> model = nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Flatten())  # logit: brightness
    >>> dark = torch.rand(8, 1, 4, 4) / 2
    >>> score = tcav_score(model, ["0"], dark + 0.5, dark, dark, 0, n_random=5, n_samples=4)
    >>> score.layers["0"].scores  # the logit of all images rises along "bright"
    (1.0, 1.0, 1.0, 1.0, 1.0)
    """
    explained = prepare_experiments(model, layers, inputs, target, method, C, batch_size, device, seed)
    why = f" for n_samples={n_samples}, which may be lower,"
    for label, images, least in (
        ("concept_images", concept_images, n_samples),
        ("negative_images", negative_images, 2 * n_samples),
    ):
        check_number_of_images(label, images, least, why)
    draws = _draw(len(concept_images), len(negative_images), n_random, n_samples, seed)
    pairs = [pair for i in range(0, 3 * n_random, 3) for pair in ((i, i + 1), (i + 2, i + 1))]
    results = {}
    with explained.hold_model():
        for name in progress(explained.layers, "TCAV layers", show=display_progressbar, leave=True):
            sides = (explained.activations(name, images) for images in (concept_images, negative_images))
            activations = torch.cat([*sides])
            scores = explained.scores(name, activations, [rows for draw in draws for rows in draw], pairs)[:, 0]
            results[name] = _test_scores(scores[::2].tolist(), scores[1::2].tolist(), alpha)
    return summarise_layers(results)


@check_arguments(
    first=Instance(TCAVScore, "what `tcav_score` returns"), second=Instance(TCAVScore, "what `tcav_score` returns")
)
def tcav_contrast(first: TCAVScore, second: TCAVScore) -> TCAVContrast:
    """Return the model contrast score of TCAV: how much more the concept matters to the first model.

    Parameters
    ----------
    first : TCAVScore
        Scores of the model to which the concept should matter more.
    second : TCAVScore
        Scores of the other model, for its own class.

    Returns
    -------
    TCAVContrast
        The difference, and the same for random directions.

    Raises
    ------
    TypeError
        If one is no TCAVScore.

    Examples
    --------
    >>> from captum_concepts import TCAVScore, tcav_contrast
    >>> needs_it = TCAVScore(score=0.75, random_mean=0.5, layers={})
    >>> ignores_it = TCAVScore(score=0.25, random_mean=0.75, layers={})
    >>> tcav_contrast(needs_it, ignores_it)
    TCAVContrast(score=0.5, baseline=-0.25)
    """
    return TCAVContrast(first.score - second.score, first.random_mean - second.random_mean)


def summarise_layers(layers: dict[str, LayerScore]) -> TCAVScore:
    """Return the score over layers."""
    return TCAVScore(
        score=mean_of([layer.score for layer in layers.values() if layer.passed]),
        random_mean=mean_of([layer.random_mean for layer in layers.values()]),
        layers=layers,
    )


class _Draw(NamedTuple):
    """Rows of three sets of images: with the concept, without it, and others without it."""

    positive: np.ndarray
    negative: np.ndarray
    random: np.ndarray


def _draw(n_positive: int, n_negative: int, n_random: int, n_samples: int, seed: int) -> list[_Draw]:
    draws = []
    for i in range(n_random):
        generator = np.random.default_rng([seed, i])
        positive = generator.permutation(n_positive)[:n_samples]
        without = n_positive + generator.permutation(n_negative)
        draws.append(_Draw(positive, without[:n_samples], without[n_samples : 2 * n_samples]))
    return draws


def _test_scores(scores: list[float], random_scores: list[float], alpha: float) -> LayerScore:
    with warnings.catch_warnings():
        # Scores that are all 0 or all 1 are what a good direction gives; SciPy warns of their variance.
        warnings.simplefilter("ignore", RuntimeWarning)
        p_value = float(stats.ttest_ind(scores, random_scores, equal_var=False, nan_policy="omit").pvalue)
    return layer_score(scores, random_scores, p_value, alpha)


def layer_score(scores: list[float], random_scores: list[float], p_value: float, alpha: float) -> LayerScore:
    """Return the scores of a layer with their means."""
    return LayerScore(
        score=mean_of(scores),
        p_value=p_value,
        passed=p_value <= alpha,
        random_mean=mean_of(random_scores),
        scores=tuple(scores),
        random_scores=tuple(random_scores),
    )
