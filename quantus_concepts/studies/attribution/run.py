"""One run of `benchmark attribution`: data, models, premises, patches, explanations, report."""

from __future__ import annotations

import dataclasses
import time
from dataclasses import dataclass, field
from pathlib import Path

import typer
from torch import nn

from captum_concepts import method_from_spec
from captum_concepts.layers import find_layer
from captum_concepts.paper_methods import CONTROL_METHODS, METHOD_NAMES, PAPER_METHODS
from quantus_concepts.metrics.patch_optimisation import PatchResult, optimise_patch
from quantus_concepts.studies.attribution.augmentation import Augmentation
from quantus_concepts.studies.attribution.checking import check_model
from quantus_concepts.studies.attribution.collect import ExplainFunc, Subject, collect
from quantus_concepts.studies.attribution.contrast_over_k import contrast_over_k, family_jobs
from quantus_concepts.studies.attribution.data import AttributionData, load_data
from quantus_concepts.studies.attribution.family import Job, train_family
from quantus_concepts.studies.attribution.global_method import tcav_records
from quantus_concepts.studies.attribution.networks import network_builder
from quantus_concepts.studies.attribution.options import Options
from quantus_concepts.studies.attribution.plot import default_figures
from quantus_concepts.studies.attribution.premises import CommonalityRow, PremiseCheck
from quantus_concepts.studies.attribution.records import (
    BARE_MODEL,
    BARE_MODEL_PATCHED,
    OBJECT_MODEL,
    SCENE_MODEL,
    SCENE_MODEL_BARE,
    Defined,
    random_regions,
    score_records,
)
from quantus_concepts.studies.attribution.report import write_report
from quantus_concepts.studies.attribution.results import Record
from quantus_concepts.studies.attribution.robustness import robustness_records
from quantus_concepts.studies.attribution.robustness_page import plot_robustness
from quantus_concepts.studies.attribution.saliency import CONTRAST, DEPENDENCE, INDEPENDENCE, lay_out, rows_to_show
from quantus_concepts.studies.attribution.samples import Target
from quantus_concepts.studies.attribution.tables import main_table
from quantus_concepts.studies.charts import save_figures
from quantus_concepts.studies.networks import SMALL, said_normalisation
from quantus_concepts.studies.option_values import option_name
from quantus_concepts.studies.output import OutputFolder
from quantus_concepts.studies.page import versions
from quantus_concepts.studies.picture_grids import PictureGrid, plot_grid
from quantus_concepts.studies.records import to_frame
from quantus_concepts.studies.report_tables import terminal
from quantus_concepts.studies.run import warnings_as_notes

#: Rows of each saliency sheet, in images.
N_SHOWN = 3
#: What a network that was not built here is called within its model.
LOADED = "network"
#: Models whose premises are checked, with the labels they learn.
LEARNS: dict[str, Target] = {"f_o": "object", "f_s": "scene"}


@dataclass
class Outcome:
    """What a run has found, before it is written down."""

    records: list[Record] = field(default_factory=list)
    premises: list[PremiseCheck] = field(default_factory=list)
    commonality: list[CommonalityRow] = field(default_factory=list)
    sheets: list[PictureGrid] = field(default_factory=list)
    settings: dict[str, str] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    paper: bool = False


def run(options: Options) -> Path:
    """Run the benchmark, print the main table, and write the folder of results."""
    started = time.monotonic()
    with OutputFolder("attribution", options.out, overwrite=options.overwrite) as folder:
        models = options.models or folder.path / "models"
        try:
            with warnings_as_notes() as warned:
                outcome = evaluate(options, models)
        except KeyboardInterrupt:
            if models.is_dir() and any(models.iterdir()):
                typer.echo(f"What was trained is kept: go on with --models {models} and another --out.", err=True)
            raise
        outcome.notes += [note for note in warned if note not in outcome.notes]
        outcome.settings["time"] = f"{time.monotonic() - started:.0f} s"
        figures = default_figures(outcome.records, outcome.commonality, threshold=options.threshold)
        if options.robustness:
            figures["robustness"] = plot_robustness(outcome.records)[0]
        sheets = {f"sheet_{sheet.name}": plot_grid(sheet)[0] for sheet in outcome.sheets}
        with folder.file("results.csv") as path:
            to_frame(outcome.records, Record).to_csv(path, index=False)
        save_figures(folder, figures | sheets)
        with folder.file("report.html") as path:
            write_report(
                path,
                title=f"Attribution benchmark: {outcome.settings['data']}",
                records=outcome.records,
                premises=outcome.premises,
                commonality=outcome.commonality,
                figures=figures,
                sheets=sheets,
                sheet_captions={f"sheet_{sheet.name}": sheet.caption for sheet in outcome.sheets},
                settings=outcome.settings,
                notes=outcome.notes,
                versions=versions(),
                paper=outcome.paper,
            )
        for note in outcome.notes:
            typer.echo(f"Note: {note}", err=True)
        console = terminal()
        console.print(main_table(outcome.records, outcome.premises, console.width, outcome.commonality))
        for check in outcome.premises:
            for premise in check.premises:
                if not premise.holds:
                    console.print(f"Not verified: {premise.sentence}", highlight=False)
    return folder.path


