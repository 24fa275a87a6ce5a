"""The command `quantus-concepts compose`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from quantus_concepts.studies import compose as composing
from quantus_concepts.studies.compose import ComposeOptions


def compose(
    objects: Annotated[
        str, typer.Option(help="painted, a folder of RGBA cut-outs by class, or with --annotations COCO's photographs.")
    ] = ComposeOptions.objects,
    scenes: Annotated[str, typer.Option(help="painted, or a folder of scenes by class.")] = ComposeOptions.scenes,
    out: Annotated[Path | None, typer.Option(help="Folder to write; by default a new one under reports/.")] = None,
    annotations: Annotated[Path | None, typer.Option(help="COCO's instances_*.json.")] = None,
    n_per_pair: Annotated[
        int, typer.Option(help="Images of each pair of object and scene.")
    ] = ComposeOptions.n_per_pair,
    image_size: Annotated[int, typer.Option(help="Height and width in pixels.")] = ComposeOptions.image_size,
    test_share: Annotated[
        float, typer.Option(help="Share of images, cut-outs and scenes for validation.")
    ] = ComposeOptions.test_share,
    lossless: Annotated[bool, typer.Option("--lossless", help="PNG in place of JPEG.")] = False,
    seed: Annotated[int, typer.Option(help="Of every choice.")] = ComposeOptions.seed,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace a data set written to --out before.")] = False,
    progress: Annotated[bool, typer.Option(help="Progress bar.")] = True,
) -> None:
    """Compose objects on scenes and write them in the layout of the paper's release, which --data bam reads."""
    options = ComposeOptions(
        objects=objects,
        scenes=scenes,
        out=out,
        n_per_pair=n_per_pair,
        image_size=image_size,
        test_share=test_share,
        seed=seed,
        annotations=annotations,
        lossless=lossless,
        overwrite=overwrite,
        progress=progress,
    )
    typer.echo(composing.compose(options))
