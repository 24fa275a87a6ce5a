"""The options of `compose`."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from quantus_concepts.studies.command import OutOptions, ProgressOptions, option

PAINTED = "painted"


@dataclass(frozen=True, kw_only=True)
class ComposeOptions(ProgressOptions, OutOptions):
    """Compose objects on scenes and write them in the layout of the paper's release, which --data bam reads."""

    objects: str = option(
        PAINTED, "painted, a folder of RGBA cut-outs by class, or with --annotations COCO's photographs."
    )
    scenes: str = option(PAINTED, "painted, or a folder of scenes by class.")
    annotations: Path | None = option(None, "COCO's instances_*.json.")
    n_per_pair: int = option(100, "Images of each pair of object and scene.")
    image_size: int = option(128, "Height and width in pixels.")
    test_share: float = option(0.1, "Share of images, cut-outs and scenes for validation.")
    lossless: bool = option(False, "PNG in place of JPEG.")
    seed: int = option(0, "Of every choice.")
