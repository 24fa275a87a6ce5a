"""TCAV: how much a concept's direction raises the logit of a class, tested against random directions."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from captum_concepts.attributions.outputs import Targets
from captum_concepts.support.checks import check_axes, check_range, check_whole
from captum_concepts.support.running import progress, warn_user
from captum_concepts.tcav.experiments import Split, check_enough, mean_of, prepare_experiments
from captum_concepts.tcav.p_values import adjust_p_values
from captum_concepts.texts import describe, show_value


@dataclass(frozen=True)
class LayerScore:
    """TCAV at one layer.

    Attributes
    ----------
    score : float
        Share of inputs whose logit rises along the direction.
    p_value : float
        P-value of the mean directional derivative.
    passed : bool
        Whether the verdict is that the class depends on the concept.
    random_mean : float
        Mean score of random directions.
    random_scores : tuple of float
        Scores of the random directions.
    derivative : float
        Mean derivative of the logit along the unit direction. It does not saturate, as the score does at 0 and 1.
    random_derivatives : tuple of float
        The same of the random directions.
    p_score : float
        P-value of the score.
    p_adjusted : float
        `p_value`, corrected by Holm for the concepts and layers of the call.
    n_negative : int
        Images without the concept on which the permutation test rests. With fewer than 20 it rejects too often, which
        a warning and the repr say.
    """

    score: float
    p_value: float
    passed: bool
    random_mean: float
    random_scores: tuple[float, ...]
    derivative: float = math.nan
    random_derivatives: tuple[float, ...] = ()
    p_score: float = math.nan
    p_adjusted: float = math.nan
    n_negative: int = 0

    @property
    def caution(self) -> str:
        """What restricts the p-value, in a phrase; "" if nothing does."""
        return f" ({self.n_negative} random images are too few)" if 0 < self.n_negative < FEWEST_NEGATIVE else ""

    @property
    def undecided(self) -> int:
        """Number of directions that have no length, and so no score."""
        return int(np.isnan([self.score, *self.random_scores]).sum())

    @property
    def shown_p(self) -> float:
        """The p-value on which the verdict rests."""
        return self.p_value if math.isnan(self.p_adjusted) else self.p_adjusted


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
        By name: `score`, `derivative`, `p_value`, `p_adjusted` and `passed` (whether it enters `score` above),
        `p_score`, `random_mean`, and the single `random_scores` and `random_derivatives`.
    """

    score: float
    random_mean: float
    layers: dict[str, LayerScore]

    def __repr__(self) -> str:
        parts = [f"score={show_value(self.score)}", f"random_mean={show_value(self.random_mean)}"]
        parts += [
            f"{name}: {layer.score:.2f} with p = {layer.shown_p:.3f}{layer.caution}"
            for name, layer in self.layers.items()
        ]
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


#: Images without the concept from which on the permutation test rejects about 5 % of true hypotheses at .05.
FEWEST_NEGATIVE = 20
#: Random directions of the permutation test.
N_PERMUTED = 99


