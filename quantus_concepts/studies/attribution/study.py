"""The study: train models, verify what they ignore, and score methods of attribution by what they give to it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, TypedDict, cast

import numpy as np
import pandas as pd
import torch
from torch import Tensor, nn

from captum_concepts.backbones.layers import find_layer
from quantus_concepts.datasets import ComposedDataset, ObjectsOnScenes
from quantus_concepts.metrics import (
    Limits,
    PatchResult,
    Subject,
    attribute_regions,
    check_premise,
    optimise_patch,
    score_contrasts,
    score_relative,
)
from quantus_concepts.metrics.contrast.scores import contrast_table
from quantus_concepts.painted.training import Augmentation
from quantus_concepts.studies._kit.folder import RunFolder
from quantus_concepts.studies._kit.options import SMALL
from quantus_concepts.studies._kit.results import pick
from quantus_concepts.studies._models.networks import network_builder
from quantus_concepts.studies.attribution.data import CHANGES, AttributionData, load_data
from quantus_concepts.studies.attribution.global_method import score_tcav
from quantus_concepts.studies.attribution.methods import named_methods
from quantus_concepts.studies.attribution.model_training import Job, data_identity, train_models
from quantus_concepts.studies.attribution.settings import Attribution, methods_text

RESULT_COLUMNS = {
    "method": object,
    "metric": object,
    "k": "float64",
    "value": "float64",
    "low": "float64",
    "high": "float64",
    "n": "Int64",
    "undefined": "Int64",
    "reference": "float64",
    "unconverged": "Int64",
    "seed": "Int64",
    "variant": object,
}
#: The paper's k, and the models that are trained with the object in such a share of the scenes.
COMMONALITIES = tuple(k / 10 for k in range(1, 11))
#: What is measured of a model that should ignore a feature, as the table of premises names it.
PREMISES = (
    *("accuracy with", "accuracy without", "remains correct", "accuracy only", "chance"),
    *("median KL same", "median KL changed"),
)
#: Images of a gallery.
N_SHOWN = 3

Models = Mapping[str, nn.Module]
Images = Callable[[list[int]], Tensor]


class Shared(TypedDict):
    """Arguments of every scoring."""

    batch_size: int
    seed: int
    normalise: bool
    display_progressbar: bool


@dataclass(frozen=True)
class Scoring:
    """How methods are scored, and the methods as functions."""

    methods: Mapping[str, Callable[..., np.ndarray]]
    settings: Attribution

    @property
    def common(self) -> Shared:
        """What `score_contrasts` and `score_relative` take."""
        settings = self.settings
        shown, raw = settings.progress, settings.as_printed
        return Shared(batch_size=settings.batch_size, seed=settings.seed, normalise=not raw, display_progressbar=shown)

    @property
    def key(self) -> dict[str, object]:
        """What every score depends on."""
        settings = self.settings
        key = {"methods": methods_text(settings.method_names), **settings.of_methods, "device": str(settings.place)}
        return key | ({"maps": "raw"} if settings.as_printed else {})


class ExplainedImage(NamedTuple):
    """An image, the region that is scored in it, and by method or model a map and its mean inside the region."""

    label: str
    image: np.ndarray
    mask: np.ndarray
    maps: dict[str, tuple[np.ndarray, float]]


class Results(NamedTuple):
    """All that the report shows.

    `frame` are the scores, `premises` what was measured of the models (f_s^k: by k), `checks` the premises of f_o and
    f_s, `layers` the scores of TCAV by model and layer, `details` further settings, `images` MCS, IDR and IIR of each
    image.
    """

    frame: pd.DataFrame
    premises: pd.DataFrame
    checks: pd.DataFrame
    galleries: dict[str, list[ExplainedImage]]
    layers: pd.DataFrame
    details: dict[str, str]
    images: pd.DataFrame


def model_name(commonality: float) -> str:
    """Name the model trained with the object in a share of the scenes."""
    return f"f_s^{commonality:.1f}"


def model_jobs(data: AttributionData, relative: bool) -> list[Job]:
    """Return what is trained: f_o, f_s and f_0, and the f_s^k of the relative contrast."""
    train, bare = data.train, data.train.with_view("0s")
    n_scenes = len(train.scene_names)
    jobs = [
        Job("f_o", train, torch.as_tensor(train.object_labels).long(), len(train.object_names)),
        Job("f_s", train, torch.as_tensor(train.scene_labels).long(), n_scenes),
        Job("f_0", bare, torch.as_tensor(bare.scene_labels).long(), n_scenes),
    ]
    if relative and data.with_common_object is not None:
        for k in COMMONALITIES:
            images = data.with_common_object(k, "train")
            jobs.append(Job(model_name(k), images, torch.as_tensor(images.scene_labels).long(), n_scenes))
    return jobs


def chosen_methods(settings: Attribution) -> dict[str, Callable[..., np.ndarray]]:
    """Build the methods that `--methods` names."""
    return named_methods(settings.method_names, **settings.of_methods, device=settings.place)


def collect(settings: Attribution, folder: RunFolder) -> Results:
    """Train the models, and score every method with them."""
    scoring = Scoring(chosen_methods(settings), settings)
    build = network_builder(
        settings.backbone or SMALL, settings.weights, image_size=settings.size, normalisation=settings.normalised
    )
    if settings.named_layer is not None:
        find_layer(build(2, settings.seed), settings.named_layer)
    data = load_data(settings)
    models = train_models(
        folder,
        model_jobs(data, settings.relative),
        build,
        models=settings.models,
        epochs=settings.epochs,
        batch_size=settings.train_batch_size,
        learning_rate=settings.learning_rate,
        device=settings.place,
        seed=settings.seed,
        augment=Augmentation(shift=settings.size // 16) if settings.augment else None,
        display_progressbar=settings.progress,
    )
    return score_models(folder, data, models, scoring)


def score_models(folder: RunFolder, data: AttributionData, models: Models, scoring: Scoring) -> Results:
    """Score every method with the trained models: MCS, IDR and IIR, and with models f_s^k the relative contrast."""
    settings = scoring.settings
    checks = pd.concat([check_model(data, models[name], name, scoring) for name in ("f_o", "f_s")], ignore_index=True)
    measured = [premise_table(checks)]
    checks = checks[checks["holds"].notna()]
    scores, table, galleries, details = score_absolute(folder, data, models, scoring)
    tables, drops, layers = [table], pd.DataFrame(), pd.DataFrame()
    if settings.robustness and data.changed is not None:
        tables += [score_change(folder, change, data.changed(change), models, scoring) for change in CHANGES]
    if model_name(1.0) in models:
        curves, accuracies, galleries["relative"] = score_commonality(folder, data, models, scoring)
        tables.append(curves)
        measured.append(accuracies)
        drops = pick(accuracies, metric="accuracy drop")
    if settings.tcav:
        try:
            table, layers = score_tcav(
                folder,
                data,
                models,
                drops,
                n_relative=settings.n_relative,
                batch_size=settings.batch_size,
                device=str(settings.place),
                seed=settings.seed,
            )
            tables.append(table)
        except Exception as error:  # a network of the user's own; everything else must not be lost
            folder.note(f"TCAV failed and has no scores: {type(error).__name__}: {error}")
    premises = pd.concat(measured, ignore_index=True).reindex(columns=["model", "metric", "k", "value", "n"])
    return Results(tidy(tables, settings.seed), premises, checks, galleries, layers, details, scores)


def tidy(tables: list[pd.DataFrame], seed: int) -> pd.DataFrame:
    """Join the tables of all parts; the reference of MCS is its random mask, that of IDR chance."""
    frame = pd.concat([table.dropna(axis="columns", how="all") for table in tables if len(table)], ignore_index=True)
    frame = frame.reindex(columns=list(dict.fromkeys([*RESULT_COLUMNS, "control", "chance"])))
    chance = frame["chance"].where(frame["metric"] == "IDR")
    frame = frame.assign(reference=frame["reference"].fillna(frame["control"]).fillna(chance), seed=seed)
    counts = {name: frame[name].fillna(0) for name in ("undefined", "unconverged")}
    variant = frame["variant"].astype(object).where(frame["variant"].notna(), "")
    return frame.assign(**counts, variant=variant)[list(RESULT_COLUMNS)].astype(RESULT_COLUMNS)


def check_model(data: AttributionData, model: nn.Module, name: str, scoring: Scoring) -> pd.DataFrame:
    """Verify that the model of objects ignores the scene, or that of scenes the object."""
    views = {view: data.test.with_view(view).images for view in ("os", "og", "0s")}
    objects, settings = name == "f_o", scoring.settings
    return check_premise(
        model,
        views["os"],
        views["og" if objects else "0s"],
        views["0s" if objects else "og"],
        data.test.object_labels if objects else data.test.scene_labels,
        name=name,
        feature="scene" if objects else "object",
        limits=Limits(settings.max_drop, settings.min_remain, settings.max_above_chance),
        batch_size=settings.batch_size,
        display_progressbar=settings.progress,
    )


def premise_table(checks: pd.DataFrame) -> pd.DataFrame:
    """Return what was measured of each model, a row a number."""
    rows = pick(checks, metric=[*PREMISES])
    order = rows["metric"].map(PREMISES.index).argsort(kind="stable")
    return rows.iloc[order][["model", "metric", "value", "n"]]


def score_absolute(
    folder: RunFolder, data: AttributionData, models: Models, scoring: Scoring
) -> tuple[pd.DataFrame, pd.DataFrame, dict[str, list[ExplainedImage]], dict[str, str]]:
    """Score MCS, IDR and IIR; return the scores of images, the table, the galleries and details of the patches."""
    test, bare = data.test, data.test.with_view("0s").images
    n_images, n_patches = (min(count, len(test)) for count in (scoring.settings.n_images, scoring.settings.n_patches))
    scenes = test.scene_labels[:n_images]
    patches = make_patches(folder, test, models["f_0"], n_patches, scoring)
    f_s = Subject(models["f_s"], test.images, scenes)
    pairs: dict[str, Any] = {
        "MCS": (Subject(models["f_o"], test.images, test.object_labels[:n_images]), f_s),
        "IDR": (f_s, Subject(models["f_s"], bare, scenes)),
        "IIR": (
            Subject(models["f_0"], bare, test.scene_labels[:n_patches]),
            Subject(models["f_0"], patches.images, test.scene_labels[:n_patches]),
        ),
    }

    def score() -> pd.DataFrame:
        return score_contrasts(
            scoring.methods,
            test.masks,
            **{metric.lower(): pair for metric, pair in pairs.items()},
            converged=patches.converged,
            threshold=scoring.settings.threshold,
            per_image=True,
            **scoring.common,
        )

    networks = [models[name] for name in ("f_o", "f_s", "f_0")]
    key = [
        scoring.key,
        networks,
        data_identity(test, test.object_labels),
        n_images,
        n_patches,
        dict(scoring.settings.patch),
    ]
    scores = folder.cached("MCS IDR IIR", [*key, scoring.settings.threshold], score)
    note_undefined(folder, scores)
    distance, size = patches.relative_distance.median(), patches.patch_size.median()
    details = {
        "images explained": f"{n_images} for MCS and IDR, {n_patches} for IIR",
        "patches": f"{int(patches.converged.sum())} of {n_patches} converged; median logit distance "
        f"{100 * distance:.1f} % of the logits' norm, median size {size:.0f} (of pixels from 0 to 255)",
    }
    unconverged = int((~patches.converged).sum())
    table = contrast_table(scores, unconverged, normalise=not scoring.settings.as_printed)
    galleries = {metric: make_gallery(metric, pair, scores, test, scoring) for metric, pair in pairs.items()}
    return scores, table, galleries, details


def make_patches(
    folder: RunFolder, test: ComposedDataset, model: nn.Module, count: int, scoring: Scoring
) -> PatchResult:
    """Optimise patches that do not change what the model of bare scenes answers."""
    rows, settings = list(range(count)), scoring.settings

    def make() -> dict[str, Tensor]:
        result = optimise_patch(
            model,
            test.with_view("0s").images(rows).float() / 255,
            test.masks(rows),
            test.images(rows).float() / 255,
            display_progressbar=settings.progress,
            **settings.patch,
        )
        return result._asdict()

    key = [
        dict(scoring.settings.patch),
        count,
        model,
        data_identity(test, test.scene_labels),
        str(scoring.settings.place),
    ]
    return PatchResult(**folder.cached("patches", key, make))


def score_change(
    folder: RunFolder, change: str, data: ComposedDataset, models: Models, scoring: Scoring
) -> pd.DataFrame:
    """Return MCS of every method on test images of another size or place, the models staying as they are."""
    count = min(scoring.settings.n_images, len(data))
    pair = (
        Subject(models["f_o"], data.images, data.object_labels[:count]),
        Subject(models["f_s"], data.images, data.scene_labels[:count]),
    )
    key = [scoring.key, models["f_o"], models["f_s"], data_identity(data, data.object_labels), count]
    table = folder.cached(
        f"MCS {change}", key, lambda: score_contrasts(scoring.methods, data.masks, mcs=pair, **scoring.common)
    )
    return pick(table, metric="MCS").assign(metric="robustness", variant=change, chance=np.nan, control=np.nan)


def score_commonality(
    folder: RunFolder, data: AttributionData, models: Models, scoring: Scoring
) -> tuple[pd.DataFrame, pd.DataFrame, list[ExplainedImage]]:
    """Explain the target scene with the common object under every f_s^k; return curves, accuracies and a gallery."""
    # Asked for only where the data have a common object.
    test = cast("Callable[[float, str], ObjectsOnScenes]", data.with_common_object)(1.0, "test")
    chosen = torch.nonzero(torch.as_tensor(test.scene_labels == data.target_scene)).flatten()[
        : scoring.settings.n_relative
    ]
    labels, places = test.scene_labels[chosen], chosen.tolist()
    images, bare, masks = (at_places(of, places) for of in (test.images, test.with_view("0s").images, test.masks))
    family = {k: models[model_name(k)] for k in COMMONALITIES}
    key = [scoring.key, [*family.values()], data_identity(test, test.scene_labels), places]
    table = folder.cached(
        "relative MCS",
        key,
        lambda: score_relative(scoring.methods, masks, family, images, bare, labels, **scoring.common),
    )
    for row in table[(table["n"] == 0) & (table["metric"] == "relative MCS")].itertuples():
        folder.note(f"{row.method} has no relative MCS: {row.reason}.")
    # The same image under all models, a line for each method.
    across = {
        f"k = {k:g}": explain_image("", Subject(model, images, labels), 0, masks, scoring)
        for k, model in family.items()
    }
    gallery = [
        ExplainedImage(method, first.image, first.mask, {k: row.maps[method] for k, row in across.items()})
        for first in [next(iter(across.values()))]
        for method in first.maps
        if all(method in row.maps for row in across.values())
    ]
    of_models = table["method"] == ""
    return table[~of_models], table[of_models].assign(model="f_s^k").drop(columns="method"), gallery


def at_places(function: Images, places: Sequence[int]) -> Images:
    """Return a function of rows that count the places."""
    return lambda rows: function([places[row] for row in rows])


def note_undefined(folder: RunFolder, scores: pd.DataFrame) -> None:
    """Note why scores are undefined for some methods and not for all: a failure, NaN, a region without attribution."""
    undefined = scores[scores["score"].isna()]
    shared = undefined.groupby("reason")["method"].nunique() == scores["method"].nunique()
    own = undefined[~undefined["reason"].map(shared).astype(bool)]
    for (method, reason), rows in own.groupby(["method", "reason"], sort=False):
        folder.note(f"{method} has no score in {len(rows)} cases: {reason}.")


#: By metric: the label of each subject's line, for the class of the object and of the scene.
LABELS = {
    "MCS": ("f_o: {object}", "f_s: {scene}"),
    "IDR": ("{scene}, with object", "without object"),
    "IIR": ("{scene}", "with patch"),
}


def make_gallery(
    metric: str, pair: tuple[Subject, Subject], scores: pd.DataFrame, data: ComposedDataset, scoring: Scoring
) -> list[ExplainedImage]:
    """Explain some images that enter a metric: for each a line for each subject."""
    entering = pick(scores, metric=metric).dropna(subset="score")["image"]
    chosen = torch.zeros(len(pair[0])).bool()
    chosen[sorted(set(entering))] = True
    lines = []
    for row in shown_rows(chosen, data.object_labels, data.scene_labels, N_SHOWN):
        classes = {
            "object": data.object_names[int(data.object_labels[row])],
            "scene": data.scene_names[int(data.scene_labels[row])],
        }
        for label, subject in zip(LABELS[metric], pair, strict=True):
            lines.append(explain_image(label.format(**classes), subject, row, data.masks, scoring))
    return lines


def shown_rows(chosen: Tensor, objects: Tensor, scenes: Tensor, count: int) -> list[int]:
    """Return the first images that enter a metric, of different objects and scenes while there are any."""
    rows = torch.nonzero(chosen).flatten().tolist() or list(range(len(chosen)))
    different: list[int] = []
    for row in rows:
        if all(objects[row] != objects[other] and scenes[row] != scenes[other] for other in different):
            different.append(row)
    return sorted([*different, *(row for row in rows if row not in different)][:count])


def explain_image(label: str, subject: Subject, row: int, masks: Images, scoring: Scoring) -> ExplainedImage:
    """Explain one image of a subject with every method that does not fail."""
    image = subject.batch([row])
    alone = Subject(subject.model, image, subject.labels[row : row + 1])
    mask = masks([row])
    results = attribute_regions(scoring.methods, [alone], lambda rows: mask[rows], keep={alone: [0]})
    maps = {
        name: (result.maps[alone][0], float(result.inside[alone][0]))
        for name, result in results.items()
        if not result.failure
    }
    return ExplainedImage(label, image[0].permute(1, 2, 0).clamp(0, 1).numpy(), mask[0, 0].numpy(), maps)
