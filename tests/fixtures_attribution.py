"""Cut-outs and scenes of two classes each as files, and the options of a tiny run of the benchmark."""

from __future__ import annotations

import json
import shlex
from pathlib import Path

import numpy as np
from PIL import Image

OBJECTS, SCENES = ("leaf", "stone"), ("beach", "forest")
METHOD = """
import captum.attr
import numpy as np


def inverted(model):
    return captum.attr.Saliency(model)


def explains(model, inputs, targets, **kwargs):
    return np.abs(inputs)


def fails(model, inputs, targets, **kwargs):
    raise RuntimeError("no\\n explanation")


def gives_nan(model, inputs, targets, **kwargs):
    return np.full(inputs.shape, np.nan)


number = 3
"""
#: Of the smallest run there is.
QUICK = (
    "--n-train 4 --n-test 4 --test-share 0.25 --image-size 16 --epochs 2 --batch-size 16 --train-batch-size 16 "
    "--n-images 12 --n-patches 4 --patch-steps 5 --n-samples 2 --n-steps 3"
)
TINY = shlex.split(f"{QUICK} --no-progress --device cpu")
FOLDERS = shlex.split("--data folders --objects cutouts --scenes scenes")


def write_folders(root: Path, n: int = 8) -> Path:
    """Write RGBA cut-outs as PNG (red, or green), scenes as JPEG (rows, or columns), and a file of methods."""
    rng = np.random.default_rng(0)
    for label, name in enumerate(OBJECTS):
        folder = root / "cutouts" / name
        folder.mkdir(parents=True)
        for number in range(n):
            rgba = np.zeros((12, 14, 4), dtype=np.uint8)
            rgba[2:10, 1:13, label] = rng.integers(180, 255)
            rgba[2:10, 1:13, 3] = 255
            Image.fromarray(rgba).save(folder / f"{number}.png")
    for label, name in enumerate(SCENES):
        folder = root / "scenes" / name
        folder.mkdir(parents=True)
        for number in range(n):
            stripes = np.broadcast_to(np.arange(24)[:, None] // 4 % 2 * rng.integers(120, 250), (24, 24))
            pixels = np.zeros((24, 24, 3), dtype=np.uint8)
            pixels[..., 2] = stripes if label == 0 else stripes.T
            Image.fromarray(pixels).save(folder / f"{number}.jpg")
    (root / "methods.py").write_text(METHOD)
    return root


def write_coco(root: Path, segmentation: object = None, n: int = 20) -> Path:
    """Write photographs with one square object each, of ten classes in turn, and return their annotations."""
    names = ["backpack", "bird", "dog", "elephant", "kite", "pizza", "stop sign", "toilet", "truck", "zebra"]
    (root / "photographs").mkdir(exist_ok=True)
    images, annotations = [], []
    for number in range(n):
        Image.new("RGB", (40, 40), (number, 9, 9)).save(root / f"photographs/{number}.png")
        images.append({"id": number, "file_name": f"{number}.png", "height": 40, "width": 40})
        annotation = {"id": number, "image_id": number, "category_id": number % 10, "area": 400, "iscrowd": 0}
        outline = {} if segmentation is None else {"segmentation": segmentation}
        annotations.append(annotation | {"bbox": [5, 5, 20, 20]} | outline)
    categories = [{"id": label, "name": name} for label, name in enumerate(names)]
    content = {"images": images, "annotations": annotations, "categories": categories}
    (root / "coco.json").write_text(json.dumps(content))
    return root / "coco.json"
