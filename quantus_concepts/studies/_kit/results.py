"""Result frames: rows, intervals over seeds, the paper's figures, and CSV files that spreadsheets open safely."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from importlib import resources

import numpy as np
import pandas as pd
from scipy import stats

from quantus_concepts.functional.statistics.intervals import CONFIDENCE, t_quantile
from quantus_concepts.functional.statistics.seeds import seeds_interval

PAPER = "paper"
#: Columns that hold what was found; all others say of what.
NUMBERS: tuple[str, ...] = (
    "value",
    "low",
    "high",
    "random_low",
    "random_high",
    "n",
    "undefined",
    "chance",
    "reference",
)
NUMBERS += ("deviation", "seeds", "seed", "reason")
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
    by: Sequence[str] | None = None,
    *,
    bounds: Callable[[pd.Series], tuple[float, float]] = lambda _: UNBOUNDED,
    interval: Callable[[pd.DataFrame], tuple[float, float]] | None = None,
    controls: Sequence[str] = (),
) -> pd.DataFrame:
    """Average each number over seeds: a row for each group of `by`, by default of all columns that are no numbers.

    ``low`` and ``high`` are the 95 % interval over the seeds' means, within the `bounds` of a row, or what `interval`
    returns for the rows of a group; a single seed keeps the interval it has. The models of `controls` have the ends of
    a distribution, which are averaged as well. ``deviation`` is that of the seeds, ``seeds`` how many have a number;
    where the frame does not count what is ``undefined``, it is the number of seeds without one.
    """
    by = keys(frame) if by is None else list(by)
    summed = [name for name in ("n", "undefined") if name in frame]
    averaged = [name for name in ("chance", "reference") if name in frame]
    rows = []
    for _, group in frame.groupby(by, dropna=False, sort=False):
        first = group.iloc[0]
        runs = group.reindex(columns=["value", "low", "high"]).to_numpy(dtype=np.float64)
        defined = runs[~np.isnan(runs[:, 0])]
        values = defined[:, 0]
        if len(group) == 1:
            low, high = runs[0, 1:]
        elif first.get("model") in controls:
            low, high = group["low"].mean(), group["high"].mean()
        elif interval is not None:
            low, high = interval(group)
        else:
            low, high = seed_interval(defined, bounds(first))
        numbers = {"value": values.mean() if values.size else math.nan, "low": low, "high": high}
        numbers |= {"undefined": len(group) - values.size} | {name: group[name].sum() for name in summed}
        numbers |= {name: group[name].mean() for name in averaged}
        numbers |= {"deviation": values.std(ddof=1) if values.size > 1 else math.nan, "seeds": values.size}
        rows.append({name: first[name] for name in by} | numbers)
    others = [name for name in frame if name in ("value", "low", "high", *summed, *averaged)]
    more = [name for name in ("value", "low", "high", "undefined", "deviation", "seeds") if name not in others]
    joined = pd.DataFrame(rows, columns=[*(name for name in frame if name in {*by, *others}), *more])
    # Some of them missing, whole numbers would become floats.
    integers = [name for name in by if pd.api.types.is_integer_dtype(frame[name].dtype)]
    return joined.astype({name: frame[name].dtype for name in integers})


def join_seeds(
    frame: pd.DataFrame,
    control: str,
    bounds: Callable[[pd.Series], tuple[float, float]],
    by: Sequence[str] | None = None,
) -> pd.DataFrame:
    """Average over seeds and put the control's range, of the same `by`, beside each number; its own rows come last."""
    rows = over_seeds(frame, bounds=bounds, controls=[control])
    return pd.concat([with_random_range(rows, control, by), pick(rows, model=control)], ignore_index=True)


def image_intervals(
    images: pd.DataFrame, by: Sequence[str], bounds: Callable[[pd.Series], tuple[float, float]]
) -> pd.DataFrame:
    """Return ``low`` and ``high`` over seeds and images, a row for each group of `by`, from scores of the same images.

    `images` has the columns ``seed, image, label, value``; images of one label depend on each other.
    """
    rows = []
    for _, group in images.groupby(list(by), dropna=False, sort=False):
        wide = group.pivot(index="seed", columns="image", values="value")
        clusters = group.drop_duplicates("image").set_index("image").loc[wide.columns, "label"].to_numpy()
        first = group.iloc[0]
        low, high = seeds_interval(wide.to_numpy(float), clusters, bounds(first))
        rows.append({name: first[name] for name in by} | {"low": low, "high": high})
    return pd.DataFrame(rows, columns=[*by, "low", "high"])


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

    The control's row is that of the same `by`, by default all other keys but ``what``; NaN where there is none.
    """
    on = [name for name in keys(frame) if name not in ("model", "what")] if by is None else list(by)
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
