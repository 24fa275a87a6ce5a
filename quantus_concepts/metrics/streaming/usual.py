"""The variants of the papers' metrics in a table, whose truth is known."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from captum_concepts.support.checks import as_list, check_choice, check_range, check_whole
from quantus_concepts.metrics.bottleneck.concept_auc import ConceptAUC
from quantus_concepts.metrics.concepts import names as col
from quantus_concepts.metrics.concepts.accuracy import accuracy, concept_accuracy, density, negative_first
from quantus_concepts.metrics.concepts.cem import check_tops, concept_existence
from quantus_concepts.metrics.concepts.cgim import global_importance, same_importance
from quantus_concepts.metrics.concepts.clm import Maps, location
from quantus_concepts.metrics.concepts.locations import BASELINES
from quantus_concepts.metrics.concepts.substitution import SCORES, recital_scores, substitution_scores
from quantus_concepts.metrics.host.model import IMPORTANCES, no_level
from quantus_concepts.metrics.host.predictions import ConceptPredictions
from quantus_concepts.metrics.host.scores import MetricScores


@dataclass(frozen=True)
class UsualMetrics:
    """The variants of CGIM, CEM and CLM in the tables of `score_concepts`, among its `metrics` or as all of them.

    Parameters
    ----------
    explanations : sequence of str
        Importance that ranks the concepts: "weight" (theta), "value" (u), "contribution" (theta times u), and "effect",
        which is left out by default for models that do not know the level of absent concepts (`CEM`, Notes).
    top_l : sequence of int
        How many concepts count. The default is used as far as the model has as many concepts; others raise. CLM leaves
        out those that not enough concepts have a part for.
    alphas : sequence of float
        Sizes of CLM's region in twelfths of the image.
    by_magnitude : bool
        Whether CEM ranks contributions regardless of their sign, as the paper prints it (`CEM.as_printed`); of weights
        and values it does not say so.

    Raises
    ------
    ValueError
        If a sequence is empty, or holds a value out of its range.

    Examples
    --------
    >>> from quantus_concepts.metrics import UsualMetrics
    >>> UsualMetrics(explanations=["value"], top_l=[1], alphas=[3])
    UsualMetrics(explanations=('value',), top_l=(1,), alphas=(3.0,), by_magnitude=False)
    """

    explanations: Sequence[str] = IMPORTANCES
    top_l: Sequence[int] = (1, 3, 5)
    alphas: Sequence[float] = (1.0, 3.0, 6.0)
    by_magnitude: bool = False

    def __post_init__(self) -> None:
        for name in ("explanations", "top_l", "alphas"):
            if not as_list(name, getattr(self, name)):
                raise ValueError(f"Expected argument `{name}` to hold at least one value but it is empty.")
        for explanation in self.explanations:
            check_choice("explanations", explanation, IMPORTANCES)
        for alpha in self.alphas:
            check_range("alphas", alpha, 0, 12, open_low=True)
        tops = [check_whole("top_l", top, 1) for top in self.top_l]
        named = {"explanations": self.explanations, "top_l": tops, "alphas": map(float, self.alphas)}
        for name, values in named.items():
            # Each once: a table has a row for each.
            object.__setattr__(self, name, (*dict.fromkeys(values),))

    def look(self, parts: np.ndarray | None) -> Maps | None:
        """Return which maps to look at; None without concepts that have a part."""
        n = 0 if parts is None else int((parts >= 0).sum())
        tops = tuple(sorted({top for top in self.top_l if top <= n}))
        if parts is None or not tops:
            return None
        settings: dict[str, Any] = {"kinds": self.explanations, "tops": tops, "alphas": self.alphas}
        return Maps(parts=parts, specific_tops=tops[:1], baselines=BASELINES, optional=True, **settings)

    def scores(self, rows: ConceptPredictions, *, baselines: bool) -> list[MetricScores]:
        """Return every number whose truth is known, in the order of a table."""
        kinds, table = self._kinds(rows), rows.tables.get("class_concepts")
        found = [accuracy(rows)]
        if "concept_labels" in rows.truth:
            found += [] if rows.threshold is None else [concept_accuracy(rows)]
            found += ConceptAUC().table_scores(rows)
        found += [negative_first(rows)] if "contribution" in kinds else []
        if "concept_labels" in rows.truth:
            found.append(density(rows))
        if "added" in rows.truth and rows.threshold is not None:
            found += [substitution_scores(rows, score, rows.threshold) for score in SCORES]
            found += [] if table is None else [recital_scores(rows, table, rows.threshold)]
        if "concept_labels" in rows.truth:
            found += self._existence(rows, kinds, baselines=baselines)
        found += self._location(rows, kinds, baselines=baselines)
        if table is None:
            return found
        for per in ("concept", "class"):
            found += [global_importance(rows, table, kinds, per, centred=of) for of in (False, True)]
            if "value" in kinds:
                found.append(global_importance(rows, table, ["value"], per, centred=True, only_correct=False))
            found += [same_importance(table, per)] if baselines else []
        return found

    def _kinds(self, rows: ConceptPredictions) -> Sequence[str]:
        """Return the importances that a model has; asked for by name, effects without their level are an error."""
        if "effect" in self.explanations and not rows.convention("effect"):
            if self.explanations != UsualMetrics.explanations:
                raise ValueError(no_level(rows.about["kind"]))
            return [kind for kind in self.explanations if kind != "effect"]
        return self.explanations

    def _existence(self, rows: ConceptPredictions, kinds: Sequence[str], *, baselines: bool) -> list[MetricScores]:
        n = rows.truth["concept_labels"].shape[1]
        tops: Sequence[int] = [top for top in self.top_l if top <= n]
        if self.top_l != UsualMetrics.top_l:
            # Others than the default ones have to fit.
            check_tops(max(self.top_l), n)
            tops = self.top_l
        printed = ("contribution",) if self.by_magnitude else ()
        found = []
        for only_correct in (False, True) if tops else ():
            others = [
                concept_existence(rows, [], tops, only_correct, baseline=name)
                for name in (col.CLASS_RECITAL, col.COMMONEST_CONCEPT)
                if baselines
            ]
            own, gain = (
                concept_existence(rows, kinds, tops, only_correct, gain=of, by_magnitude=printed)
                for of in (False, True)
            )
            found += [own, *others[:1], gain, *others[1:]]
        return [scores for scores in found if scores.fields]

    def _location(self, rows: ConceptPredictions, kinds: Sequence[str], *, baselines: bool) -> list[MetricScores]:
        look = self.look(rows.tables.get("part_of_concept"))
        if look is None or look.name not in rows.looks:
            return []
        seen, settings = rows.looks[look.name], dict[str, Any]()
        found = []
        for specific in (False, True):
            tops = [top for top in self.top_l if top in (look.specific_tops if specific else look.tops)]
            settings = {"tops": tops, "alphas": self.alphas, "specific": specific, "parts": look.parts}
            found += [location(rows, seen, kind, **settings) for kind in kinds]
            for name in look.baselines_of(specific=specific) if baselines else ():
                found.append(location(rows, seen, kinds[-1], baseline=name, **settings))
        return found
