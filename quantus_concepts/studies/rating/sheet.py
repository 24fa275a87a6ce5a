"""The command `pasta sheet`: a page on which people rate explanations."""

from __future__ import annotations

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
from quantus_concepts.datasets.ratings.explanations import Question, question_named
from quantus_concepts.studies._kit.command import named_as_typed
from quantus_concepts.studies._kit.output import OutputFolder
from quantus_concepts.studies._kit.page import render_page
from quantus_concepts.studies._kit.pictures import MEGABYTE, RATING_PAGE, Gallery, page_data, readable
from quantus_concepts.studies.rating.options import FROM_FILE_NAME, SheetOptions, words
from quantus_concepts.studies.rating.release import check_explainers, empty_record, write_rated

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
        data=page_data(content),
        colours=colours,
        n_items=len(items),
        n_questions=len(asked),
    )


def change_key(file: ExplanationFile) -> tuple[str, str]:
    """Return what an explanation and that of the perturbed image share: explainer and image."""
    return file.explainer, file.name.image_id


def _question_fields(question: Question) -> dict[str, Any]:
    ends = ENDS_OF_CHANGE if question.name in CHANGES else ENDS
    return {"name": question.name, "text": question.text, "ends": ends, "change": CHANGES.get(question.name, "")}


DEFAULT_QUESTIONS = ("Q1", "Q2", "Q3", "Q4")


@named_as_typed(SheetOptions, question="--questions")
def make_sheet(options: SheetOptions) -> str:
    """Write the page, and next to it images and explanations in the layout of the release; return what to do next."""
    questions = asked_questions(options)
    with OutputFolder("pasta-sheet", options.out, options.identity(), overwrite=options.overwrite) as folder:
        found = find_explanations(
            options.images,
            options.explanations,
            labels_from=options.labels_from or FROM_FILE_NAME,
            ascending=words(options.ascending),
            with_images=True,
        )
        changed = {
            name: _changed(root, options) for name, root in _perturbed(options).items() if root and name in questions
        }
        checked = _paired(check_explanations(found, display_progressbar=options.progress), changed)
        files = _drawn(usable_files(checked), options)
        check_explainers(files)
        page = sheet_page(files, questions, changed, options)
        write_rated(folder, files, options.picture_size)
        size = folder.write_text(RATING_PAGE, page).stat().st_size / MEGABYTE
    return _closing_text(folder.path, files, questions, size, [file for file in checked if file.note])


def asked_questions(options: SheetOptions) -> tuple[str, ...]:
    """Return the questions a page asks, in their order."""
    given = [name for name, root in _perturbed(options).items() if root]
    if options.questions is None:
        return (*DEFAULT_QUESTIONS, *given)
    asked = sorted(set(words(options.questions)))
    if not asked:
        raise ValueError("Expected argument `--questions` to name at least one question but got none.")
    for name in asked:
        question_named(name)
        if name in CHANGES and name not in given:
            raise ValueError(
                f"{name} asks how the explanation changed: give the folder of the perturbed images and their "
                f"explanations with --{CHANGES[name]}."
            )
    return tuple(asked)


def _perturbed(options: SheetOptions) -> dict[str, Path | None]:
    """Return the folder of each question about a change."""
    return dict(zip(CHANGES, (options.light, options.strong), strict=True))


def _changed(root: Path, options: SheetOptions) -> dict[tuple[str, str], ExplanationFile]:
    """Read the explanations of perturbed images."""
    name = options.explanations.resolve().name
    found = find_explanations(root / "images", root / "explanations", with_images=True, own_name=name)
    return {change_key(file): file for file in check_explanations(found, display_progressbar=options.progress)}


def _paired(
    files: Sequence[ExplanationFile], changed: Mapping[str, Mapping[tuple[str, str], ExplanationFile]]
) -> list[ExplanationFile]:
    """Note which explanations lack one of the perturbed image."""
    paired = []
    for file in files:
        for name, others in changed.items():
            other = others.get(change_key(file))
            note = "there is none" if other is None else other.note
            if note and not file.note:
                file = replace(file, note=f"explanation of the image perturbed for {name}: {note}")
        paired.append(file)
    return paired


def _drawn(files: list[ExplanationFile], options: SheetOptions) -> list[ExplanationFile]:
    if options.n_items is None or options.n_items >= len(files):
        return files
    chosen = np.random.default_rng([options.seed]).permutation(len(files))[: options.n_items]
    return [files[i] for i in sorted(chosen)]


def _closing_text(
    out: Path, files: Sequence[ExplanationFile], questions: Sequence[str], size: float, left_out: list[ExplanationFile]
) -> str:
    n_images = len({file.image for file in files})
    n_explainers = len({file.explainer for file in files})
    lines = [
        f"{len(files)} explanations of {n_images} images by {n_explainers} explainers; {', '.join(questions)}. "
        f"{RATING_PAGE} has {size:.1f} MB and needs no network."
    ]
    if left_out:
        lines.append(f"Left out, {len(left_out)}: {problems(left_out, SHOWN)}.")
    lines += [
        f"Send {RATING_PAGE} to every annotator. When their files are back, join them:",
        f"  quantus-concepts pasta join human_annotations_*.json --data {out}",
        str(out),
    ]
    return "\n".join(lines)
