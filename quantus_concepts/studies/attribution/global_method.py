"""TCAV, a global method, under the model contrast score: one number for a model, from all images together."""

from __future__ import annotations

import math
from collections.abc import Mapping

import pandas as pd
import torch
from torch import Tensor, nn

from captum_concepts import TCAVScore, tcav_contrast, tcav_score
from quantus_concepts.datasets import ComposedDataset
from quantus_concepts.studies._kit.folder import RunFolder
from quantus_concepts.studies.attribution.data import AttributionData
from quantus_concepts.studies.attribution.model_training import data_identity

TCAV = "TCAV"
#: As the paper: images with the concept and images without it for each direction.
N_CONCEPT, N_INPUTS = 100, 100
#: The row of a model's score over its layers, in the column of layers.
ALL_LAYERS = "all that passed"


def tcav_layers(model: nn.Module, images: Tensor) -> list[str]:
    """Choose layers as the paper does: the blocks, and the logits."""
    sizes: dict[tuple[int, ...], str] = {}
    last_linear = ""

    def remember(name: str, output: object) -> None:
        nonlocal last_linear
        if isinstance(output, Tensor) and output.ndim == 4:
            sizes[tuple(output.shape[2:])] = name
        elif isinstance(output, Tensor) and output.ndim == 2:
            last_linear = name

    handles = [
        module.register_forward_hook(lambda _module, _inputs, output, name=name: remember(name, output))
        for name, module in model.named_modules()
        if name and not list(module.children())
    ]
    try:
        with torch.no_grad():
            model(images)
    finally:
        for handle in handles:
            handle.remove()
    # Pooled to a single place there is nothing that the logits do not show.
    spatial = [name for size, name in sizes.items() if math.prod(size) > 1]
    return [*spatial, *([last_linear] if last_linear else [])]


def score_tcav(
    folder: RunFolder,
    data: AttributionData,
    models: Mapping[str, nn.Module],
    drops: pd.DataFrame,
    *,
    n_relative: int,
    batch_size: int,
    device: str,
    seed: int,
) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Score the common object for f_o and f_s, and for the f_s^k, whose accuracy drops are rows with k.

    Returns rows of the results, and the score of each layer of each model.
    """
    test, common, target = data.test, data.common_object, data.target_scene
    concept = _images(data.train, data.train.object_labels == common, N_CONCEPT)
    bare = data.train.with_view("0s")
    negatives = _images(bare, torch.ones(len(bare), dtype=torch.bool), 3 * N_CONCEPT)
    # Every direction takes as many images without the concept, twice, as with it.
    n_samples = min(len(concept), len(negatives) // 2)
    if n_samples < 2:
        folder.note(
            f"{TCAV} is left out: a direction needs 2 training images with {test.object_names[common]} and 4 bare "
            f"scenes but there are {len(concept)} and {len(negatives)}."
        )
        return pd.DataFrame(), pd.DataFrame()
    layers = []
    settings = {"batch_size": batch_size, "device": device, "seed": seed}

    def score(name: str, images: Tensor, label: int) -> TCAVScore:
        def make() -> pd.DataFrame:
            model = models[name]
            scored = tcav_score(
                model,
                tcav_layers(model, images[:2].to(device)),
                concept,
                negatives,
                images,
                label,
                n_samples=n_samples,
                batch_size=batch_size,
                device=device,
                seed=seed,
            )
            rows = [(ALL_LAYERS, scored.score, scored.random_mean, math.nan)]
            rows += [(layer, of.score, of.random_mean, of.p_value) for layer, of in scored.layers.items()]
            return pd.DataFrame(rows, columns=["layer", "value", "random concepts", "p"])

        trained_on = data_identity(data.train, data.train.object_labels)
        key = [models[name], trained_on, images, common, label, settings]
        table = folder.cached(f"{TCAV} of {name}", key, make)
        layers.append(table.assign(model=name))
        return TCAVScore(float(table["value"].iloc[0]), float(table["random concepts"].iloc[0]), {})

    with_object = _images(test, test.object_labels == common, N_INPUTS)
    in_scene = _images(test, test.scene_labels == target, N_INPUTS)
    contrast = tcav_contrast(score("f_o", with_object, common), score("f_s", in_scene, target))
    count = min(len(with_object), len(in_scene))
    rows = [
        _row("MCS", contrast.score, count, reference=contrast.baseline),
        _row("MCS baseline", contrast.baseline, count),
    ]
    if len(drops) and data.with_common_object is not None:
        both = data.with_common_object(1.0, "test")
        together = _images(both, both.scene_labels == target, n_relative)
        *rarer, always = [score(f"f_s^{k:.1f}", together, target) for k in drops["k"]]
        curve = torch.tensor([tcav_contrast(rare, always).score for rare in rarer]).double()
        rows += [
            _row("relative MCS", value, len(together), k=k)
            for k, value in zip(drops["k"][:-1], curve.tolist(), strict=True)
        ]
        defined = ~curve.isnan()
        lost = torch.tensor(drops["value"][:-1].tolist()).double()
        pearson = math.nan
        if defined.sum() > 2:
            pearson = float(torch.corrcoef(torch.stack([curve[defined], lost[defined]]))[0, 1])
        rows.append(_row("correlation", pearson, int(defined.sum())) | {"n": int(defined.sum())})
    return pd.DataFrame(rows), pd.concat(layers, ignore_index=True)


def _row(metric: str, value: float, n: int, **columns: float) -> dict[str, object]:
    return {"method": TCAV, "metric": metric, "value": value, "n": 0 if math.isnan(value) else n, **columns}


def _images(data: ComposedDataset, chosen: Tensor, count: int) -> Tensor:
    """Return the first of the wanted images, in [0, 1]; classes take turns in these data."""
    return data.images(torch.nonzero(chosen).flatten()[:count].tolist()).float() / 255
