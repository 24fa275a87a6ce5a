"""The options of `substitute generate`, `filter`, `sheet` and `export`."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

from quantus_concepts.studies._kit.command import (
    AUTO,
    MANY,
    RUN,
    DeviceOptions,
    OutOptions,
    ProgressOptions,
    SeedOptions,
    option,
    redeclared,
)

if TYPE_CHECKING:
    import torch

_MODEL, _PAIRS, _TIE = "Model", "Pairs", "Tied Diffusion Guidance"
PRECISIONS = (AUTO, "float32", "bfloat16", "float16")
#: Kinds of page: is the attribute there, or which of its group is?
VERIFY, CHOOSE = "verify", "choose"
#: Names of the questions in files of answers, and the answers to the first two.
ATTRIBUTE, BIRD, CHOICE = "attribute_there", "still_the_bird", "choice"
YES, SOMEWHAT, NO = "yes", "somewhat", "no"
PAGE = "Page"


def words(text: str | None) -> list[str]:
    """Split what was given with commas."""
    return [word.strip() for word in (text or "").split(",") if word.strip()]


@dataclass(frozen=True, kw_only=True)
class PageOptions(ProgressOptions, OutOptions, SeedOptions):
    """A page on which people answer questions about pictures."""

    late: ClassVar[int] = 1

    picture_size: int = option(384, "Longer side of the pictures in pixels.", panel=PAGE, bounds=(32, 2048))
    max_megabytes: float = option(
        50.0, "Maximum size of the page in megabytes.", panel=PAGE, bounds=(0, 2000), open_low=True
    )


@dataclass(frozen=True, kw_only=True)
class ModelOptions(DeviceOptions):
    """The model of a library, and in which numbers it computes."""

    model: str = option("", "A folder, or a name on Hugging Face.", panel=_MODEL)
    precision: str = option(AUTO, "auto: bfloat16 on a GPU, else float32.", panel=_MODEL, choices=PRECISIONS)

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.model:
            raise ValueError("Expected argument `--model` to name a model but got ''.")

    def torch_dtype(self) -> torch.dtype:
        """Return the type of the model's numbers."""
        import torch

        automatic = "bfloat16" if self.torch_device().type == "cuda" else "float32"
        dtype: torch.dtype = getattr(torch, automatic if self.precision == AUTO else self.precision)
        return dtype


@dataclass(frozen=True, kw_only=True)
class GenerateOptions(ModelOptions, ProgressOptions, SeedOptions):
    """Generate birds with one attribute replaced, as SUB was made: Tied Diffusion Guidance on a diffusers pipeline.

    Writes a folder for each pair of bird and attribute. An interrupted generation goes on with the same command, and
    several may work on one folder, each at other birds or attributes. The last line is the folder.
    """

    examples = (
        "substitute generate --n-per-pair 4 --device cuda --out generated",
        "substitute generate --birds Blue_Jay --attributes has_crown_color--black --out generated",
    )

    out: Path = option(help="Output folder; an interrupted run in it resumes.", panel=RUN, matters=False)
    model: str = option("black-forest-labs/FLUX.1-dev", "A folder of diffusers, or a name there.", panel=_MODEL)
    steps: int | None = option(
        None, "Denoising steps; by default the pipeline's own.", panel=_MODEL, bounds=(1, 10_000)
    )
    guidance: float = option(3.5, "Guidance scale of the pipeline.", panel=_MODEL, bounds=(0, 1000))
    image_size: int | None = option(
        None, "Height and width in pixels; by default the pipeline's own.", panel=_MODEL, bounds=(8, 8192)
    )
    birds: str | None = option(
        None, "Birds among the paper's 33, with commas; by default all.", panel=_PAIRS, matters=False
    )
    attributes: str | None = option(
        None,
        "Attributes among the paper's 33, such as has_crown_color--black; by default all.",
        panel=_PAIRS,
        matters=False,
    )
    n_per_pair: int = option(500, "Images of each pair.", panel=_PAIRS, bounds=(1, MANY), matters=False)
    keep_guides: bool = option(False, "Keep the guides' images as well.", panel=_PAIRS, matters=False)
    t_1: float = option(0.3, "Share of the steps that are wholly tied.", panel=_TIE, bounds=(0, 1))
    t_2: float = option(0.8, "Share of the steps after which nothing is tied.", panel=_TIE, bounds=(0, 2))
    rate: float = option(3.0, "Speed at which the tied share falls in between.", panel=_TIE, bounds=(0, 1000))
    quantile: str = option(
        "element", "Quantile over elements or over pixels.", panel=_TIE, choices=("element", "pixel")
    )
    device: str = redeclared(DeviceOptions, "device", AUTO, matters=False)
    batch_size: int = option(1, "Number of pairs in a batch.", panel=RUN, bounds=(1, MANY), matters=False)

    def __post_init__(self) -> None:
        from captum_concepts._support.checks import check_path
        from quantus_concepts.studies._kit.command import named_as_typed
        from quantus_concepts.studies.substitute.pairs import choose_pairs

        super().__post_init__()
        check_path("--out", self.out)
        for name in ("birds", "attributes"):
            if getattr(self, name) is not None and not words(getattr(self, name)):
                raise ValueError(f"Expected argument `--{name}` to name some but got {getattr(self, name)!r}.")
        with named_as_typed(GenerateOptions):
            choose_pairs(words(self.birds), words(self.attributes))
        if self.t_2 < self.t_1:
            raise ValueError(f"Expected argument `--t-2` to be at least `--t-1`, {self.t_1}, but got {self.t_2}.")


