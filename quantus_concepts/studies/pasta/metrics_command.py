"""The command `quantus-concepts pasta metrics`: the paper's Tables 2, 8, 10 and 11."""

from __future__ import annotations

import time
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import torch
import typer

from captum_concepts.checks import check_range
from captum_concepts.paper_methods import build_methods
from captum_concepts.running import device_of
from captum_concepts.steered_rise import SteeredRISE
from quantus_concepts.datasets.ratings.rated import RatedExplanations
from quantus_concepts.datasets.ratings.released import PastaRatings
from quantus_concepts.metrics.explainer_values import Explainer, metric_values
from quantus_concepts.studies.output import OutputFolder
from quantus_concepts.studies.pasta.metrics_report import MASK_ERROR, SCORE, metrics_study
from quantus_concepts.studies.pasta.options import Options
from quantus_concepts.studies.pasta.seeds import train_seeds
from quantus_concepts.studies.pasta.sensitivity import explanation_frame, mask_error, rated_methods
from quantus_concepts.studies.pasta.sizes import METHODS
from quantus_concepts.studies.pasta.study import write_study
from quantus_concepts.studies.pasta.study_options import DataOption, NImagesOption, StudyOptions
from quantus_concepts.studies.pasta.uses import (
    CORRELATED_THRESHOLDS,
    N_CLASSIFIER,
    bird_masks,
    classifier_birds,
    train_classifier,
)
from quantus_concepts.studies.rating.train_options import MANY
from quantus_concepts.studies.run import warnings_as_notes
from quantus_concepts.studies.run_options import (
    BatchSizeOption,
    DeviceOption,
    OutOption,
    OverwriteOption,
    ProgressOption,
    SeedOption,
)

COMMAND = "pasta-metrics"
RISE = "RISE"


def metrics(
    data: DataOption = None,
    n_images: NImagesOption = StudyOptions.n_images,
    n_explained: Annotated[int, typer.Option(help="Birds whose explanations are rated and measured.")] = 24,
    n_train: Annotated[int, typer.Option(help="Birds that network learns from.")] = N_CLASSIFIER,
    classifier_epochs: Annotated[int, typer.Option(help="Of the small network that is explained.")] = 4,
    n_masks: Annotated[int, typer.Option(help="Masks of RISE.")] = 100,
    n_samples: Annotated[int, typer.Option(help="Draws of noise behind each MaxSensitivity.")] = 5,
    device: DeviceOption = StudyOptions.device,
    batch_size: BatchSizeOption = StudyOptions.batch_size,
    seed: SeedOption = StudyOptions.seed,
    out: OutOption = None,
    overwrite: OverwriteOption = False,
    progress: ProgressOption = True,
) -> None:
    """Votes on explanations beside other measures of them: robustness, sparseness, marked pixels (Tables 2, 8, 10, 11).

    With no option: methods that explain a small network, rated by simulated raters. With --data: the votes of a folder
    by explainer, and the sparseness of its maps; the rest would need the networks that were explained.
    """
    options = StudyOptions(
        data=data,
        n_images=n_images,
        device=device,
        batch_size=batch_size,
        seed=seed,
        out=out,
        overwrite=overwrite,
        progress=progress,
    )
    check_range("--n-samples", n_samples, 1, MANY)
    check_range("--n-train", n_train, 2, MANY)
    explained = Options(
        image_size=64,
        n_explained=n_explained,
        classifier_epochs=classifier_epochs,
        n_masks=n_masks,
        device=device,
        seed=seed,
        progress=False,
    )
    typer.echo(run_metrics(options, explained, n_samples, n_train))


def run_metrics(options: StudyOptions, explained: Options, n_samples: int, n_train: int = N_CLASSIFIER) -> Path:
    """Run the study, print its tables, and return the folder written."""
    started = time.monotonic()
    with OutputFolder(COMMAND, options.out, overwrite=options.overwrite) as folder:
        with warnings_as_notes() as notes:
            if options.data is None:
                ratings, values, more = _of_methods(options, explained, n_samples, n_train)
            else:
                # Sparseness is of maps, not of drawings of them.
                ratings, more = PastaRatings(options.data, drawings=False), {}
                values = metric_values(ratings, display_progressbar=options.progress)
            frame = explanation_frame(ratings, values | more)
        settings = options.shown(time=f"{time.monotonic() - started:.0f} s")
        study = metrics_study(frame, ratings, list(values), settings, [*ratings.notes, *notes], options.seed)
        write_study(folder, study)
    return folder.path


def _of_methods(
    options: StudyOptions, explained: Options, n_samples: int, n_train: int
) -> tuple[RatedExplanations, dict[str, np.ndarray], dict[str, np.ndarray]]:
    """Return rated explanations of a network, what metrics say of them, and what score and masks say."""
    options.say("Training the network that is explained")
    of = train_classifier(explained, classifier_birds(explained, n_train))
    masks = bird_masks(explained)
    rise = partial(_rise, n_masks=explained.n_masks, seed=explained.seed)
    methods: dict[str, Any] = {RISE: rise, **build_methods(METHODS, seed=explained.seed)}
    options.say("Explaining and rating")
    ratings = rated_methods(of, masks, methods, options.seed)
    options.say("Measuring")
    values = metric_values(
        ratings,
        {name: Explainer(of.model, explain) for name, explain in methods.items()},
        thresholds=CORRELATED_THRESHOLDS,
        n_samples=n_samples,
        batch_size=options.batch_size,
        seed=options.seed,
        display_progressbar=options.progress,
    )
    options.say("Training a scorer")
    graded, embedder = options.ratings(), options.embedder()
    plan = replace(options.plan(graded), n_seeds=1, control=False, progress=False)
    scorer = train_seeds(graded, embedder.embed(graded.explanations).cpu(), plan).best.training.scorer
    scores = scorer.score(embedder.embed(ratings.explanations).cpu(), ratings.labels.tolist())
    return ratings, values, {SCORE: scores[:, 0].cpu().numpy(), MASK_ERROR: mask_error(ratings, masks)}


def _rise(model: torch.nn.Module, inputs: Any, targets: Any, n_masks: int, seed: int, **quantus: Any) -> np.ndarray:
    """Explain by RISE: the steered one without a score."""
    device = device_of(model)
    images, classes = torch.as_tensor(inputs, device=device), torch.as_tensor(targets, device=device)
    found = SteeredRISE(model).attribute(images, classes, lam=0, n_masks=n_masks, cells=5, seed=seed)
    return found.cpu().numpy()
