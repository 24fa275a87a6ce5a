"""The command `quantus-concepts pasta sizes`: the paper's Figure 8, and the same question of the scorer's encoder."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from captum_concepts.checks import check_range
from quantus_concepts.pasta.embedded_encoder import EMBEDDED, EmbeddedEncoder
from quantus_concepts.pasta.embedder import Embedder
from quantus_concepts.studies.output import OutputFolder
from quantus_concepts.studies.pasta.options import Options
from quantus_concepts.studies.pasta.seeds import train_seeds
from quantus_concepts.studies.pasta.sizes import classifier_sizes, encoder_sizes
from quantus_concepts.studies.pasta.sizes_report import sizes_study
from quantus_concepts.studies.pasta.study import write_study
from quantus_concepts.studies.pasta.study_options import (
    CacheOption,
    DataOption,
    EpochsOption,
    LearningRateOption,
    NImagesOption,
    QuestionOption,
    SplitsOption,
    StudyOptions,
)
from quantus_concepts.studies.pasta.uses import N_CLASSIFIER
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

COMMAND = "pasta-sizes"
WIDTHS, CHANNELS = "8,32,128,512", "8,16,32,64"


def sizes(
    data: DataOption = None,
    encoders: Annotated[
        str | None, typer.Option(help="Encoders to compare, with commas: siglip, clip, eva02, embedded, MODEL/TAG.")
    ] = None,
    widths: Annotated[
        str, typer.Option(help="Widths of the embedded encoder (untrained), where no encoders are given.")
    ] = WIDTHS,
    classifiers: Annotated[
        bool, typer.Option(help="Also explain networks of several sizes; only with simulated raters.")
    ] = True,
    channels: Annotated[str, typer.Option(help="Channels of the networks that are explained.")] = CHANNELS,
    n_networks: Annotated[int, typer.Option(help="Networks trained of each size.")] = 3,
    n_train: Annotated[int, typer.Option(help="Birds each network learns from.")] = N_CLASSIFIER,
    n_explained: Annotated[int, typer.Option(help="Birds that are explained.")] = 32,
    classifier_epochs: Annotated[int, typer.Option(help="Of each network.")] = 4,
    n_images: NImagesOption = StudyOptions.n_images,
    question: QuestionOption = StudyOptions.question,
    seeds: SplitsOption = StudyOptions.seeds,
    epochs: EpochsOption = None,
    learning_rate: LearningRateOption = None,
    cache: CacheOption = None,
    device: DeviceOption = StudyOptions.device,
    batch_size: BatchSizeOption = StudyOptions.batch_size,
    seed: SeedOption = StudyOptions.seed,
    out: OutOption = None,
    overwrite: OverwriteOption = False,
    progress: ProgressOption = True,
) -> None:
    """Whether size matters: of the network that is explained (Figure 8), and of the encoder that scorers use.

    With no option: networks and untrained encoders of several widths, painted birds and simulated raters.
    """
    options = StudyOptions(
        data=data,
        n_images=n_images,
        question=question,
        seeds=seeds,
        epochs=epochs,
        learning_rate=learning_rate,
        cache=cache,
        device=device,
        batch_size=batch_size,
        seed=seed,
        out=out,
        overwrite=overwrite,
        progress=progress,
    )
    check_range("--n-networks", n_networks, 1, MANY)
    check_range("--n-train", n_train, 2, MANY)
    explained = Options(
        image_size=64,
        n_explained=n_explained,
        classifier_epochs=classifier_epochs,
        device=device,
        seed=seed,
        progress=False,
    )
    names = None if encoders is None else [name.strip() for name in encoders.split(",")]
    folder = run_sizes(
        options,
        explained if classifiers and data is None else None,
        names,
        whole_numbers(widths, "--widths"),
        whole_numbers(channels, "--channels"),
        n_networks,
        n_train,
    )
    typer.echo(folder)


def whole_numbers(text: str, argument: str) -> tuple[int, ...]:
    """Read at least two numbers with commas between them."""
    try:
        found = sorted({int(each) for each in text.split(",")})
    except ValueError:
        found = []
    if len(found) < 2 or found[0] < 2:
        raise ValueError(
            f"Expected argument `{argument}` to be two or more whole numbers from 2, with commas between them, but got "
            f"{text!r}."
        )
    return tuple(found)


def run_sizes(
    options: StudyOptions,
    explained: Options | None,
    encoders: Sequence[str] | None,
    widths: Sequence[int],
    channels: Sequence[int],
    n_networks: int,
    n_train: int = N_CLASSIFIER,
) -> Path:
    """Run the study, print its tables, and return the folder written."""
    started = time.monotonic()
    with OutputFolder(COMMAND, options.out, overwrite=options.overwrite) as folder:
        with warnings_as_notes() as notes:
            embedders = _embedders(options, encoders, widths)
            ratings = options.ratings()
            plans = {name: options.plan(ratings, name) for name in embedders}
            frames = {"encoders": encoder_sizes(ratings, embedders, plans, options.say)}
            if explained is not None:
                embedder = options.embedder(EMBEDDED)
                plan = replace(options.plan(ratings), n_seeds=1, control=False)
                trained = train_seeds(ratings, embedder.embed(ratings.explanations).cpu(), plan)
                scorer = trained.best.training.scorer
                frames["networks"] = classifier_sizes(
                    explained, scorer, embedder, channels, n_networks, n_train, options.say
                )
        settings = options.shown(
            encoder=", ".join(embedder.name for embedder in embedders.values()),
            time=f"{time.monotonic() - started:.0f} s",
        )
        write_study(folder, sizes_study(frames, ratings.simulated, settings, [*ratings.notes, *notes]))
    return folder.path


def _embedders(options: StudyOptions, encoders: Sequence[str] | None, widths: Sequence[int]) -> dict[str, Embedder]:
    if encoders is not None:
        return {name: options.embedder(name) for name in encoders}
    base = options.embedder(EMBEDDED)
    return {
        f"{EMBEDDED}, width {width}": Embedder(
            EmbeddedEncoder(device=options.torch_device(), width=width),
            **base.settings,
            cache=base.cache,
            batch_size=base.batch_size,
            display_progressbar=base.display_progressbar,
        )
        for width in widths
    }
