"""`pasta sheet` and `pasta join`: a page on which people rate explanations, and a folder of their joined ratings."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import typer
from matplotlib.style import context

from captum_concepts.support.files import check_plain_file, printable, read_json
from captum_concepts.support.progress import progress as bar
from captum_concepts.support.shown import readable_name
from quantus_concepts.datasets.folders import list_some
from quantus_concepts.datasets.ratings.annotations import as_vote, read_records
from quantus_concepts.datasets.ratings.explanation_files import (
    SHOWN,
    ExplanationFile,
    check_explanations,
    find_explanations,
    problems,
    usable_files,
)
from quantus_concepts.datasets.ratings.explanations import QUESTIONS, ConceptExplanation, question_named
from quantus_concepts.datasets.ratings.files import CONCEPT_SUFFIX, MAP_SUFFIX, attribution_path
from quantus_concepts.datasets.ratings.released import ANNOTATIONS, PastaRatings
from quantus_concepts.studies._kit.folder import RunFolder
from quantus_concepts.studies._kit.plots import png
from quantus_concepts.studies.pasta.cards import (
    MEGABYTE,
    RATING_PAGE,
    Gallery,
    encode_image,
    plot_concepts,
    shown_picture,
)
from quantus_concepts.studies.pasta.material import words

#: Keys of a record of the release: its votes, and the kind of an explanation without values, a drawing.
VOTES, MODALITY = "Annotation", "modality"
#: Key of a file of the page: the annotator, who is left out of the joined file.
ANNOTATOR = "annotator"
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
            sections[name] = gallery.section(after, label=after.label if after.label != file.label else "")
        items.append({"record": empty_record(file), "label": readable_name(file.label), "sections": sections})
        gallery.check(len(items), len(files))
    page = gallery.render(
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


def empty_record(file: ExplanationFile) -> dict[str, object]:
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


@dataclass
class JoinedRatings:
    """The votes of several annotators on the same explanations: by explanation, then by annotator."""

    records: dict[str, dict[str, Any]] = field(default_factory=dict)
    votes: dict[str, dict[str, dict[str, int]]] = field(default_factory=dict)

    @property
    def annotators(self) -> list[str]:
        """The annotators, in alphabetical order."""
        return sorted({annotator for votes in self.votes.values() for annotator in votes})

    def as_records(self) -> list[dict[str, object]]:
        """Return the records of the release's format, without the annotators' names."""
        return [
            self.records[name] | {VOTES: [self.votes[name][annotator] for annotator in sorted(self.votes[name])]}
            for name in sorted(self.records)
        ]


def write_ratings(folder: RunFolder, joined: JoinedRatings, data: Path) -> None:
    """Write a folder that `PastaRatings` reads, and print what it holds."""
    for name in _rated_files(joined, data):
        check_plain_file(data / name, "File")
        folder.write(name, (data / name).read_bytes())
    folder.write(ANNOTATIONS, json.dumps(joined.as_records(), ensure_ascii=False, indent=1))
    typer.echo(printable(f"{len(joined.annotators)} annotators: {', '.join(joined.annotators)}."))
    for note in PastaRatings(folder.path, name="joined ratings").notes:
        typer.echo(printable(note))


def join_ratings(files: Sequence[Path]) -> JoinedRatings:
    """Join files of ratings."""
    # An annotator may have several files, such as an early and a complete one, but they must not contradict each other.
    joined, faults = JoinedRatings(), []
    for file in files:
        try:
            read_records(file)
        except ValueError as error:
            faults.append(str(error))
            continue
        for entry in read_json(file, "File of ratings"):
            faults += _add_record(joined, entry, file)
    if faults:
        raise ValueError(f"These files of ratings cannot be joined: {list_some(dict.fromkeys(faults), 10)}")
    return joined


def _add_record(joined: JoinedRatings, entry: dict[str, Any], file: Path) -> list[str]:
    """Add a record; return its contradictions to earlier ones."""
    name = entry["explication"]
    record = {key: value for key, value in entry.items() if key != VOTES}
    if joined.records.setdefault(name, record) != record:
        return [f"{file.name} has another image or label for {name} than the files before it"]
    faults = []
    for number, answers in enumerate(entry[VOTES]):
        fallback = file.stem if len(entry[VOTES]) == 1 else f"{file.stem} {number + 1}"
        annotator = str(answers.get(ANNOTATOR) or fallback)
        pairs = ((question, as_vote(answers.get(question))) for question in QUESTIONS)
        votes = {question: int(vote) for question, vote in pairs if vote is not None and not math.isnan(vote)}
        before = joined.votes.setdefault(name, {}).setdefault(annotator, {})
        changed = [question for question in votes if before.get(question, votes[question]) != votes[question]]
        if changed:
            faults.append(
                f"{annotator} gave {name} other votes in {file.name} than in a file before it ({', '.join(changed)}): "
                "leave one of the files out"
            )
        joined.votes[name][annotator] = before | votes
    return faults


def _rated_files(joined: JoinedRatings, data: Path) -> list[str]:
    """Return the files the records refer to, by their path in the folder."""
    paths: dict[str, None] = {}
    for name, record in joined.records.items():
        values = [attribution_path(name, suffix) for suffix in (MAP_SUFFIX, CONCEPT_SUFFIX)]
        existing = [path for path in values if (data / path).is_file()]
        if not existing and record.get(MODALITY) != "drawing":
            existing = values[:1]
        paths |= dict.fromkeys((record["img"], name, *existing))
    missing = [path for path in paths if not (data / path).is_file()]
    if missing:
        raise ValueError(
            f"Expected the rated images and explanations in {data} but {len(missing)} are missing: "
            f"{list_some(missing, 10)}. Give the folder that `quantus-concepts pasta sheet` wrote as "
            "--data."
        )
    return list(paths)
