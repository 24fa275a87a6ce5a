"""The folder that ratings refer to, and their records, in the layout of the release."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from quantus_concepts.datasets.ratings.explanation_files import ExplanationFile
from quantus_concepts.datasets.ratings.explanations import ConceptExplanation
from quantus_concepts.studies._kit.charts import png as figure_png
from quantus_concepts.studies._kit.output import OutputFolder
from quantus_concepts.studies._kit.pictures import encode_image, plot_concepts, shown_picture

IMAGES, PICTURES, ACTIVATIONS = "images", "expl", "activations"
#: In a record: who voted what; the kind of an explanation that was drawn already, of which there are no values.
VOTES, MODALITY = "Annotation", "modality"


def explainer_id(explainer: str) -> str:
    """Return an explainer's name as it stands in file names, where "_" parts."""
    return re.sub(r"[^\w.+]+|_+", "-", explainer).strip("-") or "explainer"


def explanation_stem(file: ExplanationFile) -> str:
    """Return ``{dataset}_{image id}_{explainer id}_{label}``."""
    # A label from a file of labels may hold what no file name may.
    label = re.sub(r"[^\w.+-]+", "-", file.label)
    parts = [file.name.image_id, explainer_id(file.explainer), label]
    return "_".join(part for part in parts if part)


def empty_record(file: ExplanationFile) -> dict[str, Any]:
    """Return the record of an explanation, without any vote."""
    drawn = {MODALITY: "drawing"} if file.modality == "drawing" else {}
    return drawn | {
        "img": f"{IMAGES}/{file.image.name}" if file.image is not None else "",
        "explication": f"{PICTURES}/{explanation_stem(file)}.png",
        "GTclass": file.true_label,
        "predictedclass": file.label,
        VOTES: [],
    }


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
            figure_png(plot_concepts(explanation))
            if isinstance(explanation, ConceptExplanation)
            else encode_image(shown_picture(explanation, picture_size), "PNG")
        )
        folder.write_bytes(f"{PICTURES}/{stem}.png", drawn)
        folder.write_bytes(f"{ACTIVATIONS}/{stem}{file.path.suffix.lower()}", file.path.read_bytes())
