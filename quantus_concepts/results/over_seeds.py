"""Whether a number of several trainings separates models, or the luck of their seeds."""

from __future__ import annotations

import math
from collections.abc import Hashable
from typing import Any

import numpy as np
import pandas as pd
from pandas.api.types import is_numeric_dtype

from captum_concepts.support.checks import check_kind
from captum_concepts.support.files import list_some
from captum_concepts.tcav.p_values import adjust_p_values
from quantus_concepts.functional.statistics.intervals import are_equal
from quantus_concepts.functional.statistics.reliability import (
    Separation,
    crossed_models,
    seeds_needed,
    separate_models,
)
from quantus_concepts.results.verdicts import ALPHA

#: Columns that hold what was found, and so are no variant of a metric; those of single images neither.
FOUND = frozenset(
    {"value", "low", "high", "n", "undefined", "reason", "chance", "reference", "deviation", "unconverged"}
)
FOUND |= {f"{name}{end}" for name in ("control", "random") for end in ("", "_low", "_high", "_convention")}
FOUND |= {"deviation", "image", "label", "class", "predicted", "verdict", "why", "against"}
#: Models and seeds below which nothing is concluded.
FEWEST = 3
SEPARATES, NOT_SHOWN_TO, UNKNOWN = "separates these models", "not shown to", "unknown"
RESULT = ["n_models", "n_seeds", "sd_models", "sd_seeds", "test", "p", "p_adjusted", "seeds_needed"]
RESULT += ["verdict", "reason", "panel"]


def reliability(table: pd.DataFrame, by: str = "model", over: str = "seed") -> pd.DataFrame:
    """Ask of each number whether it separates models, or the luck of a training.

    A number separates models if they differ by more than trainings of one model with other seeds do. The verdict is
    about *these* models, which the column ``panel`` names: the same metric may separate others, or fewer. Leave out of
    `table` what nobody doubts, an oracle or random directions for instance, before you ask.

    Parameters
    ----------
    table : DataFrame
        One number in each row: columns ``value``, those of `by` and `over`, and ``metric`` or whatever else says what
        the number is of (``explanation``, ``set``, ``l``, ...). Columns of a result, such as ``low``, ``high`` and
        ``n``, say nothing of that; drop others of this kind.
    by : str
        Column of what is compared: models, methods.
    over : str
        Column of the trainings. Where all models have the same seeds these count as *shared*, data and seed the same
        for all. Give independent trainings names of their own where their numbers differ.

    Returns
    -------
    DataFrame
        A row for each number: the columns that say what it is of, ``n_models``, ``n_seeds`` (of the model that has
        fewest), ``sd_models`` between models, without what the luck of seeds adds, ``sd_seeds`` over seeds of one
        model, ``test``, ``p``, ``p_adjusted`` for the number of rows (Holm), and ``seeds_needed``: so many of each of
        two models, ``sqrt(2) sd_models`` apart, that a t test finds the difference in 80 %; infinite if seeds explain
        all. ``verdict`` is "separates these models" if ``p_adjusted`` is at most .05, else "not shown to", which does
        not say that it does not, or begins with "unknown" where there is no p-value. ``reason`` says why, and names
        the models; ``panel`` names all.

    Raises
    ------
    TypeError
        If `table` is no DataFrame.
    ValueError
        If it has no rows, a column is missing or does not name a model or seed, ``value`` holds no numbers, a number is
        there twice, or no number is there for two models or seeds.

    Notes
    -----
    Where seeds are shared the test is an analysis of variance of models and seeds, with Greenhouse and Geisser's (1959)
    correction, since models differ in how much they vary over seeds. Where no seed is shared it is Welch's (1951).
    Noise separates models in at most 6 % by the former, in up to 8 % by Welch's with at most six models, and in 11 %
    with ten models and four seeds each (``docs/coverage.md``). Nothing is left out: a number of which a score is NaN or
    missing has no p-value.

    Examples
    --------
    >>> import pandas as pd
    >>> from quantus_concepts import reliability
    >>> scores = {
    ...     "a": [0.10, 0.12, 0.11],
    ...     "b": [0.31, 0.30, 0.35],
    ...     "c": [0.20, 0.24, 0.21],
    ... }
    >>> table = pd.DataFrame(scores).rename_axis(index="seed", columns="model")
    >>> table = table.unstack().rename("value").reset_index().assign(metric="CEM gain")
    >>> row = reliability(table).iloc[0]
    >>> row[["sd_models", "sd_seeds", "p", "seeds_needed"]].astype(float).round(3).tolist()
    [0.104, 0.02, 0.012, 2.0]
    >>> row["verdict"], row["panel"]
    ('separates these models', 'a; b; c')
    """
    variants = _check_table(table, by, over)
    table = table.assign(**{name: table[name].fillna("") for name in variants if not is_numeric_dtype(table[name])})
    # A table without variants holds one number.
    groups = table.groupby(variants, sort=False, dropna=False) if variants else [((), table)]
    rows = [dict(zip(variants, key, strict=True)) | _row(group, by, over) for key, group in groups]
    result = pd.DataFrame(rows)
    result["p_adjusted"] = adjust_p_values(result["p"].to_numpy(float), "holm")
    tested = result["p"].notna()
    result.loc[tested, "verdict"] = np.where(result.loc[tested, "p_adjusted"] <= ALPHA, SEPARATES, NOT_SHOWN_TO)
    filled = [name for name in variants if (result[name].notna() & (result[name].astype(str) != "")).any()]
    return result[[*filled, *RESULT]]


