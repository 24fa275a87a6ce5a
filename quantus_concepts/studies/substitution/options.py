"""Options of `benchmark substitution`, and the names of its models and labels."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from quantus_concepts.studies._kit.command import MANY, RUN, RunOptions, option, redeclared
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

SUB = "sub"
DATA = (PAINTED, SUB)
PAINTED_SIZE = 64

POST_HOC = "post-hoc CBM"
INDEPENDENT = "CBM, independent"
JOINT = "CBM, joint"
SEPARATE = "CBM, one network per concept"
EMBEDDING = "concept embedding model"
SAVED = "post-hoc CBM, saved"
ORACLE = "oracle"
MEMORISER = "class-memoriser"
RECITER = "class-memoriser, own class"
RANDOM = "random directions"

#: In the order of every table.
TRAINED = (POST_HOC, INDEPENDENT, JOINT, SEPARATE, EMBEDDING, SAVED)
CONTROLS = (ORACLE, MEMORISER, RECITER, RANDOM)
MODELS = (*TRAINED, *CONTROLS)

CLASS_HARD, CLASS_SOFT = "per class, hard", "per class, soft"
IMAGE_HARD, IMAGE_SOFT = "per image, hard", "per image, soft"
LABELS = (CLASS_HARD, CLASS_SOFT, IMAGE_HARD, IMAGE_SOFT)
#: Which models are trained on which labels: the paper's rows, and those of concept embedding models.
ROWS = {
    POST_HOC: (CLASS_HARD, IMAGE_HARD),
    INDEPENDENT: LABELS,
    JOINT: LABELS,
    SEPARATE: (CLASS_HARD,),
    EMBEDDING: (CLASS_HARD, IMAGE_HARD),
}
#: The models of the curve over the correlation, trained with labels as in the paper.
CURVE = {POST_HOC: (CLASS_HARD,), INDEPENDENT: (CLASS_HARD,)}

#: Separates a model from its labels in a name of both.
OF = " | "

_DATA = "Data"
_OF_SUB = ("per_pair", "backbone", *SmallNetworkOptions.not_small, "cbm")


def row_name(model: str, labels: str = "") -> str:
    """Name a model with its labels."""
    return f"{model}{OF}{labels}" if labels else model


@dataclass(frozen=True, kw_only=True)
class SubstitutionOptions(SmallNetworkOptions, PaintedOptions, DataOptions, RunOptions):
    """Replace one attribute of a bird by another: does a concept model see it, or recite its class?

    With no option: birds are painted with and without the substitution, concept models of every kind are trained, and
    compared with an oracle, a model that recites the class, and random directions. Prints the main table; the last
    line is the folder with report.html, results.csv and the figures.
    """

    examples = (
        "benchmark substitution --seeds 3",
        "benchmark substitution --data sub --root SUB --cub-root CUB_200_2011 --backbone resnet18",
    )
    quick = "--n-train 30 --n-test 15 --n-classes 3 --n-concepts 8 --image-size 32 --epochs 1 --correlations none"

    needs: ClassVar[Belongs] = {PAINTED: (), SUB: ("root", "cub_root")}
    takes: ClassVar[Belongs] = {SUB: _OF_SUB}
    not_small = (*SmallNetworkOptions.not_small, "cbm")
    painted_only = (*PaintedOptions.painted_only, "correlations")

    data: str = option(PAINTED, f"Which images: {', '.join(DATA)}.", panel=_DATA, choices=DATA)
    root: Path | None = option(None, "sub: folder of the Parquet files of SUB.", panel=_DATA, path="folder")
    cub_root: Path | None = option(
        None, "sub: folder of CUB-200-2011, to train on and for T.", panel=_DATA, path="folder"
    )
    per_pair: int | None = option(None, "sub: images of each pair; by default all.", panel=_DATA, bounds=(1, MANY))
    image_size: int | None = option(
        None, f"Height and width in pixels (painted: {PAINTED_SIZE}).", panel=_DATA, bounds=(32, 4096)
    )
    cbm: Path | None = option(
        None,
        "File of PostHocCBM.save with that backbone and CUB's concepts, to score too.",
        panel="Backbone",
        path="file",
    )
    encoders: str | None = option(
        None,
        "Vision-language models to evaluate too, separated by commas; embedded is untrained (baseline).",
        panel=_DATA,
    )
    n_train: int = redeclared(PaintedOptions, "n_train", 1200)
    n_test: int = redeclared(PaintedOptions, "n_test", 300)
    n_concepts: int = redeclared(PaintedOptions, "n_concepts", 40)
    correlations: str = option("0,0.5,1", "Other correlations, of the curve; or none.", panel=PAINTED_PANEL)
    epochs: int = redeclared(PaintedOptions, "epochs", 6)
    random_banks: int = option(N_BANKS, "Number of random banks (baseline).", panel=RUN, bounds=(N_BANKS, MANY))
    seeds: int = option(1, "Number of seeds, counted up from --seed.", panel=RUN, bounds=(1, 1000))

    def __post_init__(self) -> None:
        from captum_concepts._support.checks import check_range

        super().__post_init__()
        for correlation in self.curve:
            check_range("--correlations", correlation, 0, 1)
        if self.data == SUB and self.seeds > 1:
            raise ValueError(
                f"Argument `--seeds` has no effect with `--data {SUB}`, whose images are given. Leave it out."
            )

    @property
    def default_backbone(self) -> str:
        """The backbone that belongs to the data."""
        return SMALL if self.data == PAINTED else "resnet18_cub"

    @property
    def curve(self) -> tuple[float, ...]:
        """The correlations of the curve in ascending order, that of the main table among them; empty for no curve."""
        if self.correlations == "none" or self.data == SUB:
            return ()
        try:
            correlations = {float(part) for part in self.correlations.split(",")}
        except ValueError as error:
            raise ValueError(
                f"Expected argument `--correlations` to be numbers, 0,0.5,1, or none, but got {self.correlations!r}."
            ) from error
        return tuple(sorted(correlations | {self.correlation}))

    @property
    def idle(self) -> tuple[str, ...]:
        """Options of other data, and of training where there is none."""
        return (*super().idle, *(_OF_SUB if self.painted else ()), *(() if self.trains else ("epochs",)))
