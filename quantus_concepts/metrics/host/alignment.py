"""Rows and names that belong together: of models, data sets, loaders and arrays given next to them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from captum_concepts.backbones.embedding import whole_data_set
from captum_concepts.support.checks import (
    check_name_order,
    match_names,
    only_numbers,
    to_array,
    to_class_indices,
    to_numpy,
)

CLASSES, CONCEPTS = "classes", "concepts"
#: What the axes of truth are, and of what its numbers are; other truth has neither axis.
AXES = {
    "class_concepts": (CLASSES, CONCEPTS),
    "training_concepts": (CLASSES, CONCEPTS),
    "concept_labels": ("", CONCEPTS),
    "part_of_concept": (CONCEPTS,),
    "concept_names": (CONCEPTS,),
    "class_names": (CLASSES,),
}
NUMBERS = {"labels": CLASSES, "added": CONCEPTS, "removed": CONCEPTS}
#: What data sets know of each image, with a row for each.
OF_IMAGES = ("added", "removed", "pairs")


class ModelNames(NamedTuple):
    """Names of the classes and concepts of models; None where they have none."""

    classes: Sequence[str] | None = None
    concepts: Sequence[str] | None = None


class Order(NamedTuple):
    """Where a model's classes and concepts are among those of a data set, None for the same places; how many it has."""

    classes: list[int] | None = None
    concepts: list[int] | None = None
    n_classes: int = 0
    n_concepts: int = 0

    def apply(self, name: str, value: Any) -> Any:
        """Return what a data set says under a name, with the classes and concepts of the model."""
        for axis, kind in enumerate(AXES.get(name, ())):
            places = getattr(self, kind, None)
            if places is not None:
                value = _take(name, value, places, axis)
        kind = NUMBERS.get(name, "")
        places = getattr(self, kind, None)
        return value if places is None else _renumber(name, value, places, getattr(self, f"n_{kind}"))

    def check_argument(self, name: str, value: Any) -> None:
        """Raise for an array whose classes or concepts could be in the order of the data set or of the model."""
        for kind in (*AXES.get(name, ()), NUMBERS.get(name, "")):
            places = getattr(self, kind, None)
            if places is not None and len(places) == getattr(self, f"n_{kind}") and not hasattr(value, "iloc"):
                named = " Pass a DataFrame with their names, or" if name in AXES and name in _TABLES else " Either"
                raise ValueError(
                    f"Expected argument `{name}` to say which {kind} it is about, since the data set of `loader` and "
                    f"the model have them in another order, but got {type(value).__name__}.{named} leave it to the "
                    "data set, or give both one order."
                )


_TABLES = ("class_concepts", "training_concepts", "concept_labels", "part_of_concept")


