"""TCAV: how often a concept's direction raises the logit of a class, tested against random directions."""

from __future__ import annotations

import contextlib
import math
import tempfile
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
from captum.concept import TCAV, Concept
from scipy import stats
from torch import Tensor, nn

from captum_concepts.checks import (
    as_list,
    check_choice,
    check_device,
    check_finite,
    check_materialised,
    check_module,
    check_range,
    check_seed,
    check_shape,
    check_weight,
    check_whole,
    is_integral,
    to_tensor,
)
from captum_concepts.directions import METHODS
from captum_concepts.layers import find_layer
from captum_concepts.outputs import check_targets, scripted, tensor_outputs
from captum_concepts.progress import progress
from captum_concepts.running import alone_with, evaluation_mode, first_floating, seeded_generators, tensor_output
from captum_concepts.shown import one_line
from captum_concepts.tcav_classifier import ConceptBankClassifier
from captum_concepts.tcav_span import (
    NEGLIGIBLE,
    Batches,
    Coordinates,
    SpanGradient,
    layer_activations,
    span_coordinates,
)


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
        By name.
    """

    score: float
    random_mean: float
    layers: dict[str, LayerScore]

    def __repr__(self) -> str:
        return one_line(self)


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
        Of the SVM.
    batch_size : int
        Images that the model gets at once.
    device : torch.device or str, optional
        Where to work if the model has neither parameters nor buffers.
    seed : int
        Of the draws, not negative.
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
    """
    check_module("model", model)
    check_materialised("model", model)
    check_device("device", device)
    names = _check_layers(model, layers)
    numbers = {"n_random": (n_random, 2), "n_samples": (n_samples, 1), "batch_size": (batch_size, 1)}
    for label, (number, least) in numbers.items():
        check_whole(label, number, least)
    check_seed(seed)
    check_range("alpha", alpha, 0, 1)
    check_choice("method", method, METHODS)
    check_weight("C", C, positive=True)
    check_shape("inputs", inputs, ("N", "C", "H", "W"), (None,) * 4)
    for label, images, least in (
        ("concept_images", concept_images, n_samples),
        ("negative_images", negative_images, 2 * n_samples),
        ("inputs", inputs, 1),
    ):
        if not isinstance(images, Tensor):
            raise TypeError(f"Expected argument `{label}` to be a tensor but got {type(images).__name__}.")
        check_shape(label, images, ("N", "C", "H", "W"), (None, *inputs.shape[1:]))
        check_finite(label, images)
        if len(images) < least:
            raise ValueError(
                f"Expected argument `{label}` to hold at least {least} images for n_samples={n_samples} but got "
                f"{len(images)}. Give more, or lower `n_samples`."
            )
    targets = _as_targets(target, len(inputs))
    reference = first_floating(model)
    place = torch.device(device or "cpu") if reference is None else reference.device
    batches = Batches(place, torch.float32 if reference is None else reference.dtype, batch_size)
    draws = _draw(len(concept_images), len(negative_images), n_random, n_samples, seed)
    classifier = ConceptBankClassifier(method, C)
    results = {}
    with _undisturbed(model, place, seed), tensor_outputs(model, targets, "target"):
        _check_outputs(model, next(batches.of(inputs[:1]))[1], targets)
        for name in progress(names, "TCAV layers", show=display_progressbar, leave=True):
            layer = find_layer(model, name)
            activations = torch.cat(
                [layer_activations(model, layer, name, images, batches) for images in (concept_images, negative_images)]
            )
            coordinates, mixing = span_coordinates(activations)
            gradients = SpanGradient(model, layer, activations, mixing, batches)
            scores = _experiments(gradients, classifier, coordinates, draws, inputs, targets)
            rounding = max(NEGLIGIBLE, torch.finfo(activations.dtype).eps)
            results[name] = _test(*_decided(scores, coordinates, draws, rounding), alpha)
    return TCAVScore(
        score=_mean([each.score for each in results.values() if each.passed]),
        random_mean=_mean([each.random_mean for each in results.values()]),
        layers=results,
    )


def tcav_contrast(first: TCAVScore, second: TCAVScore) -> TCAVContrast:
    """Return the model contrast score of TCAV: how much more the concept matters to the first model.

    Parameters
    ----------
    first : TCAVScore
        Of the model to which the concept should matter more.
    second : TCAVScore
        Of the other, for its own class.

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
    >>> tcav_contrast(TCAVScore(0.75, 0.5, {}), TCAVScore(0.25, 0.75, {}))
    TCAVContrast(score=0.5, baseline=-0.25)
    """
    for name, score in (("first", first), ("second", second)):
        if not isinstance(score, TCAVScore):
            raise TypeError(
                f"Expected argument `{name}` to be what `tcav_score` returns but got {type(score).__name__}."
            )
    return TCAVContrast(first.score - second.score, first.random_mean - second.random_mean)


class _Draw(NamedTuple):
    """Rows of three sets of images: with the concept, without it, and others without it."""

    positive: np.ndarray
    negative: np.ndarray
    random: np.ndarray


