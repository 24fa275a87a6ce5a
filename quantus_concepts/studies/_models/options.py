"""The options of a network that is evaluated, shared by the studies that take one; no library is loaded for them."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from quantus_concepts.studies._kit.command import MANY, Options, named_as_typed, option, option_name

if TYPE_CHECKING:
    from quantus_concepts.datasets import COCOObjects

SMALL = "small"
_PANEL, _COCO_PANEL = "Backbone", "Objects of COCO"


@dataclass(frozen=True, kw_only=True)
class NetworkOptions(Options):
    """Which network is evaluated, and how it takes its images."""

    late: ClassVar[int] = 1

    backbone: str | None = option(
        None, "small (trained here), resnet18_cub, a torchvision or timm name, or path.py:factory.", panel=_PANEL
    )
    layer: str | None = option(None, "Layer whose maps are used; by default the last before pooling.", panel=_PANEL)
    weights: str | None = option(None, "File of weights (safetensors or state dict), or none.", panel=_PANEL)
    mean: str | None = option(None, "Normalisation: mean per channel, 0.5,0.5,0.5.", panel=_PANEL)
    std: str | None = option(None, "Normalisation: deviation per channel.", panel=_PANEL)
    unnormalised: bool = option(False, "The backbone takes images in [0, 1].", panel=_PANEL)

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
        """What `--mean`, `--std` and `--unnormalised` say, as `load_network` takes it."""
        from quantus_concepts.studies._models.networks import said_normalisation

        return said_normalisation(self.mean, self.std, self.unnormalised)


@dataclass(frozen=True, kw_only=True)
class COCOOptions(Options):
    """Which classes of COCO are used."""

    late: ClassVar[int] = 1

    object_classes: str | None = option(
        None, "Classes, with commas between; by default the ten of the paper's release.", panel=_COCO_PANEL
    )
    min_photographs: int | None = option(
        None,
        "Leave out classes with objects in fewer photographs; by default a class without any raises an error. "
        "2 or more suits a part of COCO.",
        panel=_COCO_PANEL,
        bounds=(1, MANY),
    )

    def check_coco(self, used: bool, needed: str) -> None:
        """Raise if classes of COCO are chosen but COCO is not used."""
        for name in ("object_classes", "min_photographs"):
            if getattr(self, name) is not None and not used:
                raise ValueError(f"Argument `{option_name(name)}` has no effect without {needed}. Leave it out.")

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
