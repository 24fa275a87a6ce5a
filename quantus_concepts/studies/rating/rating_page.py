"""The page on which people rate explanations: one HTML file that needs no network."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from typing import Any

from markupsafe import Markup

from captum_concepts.progress import progress
from quantus_concepts.datasets.images import load_image
from quantus_concepts.datasets.ratings.explanations import ConceptExplanation
from quantus_concepts.datasets.ratings.questions import Question, question_named
from quantus_concepts.studies.page import render_page
from quantus_concepts.studies.pasta.rated_files import explanation_name, image_name
from quantus_concepts.studies.rating.explanation_files import ExplanationFile
from quantus_concepts.studies.rating.pictures import (
    data_url,
    jpeg,
    resized,
    short_number,
    shown_picture,
    top_concepts,
)

MEGABYTE = 1_000_000
#: What the ends of the five points say.
ENDS = ("not at all", "fully")
ENDS_OF_CHANGE = ("not at all", "completely")
#: Questions about how an explanation changed, and what the changed image is called.
CHANGES = {"Q5": "light", "Q6": "strong"}


def rating_page(
    files: Sequence[ExplanationFile],
    questions: Sequence[str],
    *,
    changed: Mapping[str, Mapping[tuple[str, str], ExplanationFile]] | None = None,
    seed: int = 0,
    picture_size: int = 384,
    max_megabytes: float = 50.0,
    display_progressbar: bool = False,
) -> str:
    """Write the page."""
    asked = [question_named(name) for name in questions]
    gallery = _Gallery(picture_size, max_megabytes)
    items = []
    for file in progress(files, "drawing", unit="explanation", show=display_progressbar):
        sections = {"shown": gallery.section(file)}
        for question in asked:
            if question.name in CHANGES:
                after = (changed or {})[question.name][change_key(file)]
                sections[question.name] = gallery.section(after, told=after.label if after.label != file.label else "")
        items.append({"record": empty_record(file), "label": readable(file.label), "sections": sections})
        gallery.check(len(items), len(files))
    content = {
        "questions": [_told(question) for question in asked],
        "pictures": gallery.pictures,
        "items": items,
        "seed": seed,
    }
    content["id"] = hashlib.sha256(json.dumps([content["questions"], items, seed]).encode()).hexdigest()[:12]
    # "<" is all that could end the script element early.
    data = Markup(json.dumps(content, ensure_ascii=False).replace("<", "\\u003c"))
    # Of drawings alone the colours are not known.
    colours = any(file.modality == "map" for file in files)
    return render_page(
        "rating.html.j2",
        title="Rating explanations",
        data=data,
        colours=colours,
        n_items=len(items),
        n_questions=len(asked),
    )


def empty_record(file: ExplanationFile) -> dict[str, Any]:
    """Return the record of an explanation in the format of the release, without any vote."""
    drawn = {"modality": "drawing"} if file.modality == "drawing" else {}
    return drawn | {
        "img": image_name(file),
        "explication": explanation_name(file),
        "GTclass": file.true_label,
        "predictedclass": file.label,
        "Annotation": [],
    }


def change_key(file: ExplanationFile) -> tuple[str, str]:
    """Return what an explanation and that of the perturbed image share: explainer and image."""
    return file.explainer, file.name.image_id


def readable(label: str) -> str:
    """Return a label as people read it: spaces for "_"."""
    return label.replace("_", " ")


class _Gallery:
    """The pictures of a page, each once."""

    def __init__(self, size: int, max_megabytes: float) -> None:
        self.size = size
        self.max_bytes = max_megabytes * MEGABYTE
        self.pictures: dict[str, str] = {}
        self.n_bytes = 0
        self._names: dict[str, str] = {}

    def section(self, file: ExplanationFile, told: str = "") -> dict[str, Any]:
        """Return an image and its explanation."""
        section: dict[str, Any] = {"image": self._image(file), "told": readable(told)}
        explanation = file.read()
        if isinstance(explanation, ConceptExplanation):
            top = top_concepts(explanation)
            largest = max(abs(value) for _, value in top) or 1.0
            section["concepts"] = [[name, short_number(value), round(value / largest, 4)] for name, value in top]
        else:
            section["drawn"] = file.modality == "drawing"
            section["map"] = self._add(str(file.path), jpeg(shown_picture(explanation, self.size)))
        return section

    def check(self, n_done: int, n_all: int) -> None:
        """Raise where the pictures are too many."""
        if self.n_bytes > self.max_bytes:
            raise ValueError(
                f"The page would be larger than {self.max_bytes / MEGABYTE:g} MB: {n_done} of {n_all} explanations "
                "fill it. Take fewer with --n-items, smaller pictures with --picture-size, or allow more with "
                "--max-megabytes."
            )

    def _image(self, file: ExplanationFile) -> str:
        path = str(file.image)
        if path in self._names:
            return self._names[path]
        if file.image is None:
            raise ValueError(f"People rate an explanation beside its image, but {file.path} has none. Leave it out.")
        return self._add(path, jpeg(resized(load_image(file.image), self.size)))

    def _add(self, path: str, data: bytes) -> str:
        # The name tells nothing of the file, so that nobody reads an explainer's name from the page.
        name = self._names[path] = f"p{len(self._names)}"
        self.pictures[name] = data_url(data)
        self.n_bytes += len(self.pictures[name])
        return name


def _told(question: Question) -> dict[str, Any]:
    ends = ENDS_OF_CHANGE if question.name in CHANGES else ENDS
    return {"name": question.name, "text": question.text, "ends": ends, "change": CHANGES.get(question.name, "")}
