"""Faithfulness of explainers on an ImageNet network, each compared with random maps of its own grain.

python docs/examples/real_faithfulness.py photographs 20 black
python docs/examples/real_faithfulness.py photographs 8 black,uniform,gaussian,road LIME,SHAP

The photographs are named INDEX_name.jpg, by the index of their class. The names at the end select explainers; the
random maps are always there.
"""

import sys
import warnings
from collections.abc import Callable
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np
import pandas as pd
import torch
from imagenet_network import MEAN, STD, load_photographs, model
from torch.nn.functional import interpolate

from captum_concepts import SteeredRISE, build_methods, explain_func
from quantus_concepts import Faithfulness
from quantus_concepts.functional import interval
from quantus_concepts.studies.attribution.methods import method_from_spec

BLACK = -1.0  # as MEAN = STD = 0.5
#: The random map of the same grain: pixels, 8 x 8 squares, or 7 x 7 cells enlarged bilinearly.
GRAIN = {
    "vanilla gradient": "random",
    "SmoothGrad": "random",
    "integrated gradients": "random",
    "gradient x input": "random",
    "Sobel edges": "random",
    "Occlusion": "random squares",
    "LIME": "random squares",
    "SHAP": "random squares",
    "Grad-CAM": "random cells",
    "RISE": "random cells",
    "centred Gaussian": "random cells",
    "norm of the features": "random cells",
}


def random_maps(cells: int, mode: str) -> Callable[..., np.ndarray]:
    """Return an explanation function that draws maps of cells."""

    def explain(model: Any, inputs: np.ndarray, **settings: Any) -> np.ndarray:
        draw = torch.rand(
            len(inputs), 1, cells, cells, generator=torch.Generator().manual_seed(0)
        )
        return interpolate(draw, inputs.shape[2:], mode=mode).numpy()

    return explain


def centred_gaussian(model: Any, inputs: np.ndarray, **settings: Any) -> np.ndarray:
    """Return the same map (N, 1, H, W) for all images: a Gaussian in the middle."""
    side = np.linspace(-1, 1, inputs.shape[2])
    bell = np.exp(-2 * (side[:, None] ** 2 + side**2))
    return np.broadcast_to(bell, (len(inputs), 1, *bell.shape)).astype(np.float32)


def feature_norm(model: Any, inputs: np.ndarray, **settings: Any) -> np.ndarray:
    """Return the norm of the last feature maps at each pixel (N, 1, H, W)."""
    with torch.no_grad():
        norm = model[0](torch.as_tensor(inputs)).norm(dim=1, keepdim=True)
    return interpolate(norm, inputs.shape[2:], mode="bilinear").numpy()


def explainers() -> dict[str, Callable[..., Any]]:
    """Return the explainers and the baselines by name."""
    names = [
        "Grad-CAM",
        "vanilla gradient",
        "SmoothGrad",
        "integrated gradients",
        "gradient x input",
    ]
    by_name: dict[str, Callable[..., Any]] = {
        "random": build_methods(["random"])["random"],
        "random squares": random_maps(8, "nearest"),
        "random cells": random_maps(7, "bilinear"),
    }
    settings = {"baseline": BLACK, "batch_size": 16}
    by_name |= build_methods(names, n_samples=10, n_steps=16, **settings)
    for name, spec in {
        "Occlusion": "Occlusion",
        "LIME": "Lime",
        "SHAP": "KernelShap",
    }.items():
        by_name[name] = method_from_spec(spec, **settings)
    by_name["RISE"] = explain_func(
        SteeredRISE, channels="sum", batch_size=16, lam=0.0, n_masks=100
    )
    by_name |= {
        "centred Gaussian": centred_gaussian,
        "norm of the features": feature_norm,
    }
    return by_name | build_methods(["Sobel edges"])


def mean_with_interval(scores: np.ndarray) -> str:
    """Return the mean and its 95 % interval as text."""
    low, high = interval(scores, (-1.0, 1.0))
    return f"{np.nanmean(scores):.2f} ({low:.2f} to {high:.2f})"


def table(scores: dict[str, Faithfulness]) -> pd.DataFrame:
    """Return a row an explainer; differences are paired by photograph."""
    values = {
        name: np.array(metric.evaluation_scores) for name, metric in scores.items()
    }
    rows = {}
    for name, explainer_scores in values.items():
        grain = GRAIN.get(name, "random")
        rows[name] = {
            "F": mean_with_interval(explainer_scores),
            "minus the random map": mean_with_interval(
                explainer_scores - values["random"]
            ),
            "minus a random map of its grain": mean_with_interval(
                explainer_scores - values[grain]
            ),
            "its grain": grain,
            "sufficiency": np.nanmean(scores[name].sufficiency).round(2),
            "necessity": np.nanmean(scores[name].necessity).round(2),
            "undefined": int(np.isnan(explainer_scores).sum()),
        }
    return pd.DataFrame(rows).T


def main(folder: str, n_images: str, perturbations: str, names: str = "") -> None:
    """Print a table for each perturbation."""
    torch.set_num_threads(1)
    network = model()
    files = sorted(Path(folder).glob("*.jpg"))
    images = load_photographs(files)
    with torch.no_grad():
        predicted = torch.cat([network(batch).argmax(1) for batch in images.split(32)])
    labels = torch.tensor([int(path.name.split("_")[0]) for path in files])
    print(
        f"right on {100 * (predicted == labels).float().mean():.0f} % of {len(files)}"
    )
    rows = torch.linspace(0, len(files) - 1, int(n_images)).long()
    x, y = images[rows].numpy(), predicted[rows].numpy()
    maps = {}
    for name, explain in explainers().items():
        if names and name not in ("random", *GRAIN.values(), *names.split(",")):
            continue
        start = perf_counter()
        maps[name] = explain(model=network, inputs=x, targets=y)
        print(f"{name}: {perf_counter() - start:.0f} s", flush=True)
    for perturbation in perturbations.split(","):
        scores = {}
        for name, a_batch in maps.items():
            metric = Faithfulness(perturbation, thresholds=(10, 30), mean=MEAN, std=STD)
            metric(network, x, y, a_batch=a_batch, batch_size=16)
            scores[name] = metric
        print(f"\n{perturbation}\n{table(scores).to_string()}", flush=True)


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    main(*sys.argv[1:])
