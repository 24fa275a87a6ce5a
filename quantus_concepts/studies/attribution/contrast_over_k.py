"""Relative model contrast: the f_s^k, their accuracy drops, and the curve of every method."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from quantus_concepts.functional import mcs, relative_contrast
from quantus_concepts.studies.attribution.collect import ExplainFunc, Subject, collect
from quantus_concepts.studies.attribution.data import AttributionData
from quantus_concepts.studies.attribution.family import Job
from quantus_concepts.studies.attribution.options import Options
from quantus_concepts.studies.attribution.premises import CommonalityRow
from quantus_concepts.studies.attribution.results import Record
from quantus_concepts.studies.picture_grids import PictureGrid, PictureRow

#: The paper's k.
COMMONALITIES = tuple(k / 10 for k in range(1, 11))


@dataclass
class RelativeOutcome:
    """What the family says."""

    records: list[Record]
    commonality: list[CommonalityRow]
    sheet: PictureGrid
    notes: list[str]


def model_name(commonality: float) -> str:
    """Name the model trained with the object in a share of the scenes."""
    return f"f_s^{commonality:.1f}"


def family_jobs(data: AttributionData) -> list[Job]:
    """Return what has to be trained for the relative contrast."""
    if data.at_commonality is None:
        raise ValueError("The relative contrast needs images composed with a common feature.")
    images = {k: data.at_commonality(k, "train") for k in COMMONALITIES}
    return [Job(model_name(k), images[k], "scene", len(data.train.scene_names)) for k in COMMONALITIES]


def contrast_over_k(
    models: Mapping[str, nn.Module], methods: Mapping[str, ExplainFunc], data: AttributionData, options: Options
) -> RelativeOutcome:
    """Explain the target scene with the common object under every model of the family."""
    if data.at_commonality is None:
        raise ValueError("The relative contrast needs images composed with a common feature.")
    test = data.at_commonality(1.0, "test")
    in_target = torch.as_tensor(test.scene_labels == test.target_scene)
    chosen = torch.nonzero(in_target).flatten()[: options.n_relative].tolist()
    labels = test.scene_labels[chosen]
    bare = test.with_view("0s")

    def subject(k: float, view: object) -> Subject:
        source = bare if view == "0s" else test
        return Subject(models[model_name(k)], lambda rows: source.images([chosen[row] for row in rows]), labels)

    subjects = {model_name(k): subject(k, "os") for k in COMMONALITIES}
    right_with = torch.stack([subjects[model_name(k)].correct(options.batch_size) for k in COMMONALITIES])
    right_without = torch.stack([subject(k, "0s").correct(options.batch_size) for k in COMMONALITIES])
    commonality = [
        CommonalityRow(k, float(with_.double().mean()), float(without.double().mean()), len(chosen))
        for k, with_, without in zip(COMMONALITIES, right_with, right_without, strict=True)
    ]
    shown = _row_to_show(right_with)
    found = collect(
        methods,
        subjects,
        lambda rows: test.masks([chosen[row] for row in rows]),
        keep={name: [shown] for name in subjects},
        batch_size=options.batch_size,
        display_progressbar=options.progress,
    )
    records = []
    for method, attributed in found.items():
        last = attributed.inside[model_name(1.0)]
        scores = torch.stack(
            [
                mcs(attributed.inside[model_name(k)], last).masked_fill(~(right & right_with[-1]), torch.nan)
                for k, right in zip(COMMONALITIES[:-1], right_with[:-1], strict=True)
            ]
        )
        records += _records(method, scores, right_with[:-1], right_without[:-1], options.seed)
    image = test.images([chosen[shown]])[0].permute(1, 2, 0).numpy() / 255
    mask = test.masks([chosen[shown]])[0, 0].numpy()
    lines = [
        PictureRow(
            method,
            image,
            [attributed.maps[name][0] for name in subjects],
            mask,
            [float(attributed.inside[name][shown]) for name in subjects],
        )
        for method, attributed in found.items()
        if not attributed.failure
    ]
    sheet = PictureGrid(
        "relative",
        [f"k = {k:g}" for k in COMMONALITIES],
        lines,
        "One image under models trained with the object in a share k of the scenes: from left to right the object "
        "should matter less (as the paper's Figure 6).",
    )
    notes = [f"{method} failed and has no scores: {each.failure}" for method, each in found.items() if each.failure]
    return RelativeOutcome(records, commonality, sheet, notes)


def _row_to_show(right: Tensor) -> int:
    """Return the first image that as many models as possible classify correctly."""
    return int(right.double().sum(0).argmax())


def _records(method: str, scores: Tensor, right_with: Tensor, right_without: Tensor, seed: int) -> list[Record]:
    result = relative_contrast(scores, right_with, right_without, seed=seed)
    defined = (~scores.isnan()).sum(1).tolist()
    count = scores.shape[1]
    # An image is what the bootstrap of the correlation draws.
    n_images = int((~scores.isnan()).any(0).sum())
    records = [
        Record(
            method=method,
            metric="relative MCS",
            k=k,
            value=float(value),
            low=float(low),
            high=float(high),
            n=n,
            undefined=count - n,
            seed=seed,
        )
        for k, value, low, high, n in zip(COMMONALITIES[:-1], *result.score, defined, strict=True)
    ]
    value, low, high = (float(number) for number in result.correlation)
    correlation = Record(
        method=method,
        metric="correlation",
        value=value,
        low=low,
        high=high,
        n=n_images,
        undefined=count - n_images,
        seed=seed,
    )
    return [*records, correlation]
