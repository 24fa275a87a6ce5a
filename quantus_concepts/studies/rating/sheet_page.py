"""The page on which people rate explanations: one HTML file that needs no network."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from markupsafe import Markup
from torch import Tensor

from captum_concepts._support.images import load_image
from captum_concepts._support.progress import progress
from quantus_concepts.datasets.ratings.explanations import ConceptExplanation
from quantus_concepts.datasets.ratings.questions import Question, question_named
from quantus_concepts.studies.page import render_page
from quantus_concepts.studies.rating.files import ExplanationFile
from quantus_concepts.studies.rating.options import SheetOptions
from quantus_concepts.studies.rating.pictures import data_url, listed_concepts, resized, shown_picture
from quantus_concepts.studies.rating.release import empty_record

MEGABYTE = 1_000_000
#: What the ends of the five points say.
ENDS = ("not at all", "fully")
ENDS_OF_CHANGE = ("not at all", "completely")
#: Questions about how an explanation changed, and what the changed image is called.
CHANGES = {"Q5": "light", "Q6": "strong"}


def sheet_page(
    files: Sequence[ExplanationFile],
    questions: Sequence[str],
    changed: Mapping[str, Mapping[tuple[str, str], ExplanationFile]],
    options: SheetOptions,
) -> str:
    """Write the page; `changed` are the explanations of the perturbed images, by question."""
    asked = [question_named(name) for name in questions]
    gallery = Gallery(options.picture_size, options.max_megabytes)
    items = []
    for file in progress(files, "drawing", unit="explanation", show=options.progress):
        sections = {"shown": gallery.section(file)}
        for name in changed:
            after = changed[name][change_key(file)]
            sections[name] = gallery.section(after, told=after.label if after.label != file.label else "")
        items.append({"record": empty_record(file), "label": readable(file.label), "sections": sections})
        gallery.check(len(items), len(files))
    content = {
        "questions": [_question_fields(question) for question in asked],
        "pictures": gallery.pictures,
        "items": items,
        "seed": options.seed,
    }
    # Of drawings alone the colours are not known.
    colours = any(file.modality == "map" for file in files)
    return render_page(
        "rating/sheet.html.j2",
        title="Rating explanations",
        data=embedded(content),
        colours=colours,
        n_items=len(items),
        n_questions=len(asked),
    )


def embedded(content: dict[str, Any]) -> Markup:
    """Return what a page asks as it stands in its script element, with a name by which answers are kept."""
    asked = json.dumps([content["questions"], content["items"], content["seed"]])
    content = content | {"id": hashlib.sha256(asked.encode()).hexdigest()[:12]}
    # "<" is all that could end the script element early.
    return Markup(json.dumps(content, ensure_ascii=False).replace("<", "\\u003c"))


def change_key(file: ExplanationFile) -> tuple[str, str]:
    """Return what an explanation and that of the perturbed image share: explainer and image."""
    return file.explainer, file.name.image_id


def readable(label: str) -> str:
    """Return a label as people read it: spaces for "_"."""
    return label.replace("_", " ")


class Gallery:
    """The pictures of a page, each once."""

    def __init__(self, size: int, max_megabytes: float) -> None:
        self.size = size
        self.max_megabytes = max_megabytes
        self.pictures: dict[str, str] = {}
        self.n_bytes = 0
        self._names: dict[Path, str] = {}

    def section(self, file: ExplanationFile, told: str = "") -> dict[str, Any]:
        """Return an image and its explanation."""
        if file.image is None:
            raise ValueError(f"People rate an explanation beside its image, but {file.path} has none. Leave it out.")
        section: dict[str, Any] = {"image": self.image(file.image), "told": readable(told)}
        explanation = file.read()
        if isinstance(explanation, ConceptExplanation):
            section["concepts"] = [[name, text, round(share, 4)] for name, text, share in listed_concepts(explanation)]
        else:
            section["drawn"] = file.modality == "drawing"
            section["map"] = self._add(file.path, shown_picture(explanation, self.size))
        return section

    def image(self, path: Path) -> str:
        """Return the name of an image on the page."""
        return self._names.get(path) or self._add(path, resized(load_image(path), self.size))

    def check(self, n_done: int, n_all: int, noun: str = "explanations", fewer: str = "--n-items") -> None:
        """Raise where the pictures are too many."""
        if self.n_bytes > self.max_megabytes * MEGABYTE:
            raise ValueError(
                f"The page would be larger than {self.max_megabytes:g} MB: {n_done} of {n_all} {noun} "
                f"fill it. Take fewer with {fewer}, smaller pictures with --picture-size, or allow more with "
                "--max-megabytes."
            )

    def _add(self, path: Path, picture: Tensor) -> str:
        # The name tells nothing of the file, so that nobody reads an explainer's name from the page.
        name = self._names[path] = f"p{len(self._names)}"
        self.pictures[name] = data_url(picture)
        self.n_bytes += len(self.pictures[name])
        return name


def _question_fields(question: Question) -> dict[str, Any]:
    ends = ENDS_OF_CHANGE if question.name in CHANGES else ENDS
    return {"name": question.name, "text": question.text, "ends": ends, "change": CHANGES.get(question.name, "")}
