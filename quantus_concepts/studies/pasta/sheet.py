"""`pasta sheet`: a page on which people rate explanations, and the folder that their answers go into."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import typer

from captum_concepts.support.files import printable, quote
from captum_concepts.support.running import progress as bar
from captum_concepts.texts import readable_name
from quantus_concepts.datasets.ratings.explanation_files import (
    SHOWN,
    ExplanationFile,
    check_explanations,
    find_explanations,
    problems,
    usable_files,
)
from quantus_concepts.datasets.ratings.explanations import QUESTIONS, MapExplanation, Question
from quantus_concepts.datasets.ratings.table import EXPLANATIONS, IMAGES, WORDINGS, read_wordings
from quantus_concepts.studies._kit.folder import RunFolder
from quantus_concepts.studies._kit.options import refuse_without_effect
from quantus_concepts.studies.pasta.cards import MEGABYTE, RATING_PAGE, Gallery, encode_image, shown_picture
from quantus_concepts.studies.pasta.material import words
from quantus_concepts.studies.pasta.settings import Sheet

DEFAULT_QUESTIONS = ("Q1", "Q2", "Q3", "Q4")
#: Texts at the ends of the five points.
ENDS = ("not at all", "fully")
ENDS_OF_CHANGE = ("not at all", "completely")
#: Questions about how an explanation changed, and what the changed image is called.
CHANGES = {"Q5": "light", "Q6": "strong"}
#: Names of questions that the page's file of answers brings back as they are.
_COLUMN = re.compile(r"(?![\s'=+\-@])[^;\t\r\n]*(?<!\s)")

Changed = Mapping[str, Mapping[tuple[str, str], ExplanationFile]]


def page_questions(text: str | None, changes: Mapping[str, Path | None]) -> tuple[Question, ...]:
    """Return the questions a page asks, in their order; `changes` are folders of perturbed images by question."""
    if text is None:
        questions = [QUESTIONS[name] for name in (*DEFAULT_QUESTIONS, *(name for name in changes if changes[name]))]
    elif text.lower().endswith(".json"):
        questions = _own_questions(Path(text).expanduser())
    else:
        names = sorted(set(words(text)))
        if unknown := [name for name in names if name not in QUESTIONS]:
            raise ValueError(
                f"Expected `--questions` to be some of {', '.join(QUESTIONS)}, or a file of your own questions such as "
                f"questions.json, but got {quote(unknown[0])}."
            )
        questions = [QUESTIONS[name] for name in names]
    if not questions:
        raise ValueError("Expected `--questions` to name at least one question but got none.")
    asked = [question.name for question in questions if _change(question)]
    for name, option in CHANGES.items():
        if name in asked and changes[name] is None:
            raise ValueError(
                f"{name} asks how the explanation changed: give the folder of the perturbed images and their "
                f"explanations with --{option}."
            )
        if name not in asked:
            refuse_without_effect(f"on a page that does not ask {name} of the paper", **{option: changes[name]})
    return tuple(questions)


def _own_questions(path: Path) -> list[Question]:
    """Read a study's own questions, which a page can ask and a table of its answers can name."""
    questions = [*read_wordings(path).values()]
    if silent := [question.name for question in questions if not question.text.strip()]:
        raise ValueError(f"Expected question {silent[0]!r} in {path} to have a wording, which the page asks.")
    if odd := [question.name for question in questions if not _COLUMN.fullmatch(question.name)]:
        raise ValueError(
            f"Expected the name of question {odd[0]!r} in {path} to be a short word such as 'clarity', the column of "
            "its votes: without a space at either end, a semicolon, a tab or a new line, and no ' = + - @ first."
        )
    return questions


def _change(question: Question) -> str:
    """Return which changed image a question of the paper is about; "" for all others."""
    return CHANGES.get(question.name, "") if question == QUESTIONS.get(question.name) else ""