def _experiments(
    gradients: SpanGradient,
    classifier: ConceptBankClassifier,
    coordinates: Tensor,
    draws: list[_Draw],
    inputs: Tensor,
    targets: Tensor,
) -> tuple[list[float], list[float]]:
    """Return the scores of the concept's and of the random directions, one for each draw."""
    sets: list[list[Concept]] = []
    for i, draw in enumerate(draws):
        positive, negative, random = (
            Concept(3 * i + kind, name, [coordinates[torch.from_numpy(rows)]])
            for kind, (name, rows) in enumerate(draw._asdict().items())
        )
        sets += [[positive, negative], [random, negative]]
    with tempfile.TemporaryDirectory() as folder:
        tcav = TCAV(
            Coordinates(), ["coordinates"], classifier=classifier, layer_attr_method=gradients, save_path=folder
        )
        found = tcav.interpret(inputs, sets, target=targets)
    shares = [float(found[f"{first.id}-{second.id}"]["coordinates"]["sign_count"][0]) for first, second in sets]
    # Captum's shares are in float32; counted again they are exact.
    scores = [round(share * len(inputs)) / len(inputs) for share in shares]
    return scores[::2], scores[1::2]


def _decided(
    scores: tuple[list[float], list[float]], coordinates: Tensor, draws: list[_Draw], rounding: float
) -> tuple[list[float], list[float]]:
    """Return the scores with NaN where the means of a direction's two sets are the same up to rounding."""
    means = [[coordinates[torch.from_numpy(rows)].mean(0) for rows in draw] for draw in draws]
    limit = rounding * float(torch.linalg.vector_norm(coordinates, dim=1).max())

    def checked(values: list[float], kind: int) -> list[float]:
        lengths = [float(torch.linalg.vector_norm(mean[kind] - mean[1])) for mean in means]
        return [value if length > limit else math.nan for value, length in zip(values, lengths, strict=True)]

    return checked(scores[0], 0), checked(scores[1], 2)


def _mean(values: Sequence[float]) -> float:
    """Return the mean of the values that are no NaN; NaN without any."""
    defined = [value for value in values if not math.isnan(value)]
    return float(np.mean(defined)) if defined else math.nan


def _draw(n_positive: int, n_negative: int, n_random: int, n_samples: int, seed: int) -> list[_Draw]:
    draws = []
    for i in range(n_random):
        generator = np.random.default_rng([seed, i])
        positive = generator.permutation(n_positive)[:n_samples]
        others = n_positive + generator.permutation(n_negative)
        draws.append(_Draw(positive, others[:n_samples], others[n_samples : 2 * n_samples]))
    return draws


def _test(scores: list[float], random_scores: list[float], alpha: float) -> LayerScore:
    with warnings.catch_warnings():
        # Scores that are all 0 or all 1 are what a good direction gives; SciPy warns of their variance.
        warnings.simplefilter("ignore", RuntimeWarning)
        p_value = float(stats.ttest_ind(scores, random_scores, equal_var=False, nan_policy="omit").pvalue)
    return LayerScore(
        score=_mean(scores),
        p_value=p_value,
        passed=p_value <= alpha,
        random_mean=_mean(random_scores),
        scores=tuple(scores),
        random_scores=tuple(random_scores),
    )


@contextlib.contextmanager
def _undisturbed(model: nn.Module, device: torch.device, seed: int) -> Iterator[None]:
    """Work in eval mode, with gradients and alone, and leave flags and the global generators as they were."""
    with contextlib.ExitStack() as stack:
        stack.enter_context(alone_with(model))
        stack.enter_context(torch.inference_mode(False))
        stack.enter_context(torch.enable_grad())
        stack.enter_context(evaluation_mode(model))
        # Captum reads activations through a DataLoader, which draws a seed, and libsvm asks NumPy for one.
        stack.enter_context(seeded_generators(device, seed))
        yield


def _check_layers(model: nn.Module, layers: Sequence[str]) -> list[str]:
    if isinstance(layers, str):
        raise TypeError(f"Expected argument `layers` to be a sequence of names but got one: [{layers!r}] is a list.")
    names = list(dict.fromkeys(as_list("layers", layers, "names")))
    if not names:
        raise ValueError("Expected argument `layers` to name at least one layer but it is empty.")
    for name in names:
        if not isinstance(name, str):
            raise TypeError(f"Expected argument `layers` to hold names but got {name!r}.")
        if isinstance(model, torch.jit.ScriptModule) or isinstance(find_layer(model, name), torch.jit.ScriptModule):
            raise ValueError(scripted(f"TCAV at layer {name!r}"))
    return names


def _check_outputs(model: nn.Module, image: Tensor, targets: Tensor) -> None:
    """Raise where the model has no such outputs, before the work is done."""
    with torch.no_grad():
        outputs = tensor_output(model(image), type(model).__name__)
    if outputs.ndim != 2:
        raise ValueError(f"Expected the model to return logits (N, K) but got shape {tuple(outputs.shape)}.")
    check_targets(targets, outputs.shape[1], "target")


def _as_targets(target: int | Tensor, n: int) -> Tensor:
    values = to_tensor("target", target)
    if not is_integral(values):
        raise TypeError(f"Expected argument `target` to hold indices of classes but got {str(values.dtype)[6:]}.")
    if values.ndim == 0:
        values = values.expand(n)
    check_shape("target", values, ("N",), (n,))
    return values.long()
