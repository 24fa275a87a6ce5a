"""Options that studies share: their data, painted birds, and the network that is evaluated; no library is loaded."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from quantus_concepts.studies._kit.command import MANY, Options, named_as_typed, option, option_name

if TYPE_CHECKING:
    from quantus_concepts.datasets import COCOObjects

SMALL, PAINTED = "small", "painted"
#: Pixels for each place of the small network's maps.
STRIDE = 8
#: Smallest and largest painted birds, in pixels.
PAINTED_SIZES = 32, 512
#: The range of so many is their smallest to their largest; `functional.intervals.N_DRAWS`, which loads NumPy.
N_BANKS = 39
#: Names of options by kind of data.
Belongs = Mapping[str, tuple[str, ...]]
_BACKBONE, _DATA, _COCO = "Backbone", "Data", "Objects of COCO"
PAINTED_PANEL = "Painted birds, and training on them"


@dataclass(frozen=True, kw_only=True)
class DataOptions(Options):
    """Which images; options of one kind of data have no effect on another."""

    #: By kind of data: the options that it needs, and those that it may have as well.
    needs: ClassVar[Belongs] = {}
    takes: ClassVar[Belongs] = {}

    data: str = option(PAINTED, "Which images.", panel=_DATA)

    def __post_init__(self) -> None:
        super().__post_init__()
        belongs = {kind: (*self.needs[kind], *self.takes.get(kind, ())) for kind in self.needs}
        for name in dict.fromkeys(name for names in belongs.values() for name in names):
            if getattr(self, name) in (None, False):
                if name in self.needs[self.data]:
                    raise ValueError(
                        f"Expected argument `{option_name(name)}` with `--data {self.data}` but it is missing."
                    )
            elif name not in belongs[self.data]:
                raise ValueError(
                    f"Argument `{option_name(name)}` has no effect with `--data {self.data}`. Leave it out, or choose "
                    f"the data it belongs to: {', '.join(kind for kind in belongs if name in belongs[kind])}."
                )


@dataclass(frozen=True, kw_only=True)
class PaintedOptions(Options):
    """The painted birds that models are trained and tested on; with `DataOptions` they may be other images."""

    late: ClassVar[int] = 1
    #: Options that have no effect on other images.
    painted_only: ClassVar[tuple[str, ...]] = (
        *("n_train", "n_test", "n_classes", "n_concepts", "correlation", "deviation"),
    )

    n_train: int = option(2400, "Training images.", panel=PAINTED_PANEL, bounds=(1, MANY))
    n_test: int = option(600, "Test images.", panel=PAINTED_PANEL, bounds=(1, MANY))
    n_classes: int = option(20, "Classes.", panel=PAINTED_PANEL, bounds=(2, 60))
    n_concepts: int = option(69, "Concepts.", panel=PAINTED_PANEL, bounds=(4, 104))
    correlation: float = option(0.0, "Correlation of attributes, 0 to 1.", panel=PAINTED_PANEL, bounds=(0, 1))
    deviation: float = option(
        0.1, "Share of attributes that deviate from the class.", panel=PAINTED_PANEL, bounds=(0, 1)
    )
    epochs: int = option(9, "Passes over the training images.", panel=PAINTED_PANEL, bounds=(1, MANY))

    def __post_init__(self) -> None:
        from captum_concepts._support.checks import check_range

        super().__post_init__()
        if not self.painted:
            return
        for name in ("n_train", "n_test"):
            # Each class has to occur.
            check_range(option_name(name), getattr(self, name), self.n_classes, MANY)
        if (size := getattr(self, "image_size", None)) is not None:
            check_range("--image-size", size, *PAINTED_SIZES)

    @property
    def painted(self) -> bool:
        """Whether the images are painted birds."""
        return getattr(self, "data", PAINTED) == PAINTED

    @property
    def idle(self) -> tuple[str, ...]:
        """Options of painted birds, with other images."""
        return (*super().idle, *(() if self.painted else self.painted_only))

    def birds(self, size: int, seed: int) -> dict[str, Any]:
        """Return settings of `PaintedBirds`."""
        names = ("n_classes", "n_concepts", "deviation", "correlation")
        return {"image_size": size, "seed": seed} | {name: getattr(self, name) for name in names}


@dataclass(frozen=True, kw_only=True)
class NetworkOptions(Options):
    """Which network is evaluated, and how it takes its images."""

    late: ClassVar[int] = 1

    backbone: str | None = option(
        None, "small (trained here), resnet18_cub, a torchvision or timm name, or path.py:factory.", panel=_BACKBONE
    )
    layer: str | None = option(None, "Layer whose maps are used; by default the last before pooling.", panel=_BACKBONE)
    weights: str | None = option(None, "File of weights (safetensors or state dict), or none.", panel=_BACKBONE)
    mean: str | None = option(None, "Normalisation: mean per channel, 0.5,0.5,0.5.", panel=_BACKBONE)
    std: str | None = option(None, "Normalisation: deviation per channel.", panel=_BACKBONE)
    unnormalised: bool = option(False, "The backbone takes images in [0, 1].", panel=_BACKBONE)
    image_size: int | None = option(
        None,
        "Height and width in pixels; by default the size for which the backbone is made.",
        panel=_BACKBONE,
        bounds=(8, 4096),
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        _ = self.normalisation

    def settings(self) -> dict[str, str]:
        """Return what a report lists, the backbone that is the default among it."""
        settings = super().settings()
        return settings if "backbone" in self.idle else settings | {"backbone": self.backbone_name}

    @property
    def backbone_name(self) -> str:
        """The backbone, or the one that belongs to the data."""
        return self.backbone if self.backbone is not None else self.default_backbone

    @property
    def default_backbone(self) -> str:
        """The backbone where none is given."""
        return SMALL

    @property
    def trains(self) -> bool:
        """Whether the small network is trained on the images, rather than another one used as it is."""
        return self.backbone_name == SMALL

    @property
    def normalisation(self) -> dict[str, Any]:
        """The normalisation of `--mean`, `--std` and `--unnormalised`, as arguments of `load_network`."""
        mean, std = _channel_numbers("--mean", self.mean), _channel_numbers("--std", self.std)
        if (mean is None) != (std is None):
            raise ValueError("Expected arguments `--mean` and `--std` to be given together but got only one of them.")
        if self.unnormalised and mean is not None:
            raise ValueError("Expected either `--mean` and `--std` or `--unnormalised` but got both.")
        if std is not None and min(std) <= 0:
            raise ValueError(f"Expected argument `--std` to hold numbers above 0 but got {self.std}.")
        return {"mean": mean, "std": std, "unnormalised": self.unnormalised}


@dataclass(frozen=True, kw_only=True)
class SmallNetworkOptions(NetworkOptions):
    """A network that is evaluated, by default a small one that is trained on the images."""

    late: ClassVar[int] = 1
    #: Options that have no effect on the small network.
    not_small: ClassVar[tuple[str, ...]] = ("layer", "weights", "mean", "std", "unnormalised")

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.trains:
            return
        self.refuse(self.not_small, "belongs to a network of your own: name it with --backbone.")
        if self.image_size is not None and self.image_size % STRIDE:
            raise ValueError(
                f"Expected argument `--image-size` to be a multiple of {STRIDE}, the stride of the small network, "
                f"but got {self.image_size}."
            )


def _channel_numbers(name: str, text: str | None) -> tuple[float, ...] | None:
    """Read the numbers of `--mean` or `--std`, one a channel."""
    if text is None:
        return None
    try:
        numbers = tuple(float(part) for part in text.replace(" ", ",").split(",") if part)
    except ValueError:
        numbers = ()
    if not numbers or not all(math.isfinite(number) for number in numbers):
        raise ValueError(f"Expected argument `{name}` to be one number a channel, 0.5,0.5,0.5, but got {text!r}.")
    return numbers


@dataclass(frozen=True, kw_only=True)
class COCOOptions(Options):
    """Which classes of COCO are used."""

    late: ClassVar[int] = 1

    object_classes: str | None = option(
        None, "Classes, with commas between; by default the ten of the paper's release.", panel=_COCO
    )
    min_photographs: int | None = option(
        None,
        "Leave out classes with objects in fewer photographs; by default a class without any raises an error. "
        "2 or more suits a part of COCO.",
        panel=_COCO,
        bounds=(1, MANY),
    )

    def coco_objects(self, annotations: Path, images: str | Path) -> COCOObjects:
        """Open the objects of COCO."""
        from quantus_concepts.datasets import COCOObjects
        from quantus_concepts.datasets.scenes.coco_objects import RELEASE_OBJECTS

        names = RELEASE_OBJECTS if self.object_classes is None else self.object_classes.split(",")
        chosen = [name.strip() for name in names]
        with named_as_typed(type(self), class_names="--object-classes", images="--objects"):
            try:
                return COCOObjects(annotations, images, chosen, min_photographs=self.min_photographs)
            except ImportError as error:  # reported in one line, as other bad input
                raise ValueError(str(error)) from error
