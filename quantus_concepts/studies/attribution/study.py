"""The study: train models, verify what they ignore, and score methods of attribution by what they give to it."""

from __future__ import annotations

import shutil
from functools import partial
from pathlib import Path

import pandas as pd
import typer
from torch import nn

from captum_concepts.backbones.layers import find_layer
from quantus_concepts.metrics import PremiseCheck, check_premise
from quantus_concepts.studies._kit.command import named_as_typed
from quantus_concepts.studies._kit.run import Run, Study
from quantus_concepts.studies._models.networks import network_builder
from quantus_concepts.studies._models.training import Augmentation
from quantus_concepts.studies.attribution.data import AttributionData, load_data
from quantus_concepts.studies.attribution.evaluation import (
    COMMONALITIES,
    model_name,
    requested_layer,
    requested_methods,
    score_absolute,
    score_commonality,
    score_robustness,
)
from quantus_concepts.studies.attribution.global_method import score_tcav
from quantus_concepts.studies.attribution.model_training import Job, data_identity, train_models
from quantus_concepts.studies.attribution.options import AttributionOptions
from quantus_concepts.studies.attribution.report import PREMISES, page

COLUMNS = {
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
#: Subfolder of the results with the trained models, which another run takes with --models.
MODELS = "models"
#: Kept files of f_o, f_s, f_0 and the f_s^k, not of patches and explanations.
MODEL_FILES = "f_*"


@named_as_typed(AttributionOptions, method="--methods")
def collect(options: AttributionOptions, run: Run[AttributionOptions]) -> pd.DataFrame:
    """Return a row for each number of each method; what was checked of the models goes into premises.csv."""
    methods = requested_methods(options)
    data = load_data(options)
    run.settings |= data.settings | {"methods": ", ".join(methods)}
    models = trained_models(run, data)
    if options.models is None:
        for path in sorted(run.folder.kept.glob(MODEL_FILES)):
            run.files[f"{MODELS}/{path.name}"] = partial(shutil.copyfile, path)
    run.say("Verifying the ground truth")
    checks = [check_model(options, data, models[name], name) for name in ("f_o", "f_s")]
    for check in checks:
        run.say(f"{check.model}: {check.accuracy_with:.1%} right, {'' if check.verified else 'not '}verified")
    measured = [premise_table(checks)]
    tables = [score_absolute(run, data, models, methods)]
    if options.robustness and data.changed is not None:
        run.say("Other sizes and places")
        tables.append(score_robustness(run, data.changed, models, methods))
    if options.relative:
        run.say("Relative contrast")
        curves, accuracies = score_commonality(run, data, models, methods)
        tables.append(curves)
        measured.append(accuracies)
    premises = pd.concat(measured, ignore_index=True).reindex(columns=["model", "metric", "k", "value", "n"])
    if options.tcav:
        run.say("TCAV")
        try:
            score = partial(score_tcav, run, data, models, premises)
            depends = {"models": models, "images": data_identity(data.test, data.test.scene_labels)}
            tables.append(run.kept_frame("TCAV", depends, score))
        except Exception as error:  # a network of the user's own; everything else must not be lost
            run.note(f"TCAV failed and has no scores: {type(error).__name__}: {error}")
    run.frames["premises"] = premises
    run.facts |= {"checks": checks, "paper": data.paper}
    return tidy(tables, options.seed)


def tidy(tables: list[pd.DataFrame], seed: int) -> pd.DataFrame:
    """Join the tables of all parts; the reference of MCS is its random mask, that of IDR chance."""
    frame = pd.concat([table.dropna(axis="columns", how="all") for table in tables if len(table)], ignore_index=True)
    frame = frame.reindex(columns=list(dict.fromkeys([*COLUMNS, "control", "chance"])))
    chance = frame["chance"].where(frame["metric"] == "IDR")
    frame = frame.assign(reference=frame["reference"].fillna(frame["control"]).fillna(chance), seed=seed)
    counts = {name: frame[name].fillna(0) for name in ("undefined", "unconverged")}
    variant = frame["variant"].astype(object).where(frame["variant"].notna(), "")
    return frame.assign(**counts, variant=variant)[list(COLUMNS)].astype(COLUMNS)


def trained_models(run: Run[AttributionOptions], data: AttributionData) -> dict[str, nn.Module]:
    """Train f_o, f_s and f_0, and the f_s^k if requested, or take those of an interrupted run."""
    options = run.options
    jobs = [
        Job("f_o", data.train, "object", len(data.train.object_names)),
        Job("f_s", data.train, "scene", len(data.train.scene_names)),
        Job("f_0", data.train.with_view("0s"), "scene", len(data.train.scene_names)),
    ]
    if options.relative:
        n_scenes = len(data.train.scene_names)
        jobs += [Job(model_name(k), data.with_common_object(k, "train"), "scene", n_scenes) for k in COMMONALITIES]
    build = network_builder(
        options.backbone_name,
        options.weights,
        image_size=data.train.image_size,
        normalisation=options.normalisation,
    )
    if (layer := requested_layer(options)) is not None:
        find_layer(build(2, options.seed), layer)
    if options.models is not None:
        make_folder(options.models)
    run.say(f"Training {len(jobs)} models")
    try:
        return train_models(
            jobs,
            build,
            folder=options.models or _models_of_run(run),
            epochs=options.epochs,
            batch_size=options.train_batch_size,
            learning_rate=options.learning_rate,
            device=options.torch_device(),
            seed=options.seed,
            augment=Augmentation(shift=data.train.image_size // 16) if options.augment else None,
            display_progressbar=options.progress,
        )
    except KeyboardInterrupt:
        if options.models is not None:
            typer.echo(f"What was trained is kept: go on with the same --models {options.models}.", err=True)
        raise


def make_folder(models: Path) -> None:
    """Make the folder of trained models, or raise, before anything is trained for it."""
    try:
        models.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ValueError(
            f"Expected argument `--models` to name a folder that can be made but {models} cannot ({error.strerror})."
        ) from error


def _models_of_run(run: Run[AttributionOptions]) -> Path:
    """Return the folder of the models in training, with those of an earlier run; at the end they become its results."""
    folder = run.folder.kept
    for path in (run.folder.path / MODELS).glob("*"):
        if path.is_file() and not (folder / path.name).exists():
            shutil.copyfile(path, folder / path.name)
    return folder


def check_model(options: AttributionOptions, data: AttributionData, model: nn.Module, name: str) -> PremiseCheck:
    """Verify that the model of objects ignores the scene, or that of scenes the object."""
    views = {view: data.test.with_view(view).images for view in ("os", "og", "0s")}
    objects = name == "f_o"
    return check_premise(
        model,
        views["os"],
        views["og" if objects else "0s"],
        views["0s" if objects else "og"],
        data.test.object_labels if objects else data.test.scene_labels,
        name=name,
        feature="scene" if objects else "object",
        limits=options.limits,
        batch_size=options.batch_size,
        display_progressbar=options.progress,
    )


def premise_table(checks: list[PremiseCheck]) -> pd.DataFrame:
    """Return what was measured of each model, a row a number."""
    names = {metric: metric.lower().replace(" ", "_") for metric in PREMISES}
    rows = [(of.model, metric, getattr(of, name), of.n) for metric, name in names.items() for of in checks]
    return pd.DataFrame(rows, columns=["model", "metric", "value", "n"])


STUDY = Study("attribution", collect, page)
