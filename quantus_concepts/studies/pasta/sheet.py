"""`pasta sheet`: a page on which people rate explanations, and the folder that ratings refer to."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import typer
from matplotlib.style import context

from captum_concepts._support.files import printable
from captum_concepts._support.progress import progress as bar
from quantus_concepts.datasets.ratings.explanation_files import (
    SHOWN,
    ExplanationFile,
    check_explanations,
    find_explanations,
    problems,
    usable_files,
)
from quantus_concepts.datasets.ratings.explanations import ConceptExplanation, question_named
from quantus_concepts.studies._kit.folder import RunFolder
from quantus_concepts.studies._kit.plots import png
from quantus_concepts.studies._kit.report import readable
from quantus_concepts.studies.pasta.cards import (
    MEGABYTE,
    RATING_PAGE,
    Gallery,
    encode_image,
    plot_concepts,
    shown_picture,
)
from quantus_concepts.studies.pasta.join import MODALITY, VOTES
from quantus_concepts.studies.pasta.material import words

IMAGES, PICTURES, ACTIVATIONS = "images", "expl", "activations"
DEFAULT_QUESTIONS = ("Q1", "Q2", "Q3", "Q4")
#: Texts at the ends of the five points.
ENDS = ("not at all", "fully")
ENDS_OF_CHANGE = ("not at all", "completely")
#: Questions about how an explanation changed, and what the changed image is called.
CHANGES = {"Q5": "light", "Q6": "strong"}

Changed = Mapping[str, Mapping[tuple[str, str], ExplanationFile]]


def page_questions(text: str | None, changes: Mapping[str, Path | None]) -> tuple[str, ...]:
    """Return the questions a page asks, in their order; `changes` are folders of perturbed images by question."""
    if text is None:
        return (*DEFAULT_QUESTIONS, *(name for name, root in changes.items() if root))
    questions = sorted(set(words(text)))
    if not questions:
        raise ValueError("Expected `--questions` to name at least one question but got none.")
    for name in questions:
        question_named(name)
        if name in CHANGES and changes[name] is None:
            raise ValueError(
                f"{name} asks how the explanation changed: give the folder of the perturbed images and their "
                f"explanations with --{CHANGES[name]}."
            )
    return tuple(questions)


def write_sheet(
    folder: RunFolder,
    images: Path,
    explanations: Path,
    questions: Sequence[str],
    changes: Mapping[str, Path | None],
    *,
    labels_from: str,
    ascending: str | None,
    n_items: int | None,
    picture_size: int,
    max_megabytes: float,
    seed: int,
    progress: bool,
) -> None:
    """Write images and explanations in the layout of the release and then the page, and print what to do next."""
    found = find_explanations(
        images, explanations, labels_from=labels_from, ascending=words(ascending), with_images=True
    )
    changed = {}
    for name, root in changes.items():
        if root is not None and name in questions:
            own_name = explanations.resolve().name
            perturbed = find_explanations(root / "images", root / "explanations", with_images=True, own_name=own_name)
            perturbed = check_explanations(perturbed, display_progressbar=progress)
            changed[name] = {change_key(file): file for file in perturbed}
    checked = _note_missing(check_explanations(found, display_progressbar=progress), changed)
    files = usable_files(checked)
    if n_items is not None and n_items < len(files):
        chosen = np.random.default_rng([seed]).permutation(len(files))[:n_items]
        files = [files[place] for place in sorted(chosen)]
    check_explainers(files)
    gallery = Gallery(picture_size, max_megabytes)
    items = []
    for file in bar(files, "drawing", unit="explanation", show=progress):
        sections = {"shown": gallery.section(file)}
        for name in changed:
            after = changed[name][change_key(file)]
            sections[name] = gallery.section(after, told=after.label if after.label != file.label else "")
        items.append({"record": empty_record(file), "label": readable(file.label), "sections": sections})
        gallery.check(len(items), len(files))
    page = gallery.render(
        "pasta/sheet.html.j2",
        [_question_fields(name) for name in questions],
        items,
        seed,
        title="Rating explanations",
        # The colours of drawings are not known.
        colours=any(file.modality == "map" for file in files),
    )
    _write_release(folder, files, picture_size)
    folder.write(RATING_PAGE, page)
    left_out = [file for file in checked if file.note]
    lines = [
        f"{len(files)} explanations of {len({file.image for file in files})} images by "
        f"{len({file.explainer for file in files})} explainers; {', '.join(questions)}. {RATING_PAGE} has "
        f"{(folder.path / RATING_PAGE).stat().st_size / MEGABYTE:.1f} MB and needs no network.",
        *([f"Left out, {len(left_out)}: {problems(left_out, SHOWN)}."] if left_out else []),
        f"Send {RATING_PAGE} to every annotator. When their files are back, join them:",
        f"  quantus-concepts pasta join human_annotations_*.json --data {folder.path}",
    ]
    for line in lines:
        typer.echo(printable(line))


def _question_fields(name: str) -> dict[str, Any]:
    ends = ENDS_OF_CHANGE if name in CHANGES else ENDS
    return {"name": name, "text": question_named(name).text, "ends": ends, "change": CHANGES.get(name, "")}


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


def _write_release(folder: RunFolder, files: Sequence[ExplanationFile], picture_size: int) -> None:
    """Copy images and explanations to a folder in the layout of the release."""
    images = {file.image for file in files if file.image is not None}
    for image in sorted(images):
        folder.write(f"{IMAGES}/{image.name}", image.read_bytes())
    for file in files:
        stem = explanation_stem(file)
        if file.modality == "drawing":
            folder.write(f"{PICTURES}/{stem}.png", file.path.read_bytes())
            continue
        explanation = file.read()
        if isinstance(explanation, ConceptExplanation):
            # What people rated looks alike, whatever a matplotlibrc or the look of reports says.
            with context("default"):
                picture = png(plot_concepts(explanation))
        else:
            picture = encode_image(shown_picture(explanation, picture_size), "PNG")
        folder.write(f"{PICTURES}/{stem}.png", picture)
        folder.write(f"{ACTIVATIONS}/{stem}{file.path.suffix.lower()}", file.path.read_bytes())
