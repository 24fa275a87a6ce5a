"""Which numbers rest on a ground truth that was not verified."""

from __future__ import annotations

from collections.abc import Sequence

from quantus_concepts.studies.attribution.premises import CommonalityRow, PremiseCheck

#: Models whose premises a metric rests on. IIR and perturbation rest on none: a patch is checked on its own image.
RESTS_ON = {"MCS": ("f_o", "f_s"), "MCS baseline": ("f_o", "f_s"), "IDR": ("f_s",), "robustness": ("f_o", "f_s")}
#: The models of relative MCS, as the report names them.
FAMILY = "f_s^k"


def unverified(
    metric: str, premises: Sequence[PremiseCheck], commonality: Sequence[CommonalityRow] = ()
) -> tuple[str, ...]:
    """Return the models whose premises a metric rests on and which were not verified."""
    if metric in ("relative MCS", "correlation"):
        return () if family_holds(premises, commonality) else (FAMILY,)
    verified = {check.model for check in premises if check.verified}
    return tuple(model for model in RESTS_ON.get(metric, ()) if model not in verified)


def family_holds(premises: Sequence[PremiseCheck], commonality: Sequence[CommonalityRow]) -> bool:
    """Say whether the object matters where it is rare and does not where it is in every class."""
    rows = sorted(commonality, key=lambda row: row.k)
    if not premises or len(rows) < 2 or rows[-1].k != 1:
        return False
    # Accuracies are quotients: a drop of exactly the limit must not exceed it by rounding.
    limit = premises[0].limits.drop + 1e-9
    return rows[-1].drop <= limit < rows[0].drop


def mark(models: Sequence[str]) -> str:
    """Return the mark that captions and tables carry."""
    return f"ground truth not verified ({', '.join(models)})" if models else ""