def with_reliability(rows: pd.DataFrame, table: pd.DataFrame) -> pd.DataFrame:
    """Return numbers of a report with columns ``reliability`` and ``panel``, from the numbers of single seeds.

    Parameters
    ----------
    rows : DataFrame
        Means over seeds, with the columns that say what a number is of.
    table : DataFrame
        As of `reliability`: the same numbers of each model and seed. Numbers of `rows` that it lacks have "".

    Returns
    -------
    DataFrame
        `rows` with the verdict of `reliability`, which is the same for all models of a number, and the models that it
        is about.

    Raises
    ------
    TypeError
        As `reliability`.
    ValueError
        As `reliability`.
    """
    found = reliability(table)
    shared = [name for name in found if name in rows and name not in RESULT]
    verdicts = dict(zip(_names(found, shared), zip(found["verdict"], found["panel"], strict=True), strict=True))
    of_models = set(table["model"])
    said = [
        verdicts.get(key, ("", "")) if model in of_models else ("", "")
        for key, model in zip(_names(rows, shared), rows["model"], strict=True)
    ]
    return rows.assign(reliability=[verdict for verdict, _ in said], panel=[panel for _, panel in said])


def _names(table: pd.DataFrame, columns: list[str]) -> list[tuple[Any, ...]]:
    """Return what the numbers of a table are of; what is empty, in whatever way, is ""."""
    parts = table[columns].astype(object)
    return list(parts.where(parts.notna(), "").itertuples(index=False, name=None))


def _check_table(table: pd.DataFrame, by: str, over: str) -> list[str]:
    """Return the columns that say what a number is of, or raise."""
    check_kind("table", table, pd.DataFrame, "a DataFrame")
    lacking = [name for name in (by, over, "value") if name not in table]
    if lacking or table.empty:
        raise ValueError(
            f"Expected argument `table` to have rows, and columns `{by}`, `{over}` and `value`, but "
            f"it {f'lacks {lacking}' if lacking else 'is empty'}. Put the tables of all seeds together."
        )
    if not is_numeric_dtype(table["value"]):
        raise ValueError("Expected argument `table` to hold numbers in its column `value` but it holds others.")
    if unnamed := int(table[[by, over]].isna().any(axis=1).sum()):
        raise ValueError(f"Expected argument `table` to name `{by}` and `{over}` but {unnamed} rows do not.")
    variants = [name for name in table if name not in FOUND and name not in (by, over)]
    if doubled := int(table.duplicated([*variants, by, over]).sum()):
        raise ValueError(
            f"Expected argument `table` to hold each number once for each `{by}` and `{over}` but {doubled} rows are "
            "there again. Average scores of single images first, and name in a column what tells the others apart."
        )
    if variants and not table.duplicated(variants).any():
        raise ValueError(
            f"Expected argument `table` to hold each number for several of `{by}` and `{over}` but none is: the "
            f"columns {variants} differ in every row. Drop those that do not say what a number is of."
        )
    return variants


def _row(group: pd.DataFrame, by: str, over: str) -> dict[str, Any]:
    """Return the row of one number."""
    scores = {name: rows.set_index(over)["value"].astype(float) for name, rows in group.groupby(by, sort=False)}
    n_seeds = min(map(len, scores.values()))
    is_crossed = len(scores) * group[over].nunique() == len(group)
    row: dict[str, Any] = {"n_models": len(scores), "n_seeds": n_seeds, "panel": "; ".join(map(str, scores))}
    row |= {"test": "two-way" if is_crossed else "Welch", "seeds_needed": math.nan, "reason": ""}
    nothing = Separation(math.nan, math.nan, math.nan)
    short, reason = _why_undefined(group, scores, over, is_crossed)
    if short or len(scores) < 2 or n_seeds < 2:
        result = nothing
    elif is_crossed:
        result = crossed_models(group.pivot(index=by, columns=over, values="value").to_numpy(float))
    else:
        result = separate_models([one.to_numpy() for one in scores.values()])
    if not short and (len(scores) < FEWEST or n_seeds < FEWEST):
        short, reason = f"fewer than {FEWEST} models or {FEWEST} seeds", f"{len(scores)} models, {n_seeds} seeds"
        # A test of two models, or two seeds, would count in the correction of the others.
        result = result._replace(p=math.nan)
    elif not short and math.isnan(result.p):
        constant = [name for name, one in scores.items() if are_equal(one.to_numpy())]
        short = "no spread over seeds"
        reason = f"the same in all seeds: {_some(constant)}" if constant else "models differ by the same in all seeds"
    if not short:
        row["seeds_needed"] = float(seeds_needed(result.sd_models / result.sd_seeds))
    return row | result._asdict() | {"verdict": f"{UNKNOWN}: {short}" if short else "", "reason": reason}


def _why_undefined(
    group: pd.DataFrame, scores: dict[Hashable, pd.Series], over: str, is_crossed: bool
) -> tuple[str, str]:
    """Return why scores cannot be tested, in few words and with the names of models; empty where they can."""
    undefined = {name: int((~np.isfinite(one)).sum()) for name, one in scores.items()}
    if any(undefined.values()):
        named = [f"{name} in {n} of {len(scores[name])} seeds" for name, n in undefined.items() if n]
        return "undefined scores", f"undefined: {_some(named)}"
    # Seeds of which some are shared are neither crossed with models nor independent.
    if not is_crossed and group[over].duplicated().any():
        seeds = group[over].nunique()
        named = [f"{name} in {seeds - len(one)} of {seeds} seeds" for name, one in scores.items() if len(one) < seeds]
        return "missing scores", f"missing: {_some(named)}"
    return "", ""


def _some(names: list[Any]) -> str:
    """Write out the first few names."""
    return list_some([str(name) for name in names])
