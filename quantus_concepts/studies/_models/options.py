"""The options of a network that is evaluated, shared by the studies that take one; no library is loaded for them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from quantus_concepts.studies._kit.command import Options, option

SMALL = "small"
_PANEL = "Backbone"


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
