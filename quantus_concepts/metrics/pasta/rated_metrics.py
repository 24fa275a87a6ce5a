"""Metrics of rated explanations: of the map alone, and of the map with its classifier."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from quantus.metrics.robustness.max_sensitivity import MaxSensitivity
from torch import Tensor, nn
from torch.utils.data import DataLoader

from captum_concepts._support.checks import check_mapping, check_normalisation
from captum_concepts._support.constraints import (
    POSITIVE,
    Dictionary,
    Flag,
    Function,
    ImageSize,
    Instance,
    Module,
    Seed,
    Whole,
    check_arguments,
)
from captum_concepts._support.progress import progress
from captum_concepts._support.running import evaluation_mode, predict_logits, warn_user
from captum_concepts._support.shown import one_line
from quantus_concepts.datasets.ratings.explanations import LazyExplanations, MapExplanation
from quantus_concepts.datasets.ratings.rated import RatedExplanations
from quantus_concepts.functional.faithfulness import PERCENTAGES
from quantus_concepts.functional.overlay import resize
from quantus_concepts.metrics.faithfulness import THRESHOLDS, Faithfulness
from quantus_concepts.metrics.faithfulness import generator_of
from quantus_concepts.metrics.host.model import shared_passes
from quantus_concepts.pasta.applications.correlations import sparseness
from quantus_concepts.pasta.encoders.encoder import Denormalisation

SPARSENESS = "Sparseness"
#: From the name in tables to `Faithfulness`'s perturbation, in the order of the paper's Table 7.
FAITHFULNESS = {
    "Faithfulness (ROAD)": "road",
    "Faithfulness (black)": "black",
    "Faithfulness (uniform)": "uniform",
    "Faithfulness (Gaussian)": "gaussian",
}
#: The same for Quantus's `MaxSensitivity`, Table 8.
SENSITIVITY = {"MaxSensitivity (uniform)": "uniform", "MaxSensitivity (Gaussian)": "gaussian"}


@check_arguments(model=Module(), explain_func=Function(), size=ImageSize())
@dataclass(frozen=True)
class Explainer:
    """Explainer of one explainer id: a classifier and, where it is known, the method.

    Parameters
    ----------
    model : nn.Module
        Classifier, from (N, 3, H, W) to logits (N, K).
    explain_func : callable, optional
        ``explain_func(model=, inputs=, targets=, **explain_func_kwargs)`` with arrays, as of Quantus; without it there
        is no sensitivity.
    explain_func_kwargs : mapping
        Its keyword arguments.
    mean, std : sequence of float, optional
        Normalisation of images in [0, 1] before they go into the model, a number for each channel.
    size : tuple of int, optional
        (H, W) that images and maps are resized to before; as they are if None.

    Raises
    ------
    TypeError
        If `model` is no module, or an argument of the wrong kind.
    ValueError
        If only one of `mean` and `std` is given, they are no numbers for channels, or `size` is none.
    """

    model: nn.Module
    explain_func: Callable[..., Any] | None = None
    explain_func_kwargs: Mapping[str, Any] = field(default_factory=dict)
    mean: Sequence[float] | None = None
    std: Sequence[float] | None = None
    size: tuple[int, int] | None = None

    def __repr__(self) -> str:
        return one_line(self)

    def __post_init__(self) -> None:
        check_mapping("explain_func_kwargs", self.explain_func_kwargs)
        check_normalisation(self.mean, self.std)

    def inputs(self, explanations: Sequence[MapExplanation]) -> tuple[Tensor, Tensor]:
        """Return what goes into the model, and maps of its size.

        Parameters
        ----------
        explanations : sequence of MapExplanation
            n of them, with images of one size unless this has a `size`.

        Returns
        -------
        tuple of Tensor
            (n, 3, H, W) normalised images and (n, H, W) maps.
        """
        size = self.size or _size(explanations[0])
        images = torch.cat([resize(explanation.image.float()[None], size) for explanation in explanations])
        maps = torch.cat([resize(explanation.map.float()[None, None], size)[:, 0] for explanation in explanations])
        return Denormalisation(self.mean, self.std).renormalise(images), maps

    @property
    def scale(self) -> np.ndarray:
        """(3, 1, 1) or (1, 1, 1): distance from black to white in the model's images."""
        return 1 / np.asarray([1.0] if self.std is None else self.std, dtype=float)[:, None, None]


