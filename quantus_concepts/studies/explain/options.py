"""The options of `explain`."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from quantus_concepts.studies._kit.command import (
    DeviceOptions,
    ProgressOptions,
    SeedOptions,
    TableOptions,
    option,
)
from quantus_concepts.studies._models.options import NetworkOptions

_WHAT = "Images and concepts"
_LIBRARIES = ("torchvision", "timm", "open_clip", "transformers")
_WITH_TEXTS = ("open_clip:", "transformers:CLIPModel:", "transformers:SiglipModel:")


@dataclass(frozen=True, kw_only=True)
class ExplainOptions(NetworkOptions, ProgressOptions, TableOptions, SeedOptions, DeviceOptions):
    """Show which concepts a network sees in images, where, and what they add to its prediction.

    With no option: painted birds and a small network that is trained on them. Prints a table; the last line is the
    folder with explain.html, on which concepts can be corrected, a picture of each image, and results.csv.
    """

    examples: ClassVar[tuple[str, ...]] = (
        "explain --image zebra.jpg --concepts concepts --backbone resnet18",
        "explain --image zebra.jpg --text striped --text furry --backbone open_clip:ViT-B-32:openai",
    )
    quick = "--n-train 40"

    image: list[Path] | None = option(None, "Photograph; may be given several times.", panel=_WHAT, path="file")
    concepts: Path | None = option(
        None,
        "Folder with one folder of example images per concept, and folders of random images.",
        panel=_WHAT,
        path="folder",
    )
    text: list[str] | None = option(None, "Concept as a text, for CLIP and SigLIP; several times.", panel=_WHAT)
    cbm: Path | None = option(None, "File of a concept model, in place of concepts.", panel=_WHAT, path="file")
    top: int = option(4, "Concepts of each image in the table and the pictures.", panel=_WHAT, bounds=(1, 20))
    random_banks: int = option(
        39,
        "Number of banks of random directions, the baseline of values and contributions.",
        panel=_WHAT,
        bounds=(0, 1000),
    )
    n_train: int = option(600, "Painted birds that the small network is trained on.", panel=_WHAT, bounds=(40, 100_000))

    def __post_init__(self) -> None:
        super().__post_init__()
        sources = {"--concepts": self.concepts, "--text": self.text, "--cbm": self.cbm}
        named = [name for name, value in sources.items() if value]
        if len(named) > 1:
            raise ValueError(f"Expected one of {', '.join(sources)} but got {' and '.join(named)}.")
        if self.image and not named:
            raise ValueError("Expected argument `--concepts`, `--text` or `--cbm` with `--image` but got none.")
        if named and not self.image:
            raise ValueError(f"Expected argument `--image` with `{named[0]}` but it is missing.")
        if self.trains and self.image and self.cbm is None:
            raise ValueError("Expected argument `--backbone` with `--image`: the network that is explained.")
        if not self.trains and not self.image:
            raise ValueError("Expected argument `--image` with `--backbone` but it is missing.")
        if self.library:
            from captum_concepts.backbones.named import check_source

            check_source("--backbone", self.backbone_name)
            name = self.backbone_name
            reason = f"belongs to another network: the name {name} stands for weights and layer."
            self.refuse(("layer", "weights"), reason)
        if self.text and not self.backbone_name.startswith(_WITH_TEXTS):
            raise ValueError(
                "Expected argument `--backbone` to be a model that reads texts with `--text`, "
                "open_clip:ViT-B-32:openai or transformers:CLIPModel:openai/clip-vit-base-patch32 for instance, but "
                f"got {self.backbone_name!r}."
            )
        if not self.image:
            self.refuse(("layer", "weights", "mean", "image_size"), "belongs to a network of your own: give --image.")

    @property
    def concept_folder(self) -> Path:
        """The folder of concepts, where they are neither texts nor in a file."""
        if self.concepts is None:
            raise ValueError("Expected argument `--concepts`, a folder of example images, but it is missing.")
        return self.concepts

    @property
    def library(self) -> bool:
        """Whether the backbone is named with its library, as files of concept models have it."""
        return self.backbone_name.partition(":")[0] in _LIBRARIES

    @property
    def classifies(self) -> bool:
        """Whether a backbone that is named with its library has classes of its own."""
        library, name, *_ = self.backbone_name.split(":")
        return library in ("torchvision", "timm") or name.endswith("ForImageClassification")

    @property
    def idle(self) -> tuple[str, ...]:
        """Options of the painted birds, where there are others."""
        return ("n_train",) if self.image else ()
