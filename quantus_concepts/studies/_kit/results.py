"""Result frames: rows, intervals over seeds, the paper's figures, and CSV files that spreadsheets open safely."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from importlib import resources

import numpy as np
import pandas as pd
from scipy import stats

from quantus_concepts.functional.statistics.intervals import CONFIDENCE, t_quantile

PAPER = "paper"
#: Columns that hold what was found; all others say of what.
NUMBERS = ("value", "low", "high", "random_low", "random_high", "n", "undefined", "chance", "reference", "seed")
UNBOUNDED = (-math.inf, math.inf)
#: Spread of equal numbers, relative to their size.
_ROUNDING = 1e-12


def pick(frame: pd.DataFrame, **values: object) -> pd.DataFrame:
    """Return the rows that have the values wanted; a list stands for any of its values, None for none."""
    mask = np.ones(len(frame), dtype=bool)
    for name, value in values.items():
        column = frame[name]
        one_of = column.isin(value) if isinstance(value, list | tuple | set) else column == value
        mask &= np.asarray(column.isna() if value is None else one_of, dtype=bool)
    return frame[mask]


def one(frame: pd.DataFrame, **values: object) -> pd.Series | None:
    """Return the first row that has the values wanted, None where there is none or its value is NaN."""
    rows = pick(frame, **values)
    rows = rows[rows["value"].notna()]
    return None if rows.empty else rows.iloc[0]


def names(frame: pd.DataFrame, column: str, order: Sequence[str] = ()) -> list[str]:
    """Return what occurs in a column, in the order given and then as it comes."""
    present = list(dict.fromkeys(frame[column].dropna()))
    return [name for name in order if name in present] + [name for name in present if name not in order]


def keys(frame: pd.DataFrame) -> list[str]:
    """Return the columns that say what a number is of."""
    return [column for column in frame.columns if column not in NUMBERS]


def over_seeds(
    frame: pd.DataFrame,
    bounds: Callable[[pd.Series], tuple[float, float]] = lambda _: UNBOUNDED,
    controls: Sequence[str] = (),
) -> pd.DataFrame:
    """Average over seeds: means, with the 95 % interval over the seeds; a single seed keeps the interval it has.

    The models of `controls` have the ends of a distribution, which are averaged as well. `bounds` gives the
    ends of the scale of a row.
    """
    rows = []
    for _, group in frame.groupby(keys(frame), dropna=False, sort=False):
        first = group.iloc[0].to_dict()
        if len(group) > 1:
            runs = group[["value", "low", "high"]].to_numpy(dtype=np.float64)
            runs = runs[~np.isnan(runs[:, 0])]
            values = runs[:, 0]
            first["value"] = float(values.mean()) if values.size else math.nan
            for name in {"chance", "reference"} & first.keys():
                first[name] = group[name].mean()
            for name in {"n", "undefined"} & first.keys():
                first[name] = group[name].sum()
            if first.get("model") in controls:
                first["low"], first["high"] = group["low"].mean(), group["high"].mean()
            else:
                first["low"], first["high"] = seed_interval(runs, bounds(group.iloc[0]))
        rows.append(first)
    joined = pd.DataFrame(rows, columns=frame.columns)
    # Some of them missing, whole numbers would become floats.
    integers = [name for name in keys(frame) if pd.api.types.is_integer_dtype(frame[name].dtype)]
    joined = joined.astype({name: frame[name].dtype for name in integers})
    return joined.drop(columns="seed", errors="ignore")


def seed_interval(runs: np.ndarray, bounds: tuple[float, float]) -> tuple[float, float]:
    """Return the 95 % interval of a mean over seeds from the value, low and high (S, 3) of each; NaN without spread.

    The variance is at least the one that the single runs' errors imply for their mean: a few seeds may agree by chance.
    """
    if len(runs) < 2:
        return math.nan, math.nan
    values, low, high = runs.T
    # The longer side: the other one may be clipped at the end of the scale.
    errors = np.fmax(values - low, high - values) / stats.norm.ppf((1 + CONFIDENCE) / 2)
    error = max(values.std(ddof=1) / math.sqrt(len(runs)), math.sqrt(float(np.nansum(errors**2))) / len(runs))
    if error <= _ROUNDING * np.abs(values).max():
        return math.nan, math.nan
    mean, half = values.mean(), t_quantile(len(runs) - 1) * error
    return float(max(bounds[0], mean - half)), float(min(bounds[1], mean + half))


def with_random_range(frame: pd.DataFrame, control: str, by: Sequence[str] | None = None) -> pd.DataFrame:
    """Return the rows of all models but `control`, with its ends as ``random_low`` and ``random_high``.

    The control's row is that of the same `by`, which are all other keys by default; NaN where there is none.
    """
    on = [name for name in keys(frame) if name != "model"] if by is None else list(by)
    ends = frame.loc[frame["model"] == control, [*on, "low", "high"]].drop_duplicates(on)
    ends = ends.rename(columns={"low": "random_low", "high": "random_high"})
    return frame[frame["model"] != control].merge(ends, on=on, how="left")


def load_paper(package: str, **types: type) -> pd.DataFrame:
    """Read the paper's numbers, the ``paper.csv`` of a study, whose rows have "paper" in place of a model.

    Columns are texts and the numbers of every study; `types` are those of others, in which an empty field is NaN.
    """
    with resources.files(package).joinpath("paper.csv").open(encoding="utf-8") as file:
        return pd.read_csv(
            file, keep_default_na=False, na_values={name: [""] for name in (*NUMBERS, *types)}, dtype=types
        )
