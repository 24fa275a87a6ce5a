"""TCAV, a global method, under the model contrast score: one number for a model, from all images together."""

from __future__ import annotations

import math
from functools import partial

import pandas as pd
import torch
from torch import Tensor, nn

from captum_concepts import TCAVScore, tcav_contrast, tcav_score
from quantus_concepts.datasets import ComposedDataset
from quantus_concepts.datasets.scenes.objects_on_scenes import PAPER_OBJECT, PAPER_SCENE, find_class
from quantus_concepts.studies._kit.results import pick
from quantus_concepts.studies._kit.run import Run
from quantus_concepts.studies.attribution.data import AttributionData
from quantus_concepts.studies.attribution.evaluation import COMMONALITIES, Models, model_name
from quantus_concepts.studies.attribution.options import AttributionOptions

TCAV = "TCAV"
#: As the paper: images with the concept and images without it for each direction.
N_CONCEPT, N_INPUTS = 100, 100


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
    run: Run[AttributionOptions], data: AttributionData, models: Models, premises: pd.DataFrame
) -> pd.DataFrame:
    """Score the common object for f_o and f_s, and for the f_s^k where they were trained."""
    options, test = run.options, data.test
    common, target = _common(data, options)
    concept = _images(data.train, data.train.object_labels == common, N_CONCEPT)
    bare = data.train.with_view("0s")
    negatives = _images(bare, torch.ones(len(bare), dtype=torch.bool), 3 * N_CONCEPT)
    with_object = _images(test, test.object_labels == common, N_INPUTS)
    in_scene = _images(test, test.scene_labels == target, N_INPUTS)
    # Every direction takes as many images without the concept, twice, as with it.
    n_samples = min(len(concept), len(negatives) // 2)
    if n_samples < 2:
        run.settings[TCAV] = (
            f"left out: a direction needs 2 training images with {test.object_names[common]} and 4 bare scenes but "
            f"there are {len(concept)} and {len(negatives)}"
        )
        return pd.DataFrame()
    score = partial(_score, run, models, concept, negatives, n_samples)
    contrast = tcav_contrast(score("f_o", with_object, common), score("f_s", in_scene, target))
    count = min(len(with_object), len(in_scene))
    rows = [
        _row("MCS", contrast.score, count, reference=contrast.baseline),
        _row("MCS baseline", contrast.baseline, count),
    ]
    drops = pick(premises, metric="accuracy drop")
    if len(drops) and data.at_commonality is not None:
        both = data.at_commonality(1.0, "test")
        together = _images(both, both.scene_labels == target, options.n_relative)
        *rarer, always = [score(model_name(k), together, target) for k in COMMONALITIES]
        curve = torch.tensor([tcav_contrast(rare, always).score for rare in rarer]).double()
        rows += [
            _row("relative MCS", value, len(together), k=k)
            for k, value in zip(COMMONALITIES[:-1], curve.tolist(), strict=True)
        ]
        defined = ~curve.isnan()
        lost = torch.tensor(drops.loc[drops["k"] < 1, "value"].tolist()).double()
        pearson = math.nan
        if defined.sum() > 2:
            pearson = float(torch.corrcoef(torch.stack([curve[defined], lost[defined]]))[0, 1])
        rows.append(_row("correlation", pearson, int(defined.sum())) | {"n": int(defined.sum())})
    return pd.DataFrame(rows)


def _score(
    run: Run[AttributionOptions],
    models: Models,
    concept: Tensor,
    negatives: Tensor,
    n_samples: int,
    name: str,
    images: Tensor,
    label: int,
) -> TCAVScore:
    device = run.options.torch_device()
    score = tcav_score(
        models[name],
        tcav_layers(models[name], images[:2].to(device)),
        concept,
        negatives,
        images,
        label,
        n_samples=n_samples,
        batch_size=run.options.batch_size,
        device=device,
        seed=run.options.seed,
    )
    layers = [f"{layer} {tested.score:.2f} (p = {tested.p_value:.2g})" for layer, tested in score.layers.items()]
    run.settings[f"TCAV of {name}"] = "; ".join(layers)
    return score


def _row(metric: str, value: float, n: int, **columns: float) -> dict[str, object]:
    return {"method": TCAV, "metric": metric, "value": value, "n": 0 if math.isnan(value) else n, **columns}


def _common(data: AttributionData, options: AttributionOptions) -> tuple[int, int]:
    """Return the common object and the target scene, by number."""
    if data.at_commonality is not None:
        composed = data.at_commonality(1.0, "test")
        if composed.common_object is not None and composed.target_scene is not None:
            return composed.common_object, composed.target_scene
    return (
        find_class("common_object", options.common_object, data.test.object_names, PAPER_OBJECT),
        find_class("target_scene", options.target_scene, data.test.scene_names, PAPER_SCENE),
    )


def _images(data: ComposedDataset, chosen: Tensor, count: int) -> Tensor:
    """Return the first of the wanted images, in [0, 1]; classes take turns in these data."""
    return data.images(torch.nonzero(chosen).flatten()[:count].tolist()).float() / 255
