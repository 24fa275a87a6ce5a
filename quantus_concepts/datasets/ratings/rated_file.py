"""A rated explanation on disk, and how votes and labels are read."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from quantus_concepts.datasets.ratings.explanations import Explanation
from quantus_concepts.datasets.ratings.files import FileName, load_explanation, modality_of
from quantus_concepts.functional.statistics.votes import MAX_VOTE, MIN_VOTE

PREDICTED, IMAGE_NAME = "predicted", "image-name"
#: What the label of an explanation is taken from.
LABELS = (PREDICTED, IMAGE_NAME)
#: What could only be meant as a question, such as "q1" or "Question 1".
QUESTION_LIKE = re.compile(r"\s*q(uestion)?[\s_.-]*\d+\s*", re.IGNORECASE)
_WHOLE = re.compile(r"\s*[+-]?\d+(?:\.0*)?\s*")


@dataclass(frozen=True)
class RatedFile:
    """An explanation on disk with its image, what its name says, its label and its votes (A, 6)."""

    image: Path
    explanation: Path
    name: FileName
    label: str
    votes: np.ndarray
    ascending: bool = False

    @property
    def modality(self) -> str:
        """The kind of explanation."""
        return modality_of(self.explanation)

    def load(self) -> Explanation:
        """Read the explanation."""
        return load_explanation(self.explanation, self.image, self.name, ascending=self.ascending)


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
