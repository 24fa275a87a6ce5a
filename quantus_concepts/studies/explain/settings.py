"""The command `explain` and its options."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from quantus_concepts.studies._kit import options as kit
from quantus_concepts.studies._kit.study import Settings

_EXAMPLE = "explain zebra.jpg --concepts FOLDER --backbone resnet18, for instance"
_LIBRARIES = ("torchvision", "timm", "open_clip", "transformers")
_WITH_TEXTS = ("open_clip:", "transformers:CLIPModel:", "transformers:SiglipModel:")
_what = partial(typer.Option, rich_help_panel="Images and concepts")


@dataclass(frozen=True, kw_only=True)
class Explain(Settings):
    """Show which concepts a network sees in images, where, and what they add to its prediction.

    With no option: painted birds and a small network that is trained on them. Prints a table; the last line is the
    folder with report.html, on which concepts can be corrected, a picture of each image, and results.csv.

    Example: quantus-concepts explain zebra.jpg --concepts concepts --backbone resnet18

    Example: quantus-concepts explain zebra.jpg --text striped --text furry --backbone
    open_clip:ViT-B-32:openai
    """

    words = "explain"

    image: Annotated[
        list[Path] | None,
        typer.Argument(exists=True, metavar="[PHOTO]...", help="Photographs, or folders of photographs."),
    ] = None
    concepts: Annotated[
        Path | None,
        _what(
            exists=True,
            file_okay=False,
            help="Folder with one folder of example images per concept, and folders of random images.",
        ),
    ] = None
    text: Annotated[list[str] | None, _what(help="Concept as a text, for CLIP and SigLIP; several times.")] = None
    cbm: Annotated[
        Path | None, _what(exists=True, dir_okay=False, help="File of a concept model, in place of concepts.")
    ] = None
    download: Annotated[
        bool,
        _what(
            "--download",
            help="Build the backbone that the file of --cbm names, with weights that its library downloads.",
        ),
    ] = False
    top: Annotated[int, _what(min=1, max=20, help="Concepts of each image in the table and the pictures.")] = 4
    random_banks: Annotated[
        int,
        _what(min=0, max=1000, help="Number of banks of random directions, the baseline of values and effects."),
    ] = 39
    n_train: Annotated[
        int,
        _what(
            min=40,
            max=100_000,
            help="Painted birds that the small network is trained on, where no image is given.",
        ),
    ] = 600
    backbone: kit.Backbone = None
    layer: kit.Layer = None
    weights: kit.Weights = None
    mean: kit.Mean = None
    std: kit.Std = None
    unnormalised: kit.Unnormalised = False
    image_size: kit.ImageSize = None
    device: kit.Device = kit.AUTO
    batch_size: kit.BatchSize = 64
    seed: kit.Seed = 0
    out: kit.Out = None
    overwrite: kit.Overwrite = False
    progress: kit.Progress = True

    @property
    def network(self) -> str:
        """The network that is explained."""
        return self.backbone or kit.SMALL

    @property
    def normalisation(self) -> kit.Normalisation:
        """How the network's images are normalised."""
        return kit.normalisation(self.mean, self.std, self.unnormalised)

    def check(self) -> None:
        """Raise ValueError for options that do not go together."""
        network, image = self.network, self.image
        sources = {"--concepts": self.concepts, "--text": self.text, "--cbm": self.cbm}
        named = [name for name, value in sources.items() if value]
        if len(named) > 1:
            raise ValueError(f"Expected one of {', '.join(sources)} but got {' and '.join(named)}.")
        if image and not named:
            wanted = "`--concepts`, `--text` or `--cbm` with a photograph"
            raise ValueError(f"Expected {wanted}, and the network as `--backbone`, but got none: {_EXAMPLE}.")
        if (named or network != kit.SMALL) and not image:
            raise ValueError(f"Expected a photograph with `{named[0] if named else '--backbone'}` but got none.")
        if image and network == kit.SMALL and self.cbm is None:
            raise ValueError(f"Expected `--backbone` with a photograph, the network that is explained: {_EXAMPLE}.")
        if self.text and not network.startswith(_WITH_TEXTS):
            raise ValueError(
                "Expected `--backbone` to be a model that reads texts with `--text`, open_clip:ViT-B-32:openai or "
                f"transformers:CLIPModel:openai/clip-vit-base-patch32 for instance, but got {network!r}."
            )
        if self.cbm is None:
            kit.refuse_without_effect("without --cbm, the file that names a backbone", download=self.download)
        of_network = {"layer": self.layer, "weights": self.weights}
        if not image:
            more = {"mean": self.mean, "std": self.std, "image_size": self.image_size}
            more["unnormalised"] = self.unnormalised
            kit.refuse_without_effect("without a network of your own: name a photograph", **of_network, **more)
        if network == kit.SMALL:
            kit.refuse_without_effect("without a network of your own: name it with --backbone", **of_network)
        if network.partition(":")[0] in _LIBRARIES:
            from captum_concepts.backbones.named import check_source

            check_source("--backbone", network)
            kit.refuse_without_effect(f"on {network}, which stands for weights and layer", **of_network)
        _ = self.normalisation, self.place