def evaluate(options: Options, models_folder: Path) -> Outcome:
    """Train the models, verify them, make patches, and score every method; only models are written.

    Parameters
    ----------
    options : Options
        What is asked for.
    models_folder : Path
        Where trained models are kept, and looked for.

    Returns
    -------
    Outcome
        Records, premises, sheets, settings and notes.
    """
    methods = build_methods_asked_for(options)
    data = load_data(options)
    outcome = Outcome(settings=_settings(options) | data.settings, notes=list(data.notes), paper=data.paper)
    outcome.settings["methods"] = ", ".join(methods)
    models = _train(options, data, models_folder)
    _say(options, "Verifying the ground truth")
    outcome.premises = [
        check_model(
            models[name],
            name,
            data.test,
            target,
            limits=options.limits,
            batch_size=options.batch_size,
            display_progressbar=options.progress,
        )
        for name, target in LEARNS.items()
    ]
    _absolute(options, data, models, methods, outcome)
    if options.robustness and data.changed is not None:
        _say(options, "Other sizes and places")
        outcome.records += robustness_records(models, methods, data.changed, options)
    if options.relative:
        _say(options, "Relative contrast")
        relative = contrast_over_k(models, methods, data, options)
        outcome.records += relative.records
        outcome.commonality = relative.commonality
        outcome.sheets.append(relative.sheet)
        outcome.notes += [note for note in relative.notes if note not in outcome.notes]
    if options.tcav:
        _say(options, "TCAV")
        try:
            records, details = tcav_records(models, data, outcome.commonality, options)
            outcome.records += records
            outcome.settings |= details
        except Exception as error:  # a network of the user's own; everything else must not be lost
            outcome.notes.append(f"TCAV failed and has no scores: {type(error).__name__}: {error}")
    return outcome


def build_methods_asked_for(options: Options) -> dict[str, ExplainFunc]:
    """Return the methods of `--methods`, or those of the paper and the controls."""
    asked_for = options.method_names
    known = {name.lower(): name for name in METHOD_NAMES}
    asked_for = [*PAPER_METHODS] if asked_for is None else [known.get(name.lower(), name) for name in asked_for]
    names = [*asked_for, *CONTROL_METHODS]
    return {
        name: method_from_spec(
            name,
            layer=_layer(options),
            n_samples=options.n_samples,
            n_steps=options.n_steps,
            noise=options.noise,
            batch_size=options.batch_size,
            device=options.torch_device(),
            seed=options.seed,
        )
        for name in dict.fromkeys(names)
    }


def _layer(options: Options) -> str | None:
    """Return the layer by its name in the networks that are trained: loaded ones have a normalisation in front."""
    if options.layer is None or options.backbone == SMALL or options.layer.startswith(f"{LOADED}."):
        return options.layer
    return f"{LOADED}.{options.layer}"


