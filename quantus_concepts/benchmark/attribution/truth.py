"""Which numbers rest on a ground truth that was not verified."""

from __future__ import annotations

from collections.abc import Sequence

from quantus_concepts.benchmark.attribution.premises import CommonalityRow, PremiseCheck

#: Models whose premises a metric rests on. IIR and perturbation rest on none: a patch is checked on its own image.
RESTS_ON = {"MCS": ("f_o", "f_s"), "MCS baseline": ("f_o", "f_s"), "IDR": ("f_s",), "robustness": ("f_o", "f_s")}
#: The models of relative MCS, as the report names them.
FAMILY = "f_s^k"


def unverified(
    metric: str, premises: Sequence[PremiseCheck], commonality: Sequence[CommonalityRow] = ()
) -> tuple[str, ...]:
    """Return the models whose premises a metric rests on and which were not verified.

    Parameters
    ----------
    metric : str
        One of `results.METRICS`.
    premises : sequence of PremiseCheck
        What was checked; a model that is not there was not verified.
    commonality : sequence of CommonalityRow
        The same for the models of relative MCS.

    Returns
    -------
    tuple of str
        Names of models; empty where the ground truth holds or the metric needs none.
    """
    if metric in ("relative MCS", "correlation"):
        return () if family_holds(premises, commonality) else (FAMILY,)
    verified = {check.model for check in premises if check.verified}
    return tuple(model for model in RESTS_ON.get(metric, ()) if model not in verified)


def family_holds(premises: Sequence[PremiseCheck], commonality: Sequence[CommonalityRow]) -> bool:
    """Say whether the object matters where it is rare and does not where it is in every class.

    Parameters
    ----------
    premises : sequence of PremiseCheck
        Whose limits are used; without any nothing is verified.
    commonality : sequence of CommonalityRow
        Accuracy of the target class with and without the object.

    Returns
    -------
    bool
        Whether removing the object costs at most the limit at k = 1 and more than it at the smallest k.
    """
    rows = sorted(commonality, key=lambda row: row.k)
    if not premises or len(rows) < 2 or rows[-1].k != 1:
        return False
    # Accuracies are quotients: a drop of exactly the limit must not exceed it by rounding.
    limit = premises[0].limits.drop + 1e-9
    return rows[-1].drop <= limit < rows[0].drop


def mark(models: Sequence[str]) -> str:
    """Return the mark that captions and tables carry.

    Parameters
    ----------
    models : sequence of str
        As `unverified` returns them.

    Returns
    -------
    str
        For instance "ground truth not verified (f_s)"; empty where there is nothing to say.
    """
    return f"ground truth not verified ({', '.join(models)})" if models else ""
