"""The folder that ratings refer to, in the layout of the release."""

from __future__ import annotations

import re
from collections.abc import Sequence

from quantus_concepts.datasets.ratings.explanations import ConceptExplanation
from quantus_concepts.studies.output import OutputFolder
from quantus_concepts.studies.rating.explanation_files import ExplanationFile
from quantus_concepts.studies.rating.pictures import concepts_png, png, shown_picture

IMAGES, PICTURES, ACTIVATIONS = "images", "expl", "activations"


def explainer_id(explainer: str) -> str:
    """Return an explainer's name as it stands in file names, where "_" parts."""
    return re.sub(r"[^\w.+]+|_+", "-", explainer).strip("-") or "explainer"


def explanation_stem(file: ExplanationFile) -> str:
    """Return ``{dataset}_{image id}_{explainer id}_{label}``."""
    # A label from a file of labels may hold what no file name may.
    label = re.sub(r"[^\w.+-]+", "-", file.label)
    parts = [file.name.image_id, explainer_id(file.explainer), label]
    return "_".join(part for part in parts if part)


def image_name(file: ExplanationFile) -> str:
    """Return the path of the image within the folder of ratings."""
    return f"{IMAGES}/{file.image.name}" if file.image is not None else ""


def explanation_name(file: ExplanationFile) -> str:
    """Return the path of the explanation's picture within the folder of ratings."""
    return f"{PICTURES}/{explanation_stem(file)}.png"


def check_explainers(files: Sequence[ExplanationFile]) -> None:
    """Raise where two explainers would have one name in file names."""
    names: dict[str, str] = {}
    for explainer in sorted({file.explainer for file in files}):
        other = names.setdefault(explainer_id(explainer), explainer)
        if other != explainer:
            raise ValueError(
                f"The folders {other!r} and {explainer!r} of --explanations are the same explainer in file names, "
                "where only letters, digits, '.' and '+' are kept. Rename one of them."
            )


def write_rated(folder: OutputFolder, files: Sequence[ExplanationFile], picture_size: int) -> None:
    """Copy images and explanations to a folder in the layout of the release."""
    images = {file.image for file in files if file.image is not None}
    for image in sorted(images):
        folder.write_bytes(f"{IMAGES}/{image.name}", image.read_bytes())
    for file in files:
        stem = explanation_stem(file)
        if file.modality == "drawing":
            folder.write_bytes(f"{PICTURES}/{stem}.png", file.path.read_bytes())
            continue
        explanation = file.read()
        drawn = (
            concepts_png(explanation)
            if isinstance(explanation, ConceptExplanation)
            else png(shown_picture(explanation, picture_size))
        )
        folder.write_bytes(f"{PICTURES}/{stem}.png", drawn)
        folder.write_bytes(f"{ACTIVATIONS}/{stem}{file.path.suffix.lower()}", file.path.read_bytes())