def write_sheet(settings: Sheet, folder: RunFolder) -> None:
    """Write images and explanations where their ratings find them, and then the page, and print what to do next."""
    images, explanations, progress = settings.images, settings.explanations, settings.progress
    changes = {"Q5": settings.light, "Q6": settings.strong}
    questions = page_questions(settings.questions, changes)
    with folder:
        found = find_explanations(
            images,
            explanations,
            labels_from=settings.labels_from,
            ascending=words(settings.ascending),
            with_images=True,
        )
        changed = {}
        for name, root in changes.items():
            if root is not None:
                own_name = explanations.resolve().name
                places = root / "images", root / "explanations"
                perturbed = find_explanations(*places, with_images=True, own_name=own_name)
                perturbed = check_explanations(perturbed, display_progressbar=progress)
                changed[name] = {change_key(file): file for file in perturbed}
        checked = _note_missing(check_explanations(found, display_progressbar=progress), changed)
        files = usable_files(checked)
        if settings.n_items is not None and settings.n_items < len(files):
            chosen = np.random.default_rng([settings.seed]).permutation(len(files))[: settings.n_items]
            files = [files[place] for place in sorted(chosen)]
        gallery = Gallery(settings.picture_size, settings.max_megabytes)
        items = []
        for file in bar(files, "drawing", unit="explanation", show=progress):
            sections = {"shown": gallery.section(file)}
            for name in changed:
                after = changed[name][change_key(file)]
                sections[name] = gallery.section(after, label=after.label if after.label != file.label else "")
            items.append({"record": answer_record(file), "label": readable_name(file.label), "sections": sections})
            gallery.check(len(items), len(files))
        page = gallery.render(
            [_question_fields(question) for question in questions],
            items,
            settings.seed,
            title="Rating explanations",
            # The colours of drawings are not known.
            colours=any(file.modality == "map" for file in files),
        )
        _write_files(folder, files, settings.picture_size)
        wordings = {question.name: _wording(question) for question in questions}
        folder.write(WORDINGS, json.dumps(wordings, indent=2) + "\n")
        folder.write(RATING_PAGE, page)
        left_out = [file for file in checked if file.note]
        lines = [
            f"{len(files)} explanations of {len({file.image for file in files})} images by "
            f"{len({file.explainer for file in files})} explainers; {', '.join(wordings)}. {RATING_PAGE} has "
            f"{(folder.path / RATING_PAGE).stat().st_size / MEGABYTE:.1f} MB and needs no network.",
            *([f"Left out, {len(left_out)}: {problems(left_out, SHOWN)}."] if left_out else []),
            f"Send {RATING_PAGE} to every annotator. Put their files, ratings_*.csv, into {folder.path}, and train:",
            f"  quantus-concepts pasta train --data {folder.path}",
        ]
        for line in lines:
            typer.echo(printable(line))


def _wording(question: Question) -> dict[str, Any]:
    """Return what the page asks, as a table of ratings finds it beside itself."""
    fields: dict[str, Any] = {"text": question.text, "low_is_good": question.low_is_good}
    return fields | ({"ends": question.ends} if question.ends else {})


def _question_fields(question: Question) -> dict[str, Any]:
    change = _change(question)
    ends = question.ends or (ENDS_OF_CHANGE if change else ENDS)
    return {"name": question.name, "text": question.text, "ends": ends, "change": change}


def change_key(file: ExplanationFile) -> tuple[str, str]:
    """Return the key of an explanation and that of the perturbed image: explainer and image."""
    return file.explainer, file.name.image_id


def _note_missing(files: Sequence[ExplanationFile], changed: Changed) -> list[ExplanationFile]:
    """Note which explanations lack one of the perturbed image."""
    noted = []
    for file in files:
        for name, files_by_key in changed.items():
            other = files_by_key.get(change_key(file))
            note = "there is none" if other is None else other.note
            if note and not file.note:
                file = replace(file, note=f"explanation of the image perturbed for {name}: {note}")
        noted.append(file)
    return noted


def answer_record(file: ExplanationFile) -> dict[str, str]:
    """Return what a row of the answers says of an explanation."""
    image = "" if file.image is None else file.image.name
    named = f"{file.explainer}/{file.path.stem}"
    return {"image": image, "explainer": file.explainer, "label": file.label, "explanation": named}


def _write_files(folder: RunFolder, files: Sequence[ExplanationFile], picture_size: int) -> None:
    """Copy images and explanations to where a table of ratings finds them, with the pictures of maps."""
    for image in sorted({file.image for file in files if file.image is not None}):
        folder.write(f"{IMAGES}/{image.name}", image.read_bytes())
    for file in files:
        place = f"{EXPLANATIONS}/{file.explainer}/{file.path.stem}"
        folder.write(f"{place}{file.path.suffix.lower()}", file.path.read_bytes())
        if file.modality == "map":
            explanation = file.read()
            if isinstance(explanation, MapExplanation):
                folder.write(f"{place}.png", encode_image(shown_picture(explanation, picture_size), "PNG"))
