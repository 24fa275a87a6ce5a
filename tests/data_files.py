"""A folder with one of each kind of file that a data set reads."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import torch
from PIL import Image

from block_sources import Blocks, Plains
from quantus_concepts.datasets import write_bam, write_sub

_COCO = {
    "images": [{"id": 1, "file_name": "1.png", "height": 8, "width": 8}],
    "annotations": [{"id": 1, "image_id": 1, "category_id": 1, "area": 25, "segmentation": [[1, 1, 6, 1, 6, 6, 1, 6]]}],
    "categories": [{"id": 1, "name": "dog"}],
}
_RATING = {"img": "images/pets_0_cat.png", "explication": "images/pets_0_a_cat.png", "Annotation": [{"Q1": 3}]}
_TEXTS = {
    "file.txt": "no data",
    "concepts.csv": "class,red\ncat,1\ndog,0\n",
    "parts.csv": "image,part,x,y\ncat/0.png,red,1,1\n",
    "about.csv": "concept,part\nred,red\n",
    "coco.json": json.dumps(_COCO),
    "human_annotations.json": json.dumps([_RATING]),
}


def write_files(root: Path) -> Path:
    """Write the files, and two folders with nothing or something else in them."""
    for name, text in _TEXTS.items():
        (root / name).write_text(text)
    cutout = Image.new("RGBA", (8, 8))
    cutout.paste((200, 0, 0, 255), (2, 2, 6, 7))
    noise = Image.fromarray(np.random.default_rng(0).integers(0, 256, (8, 8, 3), dtype=np.uint8))
    places = [(f"{kind}/{name}/0.png", noise) for kind in ("scenes", "photographs") for name in ("cat", "dog")]
    places += [(f"cutouts/{name}/0.png", cutout) for name in ("cat", "dog")]
    for name, image in [*places, ("photographs/1.png", noise), ("images/pets_0_cat.png", noise)]:
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        image.save(root / name)
    np.save(root / "images" / "pets_0_a_cat.npy", np.eye(3, dtype=np.float32))
    (root / "folder").mkdir()
    write_bam(Blocks(), Plains(), root / "bam", n_per_pair=2, image_size=16, display_progressbar=False)
    write_sub([(torch.zeros(3, 4, 4), "a::b", "Jay")], root / "sub", attribute_names=["a::b"], bird_names=["Jay"])
    return root
