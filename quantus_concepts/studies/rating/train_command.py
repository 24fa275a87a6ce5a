"""The command `quantus-concepts pasta train`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from quantus_concepts.studies.rating.train_options import TrainOptions
from quantus_concepts.studies.rating.train_run import run_training
from quantus_concepts.studies.run_options import (
    BatchSizeOption,
    DeviceOption,
    OutOption,
    OverwriteOption,
    ProgressOption,
    SeedOption,
)

DATA_HELP = "Ratings"
EMBEDDING_HELP = "Embedding"
TRAINING_HELP = "Training"


def train(
    data: Annotated[
        Path,
        typer.Option(
            help="Folder with human_annotations.json, as published (ENSTA-U2IS/PASTA) or made with `pasta sheet`.",
            rich_help_panel=DATA_HELP,
        ),
    ],
    datasets: Annotated[
        str | None, typer.Option(help="Only these data sets, with commas.", rich_help_panel=DATA_HELP)
    ] = None,
    modality: Annotated[
        str | None,
        typer.Option(
            help="Only explanations of this kind: drawing, concepts, or map (drawn anew from its values).",
            rich_help_panel=DATA_HELP,
        ),
    ] = None,
    drawings: Annotated[
        bool,
        typer.Option(
            "--drawings/--redraw",
            help="Show maps by the pictures people rated, or draw them anew from their values.",
            rich_help_panel=DATA_HELP,
        ),
    ] = TrainOptions.drawings,
    labels: Annotated[
        str,
        typer.Option(
            help="predicted: the class predicted. image-name: the one in the name of the image's file, as the release.",
            rich_help_panel=DATA_HELP,
        ),
    ] = TrainOptions.labels,
    votes: Annotated[
        str,
        typer.Option(
            help="How the votes on one explanation are joined: mode, mean, median.", rich_help_panel=DATA_HELP
        ),
    ] = TrainOptions.votes,
    question: Annotated[
        str, typer.Option(help="Q1 to Q6, some with commas, or all in one training.", rich_help_panel=TRAINING_HELP)
    ] = TrainOptions.question,
    encoder: Annotated[
        str,
        typer.Option(
            help="siglip, clip, eva02, embedded (untrained, to try things), or MODEL/TAG of open_clip.",
            rich_help_panel=EMBEDDING_HELP,
        ),
    ] = TrainOptions.encoder,
    encoder_weights: Annotated[
        Path | None,
        typer.Option(
            help="File of the encoder's weights; by default open_clip downloads them.", rich_help_panel=EMBEDDING_HELP
        ),
    ] = None,
    encoder_tokenizer: Annotated[
        Path | None,
        typer.Option(
            help="Folder of the encoder's tokenizer, where it is one of transformers.", rich_help_panel=EMBEDDING_HELP
        ),
    ] = None,
    saliency: Annotated[
        str,
        typer.Option(
            help="overlay: the map laid over the image. masked: image times map.", rich_help_panel=EMBEDDING_HELP
        ),
    ] = TrainOptions.saliency,
    n_top: Annotated[
        int, typer.Option(help="Concepts named in the sentence.", rich_help_panel=EMBEDDING_HELP)
    ] = TrainOptions.n_top,
    template: Annotated[
        str, typer.Option(help="A sentence with {} where the names of the concepts go.", rich_help_panel=EMBEDDING_HELP)
    ] = TrainOptions.template,
    concepts: Annotated[
        str,
        typer.Option(
            help="sentence: of the top concepts. weighted: mean of all concepts' embeddings.",
            rich_help_panel=EMBEDDING_HELP,
        ),
    ] = TrainOptions.concepts,
    sentence: Annotated[
        str,
        typer.Option(
            help="How concepts are put: ours, or release for exactly the released code's sentence.",
            rich_help_panel=EMBEDDING_HELP,
        ),
    ] = TrainOptions.sentence,
    seeds: Annotated[
        int, typer.Option(help="Splits to train and test on.", rich_help_panel=TRAINING_HELP)
    ] = TrainOptions.seeds,
    loss: Annotated[
        str, typer.Option(help="As in the paper, or as in its release.", rich_help_panel=TRAINING_HELP)
    ] = TrainOptions.loss,
    epochs: Annotated[
        int, typer.Option(help="Passes over the training explanations.", rich_help_panel=TRAINING_HELP)
    ] = TrainOptions.epochs,
    learning_rate: Annotated[
        float, typer.Option(help="Of Adam.", rich_help_panel=TRAINING_HELP)
    ] = TrainOptions.learning_rate,
    train_share: Annotated[
        float,
        typer.Option(help="Share of images, and of explainers, to train on.", rich_help_panel=TRAINING_HELP),
    ] = TrainOptions.train_share,
    labelled: Annotated[
        bool, typer.Option(help="Whether the scorer is told the class.", rich_help_panel=TRAINING_HELP)
    ] = TrainOptions.labelled,
    regressors: Annotated[
        bool, typer.Option("--regressors", help="Also ridge, lasso and SVM.", rich_help_panel=TRAINING_HELP)
    ] = False,
    sparseness: Annotated[
        bool,
        typer.Option(
            "--sparseness",
            help="Also correlate the votes with the sparseness of the maps (Table 9).",
            rich_help_panel=DATA_HELP,
        ),
    ] = False,
    cache: Annotated[
        Path | None,
        typer.Option(help="Folder that keeps embeddings for the next run.", rich_help_panel=EMBEDDING_HELP),
    ] = None,
    device: DeviceOption = TrainOptions.device,
    batch_size: BatchSizeOption = TrainOptions.batch_size,
    seed: SeedOption = TrainOptions.seed,
    out: OutOption = None,
    overwrite: OverwriteOption = False,
    progress: ProgressOption = True,
) -> None:
    """Train a scorer that predicts how people rate explanations, and test it on images and explainers it never saw.

    Writes the scorers, a table in the form of the paper's Table 1 with its figures beside ours, and learning curves.
    """
    options = TrainOptions(
        data=data,
        datasets=datasets,
        modality=modality,
        drawings=drawings,
        labels=labels,
        votes=votes,
        question=question,
        encoder=encoder,
        encoder_weights=encoder_weights,
        encoder_tokenizer=encoder_tokenizer,
        saliency=saliency,
        n_top=n_top,
        template=template,
        concepts=concepts,
        sentence=sentence,
        seeds=seeds,
        loss=loss,
        epochs=epochs,
        learning_rate=learning_rate,
        train_share=train_share,
        labelled=labelled,
        regressors=regressors,
        sparseness=sparseness,
        cache=cache,
        device=device,
        batch_size=batch_size,
        seed=seed,
        out=out,
        overwrite=overwrite,
        progress=progress,
    )
    typer.echo(run_training(options))
