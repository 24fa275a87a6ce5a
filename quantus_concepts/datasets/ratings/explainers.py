"""Explainers of known quality: eight rules that make maps and lists of concepts, from true to wrong by degrees."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

import numpy as np
from scipy import ndimage

#: Concepts that a list of an explainer holds at most: as many as the sentence that is read names.
LIST_LENGTH = 15


class BirdView(NamedTuple):
    """What an explainer is given: the parts (H, W) of a painted bird and of another one, and its concepts (L,)."""

    parts: np.ndarray
    other_parts: np.ndarray
    present: np.ndarray


Rule = Callable[[BirdView, np.random.Generator], np.ndarray]


@dataclass(frozen=True)
class GradedExplainer:
    """An explainer of known quality."""

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


def _some_parts(view: BirdView, rng: np.random.Generator, grade: int) -> np.ndarray:
    visible = np.setdiff1d(np.unique(view.parts), [0])
    return np.isin(view.parts, rng.permutation(visible)[:grade]).astype(np.float64)


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


def _random_list(view: BirdView, rng: np.random.Generator, grade: int) -> np.ndarray:
    return rng.permutation(len(view.present))[:grade]


def _bird(view: BirdView) -> np.ndarray:
    return (view.parts > 0).astype(np.float64)


def _graded(modality: str, kind: str, rule: Callable[..., np.ndarray], *grades: float) -> list[GradedExplainer]:
    """Return an explainer for each grade: a share, named in per cent, or a whole number."""
    return [
        GradedExplainer(
            f"{kind} {grade if isinstance(grade, int) else f'{100 * grade:g} %'}", modality, partial(rule, grade=grade)
        )
        for grade in grades
    ]


EXPLAINERS: tuple[GradedExplainer, ...] = (
    GradedExplainer("true map", "map", partial(_blur, grade=0)),
    *_graded("map", "blurred", _blur, 0.02, 0.04, 0.07, 0.11, 0.16),
    *_graded("map", "shifted", _shift, 0.05, 0.1, 0.15, 0.2, 0.3, 0.45),
    *_graded("map", "noisy", _add_noise, 0.2, 0.4, 0.6, 0.8, 1.0),
    *_graded("map", "parts", _some_parts, 1, 2, 3, 4, 6, 8),
    *_graded("map", "centred", _mark_centre, 0.08, 0.15, 0.25, 0.4),
    *_graded("map", "other bird", _other_bird, 0.25, 0.5, 0.75, 1.0),
    *(
        GradedExplainer(f"true list {length}", "concepts", partial(_replace_some, grade=0, length=length))
        for length in (1, 2, 3, 4, 6, 8, 10, 12, 15)
    ),
    *_graded("concepts", "replaced in 15", partial(_replace_some, length=15), 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 1.0),
    *_graded("concepts", "replaced in 10", partial(_replace_some, length=10), 0.3, 0.6),
    *_graded("concepts", "replaced in 5", partial(_replace_some, length=5), 0.2, 0.4, 0.6, 0.8),
    *_graded("concepts", "random list", _random_list, 3, 5, 10, 15),
)
