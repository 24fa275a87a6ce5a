"""Options of `quantus-concepts benchmark substitution`: each option declared once, checked before any work."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from quantus_concepts.studies._kit.command import MANY, RUN, RunOptions, option, option_name
from quantus_concepts.studies._models.options import SMALL, NetworkOptions
from quantus_concepts.studies.concepts.options import N_BANKS

PAINTED, SUB = "painted", "sub"
DATA = (PAINTED, SUB)
PAINTED_SIZE = 64

_DATA, _PAINTED = "Data", "Painted birds, and training on them"
_OF_NETWORK = ("layer", "weights", "mean", "std", "unnormalised", "cbm")
_OF_SUB = ("root", "cub_root", "per_pair", "backbone", *_OF_NETWORK)
_OF_PAINTED = ("n_train", "n_test", "n_classes", "n_concepts", "deviation", "correlation", "correlations")


@dataclass(frozen=True, kw_only=True)
class SubstitutionOptions(NetworkOptions, RunOptions):
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

    data: str = option(PAINTED, f"Which images: {', '.join(DATA)}.", panel=_DATA, choices=DATA)
    root: Path | None = option(None, "sub: folder of the Parquet files of SUB.", panel=_DATA)
    cub_root: Path | None = option(None, "sub: folder of CUB-200-2011, to train on and for T.", panel=_DATA)
    per_pair: int | None = option(None, "sub: images of each pair; by default all.", panel=_DATA, bounds=(1, MANY))
    image_size: int | None = option(
        None, f"Height and width in pixels (painted: {PAINTED_SIZE}).", panel=_DATA, bounds=(32, 4096)
    )
    cbm: Path | None = option(
        None,
        "File of PostHocCBM.save with that backbone and CUB's concepts, to score too.",
        panel="Backbone",
    )
    encoders: str | None = option(
        None,
        "Vision-language models to evaluate too, separated by commas; embedded is untrained (baseline).",
        panel=_DATA,
    )
    n_train: int = option(1200, "Training images.", panel=_PAINTED, bounds=(1, MANY))
    n_test: int = option(300, "Test images; of each one attribute is replaced.", panel=_PAINTED, bounds=(1, MANY))
    n_classes: int = option(20, "Classes.", panel=_PAINTED, bounds=(2, 60))
    n_concepts: int = option(40, "Concepts.", panel=_PAINTED, bounds=(4, 104))
    deviation: float = option(0.1, "Share of attributes that deviate from the class.", panel=_PAINTED, bounds=(0, 1))
    correlation: float = option(0.0, "Correlation of attributes, 0 to 1.", panel=_PAINTED, bounds=(0, 1))
    correlations: str = option("0,0.5,1", "Other correlations, of the curve; or none.", panel=_PAINTED)
    epochs: int = option(6, "Passes over the training images.", panel=_PAINTED, bounds=(1, MANY))
    random_banks: int = option(N_BANKS, "Number of random banks (baseline).", panel=RUN, bounds=(N_BANKS, MANY))
    seeds: int = option(1, "Number of seeds, counted up from --seed.", panel=RUN, bounds=(1, 1000))

    def __post_init__(self) -> None:
        """Raise ValueError for what is out of bounds or does not go together."""
        from captum_concepts._support.checks import check_range
        from quantus_concepts.studies._models.training import STRIDE

        super().__post_init__()
        self._check_data()
        for name in ("n_train", "n_test") if self.data == PAINTED else ():
            # Each class has to occur.
            check_range(option_name(name), getattr(self, name), self.n_classes, MANY)
        if self.trains and self.image_size is not None and (self.image_size % STRIDE or self.image_size > 512):
            raise ValueError(
                f"Expected argument `--image-size` to be a multiple of {STRIDE}, the stride of the small network, up "
                f"to 512 but got {self.image_size}."
            )
        for each in self.curve:
            check_range("--correlations", each, 0, 1)
        self.torch_device()

    def _check_data(self) -> None:
        from captum_concepts._support.checks import check_file, check_folder

        for name in (name for name in _OF_SUB if getattr(self, name) not in (None, False)):
            if self.data == PAINTED:
                raise ValueError(
                    f"Argument `{option_name(name)}` has no effect with `--data {PAINTED}`. Leave it out, or choose "
                    f"the data it belongs to: `--data {SUB}`."
                )
            if self.trains and name in _OF_NETWORK:
                raise ValueError(
                    f"Argument `{option_name(name)}` belongs to a network of your own: name it with --backbone."
                )
        if self.data == PAINTED:
            return
        for name, path in (("--root", self.root), ("--cub-root", self.cub_root)):
            if path is None:
                raise ValueError(f"Expected argument `{name}` with `--data {SUB}` but it is missing.")
            check_folder(name, path)
        if self.cbm is not None:
            check_file("--cbm", self.cbm)
        if self.seeds > 1:
            raise ValueError(
                f"Argument `--seeds` has no effect with `--data {SUB}`, whose images are given. Leave it out."
            )
        _ = self.normalisation

    @property
    def default_backbone(self) -> str:
        """The backbone that belongs to the data."""
        return SMALL if self.data == PAINTED else "resnet18_cub"

    @property
    def curve(self) -> tuple[float, ...]:
        """The correlations of the curve, in order and with the one of all other numbers; none where none is asked."""
        if self.correlations == "none" or self.data == SUB:
            return ()
        try:
            asked = {float(part) for part in self.correlations.split(",")}
        except ValueError as error:
            raise ValueError(
                f"Expected argument `--correlations` to be numbers, 0,0.5,1, or none, but got {self.correlations!r}."
            ) from error
        return tuple(sorted(asked | {self.correlation}))

    def settings(self) -> dict[str, str]:
        """Return what a report lists, with what is meant where nothing was said."""
        return super().settings() | {"device": str(self.torch_device())}

    @property
    def idle(self) -> tuple[str, ...]:
        """Options of other data, and of training where there is none."""
        return (*(_OF_SUB if self.data == PAINTED else _OF_PAINTED), *(() if self.trains else ("epochs",)))
