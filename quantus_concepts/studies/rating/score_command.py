"""The command `quantus-concepts pasta score`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from quantus_concepts.studies.rating.score import ScoreOptions, run_scoring
from quantus_concepts.studies.rating.sheet_command import (
    AscendingOption,
    ExplanationsOption,
    ImagesOption,
)
from quantus_concepts.studies.run_options import (
    BatchSizeOption,
    DeviceOption,
    OutOption,
    OverwriteOption,
    ProgressOption,
)

SCORER_HELP = "Scorer and encoder"


def score(
    images: ImagesOption,
    explanations: ExplanationsOption,
    scorer: Annotated[
        Path | None,
        typer.Option(
            help="File or folder: PASTA_Q1.pth, ... of ENSTA-U2IS/PASTA_weights, what `pasta train` wrote, or the "
            "demonstration of `benchmark pasta`.",
            rich_help_panel=SCORER_HELP,
        ),
    ] = None,
    question: Annotated[
        str, typer.Option(help="all, or some with commas; the first is sorted by.", rich_help_panel=SCORER_HELP)
    ] = ScoreOptions.question,
    encoder: Annotated[
        str | None,
        typer.Option(
            help="siglip, clip, eva02, embedded or MODEL/TAG of open_clip; by default what the scorer was trained on.",
            rich_help_panel=SCORER_HELP,
        ),
    ] = None,
    encoder_weights: Annotated[
        Path | None,
        typer.Option(
            help="File of the encoder's weights; by default open_clip downloads them.", rich_help_panel=SCORER_HELP
        ),
    ] = None,
    encoder_tokenizer: Annotated[
        Path | None,
        typer.Option(
            help="Folder of the encoder's tokenizer, where it is one of transformers.", rich_help_panel=SCORER_HELP
        ),
    ] = None,
    labels_from: Annotated[
        str | None,
        typer.Option(
            help="file-name (of the explanation), image-name, none, or a CSV file with the columns image, label and, "
            "if wanted, true_label; by default image-name for scorers trained so, as the released ones, else file-name."
        ),
    ] = None,
    ascending: AscendingOption = None,
    clip: Annotated[
        bool, typer.Option(help="Set scores above 5 to 5; the release leaves them.", rich_help_panel=SCORER_HELP)
    ] = ScoreOptions.clip,
    n_shown: Annotated[int, typer.Option(help="How many of the best, and of the worst, the sheet shows.")] = (
        ScoreOptions.n_shown
    ),
    cache: Annotated[
        Path | None,
        typer.Option(help="Folder of embeddings: what is there is not embedded again.", rich_help_panel=SCORER_HELP),
    ] = None,
    device: DeviceOption = ScoreOptions.device,
    batch_size: BatchSizeOption = ScoreOptions.batch_size,
    out: OutOption = None,
    overwrite: OverwriteOption = False,
    progress: ProgressOption = True,
) -> None:
    """Predict how people would rate explanations on disk: maps, drawings and lists of concepts, on one scale.

    Prints a table of the explainers; the last line is the folder with scores.csv (a row for each explanation), and
    report.html with the best and the worst and, of several explainers, which one is best how often.
    """
    options = ScoreOptions(
        images=images,
        explanations=explanations,
        scorer=scorer,
        question=question,
        encoder=encoder,
        encoder_weights=encoder_weights,
        encoder_tokenizer=encoder_tokenizer,
        labels_from=labels_from,
        clip=clip,
        ascending=ascending,
        n_shown=n_shown,
        cache=cache,
        device=device,
        batch_size=batch_size,
        out=out,
        overwrite=overwrite,
        progress=progress,
    )
    typer.echo(run_scoring(options))