def tcav_score(
    model: nn.Module,
    layers: Sequence[str],
    concept_images: Tensor,
    negative_images: Tensor,
    inputs: Tensor,
    target: Targets,
    *,
    n_random: int | None = None,
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

    Images with the concept against images without it give a direction v (CAV) at each layer. The TCAV score is the
    share of inputs x with :math:`\nabla_a f_k(x) \cdot v > 0`, a being the layer's output and f_k the logit. The *mean
    directional derivative* is the mean of :math:`\nabla_a f_k(x) \cdot v / \|v\|`, which does not end at 0 and 1.

    The test is a permutation test against random images: `n_random` times the images without the concept are divided at
    random into sides of the same sizes, which gives a random direction, and p is the share of all directions, the
    concept's included, whose mean derivative is at least as far from 0. If the images with the concept are of the same
    kind as those without it, 3 to 6 % of all tests had a p of at most .05 in simulations (``docs/coverage.md``). The
    p-values are corrected by Holm for the number of layers, and a layer passes with an adjusted p of at most `alpha`.
    `p_score` is the same for the distance of the score from .5: where random directions reach 0 and 1, as in front of a
    linear head, no score is far from theirs.

    A direction is *undecided*, its score NaN, where the activations of its two sides have the same mean up to rounding:
    1e-6 of the longest activation, or the precision of the model if that is coarser. Its sign would mean nothing.
    Undecided random directions count as extreme, a layer whose activations are all alike has no p-value, and
    `LayerScore.undecided` counts them.

    Captum's `TCAV` gives scores and the authors' t-test over draws, which rejects 12 to 29 % of true hypotheses at .01.

    Concepts that lie in folders, with several sets of random images, are for `tcav_folders`.

    Parameters
    ----------
    model : nn.Module
        Gives logits (N, K), or what holds them as `.logits` or first; left as it was. Everything runs on its device.
    layers : sequence of str
        Dotted names. Their whole outputs are used, flattened.
    concept_images : Tensor
        (P, C, H, W) with the concept, at least two.
    negative_images : Tensor
        (M, C, H, W) without it, at least four: random images. Of the images with the concept at most M / 2 are used.
        With fewer than 20 the permutation test rejects too often (10 to 13 % at .05 with 8, 24 % with 4) and warns.
    inputs : Tensor
        (N, C, H, W), the images whose logits are explained.
    target : int, Tensor, list or array
        Class explained, one for all or (N,).
    n_random : int, optional
        Random directions: by default 99, or as many more as Holm's correction needs for a layer to pass at `alpha`.
    n_samples : int
        Largest number of images on each side of a direction, drawn where there are more.
    alpha : float
        A layer passes with an adjusted p-value of at most this.
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
        If a shape or number does not fit, a layer is not found or gives no tensor, there are too few images, or the
        model has no output `target`.
    TypeError
        If `layers` is one string.

    Warns
    -----
    UserWarning
        If the permutation test rests on fewer than 20 images without the concept.

    Examples
    --------
    >>> import torch
    >>> from torch import nn
    >>> from captum_concepts import tcav_score
    >>> model = nn.Sequential(nn.Flatten(), nn.AvgPool1d(16))  # logit: brightness
    >>> dark = torch.rand(20, 1, 4, 4) / 2
    >>> score = tcav_score(model, ["0"], dark + 0.5, dark, dark, 0)
    >>> score.layers["0"].score  # the logit of all images rises along "bright"
    1.0
    >>> round(score.layers["0"].p_adjusted, 2)
    0.01
    """
    check_test(n_random, alpha)
    check_whole("n_samples", n_samples, 1)
    experiments = prepare_experiments(model, layers, inputs, target, method, C, batch_size, device, seed)
    # One shape: what is stacked goes through the model together.
    check_axes(
        inputs=(inputs, "N C H W"),
        concept_images=(concept_images, "P C H W"),
        negative_images=(negative_images, "M C H W"),
    )
    check_enough("concept_images", concept_images, 2)
    check_enough("negative_images", negative_images, 4, " for random directions")
    images = torch.cat([concept_images, negative_images.to(concept_images)])
    positive, negative = np.split(np.arange(len(images)), [len(concept_images)])
    warn_of_few([len(negative)])
    n_random = n_random or needed_directions(len(experiments.layers), alpha)
    splits = random_splits(positive, negative, n_samples, n_random, seed)
    tested = {}
    with experiments.hold_model():
        for name in progress(experiments.layers, "TCAV layers", show=display_progressbar, leave=True):
            activations = experiments.activations(name, images)
            tested[name] = permutation_score(experiments.statistics(name, activations, splits), len(negative))
    return judge({"": tested}, alpha)[""]


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

    Examples
    --------
    >>> from captum_concepts import TCAVScore, tcav_contrast
    >>> needs_it = TCAVScore(score=0.75, random_mean=0.5, layers={})
    >>> ignores_it = TCAVScore(score=0.25, random_mean=0.75, layers={})
    >>> tcav_contrast(needs_it, ignores_it)
    TCAVContrast(score=0.5, baseline=-0.25)
    """
    return TCAVContrast(first.score - second.score, first.random_mean - second.random_mean)


def check_test(n_random: int | None, alpha: float) -> None:
    """Raise unless the settings of the test make sense."""
    check_range("alpha", alpha, 0, 1)
    if n_random is not None:
        check_whole("n_random", n_random, 1)


def summarise_layers(layers: dict[str, LayerScore]) -> TCAVScore:
    """Return the score over layers."""
    return TCAVScore(
        score=mean_of([layer.score for layer in layers.values() if layer.passed]),
        random_mean=mean_of([layer.random_mean for layer in layers.values()]),
        layers=layers,
    )


def needed_directions(n_tests: int, alpha: float) -> int:
    """Return how many random directions let the smallest p-value pass Holm's correction, at least 99."""
    return max(N_PERMUTED, math.ceil(round(n_tests / alpha, 9)) - 1) if alpha else N_PERMUTED


def random_splits(
    positive: np.ndarray, negative: np.ndarray, n_samples: int | None, n_random: int, seed: int
) -> list[Split]:
    """Return sides with the concept and without it, and as many random divisions of the images without it.

    All have sides of the same two sizes, so that under the null hypothesis all directions have one distribution.
    """
    n_positive = min(len(positive), len(negative) // 2, n_samples or len(positive))
    n_negative = min(len(negative) - n_positive, n_samples or len(negative))
    generator = np.random.default_rng([seed, 1])
    first, *orders = (generator.permutation(negative) for _ in range(1 + n_random))
    concept = (generator.permutation(positive)[:n_positive], first[:n_negative])
    return [concept, *((order[:n_positive], order[n_positive : n_positive + n_negative]) for order in orders)]


def warn_of_few(counts: Sequence[int]) -> None:
    """Warn if a permutation test rests on too few images without the concept."""
    if min(counts) < FEWEST_NEGATIVE:
        warn_user(
            f"The permutation test rests on {min(counts)} images without the concept. With fewer than "
            f"{FEWEST_NEGATIVE} it rejects true hypotheses too often (10 to 13 % at .05 with 8 images, 24 % with 4): "
            "take more random images, or do not report the p-values."
        )


def permutation_score(statistics: np.ndarray, n_negative: int = 0) -> LayerScore:
    """Test the first of share and mean derivative (1 + n_random, 2) by the others; `judge` has the verdict."""
    shares, derivatives = statistics.T
    return LayerScore(
        score=float(shares[0]),
        p_value=_permutation_p(derivatives),
        passed=False,
        random_mean=mean_of(shares[1:]),
        random_scores=tuple(shares[1:].tolist()),
        derivative=float(derivatives[0]),
        random_derivatives=tuple(derivatives[1:].tolist()),
        p_score=_permutation_p(shares - 0.5),
        n_negative=n_negative,
    )


def _permutation_p(statistics: np.ndarray) -> float:
    """Return the share of all statistics that are at least as far from 0 as the first."""
    observed = abs(statistics[0])
    if math.isnan(observed):
        return math.nan
    # Sums in another order differ by rounding; what is undecided counts as extreme.
    below = np.abs(statistics[1:]) < observed * (1 - 1e-9)
    return float(1 + (~below).sum()) / len(statistics)


def judge(tested: Mapping[str, Mapping[str, LayerScore]], alpha: float) -> dict[str, TCAVScore]:
    """Correct the p-values of all concepts and layers, and say which passed."""
    places = [(concept, layer) for concept, layers in tested.items() for layer in layers]
    adjusted = adjust_p_values([tested[concept][layer].p_value for concept, layer in places]).tolist()
    # The smallest p-value times the number of tests is alpha up to rounding.
    judged: dict[str, dict[str, LayerScore]] = {concept: {} for concept in tested}
    for (concept, layer), p in zip(places, adjusted, strict=True):
        judged[concept][layer] = replace(tested[concept][layer], p_adjusted=p, passed=p <= alpha * (1 + 1e-9))
    return {concept: summarise_layers(layers) for concept, layers in judged.items()}
