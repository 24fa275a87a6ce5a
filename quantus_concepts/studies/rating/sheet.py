"""The work of the command `pasta sheet`: a page to rate explanations on, and the folder its ratings refer to."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from captum_concepts.checks import check_range, check_whole
from quantus_concepts.datasets.ratings.questions import question_named
from quantus_concepts.studies.output import OutputFolder
from quantus_concepts.studies.pasta.label_file import FROM_FILE_NAME
from quantus_concepts.studies.pasta.rated_files import check_explainers, write_rated
from quantus_concepts.studies.rating.explanation_files import (
    ExplanationFile,
    check_explanations,
    find_explanations,
    problems,
    usable,
)
from quantus_concepts.studies.rating.rating_page import CHANGES, MEGABYTE, change_key, rating_page

PAGE = "rate.html"
DEFAULT_QUESTIONS = ("Q1", "Q2", "Q3", "Q4")
SHOWN_PROBLEMS = 10


@dataclass(frozen=True)
class SheetOptions:
    """What the command is given."""

    images: Path
    explanations: Path
    questions: str | None = None
    light: Path | None = None
    strong: Path | None = None
    labels_from: str = FROM_FILE_NAME
    ascending: str | None = None
    n_items: int | None = None
    picture_size: int = 384
    max_megabytes: float = 50.0
    seed: int = 0
    out: Path | None = None
    overwrite: bool = False
    progress: bool = True


def make_sheet(options: SheetOptions) -> str:
    """Write the page, and beside it images and explanations in the layout of the release."""
    questions = asked_questions(options)
    check_whole("--picture-size", options.picture_size, 32, 2048)
    check_range("--max-megabytes", options.max_megabytes, 0, 2000, open_low=True)
    with OutputFolder("pasta-sheet", options.out, overwrite=options.overwrite) as folder:
        found = find_explanations(
            options.images,
            options.explanations,
            labels_from=options.labels_from,
            ascending=words(options.ascending),
            with_images=True,
        )
        changed = _changed(options, questions)
        checked = _paired(check_explanations(found, display_progressbar=options.progress), changed)
        files = _drawn(usable(checked), options)
        check_explainers(files)
        page = rating_page(
            files,
            questions,
            changed=changed,
            seed=options.seed,
            picture_size=options.picture_size,
            max_megabytes=options.max_megabytes,
            display_progressbar=options.progress,
        )
        write_rated(folder, files, options.picture_size)
        size = folder.write_text(PAGE, page).stat().st_size / MEGABYTE
    return _told(folder.path, files, questions, size, [file for file in checked if file.note])


def asked_questions(options: SheetOptions) -> tuple[str, ...]:
    """Return the questions a page asks, in their order."""
    given = {name: folder for name, folder in zip(CHANGES, (options.light, options.strong), strict=True) if folder}
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


def words(text: str | None) -> list[str]:
    """Split what was given with commas."""
    return [word.strip() for word in (text or "").split(",") if word.strip()]


def _changed(options: SheetOptions, questions: Sequence[str]) -> dict[str, dict[tuple[str, str], ExplanationFile]]:
    """Read the explanations of the perturbed images, by question."""
    changed = {}
    for name, root in zip(CHANGES, (options.light, options.strong), strict=True):
        if root is None or name not in questions:
            continue
        found = find_explanations(
            root / "images",
            root / "explanations",
            with_images=True,
            own_name=options.explanations.resolve().name,
        )
        checked = check_explanations(found, display_progressbar=options.progress)
        changed[name] = {change_key(file): file for file in checked}
    return changed


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
    check_whole("--n-items", options.n_items, 1)
    chosen = np.random.default_rng([options.seed]).permutation(len(files))[: options.n_items]
    return [files[i] for i in sorted(chosen)]


def _told(
    out: Path, files: Sequence[ExplanationFile], questions: Sequence[str], size: float, left_out: list[ExplanationFile]
) -> str:
    n_images = len({file.image for file in files})
    n_explainers = len({file.explainer for file in files})
    lines = [
        f"{len(files)} explanations of {n_images} images by {n_explainers} explainers; {', '.join(questions)}. "
        f"{PAGE} has {size:.1f} MB and needs no network."
    ]
    if left_out:
        lines.append(f"Left out, {len(left_out)}: {problems(left_out, SHOWN_PROBLEMS)}.")
    lines += [
        f"Send {PAGE} to every annotator. When their files are back, join them:",
        f"  quantus-concepts pasta join human_annotations_*.json --data {out}",
        str(out),
    ]
    return "\n".join(lines)
