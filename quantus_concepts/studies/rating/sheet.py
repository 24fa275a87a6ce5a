"""The command `pasta sheet`: a page on which people rate explanations, and the folder that ratings refer to."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from captum_concepts._support.progress import progress
from quantus_concepts.datasets.ratings.explanation_files import (
    SHOWN,
    ExplanationFile,
    check_explanations,
    find_explanations,
    problems,
    usable_files,
)
from quantus_concepts.datasets.ratings.explanations import ConceptExplanation, Question, question_named
from quantus_concepts.studies._kit.charts import png as figure_png
from quantus_concepts.studies._kit.command import named_as_typed
from quantus_concepts.studies._kit.output import OutputFolder
from quantus_concepts.studies._kit.pictures import (
    RATING_PAGE,
    Gallery,
    encode_image,
    plot_concepts,
    readable,
    shown_picture,
    write_rating_page,
)
from quantus_concepts.studies.rating.options import FROM_FILE_NAME, MODALITY, VOTES, SheetOptions, words

IMAGES, PICTURES, ACTIVATIONS = "images", "expl", "activations"
#: Texts at the ends of the five points.
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
    gallery = Gallery(options.picture_size, options.max_megabytes)
    items = []
    for file in progress(files, "drawing", unit="explanation", show=options.progress):
        sections = {"shown": gallery.section(file)}
        for name in changed:
            after = changed[name][change_key(file)]
            sections[name] = gallery.section(after, told=after.label if after.label != file.label else "")
        items.append({"record": empty_record(file), "label": readable(file.label), "sections": sections})
        gallery.check(len(items), len(files))
    fields = [_question_fields(question_named(name)) for name in questions]
    # The colours of drawings are not known.
    colours = any(file.modality == "map" for file in files)
    template, title = "rating/sheet.html.j2", "Rating explanations"
    return gallery.render(template, fields, items, options.seed, title=title, colours=colours)


def change_key(file: ExplanationFile) -> tuple[str, str]:
    """Return the key of an explanation and that of the perturbed image: explainer and image."""
    return file.explainer, file.name.image_id


def _question_fields(question: Question) -> dict[str, Any]:
    ends = ENDS_OF_CHANGE if question.name in CHANGES else ENDS
    return {"name": question.name, "text": question.text, "ends": ends, "change": CHANGES.get(question.name, "")}


DEFAULT_QUESTIONS = ("Q1", "Q2", "Q3", "Q4")


@named_as_typed(SheetOptions, question="--questions")
def make_sheet(options: SheetOptions) -> str:
    """Write the page, and next to it images and explanations in the layout of the release; return what to do next."""
    questions = page_questions(options)
    with OutputFolder("pasta-sheet", options.out, options.identity(), overwrite=options.overwrite) as folder:
        explanations = find_explanations(
            options.images,
            options.explanations,
            labels_from=options.labels_from or FROM_FILE_NAME,
            ascending=words(options.ascending),
            with_images=True,
        )
        changed = {
            name: _changed_explanations(root, options)
            for name, root in _folders_of_change(options).items()
            if root and name in questions
        }
        checked = _note_missing(check_explanations(explanations, display_progressbar=options.progress), changed)
        files = _sample(usable_files(checked), options)
        check_explainers(files)
        page = sheet_page(files, questions, changed, options)
        write_release(folder, files, options.picture_size)
        size = write_rating_page(folder, page)
    return _closing_text(folder.path, files, questions, size, [file for file in checked if file.note])


def page_questions(options: SheetOptions) -> tuple[str, ...]:
    """Return the questions a page asks, in their order."""
    changes = [name for name, root in _folders_of_change(options).items() if root]
    if options.questions is None:
        return (*DEFAULT_QUESTIONS, *changes)
    questions = sorted(set(words(options.questions)))
    if not questions:
        raise ValueError("Expected argument `--questions` to name at least one question but got none.")
    for name in questions:
        question_named(name)
        if name in CHANGES and name not in changes:
            raise ValueError(
                f"{name} asks how the explanation changed: give the folder of the perturbed images and their "
                f"explanations with --{CHANGES[name]}."
            )
    return tuple(questions)


def _folders_of_change(options: SheetOptions) -> dict[str, Path | None]:
    """Return the folder of each question about a change."""
    return dict(zip(CHANGES, (options.light, options.strong), strict=True))


def _changed_explanations(root: Path, options: SheetOptions) -> dict[tuple[str, str], ExplanationFile]:
    """Read the explanations of perturbed images."""
    name = options.explanations.resolve().name
    files = find_explanations(root / "images", root / "explanations", with_images=True, own_name=name)
    return {change_key(file): file for file in check_explanations(files, display_progressbar=options.progress)}


def _note_missing(
    files: Sequence[ExplanationFile], changed: Mapping[str, Mapping[tuple[str, str], ExplanationFile]]
) -> list[ExplanationFile]:
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


def _sample(files: list[ExplanationFile], options: SheetOptions) -> list[ExplanationFile]:
    if options.n_items is None or options.n_items >= len(files):
        return files
    chosen = np.random.default_rng([options.seed]).permutation(len(files))[: options.n_items]
    return [files[i] for i in sorted(chosen)]


def _closing_text(
    out: Path, files: Sequence[ExplanationFile], questions: Sequence[str], size: str, left_out: list[ExplanationFile]
) -> str:
    n_images = len({file.image for file in files})
    n_explainers = len({file.explainer for file in files})
    lines = [
        f"{len(files)} explanations of {n_images} images by {n_explainers} explainers; {', '.join(questions)}. {size}"
    ]
    if left_out:
        lines.append(f"Left out, {len(left_out)}: {problems(left_out, SHOWN)}.")
    lines += [
        f"Send {RATING_PAGE} to every annotator. When their files are back, join them:",
        f"  quantus-concepts pasta join human_annotations_*.json --data {out}",
        str(out),
    ]
    return "\n".join(lines)


def explainer_id(explainer: str) -> str:
    """Return an explainer's name in file names, where "_" separates the parts."""
    return re.sub(r"[^\w.+]+|_+", "-", explainer).strip("-") or "explainer"


def explanation_stem(file: ExplanationFile) -> str:
    """Return ``{dataset}_{image id}_{explainer id}_{label}``."""
    # A label from a file of labels may hold what no file name may.
    label = re.sub(r"[^\w.+-]+", "-", file.label)
    parts = [file.name.image_id, explainer_id(file.explainer), label]
    return "_".join(part for part in parts if part)


def empty_record(file: ExplanationFile) -> dict[str, Any]:
    """Return the record of an explanation, without any vote."""
    kind = {MODALITY: "drawing"} if file.modality == "drawing" else {}
    return kind | {
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


def write_release(folder: OutputFolder, files: Sequence[ExplanationFile], picture_size: int) -> None:
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
        picture = (
            figure_png(plot_concepts(explanation))
            if isinstance(explanation, ConceptExplanation)
            else encode_image(shown_picture(explanation, picture_size), "PNG")
        )
        folder.write_bytes(f"{PICTURES}/{stem}.png", picture)
        folder.write_bytes(f"{ACTIVATIONS}/{stem}{file.path.suffix.lower()}", file.path.read_bytes())
