"""Reading the records of ratings: which explanation, which label, which votes."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np

from captum_concepts.support.files import read_json
from quantus_concepts.datasets.folders import leads_out, list_some
from quantus_concepts.datasets.ratings.explanations import QUESTIONS
from quantus_concepts.datasets.ratings.files import FileName, parse_rated_name, parse_scored_name
from quantus_concepts.functional.statistics.votes import MAX_VOTE, MIN_VOTE

PREDICTED, IMAGE_NAME = "predicted", "image-name"
#: What the label of an explanation is taken from.
LABELS = (PREDICTED, IMAGE_NAME)
#: What could only be meant as a question, such as "q1" or "Question 1".
QUESTION_LIKE = re.compile(r"\s*q(uestion)?[\s_.-]*\d+\s*", re.IGNORECASE)
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
        kind = "an empty one" if content == [] else f"a {type(content).__name__}"
        raise ValueError(f"Expected file of ratings {path} to be a list of records but got {kind}.")
    records, faults, bad_votes = [], [], []
    for number, entry in enumerate(content):
        try:
            records.append(_read_record(entry, labels))
        except ValueError as error:
            faults.append(f"record {number}: {error}")
            continue
        bad_votes += [
            f"{answers[question]!r} (record {number}, annotator {annotator}, {question})"
            for annotator, answers in enumerate(entry["Annotation"])
            for question in QUESTIONS
            if as_vote(answers.get(question)) is None
        ]
    remedy = f"Votes are whole numbers from {MIN_VOTE} to {MAX_VOTE}."
    for noun, listed in (("records", faults), ("votes", bad_votes)):
        if listed:
            raise ValueError(f"File of ratings {path} has {len(listed)} faulty {noun}: {list_some(listed)}. {remedy}")
    if all(np.isnan(record.votes).all() for record in records):
        raise ValueError(f"Expected votes on {', '.join(QUESTIONS)} in file of ratings {path} but it has none.")
    return _join_duplicates(path, records)


def _read_record(entry: Any, labels: str) -> Record:
    """Return a record, with NaN for votes that cannot be read."""
    if not isinstance(entry, dict):
        raise ValueError(f"a {type(entry).__name__} and not an object")
    for key in ("img", "explication"):
        value = entry.get(key)
        if not isinstance(value, str) or leads_out(value):
            raise ValueError(f"{key!r} is no path inside the folder ({value!r})")
    classes = [entry.get(key) for key in ("predictedclass", "GTclass")]
    for value in classes:
        if not isinstance(value, str | int | None) or isinstance(value, bool):
            raise ValueError(f"the class {value!r} is neither a name nor a whole number")
    annotation = entry.get("Annotation")
    if not isinstance(annotation, list) or not all(isinstance(answers, dict) for answers in annotation):
        raise ValueError("'Annotation' is no list of objects, one for each annotator")
    if strange := [key for key in chain(*annotation) if key not in QUESTIONS and QUESTION_LIKE.fullmatch(key)]:
        raise ValueError(f"'Annotation' has the key {strange[0]!r}, where questions are called 'Q1' to 'Q6'")
    file = parse_rated_name(entry["explication"])
    candidates = [*classes, file.label] if labels == PREDICTED else [parse_scored_name(entry["img"]).label]
    label = next((str(label) for label in candidates if label not in (None, "")), "")
    votes = [[as_vote(answers.get(question)) for question in QUESTIONS] for answers in annotation]
    table = np.array(votes, dtype=np.float64).reshape(len(votes), len(QUESTIONS))
    return Record(entry["img"], entry["explication"], file, label, table)


def as_vote(value: object) -> float | None:
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


def _join_duplicates(path: Path, records: list[Record]) -> tuple[list[Record], str]:
    groups: dict[str, list[Record]] = {}
    n_repeated = 0
    for record in records:
        earlier = groups.setdefault(record.explication, [])
        if earlier and (earlier[0].image, earlier[0].label) != (record.image, record.label):
            raise ValueError(
                f"Expected the records of {record.explication} in {path} to agree but they name {earlier[0].image} "
                f"({earlier[0].label}) and {record.image} ({record.label})."
            )
        if any(np.array_equal(other.votes, record.votes, equal_nan=True) for other in earlier):
            n_repeated += 1
        else:
            earlier.append(record)
    parts = []
    if n_repeated:
        parts.append(f"Records that repeat another one were left out: {n_repeated}.")
    if several := sum(len(group) > 1 for group in groups.values()):
        parts.append(f"Explanations with several records, whose annotators were put side by side: {several}.")
    joined = [replace(group[0], votes=np.concatenate([record.votes for record in group])) for group in groups.values()]
    return joined, " ".join(parts)
