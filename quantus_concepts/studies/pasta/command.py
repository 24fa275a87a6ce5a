"""The command `quantus-concepts benchmark pasta`."""

from __future__ import annotations

from typing import Annotated

import typer

from quantus_concepts.studies.pasta.options import Options
from quantus_concepts.studies.pasta.run import run
from quantus_concepts.studies.run_options import (
    BatchSizeOption,
    DeviceOption,
    OutOption,
    OverwriteOption,
    ProgressOption,
    SeedOption,
)

DATA_HELP = "Painted birds and simulated raters"
TRAINING_HELP = "Training"
USES_HELP = "What the score is used for"


def pasta(
    n_images: Annotated[
        int, typer.Option(help="Painted birds whose explanations are rated.", rich_help_panel=DATA_HELP)
    ] = Options.n_images,
    n_per_image: Annotated[
        int, typer.Option(help="Explanations of each that are rated.", rich_help_panel=DATA_HELP)
    ] = Options.n_per_image,
    image_size: Annotated[
        int, typer.Option(help="Height and width in pixels.", rich_help_panel=DATA_HELP)
    ] = Options.image_size,
    question: Annotated[
        str, typer.Option(help="Q1 to Q6, some with commas, or all in one training.", rich_help_panel=TRAINING_HELP)
    ] = Options.question,
    seeds: Annotated[
        int, typer.Option(help="Splits to train and test on.", rich_help_panel=TRAINING_HELP)
    ] = Options.seeds,
    epochs: Annotated[
        int, typer.Option(help="Passes over the training explanations.", rich_help_panel=TRAINING_HELP)
    ] = Options.epochs,
    learning_rate: Annotated[
        float, typer.Option(help="Of Adam.", rich_help_panel=TRAINING_HELP)
    ] = Options.learning_rate,
    train_share: Annotated[
        float, typer.Option(help="Share of images, and of explainers, to train on.", rich_help_panel=TRAINING_HELP)
    ] = Options.train_share,
    regressors: Annotated[
        bool, typer.Option("--regressors", help="Also ridge, lasso and SVM.", rich_help_panel=TRAINING_HELP)
    ] = Options.regressors,
    uses: Annotated[
        bool,
        typer.Option(help="Mixture, steered RISE, robustness, other metrics.", rich_help_panel=USES_HELP),
    ] = Options.uses,
    n_explained: Annotated[
        int, typer.Option(help="Birds that Captum's methods explain.", rich_help_panel=USES_HELP)
    ] = Options.n_explained,
    n_masks: Annotated[
        int, typer.Option(help="Masks of the steered RISE.", rich_help_panel=USES_HELP)
    ] = Options.n_masks,
    classifier_epochs: Annotated[
        int, typer.Option(help="Of the small network that is explained.", rich_help_panel=USES_HELP)
    ] = Options.classifier_epochs,
    device: DeviceOption = Options.device,
    batch_size: BatchSizeOption = Options.batch_size,
    seed: SeedOption = Options.seed,
    out: OutOption = None,
    overwrite: OverwriteOption = False,
    progress: ProgressOption = True,
) -> None:
    """Train a scorer on simulated ratings and test it on images and explainers it never saw: the PASTA-score.

    With no option: explanations of known quality are drawn for painted birds, five simulated raters answer six
    questions on them, scorers are trained on five splits and held against what the raters' own noise allows. Then the
    score chooses among Captum's methods, steers RISE, and is compared with other metrics. Prints the main table; the
    last line is the folder with report.html, results.csv, the figures and the scorers.
    """
    options = Options(
        n_images=n_images,
        n_per_image=n_per_image,
        image_size=image_size,
        question=question,
        seeds=seeds,
        epochs=epochs,
        learning_rate=learning_rate,
        train_share=train_share,
        regressors=regressors,
        uses=uses,
        n_explained=n_explained,
        n_masks=n_masks,
        classifier_epochs=classifier_epochs,
        device=device,
        batch_size=batch_size,
        seed=seed,
        out=out,
        overwrite=overwrite,
        progress=progress,
    )
    typer.echo(run(options))