class TruthLookup:
    """Finds truth in the arguments of a call or in the data set of its loader, in the order of the models' names.

    Classes and concepts that the data set, a DataFrame and the models name are matched by name; others by place.
    """

    def __init__(
        self,
        loader: object,
        models: Iterable[object] = (),
        *,
        class_names: Sequence[str] | None = None,
        concept_names: Sequence[str] | None = None,
    ) -> None:
        self._data, self._rows = whole_data_set(getattr(loader, "dataset", None))
        of_models = names_of_models(models)
        of_data = ModelNames(*(getattr(self._data, name, None) for name in ("class_names", "concept_names")))
        classes = match_names("loader", of_data.classes, of_models.classes, CLASSES)
        if classes is not None and len(classes) < len(of_data.classes or ()):
            others = [str(name) for name in of_data.classes or () if str(name) not in map(str, of_models.classes or ())]
            raise ValueError(f"Expected argument `loader` to give images of the model's classes but got {others[:3]}.")
        concepts = match_names("loader", of_data.concepts, of_models.concepts, CONCEPTS)
        self.order = Order(classes, concepts, len(of_data.classes or ()), len(of_data.concepts or ()))
        for name, argument, known in (
            ("class_names", class_names, of_models.classes),
            ("concept_names", concept_names, of_models.concepts),
        ):
            check_name_order(name, argument, known, "the model's own names")
        #: Names for tables: those given, else those of the data set, else those of the models.
        self.class_names = _first(class_names, self("class_names"), of_models.classes)
        self.concept_names = _first(concept_names, self("concept_names"), of_models.concepts)
        concepts_named = of_models.concepts and not only_numbers(of_models.concepts)
        self.names = ModelNames(self.class_names, of_models.concepts if concepts_named else self.concept_names)

    def __call__(
        self, name: str, argument: Any = None, check: Callable[[str, Any], Any] | None = None, of_images: bool = False
    ) -> Any:
        """Return truth of a name, checked: the argument, or what the data set has under it; None for neither."""
        if argument is not None:
            return self.argument(name, argument, check)
        truth = getattr(self._data, name, None)
        if truth is None:
            return None
        if self._rows is not None and (of_images or name in OF_IMAGES):
            truth = to_array(name, truth)[self._rows]
        truth = self.order.apply(name, truth)
        return truth if check is None else check(name, truth)

    def argument(self, name: str, argument: Any, check: Callable[[str, Any], Any] | None = None) -> Any:
        """Return truth that was given, checked and in order; None if it was not."""
        if argument is None:
            return None
        self.order.check_argument(name, argument)
        truth = in_order(name, argument, self.names)
        return truth if check is None else check(name, truth)


def names_of_models(models: Iterable[object]) -> ModelNames:
    """Return the names that concept models have, or raise where two of them differ."""
    found = []
    for kind, of_model in (
        (CLASSES, lambda model: getattr(model, "class_names", None)),
        (CONCEPTS, lambda model: getattr(getattr(model, "concept_layer", None), "names", None)),
    ):
        known: list[str] | None = None
        for names in filter(None, map(of_model, models := [*models])):
            if known is not None and match_names("model", names, known, kind) is not None:
                raise ValueError(
                    f"Expected argument `model` to hold models with their {kind} in one order but got {known[:3]} and "
                    f"{[*names][:3]}. Score them in calls of their own."
                )
            known = [*map(str, names)] if known is None else known
        found.append(known)
    return ModelNames(*found)


def in_order(name: str, value: Any, names: ModelNames) -> Any:
    """Return a table with the rows and columns of these names; arrays, and tables without names, as they are."""
    if not hasattr(value, "iloc"):
        return value
    for axis, kind in enumerate(AXES.get(name, ())):
        if kind:
            index = value.axes[axis]
            if index.inferred_type == "integer":
                # Numbers of classes or concepts.
                places = np.argsort(index).tolist() if sorted(index) == [*range(len(index))] else None
            else:
                places = match_names(name, index, getattr(names, kind), kind)
            value = value if places is None else value.take(places, axis=axis)
    return value


def _first(*names: Sequence[str] | None) -> list[str] | None:
    return next(([*map(str, listed)] for listed in names if listed is not None), None)


def _take(name: str, value: Any, places: list[int], axis: int) -> Any:
    if isinstance(value, Tensor):
        return value.index_select(axis, torch.tensor(places, device=value.device))
    return (
        [value[place] for place in places] if name.endswith("_names") else np.take(to_array(name, value), places, axis)
    )


def _renumber(name: str, value: Any, places: list[int], n: int) -> Any:
    """Return numbers of a data set's items as those of the model's; -1 stays, and is what the model does not have."""
    numbers = to_class_indices(name, value)
    outside = numbers[(numbers < -1) | (numbers >= n)]
    if len(outside):
        raise ValueError(f"Expected `{name}` of the data set to lie in -1 to {n - 1} but got {int(outside[0])}.")
    table = torch.full((n + 1,), -1)
    table[places] = torch.arange(len(places))
    moved = table.to(numbers.device)[numbers]
    return moved if isinstance(value, Tensor) else to_numpy(moved)
