"""Explainers of known quality: rules that make relevance maps and concept lists, from true to wrong by degrees."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

import numpy as np
from scipy import ndimage

from quantus_concepts.datasets.birds.attributes import PARTS

HEAD = ("beak", "crown", "forehead", "eye", "nape", "throat")
# Most concepts that a list of an explainer holds: as many as the sentence that is read names.
LIST_LENGTH = 15
_COARSE = 6


class BirdView(NamedTuple):
    """What an explainer may look at: one painted bird, and another that is not in the picture."""

    image: Callable[[], np.ndarray]
    parts: np.ndarray
    other_parts: np.ndarray
    present: np.ndarray
    typical: np.ndarray
    other_typical: np.ndarray
    groups: np.ndarray


Rule = Callable[[BirdView, np.random.Generator], np.ndarray]


@dataclass(frozen=True)
class GradedExplainer:
    """A way to explain whose quality is known."""

    name: str
    modality: str
    kind: str
    grade: float
    rule: Rule


def bird_mask(view: BirdView) -> np.ndarray:
    """Return (H, W) of float, 1 on the bird."""
    return (view.parts > 0).astype(np.float64)


# No lambda: what a loader sends to its workers is pickled.
def _true_map(view: BirdView, rng: np.random.Generator) -> np.ndarray:
    return bird_mask(view)


def _blur(view: BirdView, rng: np.random.Generator, grade: float) -> np.ndarray:
    return ndimage.gaussian_filter(bird_mask(view), grade * len(view.parts))


def _shift(view: BirdView, rng: np.random.Generator, grade: float) -> np.ndarray:
    angle = rng.uniform(0, 2 * np.pi)
    steps = np.rint(grade * len(view.parts) * np.array([np.sin(angle), np.cos(angle)])).astype(int)
    # Round the edge, so that as much is marked as before.
    return np.roll(bird_mask(view), steps, axis=(0, 1))


def _add_noise(view: BirdView, rng: np.random.Generator, grade: float) -> np.ndarray:
    return (1 - grade) * bird_mask(view) + grade * rng.random(view.parts.shape)


def _add_blotches(view: BirdView, rng: np.random.Generator, grade: float) -> np.ndarray:
    side = len(view.parts)
    field = ndimage.zoom(rng.random((_COARSE, _COARSE)), side / _COARSE, order=1, grid_mode=True, mode="nearest")
    return (1 - grade) * bird_mask(view) + grade * field[:side, :side]


def _dilate(view: BirdView, rng: np.random.Generator, grade: float) -> np.ndarray:
    distance = ndimage.distance_transform_edt(view.parts == 0)
    return (distance <= grade * len(view.parts)).astype(np.float64)


def _erode(view: BirdView, rng: np.random.Generator, grade: float) -> np.ndarray:
    # As a share of the thickest place, so that something is left of every bird.
    distance = ndimage.distance_transform_edt(view.parts > 0)
    return (distance > grade * distance.max()).astype(np.float64)


def _head(view: BirdView, rng: np.random.Generator) -> np.ndarray:
    return np.isin(view.parts, [PARTS.index(part) + 1 for part in HEAD]).astype(np.float64)


def _body(view: BirdView, rng: np.random.Generator) -> np.ndarray:
    return bird_mask(view) - _head(view, rng)


def _some_parts(view: BirdView, rng: np.random.Generator, grade: float) -> np.ndarray:
    visible = np.setdiff1d(np.unique(view.parts), [0])
    return np.isin(view.parts, rng.permutation(visible)[: int(grade)]).astype(np.float64)


def _thin_out(view: BirdView, rng: np.random.Generator, grade: float) -> np.ndarray:
    return bird_mask(view) * (rng.random(view.parts.shape) < grade)


def _box(view: BirdView, rng: np.random.Generator) -> np.ndarray:
    rows, columns = ndimage.find_objects((view.parts > 0).astype(np.int64))[0]
    filled = np.zeros(view.parts.shape)
    filled[rows, columns] = 1
    return filled


def _uniform(view: BirdView, rng: np.random.Generator) -> np.ndarray:
    return np.full(view.parts.shape, 0.5)


def _invert(view: BirdView, rng: np.random.Generator, grade: float) -> np.ndarray:
    return 1 - _blur(view, rng, grade)


def _mark_centre(view: BirdView, rng: np.random.Generator, grade: float) -> np.ndarray:
    side = len(view.parts)
    axis = (np.arange(side) + 0.5) / side - 0.5
    return np.exp(-(axis[:, None] ** 2 + axis**2) / (2 * grade**2))


def _other_bird(view: BirdView, rng: np.random.Generator, grade: float) -> np.ndarray:
    return (1 - grade) * bird_mask(view) + grade * (view.other_parts > 0)


def _edges(view: BirdView, rng: np.random.Generator) -> np.ndarray:
    grey = view.image().mean(0)
    return np.hypot(ndimage.sobel(grey, 0), ndimage.sobel(grey, 1))


def _corner(view: BirdView, rng: np.random.Generator, grade: float) -> np.ndarray:
    side = len(view.parts)
    reach = round(grade * side)
    marked = np.zeros(view.parts.shape)
    top, left = rng.integers(2, size=2) * (side - reach)
    marked[top : top + reach, left : left + reach] = 1
    return marked


def _true_list(view: BirdView, rng: np.random.Generator, grade: float) -> np.ndarray:
    return rng.permutation(np.flatnonzero(view.present))[: int(grade)]


def _class_list(view: BirdView, rng: np.random.Generator, grade: float) -> np.ndarray:
    return rng.permutation(np.flatnonzero(view.typical))[: int(grade)]


def _other_class_list(view: BirdView, rng: np.random.Generator, grade: float) -> np.ndarray:
    return rng.permutation(np.flatnonzero(view.other_typical))[: int(grade)]


def _replace_some(view: BirdView, rng: np.random.Generator, grade: float, length: int) -> np.ndarray:
    listed = _true_list(view, rng, length)
    wrong = rng.permutation(np.flatnonzero(~view.present))
    chosen = rng.permutation(len(listed))[: round(grade * len(listed))]
    listed[chosen] = wrong[: len(chosen)]
    return listed


def _half_true(view: BirdView, rng: np.random.Generator, grade: float) -> np.ndarray:
    half = LIST_LENGTH // 2
    true, wrong = _true_list(view, rng, LIST_LENGTH - half), rng.permutation(np.flatnonzero(~view.present))[:half]
    return np.concatenate([true, wrong] if grade else [wrong, true])


def _random_list(view: BirdView, rng: np.random.Generator, grade: float) -> np.ndarray:
    return rng.permutation(len(view.present))[: int(grade)]


def _list_groups(view: BirdView, rng: np.random.Generator, grade: float) -> np.ndarray:
    groups = rng.permutation(np.unique(view.groups))[: int(grade)]
    return np.concatenate([np.flatnonzero(view.groups == group) for group in groups])[:LIST_LENGTH]


def _grade(
    modality: str, kind: str, rule: Callable[..., np.ndarray], grades: Mapping[str, float]
) -> list[GradedExplainer]:
    return [
        GradedExplainer(f"{kind} {grade_name}", modality, kind, grade, partial(rule, grade=grade))
        for grade_name, grade in grades.items()
    ]


def _percent(*grades: float) -> dict[str, float]:
    return {f"{100 * grade:g} %": grade for grade in grades}


def _counts(*grades: int) -> dict[str, float]:
    return {str(grade): grade for grade in grades}


EXPLAINERS: tuple[GradedExplainer, ...] = (
    GradedExplainer("true map", "map", "true map", 0, _true_map),
    *_grade("map", "blurred", _blur, _percent(0.02, 0.04, 0.07, 0.11, 0.16)),
    *_grade("map", "shifted", _shift, _percent(0.05, 0.1, 0.15, 0.2, 0.3, 0.45)),
    *_grade("map", "noisy", _add_noise, _percent(0.2, 0.4, 0.6, 0.8, 1.0)),
    *_grade("map", "blotched", _add_blotches, _percent(0.2, 0.4, 0.6, 0.8, 1.0)),
    *_grade("map", "dilated", _dilate, _percent(0.03, 0.06, 0.1, 0.15, 0.25)),
    *_grade("map", "eroded", _erode, _percent(0.25, 0.4, 0.55, 0.7)),
    *_grade("map", "parts", _some_parts, _counts(1, 2, 3, 4, 6, 8)),
    GradedExplainer("head", "map", "head", 0, _head),
    GradedExplainer("body", "map", "body", 0, _body),
    *_grade("map", "sparse", _thin_out, _percent(0.05, 0.15, 0.3, 0.6)),
    GradedExplainer("box", "map", "box", 0, _box),
    *_grade("map", "other bird", _other_bird, _percent(0.25, 0.5, 0.75, 1.0)),
    *_grade("map", "centred", _mark_centre, _percent(0.08, 0.15, 0.25, 0.4)),
    *_grade("map", "inverted", _invert, {"sharp": 0.0, "soft": 0.03, "very soft": 0.1}),
    *_grade("map", "corner", _corner, _percent(0.2, 0.35, 0.5)),
    GradedExplainer("edges", "map", "edges", 0, _edges),
    GradedExplainer("uniform", "map", "uniform", 0, _uniform),
    *_grade("concepts", "true list", _true_list, _counts(1, 2, 3, 4, 6, 8, 10, 12, 15)),
    *_grade("concepts", "class list", _class_list, _counts(5, 15)),
    *_grade("concepts", "other class list", _other_class_list, _counts(5, 15)),
    *_grade(
        "concepts", "replaced in 15", partial(_replace_some, length=15), _percent(0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 1)
    ),
    *_grade("concepts", "replaced in 10", partial(_replace_some, length=10), _percent(0.3, 0.6)),
    *_grade("concepts", "replaced in 5", partial(_replace_some, length=5), _percent(0.2, 0.4, 0.6, 0.8)),
    *_grade("concepts", "half true", _half_true, {"first": 1, "last": 0}),
    *_grade("concepts", "random list", _random_list, _counts(3, 5, 10, 15)),
    *_grade("concepts", "contradictory", _list_groups, _counts(1, 2, 3, 5)),
)
