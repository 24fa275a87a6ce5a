"""Good arguments of `quantus_concepts.datasets`, where a constraint alone does not make one."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import torch

from block_sources import Blocks, Plains
from quantus_concepts import datasets as package
from quantus_concepts.datasets import ObjectsOnScenes, PaintedBirds, SimulatedRaters

PACKAGE = package
BIRDS = PaintedBirds(2, image_size=32, n_classes=2, n_concepts=4)
OBJECTS: Mapping[str, Callable[[], Any]] = {
    # Its view is refused before it looks at itself.
    "BAMFolder": lambda: object.__new__(package.BAMFolder),
    "ComposedDataset": lambda: ObjectsOnScenes(Blocks(), Plains(), n_per_pair=1, image_size=16),
    "ObjectsOnScenes": lambda: ObjectsOnScenes(Blocks(), Plains(), n_per_pair=1, image_size=16),
    "SimulatedRaters": SimulatedRaters,
}
GOOD: Mapping[str, Mapping[str, Any]] = {
    "BAMFolder": {"root": "bam"},
    "BAMFolder.with_view": {"view": "os"},
    "COCOObjects": {"annotations": "coco.json", "images": "photographs"},
    "CUB200": {"root": "CUB"},
    "ConceptFolder": {"root": "images", "concepts": __file__, "parts": __file__},
    "CutoutFolder": {"root": "cutouts"},
    "MixedScenes": {"scenes": Plains(), "others": Plains(), "seed": 1},
    "ObjectsOnScenes": {"objects": Blocks(), "scenes": Plains(), "image_size": 16},
    "PaintedBirds": {"n_images": 2, "n_classes": 2, "n_concepts": 4, "image_size": 32},
    "PaintedObjects": {"n_per_class": 1},
    "PaintedScenes": {"n_per_class": 1},
    "PaintedSubstitutions": {"birds": BIRDS},
    "PastaRatings": {"root": "ratings"},
    "SUB": {"root": "sub"},
    "SceneFolder": {"root": "scenes"},
    "SimulatedRaters": {"n_raters": 2},
    "SimulatedRaters.vote": {"expected": np.full((2, 6), 3)},
    "default_transform": {"image_size": 8},
    "leak_free_split": {"image_ids": list("abc") * 3, "explainer_ids": [name for name in "xyz" for _ in range(3)]},
    "simulated_ratings": {"n_images": 2, "n_per_image": 1, "image_size": 32, "n_classes": 2, "n_concepts": 26},
    "write_bam": {"objects": Blocks(), "scenes": Plains(), "out": "new_bam", "n_per_pair": 2, "image_size": 16},
    "write_sub": {
        **{"samples": [(torch.zeros(3, 2, 2), "a::b", "Jay")], "out": "new_sub"},
        **{"attribute_names": ["a::b"], "bird_names": ["Jay"]},
    },
}
#: Data sets that are read from files, and scenes of which there have to be more.
NOT_RUN = {"BAMFolder", "BAMFolder.with_view", "COCOObjects", "CUB200", "ConceptFolder", "CutoutFolder", "MixedScenes"}
NOT_RUN |= {"PastaRatings", "SUB", "SceneFolder"}
