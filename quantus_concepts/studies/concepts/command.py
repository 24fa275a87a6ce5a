"""The command `quantus-concepts benchmark concepts`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from quantus_concepts.studies.concepts.options import DATA, DEFAULT_SEEDS, PAINTED, Options
from quantus_concepts.studies.concepts.run import run
from quantus_concepts.studies.run_options import (
    RUN_HELP,
    BatchSizeOption,
    DeviceOption,
    OutOption,
    OverwriteOption,
    ProgressOption,
    SeedOption,
)

DATA_HELP = "Data"
BACKBONE_HELP = "Backbone"
BANK_HELP = "Concept bank"
PAINTED_HELP = "Painted birds, and the small network's training"


def concepts(
    data: Annotated[str, typer.Option(help=f"Which images: {', '.join(DATA)}.", rich_help_panel=DATA_HELP)] = PAINTED,
    root: Annotated[
        Path | None,
        typer.Option(help="Folder of the images (cub: the official layout).", rich_help_panel=DATA_HELP),
    ] = None,
    concepts: Annotated[
        Path | None,
        typer.Option(help="folder: CSV of concepts per image or per class.", rich_help_panel=DATA_HELP),
    ] = None,
    parts: Annotated[
        Path | None, typer.Option(help="folder: CSV of part points, for CLM.", rich_help_panel=DATA_HELP)
    ] = None,
    part_of_concept: Annotated[
        Path | None,
        typer.Option(help="folder: CSV of concept and part, where names do not tell.", rich_help_panel=DATA_HELP),
    ] = None,
    labels: Annotated[
        str,
        typer.Option(
            help="cub: concept labels per image, or by majority of the class (majority).", rich_help_panel=DATA_HELP
        ),
    ] = Options.labels,
    image_size: Annotated[
        int | None,
        typer.Option(
            help="Height and width in pixels; by default what the backbone is made for.",
            rich_help_panel=DATA_HELP,
        ),
    ] = None,
    backbone: Annotated[
        str | None,
        typer.Option(
            help="small (trained here), resnet18_cub, a torchvision or timm name, or path.py:factory.",
            rich_help_panel=BACKBONE_HELP,
        ),
    ] = None,
    layer: Annotated[
        str | None,
        typer.Option(
            help="Layer whose maps are used; by default the last before pooling.",
            rich_help_panel=BACKBONE_HELP,
        ),
    ] = None,
    weights: Annotated[
        str | None,
        typer.Option(help="File of weights (safetensors or state dict), or none.", rich_help_panel=BACKBONE_HELP),
    ] = None,
    mean: Annotated[
        str | None,
        typer.Option(help="Normalisation: mean per channel, 0.5,0.5,0.5.", rich_help_panel=BACKBONE_HELP),
    ] = None,
    std: Annotated[
        str | None, typer.Option(help="Normalisation: deviation per channel.", rich_help_panel=BACKBONE_HELP)
    ] = None,
    unnormalised: Annotated[
        bool,
        typer.Option("--unnormalised", help="The backbone takes images in [0, 1].", rich_help_panel=BACKBONE_HELP),
    ] = False,
    method: Annotated[str, typer.Option(help="svm, or mean (FastCAV).", rich_help_panel=BANK_HELP)] = Options.method,
    c: Annotated[float, typer.Option("--C", help="Regularisation of the SVM.", rich_help_panel=BANK_HELP)] = Options.C,
    n_pos: Annotated[
        int, typer.Option(help="Images with the concept, for each.", rich_help_panel=BANK_HELP)
    ] = Options.n_pos,
    n_neg: Annotated[
        int, typer.Option(help="Images without the concept, for each.", rich_help_panel=BANK_HELP)
    ] = Options.n_neg,
    values: Annotated[
        str, typer.Option(help="Concept values: margin or raw.", rich_help_panel=BANK_HELP)
    ] = Options.values,
    random_banks: Annotated[
        int, typer.Option(help="Random banks of the control.", rich_help_panel=BANK_HELP)
    ] = Options.random_banks,
    sweep: Annotated[
        bool, typer.Option(help="Try other C and numbers of images (Table 3).", rich_help_panel=BANK_HELP)
    ] = True,
    n_train: Annotated[int, typer.Option(help="Training images.", rich_help_panel=PAINTED_HELP)] = Options.n_train,
    n_test: Annotated[int, typer.Option(help="Test images.", rich_help_panel=PAINTED_HELP)] = Options.n_test,
    n_classes: Annotated[int, typer.Option(help="Classes.", rich_help_panel=PAINTED_HELP)] = Options.n_classes,
    n_concepts: Annotated[int, typer.Option(help="Concepts.", rich_help_panel=PAINTED_HELP)] = Options.n_concepts,
    correlation: Annotated[
        float, typer.Option(help="How strongly attributes go together, 0 to 1.", rich_help_panel=PAINTED_HELP)
    ] = Options.correlation,
    deviation: Annotated[
        float,
        typer.Option(help="Share of attributes that deviate from the class.", rich_help_panel=PAINTED_HELP),
    ] = Options.deviation,
    epochs: Annotated[
        int, typer.Option(help="Passes over the training images.", rich_help_panel=PAINTED_HELP)
    ] = Options.epochs,
    device: DeviceOption = Options.device,
    batch_size: BatchSizeOption = Options.batch_size,
    workers: Annotated[
        int, typer.Option(help="Processes that read images; 0 reads in this one.", rich_help_panel=RUN_HELP)
    ] = Options.workers,
    seed: SeedOption = Options.seed,
    seeds: Annotated[
        int | None,
        typer.Option(
            help=f"How many seeds, counted up from --seed (painted: {DEFAULT_SEEDS[PAINTED]}, else 1).",
            rich_help_panel=RUN_HELP,
        ),
    ] = None,
    out: OutOption = None,
    overwrite: OverwriteOption = False,
    progress: ProgressOption = True,
) -> None:
    """Evaluate a post-hoc concept bottleneck model: are its concepts real, present, and in the right place?

    With no option: painted birds are drawn, a small network is trained, and the post-hoc model is compared with
    a traditional one, an oracle and random directions. Prints the main table; the last line is the folder with
    report.html, results.csv and the figures.
    """
    options = Options(
        data=data,
        root=root,
        concepts=concepts,
        parts=parts,
        part_of_concept=part_of_concept,
        labels=labels,
        n_train=n_train,
        n_test=n_test,
        n_classes=n_classes,
        n_concepts=n_concepts,
        correlation=correlation,
        deviation=deviation,
        epochs=epochs,
        backbone=backbone,
        layer=layer,
        weights=weights,
        image_size=image_size,
        mean=mean,
        std=std,
        unnormalised=unnormalised,
        method=method,
        C=c,
        n_pos=n_pos,
        n_neg=n_neg,
        values=values,
        random_banks=random_banks,
        sweep=sweep,
        device=device,
        batch_size=batch_size,
        workers=workers,
        seed=seed,
        seeds=seeds,
        out=out,
        overwrite=overwrite,
        progress=progress,
    )
    typer.echo(run(options))
