"""`pasta join`: the files of several annotators become one folder of ratings."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import typer

from captum_concepts._support.files import check_plain_file, printable, read_json
from quantus_concepts.datasets.folders import list_some
from quantus_concepts.datasets.ratings.annotations import as_vote, read_records
from quantus_concepts.datasets.ratings.explanations import QUESTIONS
from quantus_concepts.datasets.ratings.files import CONCEPT_SUFFIX, MAP_SUFFIX, attribution_path
from quantus_concepts.datasets.ratings.released import ANNOTATIONS, PastaRatings
from quantus_concepts.studies._kit.folder import RunFolder

#: Keys of a record of the release: its votes, and the kind of an explanation without values, a drawing.
VOTES, MODALITY = "Annotation", "modality"
#: Key of a file of the page: the annotator, who is left out of the joined file.
ANNOTATOR = "annotator"


@dataclass
class JoinedRatings:
    """The votes of several annotators on the same explanations: by explanation, then by annotator."""

    records: dict[str, dict[str, Any]] = field(default_factory=dict)
    votes: dict[str, dict[str, dict[str, int]]] = field(default_factory=dict)

    @property
    def annotators(self) -> list[str]:
        """The annotators, in alphabetical order."""
        return sorted({annotator for votes in self.votes.values() for annotator in votes})

    def as_records(self) -> list[dict[str, Any]]:
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
