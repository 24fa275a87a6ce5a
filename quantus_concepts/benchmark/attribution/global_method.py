"""TCAV, a global method, under the model contrast score: one number for a model, from all images together."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import torch
from torch import Tensor, nn

from captum_concepts import TCAVScore, tcav_contrast, tcav_score
from quantus_concepts.benchmark.attribution.contrast_over_k import COMMONALITIES, model_name
from quantus_concepts.benchmark.attribution.data import AttributionData
from quantus_concepts.benchmark.attribution.options import Options
from quantus_concepts.benchmark.attribution.premises import CommonalityRow
from quantus_concepts.benchmark.attribution.results import TCAV, Record
from quantus_concepts.datasets import ComposedDataset

#: As the paper: images with the concept and images without it for each direction.
N_CONCEPT, N_INPUTS = 100, 100


def tcav_layers(model: nn.Module, images: Tensor) -> list[str]:
    """Choose layers as the paper does: the blocks, and the logits.

    Parameters
    ----------
    model : nn.Module
        A classifier.
    images : Tensor
        (n, 3, H, W), to see what each module returns.

    Returns
    -------
    list of str
        The last module of each spatial resolution, and the last linear one.
    """
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


def tcav_records(
    models: Mapping[str, nn.Module],
    data: AttributionData,
    commonality: Sequence[CommonalityRow],
    options: Options,
) -> tuple[list[Record], list[str]]:
    """Score the common object for f_o and f_s, and for the family where it was trained.

    Parameters
    ----------
    models : mapping of str to nn.Module
        "f_o", "f_s", and "f_s^0.1" ... "f_s^1.0" where there are.
    data : AttributionData
        Images: those with the object are the concept, bare scenes are not.
    commonality : sequence of CommonalityRow
        Accuracy drops of the family.
    options : Options
        Of the run.

    Returns
    -------
    list of Record
        MCS with the difference for random directions as the reference; relative MCS and correlation.
    list of str
        Notes: layers that passed, or why there is no score.
    """
    test = data.test
    common, target = _common(data, options)
    concept = _images(data.train, torch.nonzero(data.train.object_labels == common).flatten()[:N_CONCEPT])
    negatives = _spread(data.train.with_view("0s"), 3 * N_CONCEPT)
    with_object = torch.nonzero(test.object_labels == common).flatten()[:N_INPUTS]
    in_scene = torch.nonzero(test.scene_labels == target).flatten()[:N_INPUTS]
    if len(concept) < 2 or len(negatives) < 2 * len(concept):
        return [], [f"No TCAV: only {len(concept)} images show the common object."]
    notes = []

    def score(name: str, inputs: Tensor, label: int) -> TCAVScore:
        images = _images(test, inputs)
        device = options.torch_device()
        result = tcav_score(
            models[name],
            tcav_layers(models[name], images[:2].to(device)),
            concept,
            negatives,
            images,
            label,
            n_samples=len(concept),
            batch_size=options.batch_size,
            device=device,
            seed=options.seed,
        )
        layers = [f"{layer} {found.score:.2f} (p = {found.p_value:.2g})" for layer, found in result.layers.items()]
        notes.append(f"TCAV of {name}: {'; '.join(layers)}.")
        return result

    contrast = tcav_contrast(score("f_o", with_object, common), score("f_s", in_scene, target))
    count = min(len(with_object), len(in_scene))
    records = [
        Record(
            method=TCAV,
            metric="MCS",
            value=contrast.score,
            n=count if not math.isnan(contrast.score) else 0,
            reference=contrast.baseline,
            seed=options.seed,
        )
    ]
    if not commonality:
        return records, notes
    both = torch.nonzero((test.scene_labels == target) & (test.object_labels == common)).flatten()
    both = both if len(both) else in_scene
    scores = {k: score(model_name(k), both, target) for k in COMMONALITIES}
    curve = torch.tensor([tcav_contrast(scores[k], scores[1.0]).score for k in COMMONALITIES[:-1]]).double()
    drops = torch.tensor([row.drop for row in commonality if row.k < 1]).double()
    records += [
        Record(method=TCAV, metric="relative MCS", k=k, value=float(value), n=len(both), seed=options.seed)
        for k, value in zip(COMMONALITIES[:-1], curve, strict=True)
    ]
    defined = ~curve.isnan()
    pearson = (
        float(torch.corrcoef(torch.stack([curve[defined], drops[defined]]))[0, 1]) if defined.sum() > 2 else math.nan
    )
    records.append(Record(method=TCAV, metric="correlation", value=pearson, n=int(defined.sum()), seed=options.seed))
    return records, notes


def _common(data: AttributionData, options: Options) -> tuple[int, int]:
    """Return the common object and the target scene, by number."""
    if data.at_commonality is not None:
        composed = data.at_commonality(1.0, "test")
        if composed.common_object is not None and composed.target_scene is not None:
            return composed.common_object, composed.target_scene
    names = (data.test.object_names, data.test.scene_names)
    wanted = (options.common_object or "dog", options.target_scene or "bedroom")
    common, target = (found.index(name) if name in found else 0 for found, name in zip(names, wanted, strict=True))
    return common, target


def _images(data: ComposedDataset, rows: Tensor) -> Tensor:
    return data.images(rows.tolist()).float() / 255


def _spread(data: ComposedDataset, count: int) -> Tensor:
    """Return images from all over a data set, whatever the order of its classes."""
    rows = torch.linspace(0, len(data) - 1, min(count, len(data))).long().unique()
    return _images(data, rows)
