"""Small folders of images and explanations, called as the release calls them."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
from PIL import Image

LABELS = ("cat", "dog", "bird")
CONCEPTS = {"fur": 0.5, "whiskers": -2.0, "beak": 0.25}


def write_folders(root: Path, n_images: int = 3, explainers: tuple[str, ...] = ("grad-cam", "lime_2", "words")) -> Path:
    """Write images and, for each explainer, maps; those called "words" give concepts."""
    rng = np.random.default_rng(0)
    (root / "images").mkdir(parents=True, exist_ok=True)
    for i in range(n_images):
        stem = f"pets_{i:03d}_{LABELS[i % 3]}"
        pixels = rng.integers(0, 256, (20, 16 + 4 * i, 3), dtype=np.uint8)
        Image.fromarray(pixels).save(root / "images" / f"{stem}.png")
        for explainer in explainers:
            folder = root / "explanations" / explainer
            folder.mkdir(parents=True, exist_ok=True)
            if explainer.startswith("words"):
                (folder / f"{stem}.json").write_text(json.dumps(CONCEPTS | {f"part {i}": 1.0}))
            else:
                np.save(folder / f"{stem}.npy", rng.random((5, 5), dtype=np.float32))
    return root
