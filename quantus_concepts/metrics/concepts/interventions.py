"""Test-time interventions: the class predicted after people answered for some concepts."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from captum_concepts._support.checks import check_shape, check_whole
from captum_concepts.models.interventions import Levels
from quantus_concepts.functional.interventions import (
    ORDERS,
    checked_groups,
    intervene_values,
    intervention_counts,
    intervention_ranks,
)
from quantus_concepts.metrics.concepts import names as col
from quantus_concepts.metrics.host.model import ConceptModel, class_logits, concept_importances


def interventions_after(counts: Sequence[int], seed: int) -> Interventions | None:
    """Return interventions in every order after these numbers of answers; None if there are none."""
    return Interventions(tuple(counts), ORDERS, None, seed) if counts else None


@dataclass(frozen=True)
class Interventions:
    """After how many answers, in which orders, about which concepts together; the doubling numbers without `counts`."""

    counts: tuple[int, ...] | None
    orders: tuple[str, ...]
    groups: Any
    seed: int
    answers: tuple[str, ...] = ("", col.WRONG_LABELS)

    def of_controls(self) -> Interventions:
        """Return the interventions on baseline models, of which there are many: one order, and right answers."""
        return replace(self, orders=self.orders[:1], answers=("",))

    def counts_of(self, n_concepts: int) -> tuple[int, ...]:
        """Return after how many answers, or raise where there are not as many to give."""
        n_groups = int(checked_groups(self.groups, n_concepts).max()) + 1
        if self.counts is None:
            return intervention_counts(n_groups)
        for count in self.counts:
            check_whole("counts", count, 0, n_groups)
        return self.counts

    def predictions(
        self,
        model: ConceptModel,
        values: Tensor,
        predicted: Tensor,
        present: Tensor,
        levels: Levels | None,
        boundary: float | None,
        first: int,
    ) -> Iterator[tuple[tuple[str, int, None, str], Tensor]]:
        """Yield the classes (N,) predicted by the head, with order, number of answers and "" or "wrong labels"."""
        low, high = levels or (torch.zeros(values.shape[1]), torch.ones(values.shape[1]))
        check_shape("levels", low, ("L",), (values.shape[1],))
        low, high = low.to(values), high.to(values)
        options: dict[str, Any] = {"groups": self.groups, "seed": self.seed, "first": first}
        options["boundary"] = (low + high) / 2 if boundary is None else boundary
        if "contribution" in self.orders:
            options["weights"] = concept_importances(model, values, predicted, ("weight",))["weight"]
        counts, ranks = self.counts_of(values.shape[1]), dict[str, Tensor]()
        for answer in self.answers:
            targets = torch.where(~present if answer else present, high, low)
            for order in self.orders:
                if order not in ranks or order == "contribution":
                    # The others do not depend on the answers.
                    ranks[order] = intervention_ranks(order, values, targets, **options)
                after = intervene_values(values, targets, ranks[order], counts)
                # One call for all counts: a call of a head costs more than its product.
                classes = class_logits(model, after.flatten(0, 1)).argmax(1).view(len(counts), -1)
                yield from (((order, count, None, answer), row) for count, row in zip(counts, classes, strict=True))
