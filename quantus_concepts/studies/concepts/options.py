"""Options of `quantus-concepts benchmark concepts`: each option declared once, checked before any work."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from quantus_concepts.studies._kit.command import AUTO, MANY, RUN, EngineOptions, RunOptions, option
from quantus_concepts.studies._models.options import (
    N_BANKS,
    PAINTED,
    PAINTED_PANEL,
    SMALL,
    Belongs,
    DataOptions,
    PaintedOptions,
    SmallNetworkOptions,
)

CUB, FOLDER = "cub", "folder"
DATA = (PAINTED, CUB, FOLDER)
LABELS = ("image", "majority")
FLOAT32, BFLOAT16 = "float32", "bfloat16"
#: Defaults by kind of data.
DEFAULT_BACKBONE = {PAINTED: SMALL, CUB: "resnet18_cub", FOLDER: "resnet18"}
DEFAULT_SEEDS = {PAINTED: 4, CUB: 1, FOLDER: 1}
#: As in `captum_concepts.bank.directions`, `bank.learnable` and `models.cbm`, whose import takes seconds.
METHODS, MIN_IMAGES, VALUES = ("svm", "mean"), 10, ("margin", "raw")

_DATA, _BANK = "Data", "Concept bank"


@dataclass(frozen=True, kw_only=True)
class ConceptOptions(SmallNetworkOptions, PaintedOptions, DataOptions, EngineOptions, RunOptions):
    """Evaluate a post-hoc concept bottleneck model: are its concepts real, present, and in the right place?

    With no option: painted birds are drawn, a small network is trained, and the post-hoc model is compared with
    a traditional one, an oracle and random directions. Prints the main table; the last line is the folder with
    report.html, results.csv and the figures.
    """

    examples = (
        "benchmark concepts --seeds 2",
        "benchmark concepts --data cub --root CUB_200_2011 --backbone resnet18",
    )
    quick = "--n-train 60 --n-test 18 --n-classes 3 --n-concepts 8 --image-size 32 --epochs 1 --seeds 1 --no-sweep"

    needs: ClassVar[Belongs] = {PAINTED: (), CUB: ("root",), FOLDER: ("root", "concepts")}
    takes: ClassVar[Belongs] = {CUB: ("concepts",), FOLDER: ("parts", "part_of_concept")}

    data: str = option(PAINTED, f"Which images: {', '.join(DATA)}.", panel=_DATA, choices=DATA)
    root: Path | None = option(None, "Folder of the images (cub: the official layout).", panel=_DATA, path="folder")
    concepts: str | None = option(
        None,
        "folder: CSV of concepts per image or per class. cub: names or patterns of concepts, with commas between.",
        panel=_DATA,
    )
    min_images: int = option(
        MIN_IMAGES,
        "Minimum number of training images with a concept, and without it; other concepts are left out.",
        panel=_DATA,
        bounds=(1, MANY),
    )
    parts: Path | None = option(None, "folder: CSV of part points, for CLM.", panel=_DATA, path="file")
    part_of_concept: Path | None = option(
        None, "folder: CSV of concept and part, where names do not tell.", panel=_DATA, path="file"
    )
    labels: str = option(
        "image",
        "cub: concept labels per image, or by majority of the class (majority).",
        panel=_DATA,
        choices=LABELS,
    )
    method: str = option("svm", "svm, or mean (FastCAV).", panel=_BANK, choices=METHODS)
    C: float = option(1.0, "Regularisation of the SVM.", panel=_BANK, flag="--C", bounds=(0, MANY), open_low=True)
    n_pos: int = option(100, "Number of images with the concept.", panel=_BANK, bounds=(1, MANY))
    n_neg: int = option(100, "Number of images without the concept.", panel=_BANK, bounds=(1, MANY))
    values: str = option("margin", "Concept values: margin or raw.", panel=_BANK, choices=VALUES)
    random_banks: int = option(N_BANKS, "Number of random banks (baseline).", panel=_BANK, bounds=(N_BANKS, MANY))
    interventions: bool = option(True, "Accuracy while people correct concepts.", panel=_BANK)
    sweep: bool = option(True, "Try other C and numbers of images (Table 3).", panel=_BANK)
    explore: bool = option(False, "Write explore.html, a page to explore test images and correct concepts.", panel=RUN)
    precision: str = option(
        AUTO,
        "float32, bfloat16 (weights stay float32), or auto: bfloat16 where the processor multiplies in it.",
        panel=PAINTED_PANEL,
        choices=(AUTO, FLOAT32, BFLOAT16),
    )
    readers: int = option(
        0, "Number of processes that read images; 0 reads in the main process.", panel=RUN, bounds=(0, 256)
    )
    seeds: int | None = option(
        None,
        f"Number of seeds, counted up from --seed (painted: {DEFAULT_SEEDS[PAINTED]}, else 1).",
        panel=RUN,
        bounds=(1, 1000),
    )

    def __post_init__(self) -> None:
        from captum_concepts._support.checks import check_file

        super().__post_init__()
        if self.data == FOLDER:
            check_file("--concepts", self.concepts)

    @property
    def in_bfloat16(self) -> bool:
        """Whether the small networks are trained in bfloat16."""
        from quantus_concepts.studies._models.training import processor_has_bfloat16

        if self.precision == AUTO:
            return self.torch_device().type == "cpu" and processor_has_bfloat16()
        return self.precision == BFLOAT16

    @property
    def concept_patterns(self) -> list[str] | None:
        """The names and patterns of `--concepts` with `--data cub`; None for all concepts."""
        return None if self.concepts is None else [name.strip() for name in self.concepts.split(",")]

    @property
    def default_backbone(self) -> str:
        """The backbone that belongs to the data."""
        return DEFAULT_BACKBONE[self.data]

    @property
    def n_seeds(self) -> int:
        """How many times everything that is drawn is drawn."""
        return self.seeds if self.seeds is not None else DEFAULT_SEEDS[self.data]

    @property
    def threshold(self) -> float | None:
        """Value above which a concept is predicted present; not known for raw values, which lack the intercept."""
        return 0.0 if self.values == "margin" else None

    def settings(self) -> dict[str, str]:
        """Return what a report lists, with the number of seeds that is the default."""
        return super().settings() | {"seeds": str(self.n_seeds)}

    @property
    def idle(self) -> tuple[str, ...]:
        """Options of painted birds with other data, and of training where there is none."""
        return (*super().idle, *(() if self.trains else ("epochs", "precision")))
