"""Scores of concept models on some images: states of ranges join, and give the tables."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, Self

import pandas as pd
import torch
from torch import Tensor

from captum_concepts._support.shown import describe
from quantus_concepts.functional.cgim import ClassSums
from quantus_concepts.metrics.concepts.names import Score
from quantus_concepts.metrics.streaming.model_state import ModelState
from quantus_concepts.metrics.streaming.table import concept_images, concept_table


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
        return describe(self, f"{len(self.columns[0].rows)} images", models=self.names)

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
        """Return the table of `score_concepts`."""
        controls = {self.control: self.controls} if self.control else {}
        return concept_table(self.models, controls, self.class_names, self.concept_names)

    def images(self) -> pd.DataFrame:
        """Return the table of `score_concepts` with ``per_image=True``."""
        return concept_images(self.models, self.class_names, self.concept_names)

    def tensors(self) -> dict[str, Tensor]:
        """Return everything as tensors by name, which safetensors can keep; `from_tensors` takes them."""
        about: dict[str, Any] = {"names": self.names, "control": self.control, "n": len(self.columns)}
        about |= {"class_names": self.class_names, "concept_names": self.concept_names}
        about["models"] = [
            (state.scores, state.shape, state.explanations, state.top_l, state.baselines) for state in self.columns
        ]
        text = json.dumps(about).encode()
        tensors = {"about": torch.tensor(list(text), dtype=torch.uint8)}
        # Once: it is the same for all models, and a file may not hold the same memory twice.
        table = self.columns[0].class_concepts
        if table is not None:
            tensors["class_concepts"] = table
        for number, state in enumerate(self.columns):
            tensors |= {f"{number}/{name}": tensor for name, tensor in state.tensors().items()}
        return tensors

    @classmethod
    def from_tensors(cls, tensors: Mapping[str, Tensor]) -> Self:
        """Return the state that `tensors` gave."""
        about = json.loads(bytes(tensors["about"].tolist()))
        columns, table = [], tensors.get("class_concepts")
        for number, (scores, shape, explanations, top_l, baselines) in enumerate(about["models"]):
            rows = tensors[f"{number}/rows"]
            names = ("theta", "sums", "counts", "labels")
            theta, sums, counts, labels = (tensors.get(f"{number}/{name}") for name in names)
            class_sums = None
            if sums is not None and counts is not None:
                class_sums = ClassSums(*sums.shape)
                class_sums.sums, class_sums.counts = sums.clone(), counts.clone()
            named = [Score(*fields) for fields in scores]
            settings = ((shape[0], shape[1]), tuple(explanations), tuple(top_l), baselines)
            columns.append(ModelState(named, rows, *settings, table, class_sums, theta, labels))
        return cls(about["names"], about["control"], columns, about["class_names"], about["concept_names"])

    def _key(self) -> tuple[Any, Any]:
        return (self.names, self.control, len(self.columns)), [state.scores for state in self.columns]
