"""The settings of `benchmark concepts`, which are its options; what computes is loaded when it runs."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from captum_concepts.lazy import check_extra
from quantus_concepts.studies._kit import options as kit
from quantus_concepts.studies._kit.painted import Painted, painted_option
from quantus_concepts.studies._kit.study import Settings

#: Defaults by kind of data.
DEFAULT_BACKBONE = {"painted": kit.SMALL, "cub": "resnet18_cub", "folder": "resnet18", "table": "resnet18"}
DEFAULT_SEEDS = {"painted": 3, "cub": 1, "folder": 1, "table": 1}
#: The range of so many is their smallest to their largest; `functional.intervals.N_DRAWS`, which loads NumPy.
N_BANKS = 39
#: Keys of `--columns`, and how many columns each may name.
COLUMNS: dict[str, tuple[int, ...]] = dict.fromkeys(("image", "label", "split_column", "unknown"), (1,))
COLUMNS |= {"concepts": (), "box": (4,), "mask": (1, 4)}
_data, _bank, _run = (partial(typer.Option, rich_help_panel=name) for name in ("Data", "Concept bank", kit.RUN))
_network, _painted = (partial(typer.Option, rich_help_panel=name) for name in (kit.BACKBONE, kit.PAINTED))
_FEW = "Minimum number of training images with a concept, and without it; other concepts are left out."
_CONCEPTS = (
    "folder: CSV of concepts per image or per class. table: CSV or Parquet file of images, classes and concepts. cub: "
    "names or patterns of concepts, with commas between."
)
_COLUMNS = (
    "table: which columns are what, image=derm,label=diagnosis,concepts=streaks,pigment_*. The keys are arguments of "
    f"datasets.ConceptCSV: {', '.join(COLUMNS)}."
)
_LABELS = "cub: concept labels per image, or by majority of the class (majority)."
_FEWER = "cub, folder, table: at most so many training and so many test images of each class, drawn with --seed."
_PRECISION = "float32, bfloat16 (weights stay float32), or auto: bfloat16 where the processor multiplies in it."
_SEEDS = "Number of seeds, counted up from --seed (painted: 3, else 1)."
_ABOUT = "folder: CSV of concept and part, where names do not tell."
_BACKBONE = (
    "small (trained here), resnet18_cub, a torchvision or timm name, or path.py:factory, whose MEAN and STD normalise "
    "its images. May be given several times: the first has all tables, and all are compared."
)
_MODEL = (
    "Concept model of your own to compare with: path.py:factory (the file is executed; its MEAN and STD normalise the "
    "images), or what goes with a --backbone: a file of PostHocCBM.save, or a folder or file written by Label-free "
    "CBM, VLG-CBM, post-hoc CBM, DN-CBM or CBM. May be given several times."
)
_EXPLORE = "Write explore.html, a page to explore test images and correct concepts."
_PRINTED = (
    "What the papers print: raw values (--values has no effect), CEM by the magnitude of contributions, and heads with "
    "an elastic net, as in the release of post-hoc CBM."
)
_STRENGTH = "Regularisation of the SVM."
_file, _count = partial(_data, exists=True, dir_okay=False), partial(_bank, min=1, max=kit.MANY)


@dataclass(frozen=True, kw_only=True)
class Concepts(Settings):
    """Evaluate a post-hoc concept bottleneck model: are its concepts real, present, and in the right place?

    With no option: painted birds are drawn, a small network is trained, and the post-hoc model is compared with a
    traditional one, an oracle and random directions. Prints the main numbers; the last line is the folder with
    report.html, results.csv, tables and figures.

    Example: quantus-concepts benchmark concepts --seeds 2

    Example: quantus-concepts benchmark concepts --data cub --root CUB_200_2011 --backbone resnet18 --model cbm.py:joint
    """

    words = "benchmark concepts"
    # What a user of own data needs.
    shown = (
        "data root concepts columns parts values random_banks backbone model layer mean std unnormalised image_size "
        "painted explore seeds device out overwrite"
    )

    data: Annotated[Literal["painted", "cub", "folder", "table"], _data(help="Which images.")] = "painted"
    root: Annotated[
        Path | None, _data(exists=True, file_okay=False, help="Folder of the images (cub: the official layout).")
    ] = None
    concepts: Annotated[str | None, _data(help=_CONCEPTS)] = None
    columns: Annotated[str | None, _data(metavar="KEY=NAME,...", help=_COLUMNS)] = None
    min_images: Annotated[int, _data(min=1, max=kit.MANY, help=_FEW)] = 10
    parts: Annotated[Path | None, _file(help="folder: CSV of part points, for CLM.")] = None
    part_of_concept: Annotated[Path | None, _file(help=_ABOUT)] = None
    labels: Annotated[Literal["image", "majority"], _data(help=_LABELS)] = "image"
    images_per_class: Annotated[int | None, _data(min=1, max=kit.MANY, help=_FEWER)] = None
    method: Annotated[Literal["svm", "mean"], _bank(help="svm, or mean (FastCAV).")] = "svm"
    C: Annotated[float, _bank("--C", min=0, max=kit.MANY, help=_STRENGTH)] = 1.0
    n_pos: Annotated[int, _count(help="Number of images with the concept.")] = 100
    n_neg: Annotated[int, _count(help="Number of images without the concept.")] = 100
    values: Annotated[Literal["margin", "raw"], _bank(help="Concept values, margin or raw; one table has both.")] = (
        "margin"
    )
    random_banks: Annotated[int, _bank(min=N_BANKS, max=kit.MANY, help="Number of random banks (baseline).")] = N_BANKS
    as_printed: Annotated[bool, _bank("--as-printed", help=_PRINTED)] = False
    interventions: Annotated[bool, _bank(help="Accuracy while people correct concepts.")] = True
    sweep: Annotated[bool, _bank(help="Try other C and numbers of images (Table 3).")] = True
    backbone: Annotated[list[str] | None, _network(help=_BACKBONE)] = None
    model: Annotated[list[str] | None, _network(help=_MODEL)] = None
    layer: kit.Layer = None
    weights: kit.Weights = None
    mean: kit.Mean = None
    std: kit.Std = None
    unnormalised: kit.Unnormalised = False
    image_size: kit.ImageSize = None
    painted: Annotated[Painted | None, painted_option()] = None
    epochs: kit.Epochs = 9
    precision: Annotated[Literal["auto", "float32", "bfloat16"], _painted(help=_PRECISION)] = "auto"
    engine: kit.Engine = "local"
    seeds: Annotated[int | None, _run(min=1, max=1000, help=_SEEDS)] = None
    seed: kit.Seed = 0
    device: kit.Device = kit.AUTO
    batch_size: kit.BatchSize = 64
    readers: kit.Readers = 0
    explore: Annotated[bool, _run("--explore", help=_EXPLORE)] = False
    progress: kit.Progress = True
    out: kit.Out = None
    overwrite: kit.Overwrite = False

    def __post_init__(self) -> None:
        if self.as_printed:
            object.__setattr__(self, "values", "raw")

    @property
    def specs(self) -> list[str]:
        """The names of the networks, each once; the first has all tables."""
        return list(dict.fromkeys(self.backbone or [DEFAULT_BACKBONE[self.data]]))

    @property
    def trains(self) -> bool:
        """Whether the small network is trained here."""
        return self.specs[0] == kit.SMALL

    @property
    def all_seeds(self) -> range:
        """Every seed."""
        return range(self.seed, self.seed + (DEFAULT_SEEDS[self.data] if self.seeds is None else self.seeds))

    @property
    def same_images(self) -> bool:
        """Whether seeds share their images."""
        return self.data != "painted"

    @property
    def birds(self) -> Painted | None:
        """What is painted, if anything."""
        return (self.painted or Painted()) if self.data == "painted" else None

    @property
    def normalised(self) -> kit.Normalisation:
        """How the images of a network are normalised."""
        return kit.normalisation(self.mean, self.std, self.unnormalised)

    @property
    def other_values(self) -> str:
        """The values of the second post-hoc model: raw beside margin, margin beside raw."""
        return "raw" if self.values == "margin" else "margin"

    @property
    def sweeps(self) -> bool:
        """Whether other settings of the bank are tried, which only an SVM has."""
        return self.sweep and self.method == "svm"

    @property
    def bfloat16(self) -> bool:
        """Whether the small networks are trained in bfloat16."""
        from quantus_concepts.painted.training import processor_has_bfloat16

        automatic = self.precision == kit.AUTO and self.place.type == "cpu"
        return self.precision == "bfloat16" or (automatic and processor_has_bfloat16())

    def check(self) -> None:
        """Raise ValueError for options that do not go together."""
        of_data, given = f"with --data {self.data}", [spec for spec in self.specs if spec != kit.SMALL]
        _ = self.normalised
        if self.data == "painted":
            kit.refuse_without_effect(
                of_data, root=self.root, concepts=self.concepts, images_per_class=self.images_per_class
            )
        else:
            needed = {} if self.data == "cub" else {"concepts": self.concepts}
            kit.require(of_data, root=self.root, **needed)
            kit.refuse_without_effect(of_data, painted=self.painted)
        if self.data != "folder":
            kit.refuse_without_effect(of_data, parts=self.parts, part_of_concept=self.part_of_concept)
        if self.data in ("folder", "table") and not Path(self.concepts or "").is_file():
            raise ValueError(f"Expected `--concepts` to name a file but there is none at {self.concepts}.")
        if self.data != "table":
            kit.refuse_without_effect(of_data, columns=self.columns)
        if "mask" in named_columns(self.columns) and self.engine == "ray":
            raise ValueError(
                "Expected `--engine local` with `mask=` in `--columns`: all masks are needed in one place."
            )
        if self.data != "cub":
            kit.refuse_without_effect(of_data, labels=self.labels != "image")
        mine: dict[str, object] = {"layer": self.layer, "weights": self.weights, "mean": self.mean, "std": self.std}
        mine["unnormalised"] = self.unnormalised
        if not given:
            kit.refuse_without_effect("on the small network: name one of your own with --backbone", **mine)
        elif len(given) > 1:
            kit.refuse_without_effect("with several --backbone: a file path.py:factory can say it of each", **mine)
        if not self.trains and kit.SMALL in self.specs:
            raise ValueError(f"Expected `--backbone {kit.SMALL}` to be the first of several but {self.specs[0]} is.")
        if self.C <= 0:
            raise ValueError(f"Expected `--C` to be above 0 but got {self.C:g}.")
        if self.birds is not None:
            kit.check_birds(self.birds.n_classes, self.image_size)
        if self.trains:
            kit.check_stride(self.image_size)
        if self.engine == "ray":
            check_extra("ray", "ray", "`--engine ray`")
        if self.data == "cub":  # before weights are downloaded
            from quantus_concepts.datasets.birds.cub200 import find_cub

            find_cub(self.root or "")
        if self.data == "table":
            from quantus_concepts.datasets import ConceptCSV

            columns: Any = named_columns(self.columns)
            ConceptCSV(self.concepts or "", self.root, **columns, split="train", image_size=1)
        _ = self.place

    def idle(self) -> tuple[str, tuple[str, ...]]:
        """Return the options of training, where nothing is trained."""
        return f"on {self.specs[0]}, which is not trained", () if self.trains else ("epochs", "precision")

    def listed(self) -> dict[str, str]:
        """Return the settings with the defaults that depend on the data."""
        listed = super().listed() | ({} if self.birds is None else {"painted": str(self.birds)})
        return listed | {"backbone": listed.get("backbone", self.specs[0]), "seeds": str(len(self.all_seeds))}


def named_columns(text: str | None) -> dict[str, str | list[str]]:
    """Read ``image=derm,concepts=streaks,pigmentation`` as arguments of `ConceptCSV`; a name alone goes on with a key.

    Raises ValueError for another key, one that is given twice, or another number of names.
    """
    named: dict[str, list[str]] = {}
    for part in [] if text is None else text.split(","):
        key, equals, name = (piece.strip() for piece in part.rpartition("="))
        if equals and (key not in COLUMNS or key in named):
            raise ValueError(
                f"Expected `--columns` to have each of the keys {', '.join(COLUMNS)} once but got {part!r}."
            )
        if equals:
            named[key] = []
        if not named or not name:
            raise ValueError(f"Expected `--columns` to be KEY=NAME,... but got {part!r}.")
        named[[*named][-1]].append(name)
    for key, names in named.items():
        if COLUMNS[key] and len(names) not in COLUMNS[key]:
            counts = " or ".join(map(str, COLUMNS[key]))
            raise ValueError(f"Expected `{key}=` in `--columns` to name {counts} but got {', '.join(names)}.")
    return {key: names[0] if 1 in COLUMNS[key] and len(names) == 1 else names for key, names in named.items()}
