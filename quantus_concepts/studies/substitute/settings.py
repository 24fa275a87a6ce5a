"""The settings of `substitute generate` and `substitute filter`, which are their options."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from quantus_concepts.studies._kit import options as kit
from quantus_concepts.studies._kit.study import Settings

Precision = Annotated[
    Literal["auto", "float32", "bfloat16", "float16"], typer.Option(help="auto: bfloat16 on a GPU, else float32.")
]
Generated = Annotated[Path, typer.Option(exists=True, file_okay=False, help="Folder that `substitute generate` wrote.")]


@dataclass(frozen=True, kw_only=True)
class Generate(Settings):
    """Generate birds with one attribute replaced, as SUB was made: Tied Diffusion Guidance on a diffusers pipeline.

    Writes a folder for each pair of bird and attribute. An interrupted generation goes on with the same command, and
    several may work on one folder, each at other birds or attributes.

    Example: quantus-concepts substitute generate --n-per-pair 4 --device cuda --out generated

    Example: quantus-concepts substitute generate --birds Blue_Jay --attributes has_crown_color--black --out generated
    """

    words = "substitute generate"

    out: Annotated[Path, typer.Option(help="Output folder; an interrupted run in it resumes.")]
    model: Annotated[str, typer.Option(help="A folder of diffusers, or a name there.")] = "black-forest-labs/FLUX.1-dev"
    precision: Precision = "auto"
    steps: Annotated[
        int | None, typer.Option(min=1, max=10_000, help="Denoising steps; by default the pipeline's own.")
    ] = None
    guidance: Annotated[float, typer.Option(min=0, max=1000, help="Guidance scale of the pipeline.")] = 3.5
    image_size: Annotated[
        int | None, typer.Option(min=8, max=8192, help="Height and width in pixels; by default the pipeline's own.")
    ] = None
    birds: Annotated[str | None, typer.Option(help="Birds among the paper's 33, with commas; by default all.")] = None
    attributes: Annotated[
        str | None,
        typer.Option(help="Attributes among the paper's 33, such as has_crown_color--black; by default all."),
    ] = None
    n_per_pair: Annotated[int, typer.Option(min=1, help="Images of each pair.")] = 500
    keep_guides: Annotated[bool, typer.Option("--keep-guides", help="Keep the guides' images as well.")] = False
    t_1: Annotated[float, typer.Option(min=0, max=1, help="Share of the steps that are wholly tied.")] = 0.3
    t_2: Annotated[float, typer.Option(min=0, max=2, help="Share of the steps after which nothing is tied.")] = 0.8
    rate: Annotated[float, typer.Option(min=0, max=1000, help="Speed at which the tied share falls in between.")] = 3.0
    quantile: Annotated[Literal["element", "pixel"], typer.Option(help="Quantile over elements or over pixels.")] = (
        "element"
    )
    seed: kit.Seed = 0
    device: kit.Device = kit.AUTO
    batch_size: Annotated[int, typer.Option(min=1, help="Number of pairs in a batch.")] = 1
    progress: kit.Progress = True

    def options(self) -> dict[str, Any]:
        """Return every option with its value; a folder is one, and no word."""
        return super().options() | {"model": kit.folder_or_word(self.model)}

    def check(self) -> None:
        """Raise ValueError for shares that do not go together, and without the extra."""
        from captum_concepts.lazy import check_extra

        if self.t_2 < self.t_1:
            raise ValueError(f"Expected `--t-2` to be at least `--t-1`, {self.t_1}, but got {self.t_2}.")
        check_extra("diffusers", "diffusion", "Generating")


@dataclass(frozen=True, kw_only=True)
class Filter(Settings):
    """Keep the generated images of which a model that answers questions is surest that they show their attribute.

    It is asked for the attribute with all of its group and "Other" as lettered choices. Wrong answers are dropped, and
    of each pair the surest are kept, or, if there are fewer, none. Writes manifest.csv: what was answered on each
    image, how surely, and what became of it.

    Example: quantus-concepts substitute filter --generated generated --device cuda

    Example: quantus-concepts substitute filter --generated generated --keep-share 0.2 --out filtered
    """

    words = "substitute filter"

    generated: Generated
    model: Annotated[
        str,
        typer.Option(
            help="Model of transformers that answers questions about images: a folder, or a name on Hugging Face. The "
            "paper's is InternVL2.5-8B, whose repository needs code of its own, which is not run."
        ),
    ] = "OpenGVLab/InternVL3-8B-hf"
    precision: Precision = "auto"
    keep_share: Annotated[float, typer.Option(min=0, max=1, help="Share of each pair's images that is kept.")] = 0.1
    device: kit.Device = kit.AUTO
    batch_size: kit.BatchSize = 8
    progress: kit.Progress = True
    out: kit.Out = None
    overwrite: kit.Overwrite = False

    def options(self) -> dict[str, Any]:
        """Return every option with its value; a folder is one, and no word."""
        return super().options() | {"model": kit.folder_or_word(self.model)}

    def check(self) -> None:
        """Raise ValueError for a share of nothing."""
        if self.keep_share <= 0:
            raise ValueError(f"Expected `--keep-share` to be above 0 but got {self.keep_share}.")
        _ = self.place
