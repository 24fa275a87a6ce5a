"""Reading the records of ratings: which explanation, which label, which votes."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from captum_concepts._support.files import read_json
from quantus_concepts.datasets.folders import leads_out, list_some
from quantus_concepts.datasets.ratings.files import FileName, parse_rated_name, parse_scored_name
from quantus_concepts.datasets.ratings.questions import QUESTIONS
from quantus_concepts.functional.votes import MAX_VOTE, MIN_VOTE

PREDICTED, IMAGE_NAME = "predicted", "image-name"
#: What the label of an explanation is taken from.
LABELS = (PREDICTED, IMAGE_NAME)
#: What could only be meant as a question, such as "q1" or "Question 1".
_QUESTION = re.compile(r"\s*q(uestion)?[\s_.-]*\d+\s*", re.IGNORECASE)
_WHOLE = re.compile(r"\s*[+-]?\d+(?:\.0*)?\s*")


@dataclass(frozen=True)
class Record:
    """An explanation and its votes."""

    image: str
    explication: str
    file: FileName
    label: str
    votes: np.ndarray


def read_records(path: Path, labels: str = PREDICTED) -> tuple[list[Record], str]:
    """Read all records of a file of ratings."""
    content = read_json(path, "File of ratings")
    if not isinstance(content, list) or not content:
        got = "an empty one" if content == [] else f"a {type(content).__name__}"
        raise ValueError(f"Expected file of ratings {path} to be a list of records but got {got}.")
    _raise_any(path, "records", [_fault(number, entry) for number, entry in enumerate(content)], "Correct them.")
    names, faults = [], []
    for number, entry in enumerate(content):
        try:
            names.append(parse_rated_name(entry["explication"]))
            if labels == IMAGE_NAME:
                parse_scored_name(entry["img"])
        except ValueError as error:
            faults.append(f"record {number}: {error}")
    _raise_any(path, "names of explanations", faults, "")
    votes = [[[as_vote(given.get(q)) for q in QUESTIONS] for given in entry["Annotation"]] for entry in content]
    _raise_any(
        path,
        "votes",
        [fault for number, table in enumerate(votes) for fault in _vote_faults(number, table, content)],
        f"Votes are whole numbers from {MIN_VOTE} to {MAX_VOTE}; leave out what was not answered.",
    )
    records = [_as_record(*parts, labels) for parts in zip(content, names, votes, strict=True)]
    if all(np.isnan(record.votes).all() for record in records):
        raise ValueError(f"Expected votes on {', '.join(QUESTIONS)} in file of ratings {path} but it has none.")
    return _join_duplicates(path, records)


def _raise_any(path: Path, noun: str, faults: list[str], remedy: str) -> None:
    found = [fault for fault in faults if fault]
    if found:
        text = list_some(found)
        raise ValueError(f"File of ratings {path} has {len(found)} faulty {noun}: {text}. {remedy}".rstrip())


def _fault(number: int, entry: Any) -> str:
    """Say what is wrong with a record, before its votes are looked at; empty where nothing is."""
    if not isinstance(entry, dict):
        return f"record {number} is a {type(entry).__name__}, not an object"
    for key in ("img", "explication"):
        value = entry.get(key)
        if not isinstance(value, str) or not value:
            return f"record {number} has no {key!r}"
        if leads_out(value):
            return f"record {number}: {key!r} is no path inside the folder ({value!r})"
    for key in ("predictedclass", "GTclass"):
        if not isinstance(value := entry.get(key), str | int | None) or isinstance(value, bool):
            return f"record {number}: {key!r} is {value!r}, neither a name nor a whole number"
    annotation = entry.get("Annotation")
    if not isinstance(annotation, list) or not all(isinstance(votes, dict) for votes in annotation):
        return f"record {number}: 'Annotation' is no list of objects, one for each annotator"
    strange = sorted(
        {key for votes in annotation for key in votes if key not in QUESTIONS and _QUESTION.fullmatch(key)}
    )
    if strange:
        return f"record {number}: 'Annotation' has the key {strange[0]!r}, where questions are called 'Q1' to 'Q6'"
    return ""


def _vote_faults(number: int, votes: list[list[float | None]], content: list[dict[str, Any]]) -> list[str]:
    return [
        f"{content[number]['Annotation'][annotator][question]!r} (record {number}, annotator {annotator}, {question})"
        for annotator, row in enumerate(votes)
        if None in row
        for question, vote in zip(QUESTIONS, row, strict=True)
        if vote is None
    ]


def as_vote(value: Any) -> float | None:
    """Return a vote, NaN where there is none, None where it cannot be read."""
    if type(value) is int and MIN_VOTE <= value <= MAX_VOTE:
        return float(value)
    if value is None or value == "" or value != value:
        return math.nan
    if isinstance(value, str) and _WHOLE.fullmatch(value):
        value = float(value)
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return float(value) if MIN_VOTE <= value <= MAX_VOTE and value == int(value) else None


def _as_record(entry: dict[str, Any], file: FileName, votes: list[list[float | None]], labels: str) -> Record:
    if labels == IMAGE_NAME:
        label = parse_scored_name(entry["img"]).label
    else:
        known = (entry.get("predictedclass"), entry.get("GTclass"), file.label)
        label = next((str(label) for label in known if label not in (None, "")), "")
    table = np.array(votes, dtype=np.float64).reshape(len(votes), len(QUESTIONS))
    return Record(entry["img"], entry["explication"], file, label, table)


def _join_duplicates(path: Path, records: list[Record]) -> tuple[list[Record], str]:
    same: dict[str, list[Record]] = {}
    repeated = 0
    for record in records:
        known = same.setdefault(record.explication, [])
        if known and (known[0].image, known[0].label) != (record.image, record.label):
            raise ValueError(
                f"Expected the records of {record.explication} in {path} to agree but they name {known[0].image} "
                f"({known[0].label}) and {record.image} ({record.label}). Remove one."
            )
        if any(np.array_equal(other.votes, record.votes, equal_nan=True) for other in known):
            repeated += 1
        else:
            known.append(record)
    parts = []
    if repeated:
        parts.append(f"Records that repeat another one were left out: {repeated}.")
    several = sum(len(known) > 1 for known in same.values())
    if several:
        parts.append(f"Explanations with several records, whose annotators were put side by side: {several}.")
    joined = [
        replace(known[0], votes=np.concatenate([record.votes for record in known])) if len(known) > 1 else known[0]
        for known in same.values()
    ]
    return joined, " ".join(parts)
