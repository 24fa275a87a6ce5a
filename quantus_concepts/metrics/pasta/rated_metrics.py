"""Metrics of rated maps with their classifier: Tables 7 and 8 of the PASTA paper."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from quantus.metrics.robustness.max_sensitivity import MaxSensitivity
from torch import Tensor, nn

from captum_concepts.support.running import evaluation_mode, predict_logits, warn_user
from quantus_concepts.metrics.faithfulness import THRESHOLDS, Faithfulness, generator_of
from quantus_concepts.metrics.host.checks import check_outputs
from quantus_concepts.metrics.host.model import shared_passes
from quantus_concepts.pasta.encoders.encoder import Denormalisation
from quantus_concepts.pasta.encoders.overlay import resize

#: From the name in tables to `Faithfulness`'s perturbation, in the order of the paper's Table 7.
FAITHFULNESS = {
    "Faithfulness (ROAD)": "road",
    "Faithfulness (black)": "black",
    "Faithfulness (uniform)": "uniform",
    "Faithfulness (Gaussian)": "gaussian",
}
#: The same for Quantus's `MaxSensitivity`, Table 8.
SENSITIVITY = {"MaxSensitivity (uniform)": "uniform", "MaxSensitivity (Gaussian)": "gaussian"}


def measure_maps(
    model: nn.Module,
    images: Tensor,
    maps: Tensor,
    explain_func: Callable[..., Any] | None = None,
    explain_func_kwargs: Mapping[str, Any] | None = None,
    *,
    mean: Sequence[float] | None = None,
    std: Sequence[float] | None = None,
    thresholds: Sequence[int] = THRESHOLDS,
    noise: float = 0.2,
    n_samples: int = 10,
    batch_size: int = 64,
    seed: int = 0,
) -> dict[str, np.ndarray]:
    """Return `Faithfulness` of maps (N, h, w) of images (N, 3, H, W) in [0, 1], and the sensitivity of their method.

    All are of the class that the model predicts, (N,) each, by the names in `FAITHFULNESS` and, with an `explain_func`,
    `SENSITIVITY`; NaN with a warning where the method fails. `mean` and `std` normalise the images for the model.
    Noise is a share of the range from black to white; imputation keeps the noise of ROAD. The paper gives neither
    thresholds nor strengths. Quantus divides the sensitivity by the norm of the explanation, the paper's Eq. 6 does
    not; as it says that it used Quantus, this does as Quantus.
    """
    units: dict[str, Any] = {"pixel_range": (0.0, 1.0)} if mean is None else {"mean": mean, "std": std}
    strength = {"uniform": noise, "gaussian": noise}
    shared: dict[str, Any] = {"thresholds": thresholds, "chunk_size": batch_size, "seed": seed, **units}
    faithfulness = {
        name: Faithfulness(kind, noise=strength.get(kind), disable_warnings=True, **shared)
        for name, kind in FAITHFULNESS.items()
    }
    normalisation = Denormalisation(mean, std)
    scale = noise * (1 / np.asarray([1.0] if std is None else std, dtype=float)[:, None, None])
    failures: set[str] = set()
    parts = []
    for start in range(0, len(images), batch_size):
        rows = slice(start, start + batch_size)
        x = normalisation.renormalise(images[rows].float()).numpy()
        a = resize(maps[rows].float()[:, None], (x.shape[2], x.shape[3]))[:, 0].numpy()
        with evaluation_mode(model), shared_passes():
            y = check_outputs(predict_logits(model, x), len(x)).argmax(1).cpu().numpy()
            values = {
                name: np.asarray(metric(model, x, y, a, channel_first=True, batch_size=len(x)))
                for name, metric in faithfulness.items()
            }
            for name, kind in SENSITIVITY.items() if explain_func is not None else ():
                perturb = _Noise(kind, scale, seed, x.shape[1:])
                metric = MaxSensitivity(
                    nr_samples=n_samples, perturb_func=perturb, normalise=False, disable_warnings=True
                )
                explain: dict[str, Any] = {
                    "explain_func": explain_func,
                    "explain_func_kwargs": dict(explain_func_kwargs or {}),
                }
                try:
                    with np.errstate(invalid="ignore", divide="ignore"):
                        scores = metric(model, x, y, channel_first=True, batch_size=len(x), **explain)
                    sensitivity = np.asarray(scores, dtype=float)
                    values[name] = np.where(np.isfinite(sensitivity), sensitivity, np.nan)
                except Exception as error:
                    # One method that fails must not cost the values of all others.
                    failures.add(f"{type(error).__name__}: {error}")
                    values[name] = np.full(len(x), np.nan)
        parts.append(values)
    if failures:
        warn_user(f"MaxSensitivity is NaN where the method failed: {'; '.join(sorted(failures))}.")
    return {name: np.concatenate([values[name] for values in parts]) for name in parts[0]}


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
