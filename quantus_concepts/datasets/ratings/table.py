"""Ratings as one table: a row for each explanation and rater, and the rated files beside it."""

from __future__ import annotations

import csv
import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from captum_concepts.support.files import quote, read_text
from quantus_concepts.datasets.folders import bad_line, inside, list_some
from quantus_concepts.datasets.ratings.annotations import IMAGE_NAME, QUESTION_LIKE, Record, as_vote
from quantus_concepts.datasets.ratings.explanations import QUESTIONS
from quantus_concepts.datasets.ratings.files import (
    CONCEPT_SUFFIX,
    DRAWING_SUFFIX,
    MAP_SUFFIX,
    FileName,
    parse_scored_name,
)
from quantus_concepts.functional.statistics.votes import MAX_VOTE, MIN_VOTE

#: Columns that every table has, and those that it may have.
NEEDED, LABEL, EXPLANATION = ("image", "explainer", "rater"), "label", "explanation"
#: Folders beside the table in which files may lie.
IMAGES, EXPLANATIONS = "images", "explanations"
#: What other programs write for a missing vote.
_NO_VOTE = ("na", "nan", "n/a")
_FORM = f"A table of ratings has the columns {', '.join(NEEDED)} and some of Q1 to Q6: a row for each rating."


@dataclass
class _Rated:
    """An explanation as its rows describe it: the first line, other cells, and votes by rater."""

    line: int
    label: str
    explanation: str
    votes: dict[str, list[float]] = field(default_factory=dict)


@dataclass(frozen=True)
class TableEntry:
    """An explanation of a table: its votes, and where it and its image lie."""

    record: Record
    image: Path
    explanation: Path


def read_table(path: Path, *, drawings: bool, labels: str) -> list[TableEntry]:
    """Read a table of ratings, and find the files of its explanations.

    A file lies in the table's folder, or in its folder ``images`` or ``explanations``. Without a column
    ``explanation`` the explanation of an image is ``{explainer}/{image}`` with the suffix of a drawing, map or list of
    concepts; with `drawings` a drawing is taken before its map, else the map.
    """
    of_maps = (DRAWING_SUFFIX, MAP_SUFFIX) if drawings else (MAP_SUFFIX, DRAWING_SUFFIX)
    suffixes = (CONCEPT_SUFFIX, *of_maps)
    entries, missing, owners = [], list[str](), dict[Path, str]()
    for (image_name, explainer), rated in _read_rows(path).items():
        image = _first_file(path, rated.line, [image_name, f"{IMAGES}/{image_name}"])
        stem = Path(image_name.removeprefix(f"{IMAGES}/")).with_suffix("").as_posix()
        name = rated.explanation or f"{explainer}/{stem}"
        places = [name] if rated.explanation else [name + suffix for suffix in suffixes]
        explanation = _first_file(path, rated.line, [*places, *(f"{EXPLANATIONS}/{place}" for place in places)])
        if image is None:
            missing.append(image_name)
        if explanation is None:
            missing.append(name if rated.explanation else f"{name}{' or '.join(suffixes)}")
        if image is None or explanation is None:
            continue
        if owners.setdefault(explanation, image_name) != image_name:
            raise ValueError(
                f"Expected a file for each explanation in {path} but {explanation.name} is that of "
                f"{owners[explanation]} and of {image_name}. Name files in a column {EXPLANATION!r}."
            )
        label = parse_scored_name(image_name).label if labels == IMAGE_NAME else rated.label
        # Not the name of a data set of the release, which has rules of its own.
        file = FileName(path.name, image.relative_to(path.parent).as_posix(), explainer, label)
        votes = np.array([*rated.votes.values()], dtype=np.float64)
        entries.append(TableEntry(Record(image_name, name, file, label, votes), image, explanation))
    if missing := list(dict.fromkeys(missing)):
        raise FileNotFoundError(
            f"{len(missing)} files of the ratings in {path} are missing: {list_some(missing, 10)}. They lie beside the "
            f"table or in its folders {IMAGES} and {EXPLANATIONS}; a column {EXPLANATION!r} may name explanations."
        )
    return entries