def _train(options: Options, data: AttributionData, folder: Path) -> dict[str, nn.Module]:
    jobs = [
        Job("f_o", data.train, "object", len(data.train.object_names)),
        Job("f_s", data.train, "scene", len(data.train.scene_names)),
        Job("f_0", data.train.with_view("0s"), "scene", len(data.train.scene_names)),
    ]
    if options.relative:
        jobs += family_jobs(data)
    said = said_normalisation(options.mean, options.std, options.unnormalised)
    build = network_builder(options.backbone, options.weights, image_size=data.train.image_size, normalisation=said)
    if (layer := _layer(options)) is not None:
        find_layer(build(2, options.seed), layer)
    _say(options, f"Training {len(jobs)} models")
    return train_family(
        jobs,
        build,
        folder=folder,
        epochs=options.epochs,
        batch_size=options.train_batch_size,
        learning_rate=options.learning_rate,
        device=options.torch_device(),
        seed=options.seed,
        augment=Augmentation(shift=data.train.image_size // 16) if options.augment else None,
        display_progressbar=options.progress,
    )


def _absolute(
    options: Options,
    data: AttributionData,
    models: dict[str, nn.Module],
    methods: dict[str, ExplainFunc],
    outcome: Outcome,
) -> None:
    """Score MCS, IDR and IIR, and lay out their saliency sheets."""
    test, bare = data.test, data.test.with_view("0s")
    n_images, n_patches = (min(count, len(test)) for count in (options.n_images, options.n_patches))
    objects, scenes = test.object_labels[:n_images], test.scene_labels[:n_images]
    patches = _patches(options, data, models["f_0"], n_patches)
    outcome.settings |= _patch_settings(patches, options)
    subjects = {
        OBJECT_MODEL: Subject(models["f_o"], test.images, objects),
        SCENE_MODEL: Subject(models["f_s"], test.images, scenes),
        SCENE_MODEL_BARE: Subject(models["f_s"], bare.images, scenes),
        BARE_MODEL: Subject(models["f_0"], bare.images, scenes[:n_patches]),
        BARE_MODEL_PATCHED: Subject(models["f_0"], lambda rows: patches.images[rows], scenes[:n_patches]),
    }
    right = {name: subject.correct(options.batch_size) for name, subject in subjects.items()}
    defined = Defined(
        contrast=right[OBJECT_MODEL] & right[SCENE_MODEL],
        dependence=right[SCENE_MODEL] & right[SCENE_MODEL_BARE],
        independence=right[BARE_MODEL] & right[BARE_MODEL_PATCHED],
        converged=patches.converged.cpu(),
    )
    both = defined.contrast & defined.dependence
    shown = rows_to_show(both if both.any() else defined.contrast | defined.dependence, objects, scenes, N_SHOWN)
    independent = defined.independence & defined.converged
    shown_patched = rows_to_show(independent, objects[:n_patches], scenes[:n_patches], N_SHOWN)
    elsewhere = random_regions(test.masks, n_images, options.seed)
    _say(options, "Explaining")
    attributed = collect(
        methods,
        subjects,
        test.masks,
        elsewhere={OBJECT_MODEL: elsewhere, SCENE_MODEL: elsewhere},
        keep={OBJECT_MODEL: shown, SCENE_MODEL: shown, SCENE_MODEL_BARE: shown}
        | {BARE_MODEL: shown_patched, BARE_MODEL_PATCHED: shown_patched},
        batch_size=options.batch_size,
        display_progressbar=options.progress,
    )
    outcome.notes += [
        f"{method} failed and has no scores: {found.failure}" for method, found in attributed.items() if found.failure
    ]
    outcome.records += score_records(attributed, defined, threshold=options.threshold, seed=options.seed)
    outcome.settings["images explained"] = f"{n_images} for MCS and IDR, {n_patches} for IIR"
    outcome.sheets += [
        lay_out(CONTRAST, attributed, subjects, shown, test),
        lay_out(DEPENDENCE, attributed, subjects, shown, test),
        lay_out(INDEPENDENCE, attributed, subjects, shown_patched, test),
    ]
    entered = (defined.contrast[shown], defined.dependence[shown], independent[shown_patched])
    for sheet, enters in zip(outcome.sheets, entered, strict=True):
        if not enters.any():
            sheet.caption += f" None of these images enters {sheet.name.upper()}: there were no better ones to show."


def _patches(options: Options, data: AttributionData, model: nn.Module, count: int) -> PatchResult:
    rows = list(range(count))
    _say(options, f"Optimising {count} patches")
    result = optimise_patch(
        model,
        data.test.with_view("0s").images(rows).float() / 255,
        data.test.masks(rows),
        data.test.images(rows).float() / 255,
        steps=options.patch_steps,
        step_size=options.patch_step_size,
        eta1=options.patch_eta1,
        tolerance=options.tolerance,
        display_progressbar=options.progress,
    )
    return PatchResult(*(part.cpu() for part in result))


def _patch_settings(patches: PatchResult, options: Options) -> dict[str, str]:
    distance, size = patches.relative_distance.median(), patches.patch_size.median()
    converged = f"{int(patches.converged.sum())} of {len(patches.converged)} converged"
    return {
        "patches": f"{converged} in {options.patch_steps} steps; median logit distance {100 * distance:.1f} % of the "
        f"logits' norm, median size {size:.0f} (of pixels from 0 to 255); step size {options.patch_step_size:g}, eta1 "
        f"{options.patch_eta1:g}"
    }


def _settings(options: Options) -> dict[str, str]:
    left_out = ("progress", "overwrite", "models", "out")
    chosen = {
        option_name(field.name).removeprefix("--").replace("-", " "): str(value)
        for field in dataclasses.fields(options)
        if (value := getattr(options, field.name)) is not None and field.name not in left_out
    }
    return chosen | {"device": str(options.torch_device())}


def _say(options: Options, text: str) -> None:
    if options.progress:
        typer.echo(text, err=True)
