"""Ratings of one's own: tables with a row for each explanation and rater, and the rated files next to them."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from captum_concepts.support.files import quote, read_json
from quantus_concepts.datasets.folders import csv_rows, inside, list_some
from quantus_concepts.datasets.ratings.explanations import QUESTIONS, Question
from quantus_concepts.datasets.ratings.files import (
    CONCEPT_SUFFIX,
    DRAWING_SUFFIX,
    MAP_SUFFIX,
    FileName,
    read_scored_name,
)
from quantus_concepts.datasets.ratings.rated_file import IMAGE_NAME, RatedFile, as_vote
from quantus_concepts.functional.statistics.votes import MAX_VOTE, MIN_VOTE

#: Columns that every table has, and those that it may have.
NEEDED, LABEL, EXPLANATION = ("image", "explainer", "rater"), "label", "explanation"
#: Folders next to the table that may hold the files.
IMAGES, EXPLANATIONS = "images", "explanations"
#: What other programs write for a missing vote.
_NO_VOTE = ("na", "nan", "n/a")
#: File beside a table with the wording and the direction of its questions, by their names.
WORDINGS = "questions.json"
#: Names of columns that our own tables have beside those of the questions.
TAKEN = ("modality", "item", "score", "dataset", "image_id", "note")
_FORM = f"A table of ratings has the columns {', '.join(NEEDED)} and one for each question: a row for each rating."


@dataclass
class _Rated:
    """An explanation as its rows describe it: the place of the first, its label, and votes by rater."""

    place: str
    label: str | None
    votes: dict[str, list[float]] = field(default_factory=dict)


def read_tables(
    paths: Sequence[Path], *, drawings: bool, labels: str, ascending: Collection[str]
) -> tuple[list[RatedFile], list[str], dict[str, Question]]:
    """Read tables of ratings in one folder, find their files, and return these, the raters and the questions.

    A file lies in the tables' folder, or in its folder ``images`` or ``explanations``. Without a column
    ``explanation`` the explanation of an image is ``{explainer}/{image}``. Without a suffix that of a drawing, map or
    list of concepts is added; with `drawings` a drawing is taken before its map, else the map. A column ``label``
    counts more than the label in the name of a file. Questions are those of ``questions.json`` beside the tables,
    without it all other columns: their wording is then not known, whatever they are called.
    """
    root = paths[0].parent
    of_maps = (DRAWING_SUFFIX, MAP_SUFFIX) if drawings else (MAP_SUFFIX, DRAWING_SUFFIX)
    suffixes = (CONCEPT_SUFFIX, *of_maps)
    name = paths[0].name if len(paths) == 1 else root.resolve().name
    asked = _questions(paths)
    rows = _read_rows(paths, asked)
    raters = list(dict.fromkeys(rater for rated in rows.values() for rater in rated.votes))
    files, missing, owners = [], list[str](), dict[Path, str]()
    for (image_name, explainer, given_name), rated in rows.items():
        image = _first_file(root, rated.place, [image_name, f"{IMAGES}/{image_name}"])
        stem = Path(image_name.removeprefix(f"{IMAGES}/")).with_suffix("").as_posix()
        name_of_file = given_name or f"{explainer}/{stem}"
        is_file = Path(name_of_file).suffix.lower() in suffixes
        places = [name_of_file] if is_file else [name_of_file + suffix for suffix in suffixes]
        explanation = _first_file(root, rated.place, [*places, *(f"{EXPLANATIONS}/{place}" for place in places)])
        missing += [] if image else [image_name]
        missing += [] if explanation else [name_of_file if is_file else f"{name_of_file}{' or '.join(suffixes)}"]
        if image is None or explanation is None:
            continue
        if owners.setdefault(explanation, image_name) != image_name:
            raise ValueError(
                f"Expected a file for each explanation in {name} but {explanation.name} is that of "
                f"{owners[explanation]} and of {image_name}. Name files in a column {EXPLANATION!r}."
            )
        if rated.label is None and labels == IMAGE_NAME:
            label = read_scored_name(image_name)[0].label
        else:
            label = rated.label or ""
        votes = np.full((len(raters), len(asked)), np.nan)
        for rater, of_rater in rated.votes.items():
            votes[raters.index(rater)] = of_rater
        # Not the name of a data set of the release, which has rules of its own.
        file = FileName(name, image.relative_to(root).as_posix(), explainer, label)
        files.append(RatedFile(image, explanation, file, label, votes, explainer in ascending))
    if missing := list(dict.fromkeys(missing)):
        raise FileNotFoundError(
            f"{len(missing)} files of the ratings in {root / name} are missing: {list_some(missing, 10)}. They lie "
            f"next to the table or in its folders {IMAGES} and {EXPLANATIONS}; a column {EXPLANATION!r} may name "
            "explanations."
        )
    return files, raters, asked


def _first_file(root: Path, row: str, names: Sequence[str]) -> Path | None:
    places = (inside(root, name, row) for name in names)
    return next((place for place in places if place.is_file()), None)


def _read_rows(paths: Sequence[Path], asked: Collection[str]) -> dict[tuple[str, str, str], _Rated]:
    """Return the rated explanations by image, explainer and the file that a row names."""
    rated: dict[tuple[str, str, str], _Rated] = {}
    faults = []
    for path, line, row in _rows(paths):
        place = f"line {line}" if len(paths) == 1 else f"{path.name}, line {line}"
        if absent := [name for name in NEEDED if not row[name]]:
            faults.append(f"no {absent[0]} ({place})")
            continue
        cells = {question: row.get(question.lower(), "") for question in asked}
        votes = {name: as_vote("" if cell.lower() in _NO_VOTE else cell) for name, cell in cells.items()}
        faults += [f"{cells[name]!r} is no vote ({place}, {name})" for name, vote in votes.items() if vote is None]
        key = row["image"], row["explainer"], row.get(EXPLANATION, "")
        entry = rated.setdefault(key, _Rated(f"{path}, line {line}", row.get(LABEL)))
        if entry.label != row.get(LABEL):
            faults.append(f"another {LABEL} than in {entry.place.removeprefix(f'{path}, ')} ({place})")
        now = [math.nan if vote is None else vote for vote in votes.values()]
        before = entry.votes.setdefault(row["rater"], now)
        # The same person may save an early file and a complete one.
        if any(old != new for old, new in zip(before, now, strict=True) if old == old and new == new):
            faults.append(f"another rating of {quote(row['rater'])} for the same explanation ({place})")
        entry.votes[row["rater"]] = [old if old == old else new for old, new in zip(before, now, strict=True)]
    name = ", ".join(path.name for path in paths[:5])
    if faults:
        raise ValueError(
            f"Table of ratings {name} has {len(faults)} faults: {list_some(faults)}. Votes are whole numbers from "
            f"{MIN_VOTE} to {MAX_VOTE}, or empty, and each rater rates an explanation once. If a column is no "
            f"question, name those that are in {WORDINGS} beside the table."
        )
    if all(math.isnan(vote) for entry in rated.values() for votes in entry.votes.values() for vote in votes):
        raise ValueError(f"Table of ratings {name} has no vote. {_FORM}")
    return rated


def _rows(paths: Sequence[Path]) -> Iterator[tuple[Path, int, dict[str, str]]]:
    """Yield table, line, and cells by column in small letters."""
    for path in paths:
        rows = csv_rows(path)
        _, cells = next(rows, (1, []))
        header = [cell.lower() for cell in cells]
        _check_header(path, cells, header)
        for line, row in rows:
            yield path, line, dict(zip(header, row, strict=True))


def _questions(paths: Sequence[Path]) -> dict[str, Question]:
    """Return the questions of tables: those that a file beside them words, else their other columns."""
    known = (*NEEDED, LABEL, EXPLANATION)
    columns = dict[str, str]()
    for path in paths:
        for cell in next(csv_rows(path), (1, []))[1]:
            columns.setdefault(cell.lower(), cell)
    wordings = paths[0].parent / WORDINGS
    if wordings.is_file():
        asked = read_wordings(wordings)
        if lacking := [name for name in asked if name.lower() not in columns]:
            raise ValueError(
                f"Expected the tables of ratings beside {wordings} to have a column for each of its questions but "
                f"{list_some(lacking)} have none (columns: {list_some(columns.values(), 12)})."
            )
    else:
        written = {name.lower(): name for name in QUESTIONS}
        names = [written.get(low, name) for low, name in columns.items() if low not in known]
        asked = {name: Question(name) for name in names}
    if not asked:
        raise ValueError(f"Table of ratings {paths[0]} lacks a column of votes. {_FORM}")
    _check_names(asked)
    return asked


def _check_names(asked: Collection[str]) -> None:
    """Raise where a question has the name of another column."""
    if bad := [name for name in asked if not name or name.lower() in (*NEEDED, LABEL, EXPLANATION, *TAKEN)]:
        raise ValueError(f"Expected questions of ratings to be called otherwise than {list_some(map(repr, bad))}.")


def read_wordings(path: Path) -> dict[str, Question]:
    """Read the questions of a study: for each name its wording, or an object.

    The object has ``text``, ``low_is_good``, and ``ends``, the texts at both ends of a page's five points.
    """
    content = read_json(path, "File of questions")
    form = (
        'such as {"clarity": "Is it clear?", "effort": {"text": "How hard was it to read?", "low_is_good": true, '
        '"ends": ["easy", "hard"]}}'
    )
    if not isinstance(content, dict):
        raise ValueError(f"Expected file of questions {path} to be an object, {form}, but got {quote(str(content))}.")
    asked = {}
    for name, value in content.items():
        fields = {"text": value} if isinstance(value, str) else value
        kinds = {"text": str, "low_is_good": bool, "ends": list}
        if not isinstance(fields, dict) or not all(isinstance(fields[key], kinds.get(key, ())) for key in fields):
            raise ValueError(f"Expected question {name!r} in {path} to be its wording, {form}, but got {value!r}.")
        ends = fields.get("ends", ["", ""])
        if len(ends) != 2 or not all(isinstance(end, str) for end in ends):
            raise ValueError(f"Expected the ends of question {name!r} in {path} to be two texts but got {ends!r}.")
        asked[name] = Question(name, **fields | ({"ends": tuple(ends)} if "ends" in fields else {}))
    # Columns of tables differ in more than small and capital letters.
    if len({name.lower() for name in asked}) < len(asked):
        raise ValueError(f"Expected the questions in {path} to have different names but got {', '.join(asked)}.")
    _check_names(asked)
    return asked


def _check_header(path: Path, cells: list[str], header: list[str]) -> None:
    """Raise where a column is missing or there twice."""
    missing = [name for name in NEEDED if name not in header]
    twice = [cell for cell, name in zip(cells, header, strict=True) if header.count(name) > 1]
    for listed, text in ((missing, "lacks columns"), (twice, "has columns twice")):
        if listed:
            raise ValueError(
                f"Table of ratings {path} {text}: {list_some(listed)} (got {list_some(cells, 12)}). {_FORM}"
            )