def _first_file(path: Path, line: int, names: list[str]) -> Path | None:
    places = (inside(path.parent, name, f"{path}, line {line}") for name in names)
    return next((place for place in places if place.is_file()), None)


def _read_rows(path: Path) -> dict[tuple[str, str], _Rated]:
    """Return what is rated by image and explainer."""
    rated: dict[tuple[str, str], _Rated] = {}
    faults, bad_votes = [], []
    for line, row in _rows(path):
        if absent := [name for name in NEEDED if not row[name]]:
            faults.append(f"no {absent[0]} (line {line})")
            continue
        votes = [as_vote(_vote_cell(row, question)) for question in QUESTIONS]
        bad = [question for question, vote in zip(QUESTIONS, votes, strict=True) if vote is None]
        bad_votes += [f"{row[question.lower()]!r} (line {line}, {question})" for question in bad]
        entry = rated.setdefault(
            (row["image"], row["explainer"]), _Rated(line, row.get(LABEL, ""), row.get(EXPLANATION, ""))
        )
        if (entry.label, entry.explanation) != (row.get(LABEL, ""), row.get(EXPLANATION, "")):
            faults.append(f"another {LABEL} or {EXPLANATION} than in line {entry.line} (line {line})")
        if row["rater"] in entry.votes:
            faults.append(f"another rating of {quote(row['rater'])} for the same explanation (line {line})")
        entry.votes[row["rater"]] = [math.nan if vote is None else vote for vote in votes]
    for noun, listed, remedy in (
        ("faulty rows", faults, "Each rater rates an explanation once."),
        ("faulty votes", bad_votes, f"Votes are whole numbers from {MIN_VOTE} to {MAX_VOTE}, or empty."),
    ):
        if listed:
            raise ValueError(f"Table of ratings {path} has {len(listed)} {noun}: {list_some(listed)}. {remedy}")
    if all(math.isnan(vote) for entry in rated.values() for votes in entry.votes.values() for vote in votes):
        raise ValueError(f"Table of ratings {path} has no vote. {_FORM}")
    return rated


def _vote_cell(row: dict[str, str], question: str) -> str:
    cell = row.get(question.lower(), "")
    return "" if cell.lower() in _NO_VOTE else cell


def _rows(path: Path) -> Iterator[tuple[int, dict[str, str]]]:
    """Yield line and stripped cells by column, in small letters, of each row that is not blank."""
    lines = read_text(path, "Table of ratings").splitlines(keepends=True)
    # Spreadsheets separate columns by what their language does not need for decimals.
    first = next((line for line in lines if line.strip()), "")
    reader = csv.reader(lines, delimiter=max(",;\t", key=first.count))
    header: list[str] = []
    try:
        for row in reader:
            cells = [cell.strip() for cell in row]
            if not any(cells):
                continue
            if not header:
                header = [cell.lower() for cell in cells]
                _check_header(path, cells, header)
                continue
            if len(cells) != len(header):
                raise bad_line(
                    path, reader.line_num, f"{len(header)} columns as in the header", f"{len(cells)} columns"
                )
            yield reader.line_num, dict(zip(header, cells, strict=True))
    except csv.Error as error:
        raise ValueError(f"{path}, line {reader.line_num}: cannot be read as CSV: {error}.") from error


def _check_header(path: Path, cells: list[str], header: list[str]) -> None:
    """Raise where a column is missing or there twice, or where a question is called otherwise."""
    questions = [question.lower() for question in QUESTIONS]
    strange = [cell for cell in cells if cell.lower() not in questions and QUESTION_LIKE.fullmatch(cell)]
    missing = [name for name in NEEDED if name not in header] + ["one of Q1 to Q6"] * (not set(questions) & set(header))
    twice = [cell for cell, name in zip(cells, header, strict=True) if header.count(name) > 1]
    for listed, text in (
        (strange, "has questions that are not called Q1 to Q6"),
        (missing, "lacks columns"),
        (twice, "has columns twice"),
    ):
        if listed:
            raise ValueError(
                f"Table of ratings {path} {text}: {list_some(listed)} (got {list_some(cells, 12)}). {_FORM}"
            )
