"""Scores of concept models on some images: states of ranges join, and give the tables."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import fields
from typing import Any, Self

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from captum_concepts.texts import describe
from quantus_concepts.metrics.host.observing import Observed, Observer
from quantus_concepts.metrics.streaming.engine import ModelState
from quantus_concepts.metrics.streaming.table import concept_images, concept_table

#: What rows of tables need of a metric, beside its own settings.
KEPT = ("name", "title", "baseline", "bounds", "convention")


class ConceptState:
    """Scores of concept models on some images (`concept_state`), which join with those of other images.

    Parameters
    ----------
    names : sequence of str
        The models, in their order.
    control : str
        The name of the baseline models, "" for none.
    columns : sequence of ModelState
        A state for each model, and after them for each baseline model.
    class_names : sequence of str, optional
        K names.
    concept_names : sequence of str, optional
        L names.
    """

    def __init__(
        self,
        names: Sequence[str],
        control: str,
        columns: Sequence[ModelState],
        class_names: Sequence[str] | None = None,
        concept_names: Sequence[str] | None = None,
    ) -> None:
        self.names, self.control, self.columns = list(names), control, list(columns)
        self.class_names, self.concept_names = class_names, concept_names

    def __repr__(self) -> str:
        return describe(self, f"{self.columns[0].facts.n_samples} images", models=self.names)

    @property
    def models(self) -> list[tuple[str, ModelState]]:
        """The names and states of the models, without controls."""
        return list(zip(self.names, self.columns, strict=False))

    @property
    def controls(self) -> list[ModelState]:
        """The states of the controls."""
        return self.columns[len(self.names) :]

    def merge(self, other: ConceptState) -> Self:
        """Add the images of another state behind these, in place.

        Parameters
        ----------
        other : ConceptState
            Of the same models and arguments; left as it is.

        Returns
        -------
        ConceptState
            This state.

        Raises
        ------
        ValueError
            If it is of other models or arguments.
        """
        for what, mine, others in zip(("models", "columns"), self._key(), other._key(), strict=True):
            if mine != others:
                raise ValueError(
                    f"Expected argument `other` to have the {what} of this state, {mine}, but got {others}."
                )
        for model_state, other_state in zip(self.columns, other.columns, strict=True):
            model_state.merge(other_state)
        return self

    def table(self) -> pd.DataFrame:
        """Return the table of `score_concepts`, without "CAV accuracy", which is about models and not about images."""
        controls = {self.control: self.controls} if self.control else {}
        return concept_table(self.models, controls, self.class_names, self.concept_names)

    def images(self) -> pd.DataFrame:
        """Return the table of `score_concepts` with ``per_image=True``."""
        return concept_images(self.models, self.class_names, self.concept_names)

    def tensors(self) -> dict[str, Tensor]:
        """Return everything as tensors by name, which safetensors can keep; `from_tensors` takes them."""
        tensors: dict[str, Tensor] = {}
        of_models = []
        #: Arrays among settings, once: a file may not hold the same memory twice.
        arrays: dict[tuple[object, ...], str] = {}
        for number, state in enumerate(self.columns):
            seen = {"facts": state.facts, **{str(place): part for place, part in state.observed.items()}}
            kept = {place: _to_tensors(part, f"{number}/{place}", tensors) for place, part in seen.items()}
            metrics = [[type(each).__qualname__, _settings(each, arrays, tensors)] for each in state.metrics]
            of_models.append({"kept": kept, "metrics": metrics, "places": state.places})
        about: dict[str, Any] = {"names": self.names, "control": self.control, "models": of_models}
        about |= {"class_names": self.class_names, "concept_names": self.concept_names}
        return tensors | {"about": torch.tensor(list(json.dumps(about).encode()), dtype=torch.uint8)}

    @classmethod
    def from_tensors(cls, tensors: Mapping[str, Tensor]) -> Self:
        """Return the state that `tensors` gave."""
        about = json.loads(bytes(tensors["about"].tolist()))
        kinds = {kind.__qualname__: kind for base in (Observed, Observer) for kind in _subclasses(base)}
        columns = []
        for number, model in enumerate(about["models"]):
            facts, *rest = (
                (place, kinds[kind](**_from_tensors(rest, f"{number}/{place}", tensors)))
                for place, (kind, rest) in model["kept"].items()
            )
            metrics = []
            for kind, settings in model["metrics"]:
                metric: Any = object.__new__(kinds[kind])
                for name, value in settings.items():
                    # Some are properties that follow from others.
                    if not isinstance(getattr(kinds[kind], name, None), property):
                        setattr(
                            metric,
                            name,
                            tensors[value["tensor"]].numpy() if isinstance(value, dict) else _tuples(value),
                        )
                metrics.append(metric)
            columns.append(ModelState(facts[1], metrics, model["places"], {int(place): part for place, part in rest}))
        return cls(about["names"], about["control"], columns, about["class_names"], about["concept_names"])

    def _key(self) -> tuple[Any, Any]:
        of_models = [
            [(type(metric).__qualname__, *sorted(metric.fields().items(), key=str)) for metric in state.metrics]
            for state in self.columns
        ]
        return (self.names, self.control, len(self.columns)), of_models


def _settings(metric: Observer, arrays: dict[tuple[object, ...], str], tensors: dict[str, Tensor]) -> dict[str, Any]:
    """Return the settings of a metric, with the names of tensors in place of arrays."""
    settings = {name: getattr(metric, name) for name in (*KEPT, *metric.own_settings()) if hasattr(metric, name)}
    # Networks and tensors are needed to observe, and not to make rows.
    settings = {name: value for name, value in settings.items() if _is_plain(value)}
    for name, value in settings.items():
        if isinstance(value, np.ndarray):
            memory = (value.ctypes.data, value.shape, value.strides, value.dtype.str)
            key = arrays.setdefault(memory, f"settings/{len(arrays)}")
            # A copy: PyTorch warns of arrays that are not writable, such as those Ray shares.
            tensors[key], settings[name] = torch.tensor(value), {"tensor": key}
    return settings


def _is_plain(value: Any) -> bool:
    """Return whether a setting is an array, or what JSON can hold."""
    if isinstance(value, tuple | list):
        return all(map(_is_plain, value)) and type(value) in (tuple, list)
    return value is None or isinstance(value, np.ndarray | str | int | float)


def _to_tensors(part: Observed, prefix: str, tensors: dict[str, Tensor]) -> tuple[str, dict[str, Any]]:
    """Add the tensors of what was observed; return its class and the rest."""
    rest = {}
    for each in fields(part):
        value = getattr(part, each.name)
        if isinstance(value, Tensor):
            tensors[f"{prefix}/{each.name}"] = value.contiguous()
        else:
            rest[each.name] = value.tolist() if isinstance(value, np.ndarray) else value
    return type(part).__qualname__, rest


def _from_tensors(rest: dict[str, Any], prefix: str, tensors: Mapping[str, Tensor]) -> dict[str, Any]:
    """Return the fields of what was observed."""
    named = {name.removeprefix(prefix + "/"): value for name, value in tensors.items() if name.startswith(prefix + "/")}
    return named | {name: _tuples(value) for name, value in rest.items()}


def _tuples(value: Any) -> Any:
    return tuple(map(_tuples, value)) if isinstance(value, list) else value


def _subclasses(kind: type) -> Iterator[type]:
    other: type
    for other in kind.__subclasses__():
        yield other
        yield from _subclasses(other)
