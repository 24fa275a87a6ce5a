"""A folder with one of each kind of file that a data set reads."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import torch
from PIL import Image

from block_sources import Blocks, Plains
from quantus_concepts.datasets import write_bam, write_sub

_RATING = {"img": "images/pets_0_cat.png", "explication": "images/pets_0_a_cat.png", "Annotation": [{"Q1": 3}]}
_TEXTS = {
    "file.txt": "no data",
    "concepts.csv": "class,red\ncat,1\ndog,0\n",
    "parts.csv": "image,part,x,y\ncat/0.png,red,1,1\n",
    "about.csv": "concept,part\nred,red\n",
    "table.csv": "image,class,red,shape\ncat/0.png,cat,1,round\ndog/0.png,dog,0,long\n",
    "human_annotations.json": json.dumps([_RATING]),
}


def write_coco(path: Path, images: Path) -> None:
    """Write a photograph with a dog and a kite, which are rectangles, and their annotations."""
    images.mkdir(exist_ok=True)
    pixels = np.random.default_rng(0).integers(0, 256, (40, 60, 3), dtype=np.uint8)
    Image.fromarray(pixels).save(images / "1.png")
    objects = [(18, [8, 5, 28, 5, 28, 25, 8, 25]), (38, [32, 5, 52, 5, 52, 25, 32, 25])]
    content = {
        "images": [{"id": 1, "file_name": "1.png", "height": 40, "width": 60}],
        "categories": [{"id": 18, "name": "dog"}, {"id": 38, "name": "kite"}],
        "annotations": [
            {"id": kind, "image_id": 1, "category_id": kind, "segmentation": [outline], "area": 400}
            for kind, outline in objects
        ],
    }
    path.write_text(json.dumps(content))


def write_files(root: Path) -> Path:
    """Write the files, and two folders with nothing or something else in them."""
    for name, text in _TEXTS.items():
        (root / name).write_text(text)
    cutout = Image.new("RGBA", (8, 8))
    cutout.paste((200, 0, 0, 255), (2, 2, 6, 7))
    noise = Image.fromarray(np.random.default_rng(0).integers(0, 256, (8, 8, 3), dtype=np.uint8))
    kinds = {"scenes": noise, "cutouts": cutout}
    places = [(f"{kind}/{name}/0.png", image) for kind, image in kinds.items() for name in ("cat", "dog")]
    for name, image in [*places, ("images/pets_0_cat.png", noise)]:
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        image.save(root / name)
    np.save(root / "images" / "pets_0_a_cat.npy", np.eye(3, dtype=np.float32))
    (root / "folder").mkdir()
    write_coco(root / "coco.json", root / "photographs")
    write_bam(Blocks(), Plains(), root / "bam", n_per_pair=2, image_size=16, display_progressbar=False)
    write_sub([(torch.zeros(3, 4, 4), "a::b", "Jay")], root / "sub", attribute_names=["a::b"], bird_names=["Jay"])
    return root
