"""Explainers of known quality: eight rules that make maps and lists of concepts, from true to wrong by degrees."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

import numpy as np
from scipy import ndimage

#: Concepts that a list of an explainer holds at most: as many as the sentence that is read names.
LIST_LENGTH = 15


class BirdView(NamedTuple):
    """What an explainer may look at: the parts (H, W) of a painted bird and of another one, and its concepts (L,)."""

    parts: np.ndarray
    other_parts: np.ndarray
    present: np.ndarray


Rule = Callable[[BirdView, np.random.Generator], np.ndarray]


@dataclass(frozen=True)
class GradedExplainer:
    """A way to explain whose quality is known."""

    name: str
    modality: str
    rule: Rule


# No lambda: what a loader sends to its workers is pickled.
def _blur(view: BirdView, rng: np.random.Generator, grade: float) -> np.ndarray:
    return ndimage.gaussian_filter(_bird(view), grade * len(view.parts))


def _shift(view: BirdView, rng: np.random.Generator, grade: float) -> np.ndarray:
    angle = rng.uniform(0, 2 * np.pi)
    steps = np.rint(grade * len(view.parts) * np.array([np.sin(angle), np.cos(angle)])).astype(int)
    # Round the edge, so that as much is marked as before.
    return np.roll(_bird(view), steps, axis=(0, 1))


def _add_noise(view: BirdView, rng: np.random.Generator, grade: float) -> np.ndarray:
    return (1 - grade) * _bird(view) + grade * rng.random(view.parts.shape)


def _some_parts(view: BirdView, rng: np.random.Generator, grade: float) -> np.ndarray:
    visible = np.setdiff1d(np.unique(view.parts), [0])
    return np.isin(view.parts, rng.permutation(visible)[: int(grade)]).astype(np.float64)


def _mark_centre(view: BirdView, rng: np.random.Generator, grade: float) -> np.ndarray:
    side = len(view.parts)
    axis = (np.arange(side) + 0.5) / side - 0.5
    return np.exp(-(axis[:, None] ** 2 + axis**2) / (2 * grade**2))


def _other_bird(view: BirdView, rng: np.random.Generator, grade: float) -> np.ndarray:
    return (1 - grade) * _bird(view) + grade * (view.other_parts > 0)


def _replace_some(view: BirdView, rng: np.random.Generator, grade: float, length: int) -> np.ndarray:
    listed = rng.permutation(np.flatnonzero(view.present))[:length]
    wrong = rng.permutation(np.flatnonzero(~view.present))
    chosen = rng.permutation(len(listed))[: round(grade * len(listed))]
    listed[chosen] = wrong[: len(chosen)]
    return listed


def _random_list(view: BirdView, rng: np.random.Generator, grade: float) -> np.ndarray:
    return rng.permutation(len(view.present))[: int(grade)]


def _bird(view: BirdView) -> np.ndarray:
    return (view.parts > 0).astype(np.float64)


def _grade(
    modality: str, kind: str, rule: Callable[..., np.ndarray], grades: Mapping[str, float]
) -> list[GradedExplainer]:
    return [
        GradedExplainer(f"{kind} {grade_name}", modality, partial(rule, grade=grade))
        for grade_name, grade in grades.items()
    ]


def _percent(*grades: float) -> dict[str, float]:
    return {f"{100 * grade:g} %": grade for grade in grades}


def _counts(*grades: int) -> dict[str, float]:
    return {str(grade): grade for grade in grades}


EXPLAINERS: tuple[GradedExplainer, ...] = (
    GradedExplainer("true map", "map", partial(_blur, grade=0)),
    *_grade("map", "blurred", _blur, _percent(0.02, 0.04, 0.07, 0.11, 0.16)),
    *_grade("map", "shifted", _shift, _percent(0.05, 0.1, 0.15, 0.2, 0.3, 0.45)),
    *_grade("map", "noisy", _add_noise, _percent(0.2, 0.4, 0.6, 0.8, 1.0)),
    *_grade("map", "parts", _some_parts, _counts(1, 2, 3, 4, 6, 8)),
    *_grade("map", "centred", _mark_centre, _percent(0.08, 0.15, 0.25, 0.4)),
    *_grade("map", "other bird", _other_bird, _percent(0.25, 0.5, 0.75, 1.0)),
    *(
        GradedExplainer(f"true list {length}", "concepts", partial(_replace_some, grade=0, length=length))
        for length in (1, 2, 3, 4, 6, 8, 10, 12, 15)
    ),
    *_grade(
        "concepts", "replaced in 15", partial(_replace_some, length=15), _percent(0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 1)
    ),
    *_grade("concepts", "replaced in 10", partial(_replace_some, length=10), _percent(0.3, 0.6)),
    *_grade("concepts", "replaced in 5", partial(_replace_some, length=5), _percent(0.2, 0.4, 0.6, 0.8)),
    *_grade("concepts", "random list", _random_list, _counts(3, 5, 10, 15)),
)
