"""The command `explain` and its options."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from quantus_concepts.studies._kit.options import (
    AUTO,
    SMALL,
    Backbone,
    BatchSize,
    Device,
    ImageSize,
    Layer,
    Mean,
    Out,
    Overwrite,
    Progress,
    Seed,
    Std,
    Unnormalised,
    Weights,
    given_settings,
    normalisation,
    refuse_without_effect,
    torch_device,
)

_WHAT = "Images and concepts"
_EXAMPLE = "explain zebra.jpg --concepts FOLDER --backbone resnet18, for instance"
_LIBRARIES = ("torchvision", "timm", "open_clip", "transformers")
_WITH_TEXTS = ("open_clip:", "transformers:CLIPModel:", "transformers:SiglipModel:")


def explain(
    image: Annotated[
        list[Path] | None,
        typer.Argument(exists=True, metavar="[PHOTO]...", help="Photographs, or folders of photographs."),
    ] = None,
    concepts: Annotated[
        Path | None,
        typer.Option(
            exists=True,
            file_okay=False,
            help="Folder with one folder of example images per concept, and folders of random images.",
            rich_help_panel=_WHAT,
        ),
    ] = None,
    text: Annotated[
        list[str] | None,
        typer.Option(help="Concept as a text, for CLIP and SigLIP; several times.", rich_help_panel=_WHAT),
    ] = None,
    cbm: Annotated[
        Path | None,
        typer.Option(
            exists=True, dir_okay=False, help="File of a concept model, in place of concepts.", rich_help_panel=_WHAT
        ),
    ] = None,
    download: Annotated[
        bool,
        typer.Option(
            "--download",
            help="Build the backbone that the file of --cbm names, with weights that its library downloads.",
            rich_help_panel=_WHAT,
        ),
    ] = False,
    top: Annotated[
        int,
        typer.Option(
            min=1, max=20, help="Concepts of each image in the table and the pictures.", rich_help_panel=_WHAT
        ),
    ] = 4,
    random_banks: Annotated[
        int,
        typer.Option(
            min=0,
            max=1000,
            help="Number of banks of random directions, the baseline of values and effects.",
            rich_help_panel=_WHAT,
        ),
    ] = 39,
    n_train: Annotated[
        int,
        typer.Option(
            min=40,
            max=100_000,
            help="Painted birds that the small network is trained on, where no image is given.",
            rich_help_panel=_WHAT,
        ),
    ] = 600,
    backbone: Backbone = None,
    layer: Layer = None,
    weights: Weights = None,
    mean: Mean = None,
    std: Std = None,
    unnormalised: Unnormalised = False,
    image_size: ImageSize = None,
    device: Device = AUTO,
    batch_size: BatchSize = 64,
    seed: Seed = 0,
    out: Out = None,
    overwrite: Overwrite = False,
    progress: Progress = True,
) -> Path:
    """Show which concepts a network sees in images, where, and what they add to its prediction.

    With no option: painted birds and a small network that is trained on them. Prints a table; the last line is the
    folder with report.html, on which concepts can be corrected, a picture of each image, and results.csv.

    Example: quantus-concepts explain zebra.jpg --concepts concepts --backbone resnet18

    Example: quantus-concepts explain zebra.jpg --text striped --text furry --backbone
    open_clip:ViT-B-32:openai
    """
    settings = given_settings(locals())
    network = backbone or SMALL
    sources = {"--concepts": concepts, "--text": text, "--cbm": cbm}
    named = [name for name, value in sources.items() if value]
    if len(named) > 1:
        raise ValueError(f"Expected one of {', '.join(sources)} but got {' and '.join(named)}.")
    if image and not named:
        wanted = "`--concepts`, `--text` or `--cbm` with a photograph"
        raise ValueError(f"Expected {wanted}, and the network as `--backbone`, but got none: {_EXAMPLE}.")
    if (named or network != SMALL) and not image:
        raise ValueError(f"Expected a photograph with `{named[0] if named else '--backbone'}` but got none.")
    if image and network == SMALL and cbm is None:
        raise ValueError(f"Expected `--backbone` with a photograph, the network that is explained: {_EXAMPLE}.")
    if text and not network.startswith(_WITH_TEXTS):
        raise ValueError(
            "Expected `--backbone` to be a model that reads texts with `--text`, open_clip:ViT-B-32:openai or "
            f"transformers:CLIPModel:openai/clip-vit-base-patch32 for instance, but got {network!r}."
        )
    if cbm is None:
        refuse_without_effect("without --cbm, the file that names a backbone", download=download)
    if not image:
        reason = "without a network of your own: name a photograph"
        refuse_without_effect(reason, layer=layer, weights=weights, mean=mean, std=std, image_size=image_size)
        refuse_without_effect(reason, unnormalised=unnormalised)
    if network == SMALL:
        refuse_without_effect("without a network of your own: name it with --backbone", layer=layer, weights=weights)
    if network.partition(":")[0] in _LIBRARIES:
        from captum_concepts.backbones.named import check_source

        check_source("--backbone", network)
        refuse_without_effect(f"on {network}, which stands for weights and layer", layer=layer, weights=weights)
    normalised = normalisation(mean, std, unnormalised)

    from quantus_concepts.studies._kit.folder import RunFolder, warnings_as_notes
    from quantus_concepts.studies.explain import study

    source = study.Source(
        network, layer, weights, normalised, image_size, torch_device(device), batch_size, seed, random_banks, progress
    )
    with RunFolder("explain", settings, out, overwrite=overwrite) as folder:
        if image:
            with warnings_as_notes(folder):
                shown = study.photographs(source, image, concepts=concepts, texts=text, cbm=cbm, download=download)
        else:
            shown = study.fetch_painted_birds(folder, source, n_train)
        study.write(folder, shown, top, batch_size)
    return folder.path