@check_arguments(
    ratings=Instance(RatedExplanations, "RatedExplanations"),
    explainers=Dictionary(),
    thresholds=PERCENTAGES,
    noise=POSITIVE,
    n_samples=Whole(1),
    batch_size=Whole(1),
    num_workers=Whole(),
    seed=Seed(),
    display_progressbar=Flag(),
)
def metric_values(
    ratings: RatedExplanations,
    explainers: Mapping[str, Explainer] | None = None,
    *,
    thresholds: Sequence[int] = THRESHOLDS,
    noise: float = 0.2,
    n_samples: int = 10,
    batch_size: int = 64,
    num_workers: int = 0,
    seed: int = 0,
    display_progressbar: bool = False,
) -> dict[str, np.ndarray]:
    """Return what the metrics of the paper's Tables 7 to 9 say of rated explanations.

    Kazmierczak et al., Appendix B.2: `Sparseness` of the map alone; where classifier and method are given too,
    `Faithfulness` of the map under four perturbations, and Quantus's `MaxSensitivity` of the method under two kinds of
    noise on the whole image. Both are for the class that the model predicts. The paper gives neither thresholds nor
    strengths. Quantus divides the sensitivity by the norm of the explanation, the paper's Eq. 6 does not; as it
    says that it used Quantus, this does as Quantus.

    Parameters
    ----------
    ratings : RatedExplanations
        N explanations with their images.
    explainers : mapping of str to Explainer, optional
        By explainer id; those without one have NaN.
    thresholds : sequence of int
        Thresholds of `Faithfulness`.
    noise : float
        Half the width of uniform noise and standard deviation of Gaussian noise, as a share of the range from black to
        white; for `Faithfulness` and `MaxSensitivity`. Imputation keeps the noise of ROAD.
    n_samples : int
        Draws that the maximum of `MaxSensitivity` is over; each is one explanation.
    batch_size : int
        Explanations evaluated at a time, and images the model sees at a time. No value depends on it.
    num_workers : int
        Processes that read explanations while those before are evaluated, as in `torch.utils.data.DataLoader`.
    seed : int
        Random seed of all noise. No global generator is touched.
    display_progressbar : bool
        Whether to show progress.

    Returns
    -------
    dict of str to np.ndarray
        (N,) of each metric, NaN for concepts and drawings and where it is undefined: "Sparseness" and, with
        `explainers`, the names in `FAITHFULNESS` and `SENSITIVITY`.

    Raises
    ------
    TypeError
        If an explainer is no `Explainer`, or `ratings` are none.
    ValueError
        If an explainer is not in the ratings, or a setting is out of range.

    Warns
    -----
    UserWarning
        If an explanation method fails, whose sensitivity is NaN, or there are drawings.
    """
    explainers = explainers or {}
    _check_explainers(explainers, set(ratings.explainer_ids.tolist()))
    n_drawings = int((ratings.modalities == "drawing").sum())
    if n_drawings:
        warn_user(
            f"No metric is defined of {n_drawings} of {len(ratings)} explanations, which are drawings: read their "
            'maps, with PastaRatings(..., modality="map").'
        )
    values = {SPARSENESS: sparseness(ratings.explanations, display_progressbar)}
    if not explainers:
        return values
    values |= {name: np.full(len(ratings), np.nan) for name in (*FAITHFULNESS, *SENSITIVITY)}
    for name, explainer in explainers.items():
        rows = np.flatnonzero((ratings.explainer_ids == name) & (ratings.modalities == "map"))
        measure = _Measure(explainer, tuple(thresholds), noise, n_samples, batch_size, seed)
        loader: DataLoader[Any] = DataLoader(
            LazyExplanations(ratings.explanations.__getitem__, rows.tolist()),  # type: ignore[arg-type]
            batch_size,
            num_workers=num_workers,
            collate_fn=list,
            # Without a generator the loader draws from the global one.
            generator=torch.Generator(),
        )
        done = 0
        for explanations in progress(loader, name, show=display_progressbar, leave=True):
            chosen = rows[done : done + len(explanations)]
            done += len(explanations)
            for group in _group_by_size(explanations, explainer):
                of_one_size = [explanations[index] for index in group]
                for metric, scores in measure(of_one_size).items():
                    values[metric][chosen[group]] = scores
        if measure.failures:
            warn_user(f"MaxSensitivity is NaN where explainer {name!r} failed: {'; '.join(sorted(measure.failures))}.")
    return values


