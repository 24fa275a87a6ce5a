"""The commands `quantus-concepts pasta sheet` and `quantus-concepts pasta join`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from quantus_concepts.studies.rating.join_ratings import write_ratings
from quantus_concepts.studies.rating.sheet import SheetOptions, make_sheet
from quantus_concepts.studies.run_options import OutOption, OverwriteOption, ProgressOption, SeedOption

PAGE_HELP = "Page"
PERTURBED_HELP = "For Q5 and Q6"

ImagesOption = Annotated[Path, typer.Option(help="Folder of images called {dataset}_{image id}_{label}.png or .jpg.")]
ExplanationsOption = Annotated[
    Path,
    typer.Option(
        help="Folder of .npy maps, .png drawings and .json concepts called like their images, or with one such folder "
        "for each explainer."
    ),
]
LabelsOption = Annotated[
    str,
    typer.Option(
        help="file-name (of the explanation), image-name, none, or a CSV file with the columns image, label and, if "
        "wanted, true_label."
    ),
]
AscendingOption = Annotated[str | None, typer.Option(help="Explainers whose small values mean important, with commas.")]


def sheet(
    images: ImagesOption,
    explanations: ExplanationsOption,
    questions: Annotated[
        str | None,
        typer.Option(
            help="Which, with commas; by default Q1 to Q4, and Q5 and Q6 where --light and --strong are given.",
            rich_help_panel=PAGE_HELP,
        ),
    ] = None,
    labels_from: LabelsOption = SheetOptions.labels_from,
    ascending: AscendingOption = None,
    n_items: Annotated[
        int | None,
        typer.Option(help="Explanations to take, drawn with --seed; by default all.", rich_help_panel=PAGE_HELP),
    ] = None,
    picture_size: Annotated[
        int, typer.Option(help="Longer side of the pictures in pixels.", rich_help_panel=PAGE_HELP)
    ] = SheetOptions.picture_size,
    max_megabytes: Annotated[
        float, typer.Option(help="Most the page may hold.", rich_help_panel=PAGE_HELP)
    ] = SheetOptions.max_megabytes,
    light: Annotated[
        Path | None,
        typer.Option(
            help="Folder with the folders images and explanations of the same images, lightly perturbed.",
            rich_help_panel=PERTURBED_HELP,
        ),
    ] = None,
    strong: Annotated[
        Path | None,
        typer.Option(
            help="The same, perturbed until the prediction changed; the label of their names is the new prediction.",
            rich_help_panel=PERTURBED_HELP,
        ),
    ] = None,
    seed: SeedOption = SheetOptions.seed,
    out: OutOption = None,
    overwrite: OverwriteOption = False,
    progress: ProgressOption = True,
) -> None:
    """Write a page on which people rate explanations, for a browser without network.

    It shows an image and an explanation, without the explainer's name and for everybody in another order, asks the
    questions of the PASTA paper on five points, and saves the answers in the format of its release. The last line is
    the folder with rate.html and what the ratings refer to.
    """
    options = SheetOptions(
        images=images,
        explanations=explanations,
        questions=questions,
        light=light,
        strong=strong,
        labels_from=labels_from,
        ascending=ascending,
        n_items=n_items,
        picture_size=picture_size,
        max_megabytes=max_megabytes,
        seed=seed,
        out=out,
        overwrite=overwrite,
        progress=progress,
    )
    typer.echo(make_sheet(options))


def join(
    files: Annotated[list[Path], typer.Argument(help="What the annotators saved.", show_default=False)],
    data: Annotated[Path, typer.Option(help="The folder that `pasta sheet` wrote.")],
    out: OutOption = None,
    overwrite: OverwriteOption = False,
) -> None:
    """Join the files of several annotators to one folder of ratings, which `pasta train` reads."""
    typer.echo(write_ratings(files, data, out, overwrite=overwrite))