@dataclass(frozen=True, kw_only=True)
class GeneratedOptions(ProgressOptions, OutOptions):
    """The generated images."""

    generated: Path = option(help="Folder that `substitute generate` wrote.", path="folder")

    def __post_init__(self) -> None:
        from quantus_concepts.studies.substitute.pairs import read_pairs

        super().__post_init__()
        read_pairs(self.generated)


@dataclass(frozen=True, kw_only=True)
class FilterOptions(ModelOptions, GeneratedOptions):
    """Keep the generated images of which a model that answers questions is surest that they show their attribute.

    It is asked for the attribute with all of its group and "Other" as lettered choices. Wrong answers are dropped, and
    of each pair the surest are kept, or, if there are fewer, none. The last line is the folder with manifest.csv: what
    was answered on each image, how surely, and what became of it.
    """

    examples = (
        "substitute filter --generated generated --device cuda",
        "substitute filter --generated generated --keep-share 0.2 --out filtered",
    )

    model: str = option(
        "OpenGVLab/InternVL3-8B-hf",
        "Model of transformers that answers questions about images: a folder, or a name on Hugging Face. The "
        "paper's is InternVL2.5-8B, whose repository needs code of its own, which is not run.",
        panel=_MODEL,
    )
    keep_share: float = option(
        0.1, "Share of each pair's images that is kept.", panel=_PAIRS, bounds=(0, 1), open_low=True
    )
    batch_size: int = redeclared(DeviceOptions, "batch_size", 8, matters=False)


@dataclass(frozen=True, kw_only=True)
class FilteredOptions(GeneratedOptions):
    """The generated images that were kept."""

    filtered: Path | None = option(
        None, "Folder that `substitute filter` wrote; by default all images count.", path="folder"
    )


@dataclass(frozen=True, kw_only=True)
class VerifyOptions(FilteredOptions, PageOptions):
    """Write a page on which people say whether the attribute is there and the bird still the same.

    Or, with --ask choose, which of the group's attributes is there. For a browser without network; answers are saved
    as a file, for `substitute export`. The last line is the folder with rate.html.
    """

    examples = (
        "substitute sheet --generated generated --filtered filtered",
        "substitute sheet --generated generated --ask choose --out choose",
    )

    ask: str = option(
        VERIFY,
        "verify (attribute and bird) or choose (among the group's).",
        panel=PAGE,
        choices=(VERIFY, CHOOSE),
    )
    n_per_attribute: int = option(40, "Images of each attribute, drawn with --seed.", panel=PAGE, bounds=(1, MANY))
    picture_size: int = redeclared(PageOptions, "picture_size", 512)


@dataclass(frozen=True, kw_only=True)
class ExportOptions(FilteredOptions):
    """Write the images that were kept in the format in which SUB is published: Parquet files.

    With the answers of people, pairs whose attribute too few found are left out. The last line is the folder.
    """

    examples = (
        "substitute export --generated generated --filtered filtered",
        "substitute export --generated generated --ratings ann.json --ratings ben.json --out SUB",
    )

    ratings: list[Path] | None = option(
        None, "File that a person saved on the page; may be given several times.", path="file"
    )
    min_yes: float = option(0.5, "Share of the answers that must find a pair's attribute.", bounds=(0, 1))
    rows_per_file: int = option(5000, "Images of each Parquet file.", bounds=(1, MANY), matters=False)