@dataclass
class _Measure:
    """Metrics of explanations of one explainer, with images of one size."""

    explainer: Explainer
    thresholds: tuple[int, ...]
    noise: float
    n_samples: int
    batch_size: int
    seed: int
    failures: set[str] = field(default_factory=set)

    def __post_init__(self) -> None:
        explainer = self.explainer
        units = {"pixel_range": (0.0, 1.0)} if explainer.mean is None else {}
        self.faithfulness = {
            name: Faithfulness(
                kind,
                thresholds=self.thresholds,
                noise=self.noise if kind in ("uniform", "gaussian") else None,
                mean=explainer.mean,
                std=explainer.std,
                chunk_size=self.batch_size,
                seed=self.seed,
                disable_warnings=True,
                **units,  # type: ignore[arg-type]
            )
            for name, kind in FAITHFULNESS.items()
        }

    def __call__(self, explanations: Sequence[Any]) -> dict[str, np.ndarray]:
        images, maps = self.explainer.inputs(explanations)
        x, a = images.numpy(), maps.numpy()
        with evaluation_mode(self.explainer.model), shared_passes():
            y = predict_logits(self.explainer.model, images).argmax(1).cpu().numpy()
            values = {
                name: np.asarray(metric(self.explainer.model, x, y, a, channel_first=True, batch_size=len(x)))
                for name, metric in self.faithfulness.items()
            }
            if self.explainer.explain_func is not None:
                for name, kind in SENSITIVITY.items():
                    values[name] = self._sensitivity(kind, x, y)
        return values

    def _sensitivity(self, kind: str, x: np.ndarray, y: np.ndarray) -> np.ndarray:
        perturb = _Noise(kind, self.noise * self.explainer.scale, self.seed, x.shape[1:])
        metric = MaxSensitivity(nr_samples=self.n_samples, perturb_func=perturb, normalise=False, disable_warnings=True)
        try:
            with np.errstate(invalid="ignore", divide="ignore"):
                scores = metric(
                    model=self.explainer.model,
                    x_batch=x,
                    y_batch=y,
                    channel_first=True,
                    explain_func=self.explainer.explain_func,
                    explain_func_kwargs=dict(self.explainer.explain_func_kwargs),
                    batch_size=len(x),
                )
        except Exception as error:
            # One method that fails must not cost the values of all others.
            self.failures.add(f"{type(error).__name__}: {error}")
            return np.full(len(x), np.nan)
        sensitivity = np.asarray(scores, dtype=float)
        return np.where(np.isfinite(sensitivity), sensitivity, np.nan)


class _Noise:
    """Perturbation function for Quantus: noise that depends on seed, image and how many draws came before."""

    def __init__(self, kind: str, width: np.ndarray, seed: int, shape: tuple[int, ...]) -> None:
        self.kind, self.width, self.seed, self.shape, self.draws = kind, width, seed, shape, 0

    def __call__(self, arr: np.ndarray, indices: Any = None, **kwargs: Any) -> np.ndarray:
        noises = []
        for row in arr:
            rng = generator_of(row, self.seed, self.draws)
            unit = rng.uniform(-1, 1, self.shape) if self.kind == "uniform" else rng.standard_normal(self.shape)
            noises.append((self.width * unit).ravel())
        self.draws += 1
        return (arr + np.stack(noises)).astype(arr.dtype)


def _check_explainers(explainers: Mapping[str, Explainer], explainer_ids: set[str]) -> None:
    for name, explainer in explainers.items():
        if not isinstance(explainer, Explainer):
            raise TypeError(
                f"Expected argument `explainers` to hold an Explainer under {name!r} but got "
                f"{type(explainer).__name__}. Explainer(model, explain_func) makes one."
            )
        if name not in explainer_ids:
            near = difflib.get_close_matches(name, sorted(explainer_ids), n=3)
            instead = f"There are {sorted(explainer_ids)[:10]}."
            hint = f" Did you mean {' or '.join(map(repr, near))}?" if near else f" {instead}"
            raise ValueError(f"Expected the keys of argument `explainers` to be explainer ids but got {name!r}.{hint}")


def _group_by_size(explanations: Sequence[MapExplanation], explainer: Explainer) -> list[np.ndarray]:
    """Return indices of explanations that the model can see together."""
    groups: dict[tuple[int, int], list[int]] = {}
    for index, explanation in enumerate(explanations):
        groups.setdefault(explainer.size or _size(explanation), []).append(index)
    return [np.array(group) for group in groups.values()]


def _size(explanation: MapExplanation) -> tuple[int, int]:
    return explanation.image.shape[-2], explanation.image.shape[-1]
