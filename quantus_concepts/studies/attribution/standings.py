"""How methods stand to each other and to what they are held against, and which ground truth that rests on."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import pandas as pd

from captum_concepts.attributions.methods import CONTROL_METHODS
from quantus_concepts.metrics import PremiseCheck
from quantus_concepts.studies.attribution.global_method import TCAV
from quantus_concepts.studies.results import against, names, one, pick

#: Methods that know nothing of the model.
CONTROLS = tuple(CONTROL_METHODS)
RANDOM, SOBEL = CONTROLS
#: Models whose premises a metric rests on. IIR and perturbation rest on none: a patch is checked on its own image.
RESTS_ON = {"MCS": ("f_o", "f_s"), "MCS baseline": ("f_o", "f_s"), "IDR": ("f_s",), "robustness": ("f_o", "f_s")}
#: The models of relative MCS, as the report names them.
OF_COMMONALITY = "f_s^k"


@dataclass(frozen=True)
class GroundTruth:
    """What was checked of the models: their premises, and what removing the object costs by commonality."""

    checks: Sequence[PremiseCheck]
    premises: pd.DataFrame

    @property
    def drops(self) -> pd.DataFrame:
        """What removing the object costs the target class, a row for each k, ascending."""
        return pick(self.premises, metric="accuracy drop").sort_values("k")

    @property
    def trend_holds(self) -> bool:
        """Whether the object matters where it is rare and does not where it is in every class."""
        drops = self.drops
        if not self.checks or len(drops) < 2 or drops["k"].iloc[-1] != 1:
            return False
        # Accuracies are quotients: a drop of exactly the limit must not exceed it by rounding.
        limit = self.checks[0].limits.drop + 1e-9
        return bool(drops["value"].iloc[-1] <= limit < drops["value"].iloc[0])

    def unverified(self, *metrics: str) -> list[str]:
        """Return the models whose premises metrics rest on and which were not verified."""
        verified = {check.model for check in self.checks if check.verified}
        missing: dict[str, None] = {}
        for metric in metrics:
            if metric in ("relative MCS", "correlation"):
                missing |= {} if self.trend_holds else {OF_COMMONALITY: None}
            else:
                missing |= dict.fromkeys(model for model in RESTS_ON.get(metric, ()) if model not in verified)
        return list(missing)

    def mark(self, *metrics: str) -> str:
        """Return the mark that captions and tables carry."""
        models = self.unverified(*metrics)
        return f"ground truth not verified ({', '.join(models)})" if models else ""


def methods_of(frame: pd.DataFrame) -> list[str]:
    """Return the methods that occur, controls last: the order of every table and figure."""
    found = names(frame, "method")
    return [name for name in found if name not in CONTROLS] + [name for name in found if name in CONTROLS]


def judged(frame: pd.DataFrame, metric: str) -> list[pd.Series]:
    """Return the defined numbers of the methods themselves: no control, no TCAV."""
    return [row for row in defined(frame, metric) if row["method"] not in (*CONTROLS, TCAV)]


def defined(frame: pd.DataFrame, metric: str) -> list[pd.Series]:
    """Return the rows of a metric that have a number."""
    found = pick(frame, metric=metric)
    return [row for _, row in found[found["value"].notna()].iterrows()]


def against_reference(frame: pd.DataFrame, row: pd.Series) -> str:
    """Say whether a number lies above, at or below what it is to be held against."""
    mask = one(frame, metric="MCS baseline", method=row["method"]) if row["metric"] == "MCS" else None
    return against(row, float(row["reference"]) if mask is None or math.isnan(mask["low"]) else mask)


def leaders(frame: pd.DataFrame, metric: str, *, lowest: bool = False) -> list[pd.Series]:
    """Return the best of the methods and all that cannot be told apart from it."""
    sign = 1 if lowest else -1
    # TCAV's contrast is on a scale of its own; its correlation is not.
    out = CONTROLS if metric == "correlation" else (*CONTROLS, TCAV)
    found: Iterable[pd.Series] = (row for row in defined(frame, metric) if row["method"] not in out)
    ordered = sorted(found, key=lambda row: sign * row["value"])
    return [row for row in ordered if row is ordered[0] or against(row, ordered[0]) == "at"]
