"""A small set of ratings in the layout of the published ones."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from PIL import Image

QUESTIONS = ("Q1", "Q2", "Q3", "Q4", "Q5", "Q6")
CLASSES = {
    "coco": ("shopping_and_dining", "workplace", "home_or_hotel"),
    "pascalpart": ("aeroplane", "bird", "cat"),
    "monumai": ("Baroque", "Gothic", "Renaissance"),
    "catsdogscars": ("cats", "dogs", "cars"),
}
CONCEPTS = ("person", "chair", "table", "lobed-arch", "wheel", "eye")
CONCEPT_EXPLAINERS = ("39", "40", "41", "42", "43", "44", "45", "48", "49")
ALPHA_EXPLAINERS = ("46", "47")
EXPLAINERS = ("0", "3", "6", "39", "41", "46")
#: Tensors of a released scorer, in the order of the layers.
RELEASED_KEYS = tuple(f"net.{layer}.{kind}" for layer in (0, 2, 4) for kind in ("weight", "bias"))


def write_pasta_release(
    folder: Path,
    *,
    datasets: Sequence[str] = ("coco", "monumai"),
    n_images: int = 3,
    explainers: Sequence[str] = EXPLAINERS,
    n_annotators: int = 5,
    size: int = 24,
    prefix: str = "result_dataset",
    seed: int = 0,
) -> Path:
    """Write ratings of images that are explained by every explainer, and return the folder for ``PastaRatings``."""
    # The prediction is the next class of the data set for every third image, else the true one. All votes are near an
    # explanation's quality. The map of an explainer in ALPHA_EXPLAINERS has four channels, the last of which is the
    # map; concepts are written with the interval of their value, as LIME does (id 41), or as the counterfactual
    # explainer does (id 39): a key for each of two directions, with a trailing blank, and "No counterfactual".
    rng = np.random.default_rng(seed)
    base = folder / prefix
    for name in ("imgs", "expl", "activations"):
        (base / name).mkdir(parents=True, exist_ok=True)
    records = []
    number = 0
    for dataset in datasets:
        classes = CLASSES[dataset]
        for i in range(n_images):
            truth = classes[i % len(classes)]
            predicted = classes[(i + (number % 3 == 2)) % len(classes)]
            image = rng.integers(0, 256, (size, size, 3)).astype(np.uint8)
            image_path = f"imgs/{dataset}_{number}_{truth}.png"
            Image.fromarray(image).save(base / image_path)
            for explainer in explainers:
                stem = f"{dataset}_{number}_{explainer}_{truth}"
                level = quality(number, explainer)
                Image.fromarray(image[::-1]).save(base / "expl" / f"{stem}.png")
                _write_attribution(base / "activations" / stem, explainer, level, size, rng)
                votes = np.clip(level + rng.integers(-1, 2, (n_annotators, len(QUESTIONS))), 1, 5)
                records.append(
                    {
                        "ID": str(number),
                        "img": f"{prefix}/{image_path}" if prefix else image_path,
                        "explication": f"{prefix}/expl/{stem}.png" if prefix else f"expl/{stem}.png",
                        "GTclass": truth,
                        "predictedclass": predicted,
                        "Annotation": [dict(zip(QUESTIONS, row, strict=True)) for row in votes.tolist()],
                    }
                )
            number += 1
    write_records(folder, records)
    return folder


def quality(number: int, explainer: str) -> int:
    """Return the quality, from 1 to 5, of an explanation of an image by its number."""
    return 1 + (number * 2 + int(explainer)) % 5


def read_records(folder: Path) -> list[dict]:
    """Return the records of a folder."""
    return json.loads((folder / "human_annotations.json").read_text())


def write_records(folder: Path, records: list[dict]) -> None:
    """Write records into a folder."""
    (folder / "human_annotations.json").write_text(json.dumps(records))


def _write_attribution(stem: Path, explainer: str, level: int, size: int, rng: np.random.Generator) -> None:
    if explainer in CONCEPT_EXPLAINERS:
        keys = [key for name in CONCEPTS for key in _keys(name, explainer)]
        values = {key: float(rng.normal() * level) for key in keys}
        if explainer == "39":
            values["No counterfactual"] = float("inf")
        stem.with_name(stem.name + ".json").write_text(json.dumps(values))
        return
    relevance = rng.random((size, size), dtype=np.float32)
    relevance[: size // 2] += level
    relevance /= relevance.max()
    if explainer in ALPHA_EXPLAINERS:
        relevance = np.concatenate([rng.random((size, size, 3), dtype=np.float32), relevance[..., None]], axis=2)
    np.save(stem.with_name(stem.name + ".npy"), relevance)


def _keys(name: str, explainer: str) -> tuple[str, ...]:
    if explainer == "39":
        return f"{name} (Target = cat) ", f"{name} (Target = dog) "
    return (f"0.10 < {name} <= 0.25",) if explainer == "41" else (name,)
