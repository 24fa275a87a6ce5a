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
from quantus_concepts.metrics.concepts.names import SHUFFLED_IMAGES

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


def arrange(frame: pd.DataFrame, **orders: Sequence[str]) -> pd.DataFrame:
    """Give columns an order, which tables and charts keep: the names given, then others as they come."""
    ordered = {name: names(frame, name, list(dict.fromkeys(order))) for name, order in orders.items() if name in frame}
    return frame.assign(**{name: pd.Categorical(frame[name], order) for name, order in ordered.items()})


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
    a distribution (baselines of these names, too), which are averaged as well. ``deviation`` is that of the seeds,
    ``seeds`` how many have a number; where the frame does not count what is ``undefined``, it is the number of seeds
    without one.
    """
    by = keys(frame) if by is None else list(by)
    groups = frame.groupby(by, dropna=False, sort=False)
    group, turn, count = groups.ngroup().to_numpy(), groups.cumcount().to_numpy(), groups.size().to_numpy()
    first = frame[turn == 0]
    # A row for each group and a column for each of its seeds.
    runs = np.full((3, len(first), count.max(initial=1)), np.nan)
    runs[:, group, turn] = frame.reindex(columns=["value", "low", "high"]).to_numpy(dtype=np.float64).T
    values, low, high = (pd.DataFrame(part, index=first.index) for part in runs)
    if interval is None:
        limits = np.array([bounds(row) for _, row in first.iterrows()]).reshape(-1, 2)
        ends = seed_intervals(values, low, high, limits)
    else:
        ends = np.array([interval(of) for _, of in groups], dtype=np.float64).reshape(-1, 2)
    # A single seed keeps its interval, and the ends of a distribution are averaged.
    own = count == 1
    for name in {"model", "baseline"} & {*first}:
        own |= first[name].isin(controls).to_numpy()
    found = {"value": values.mean(axis=1), "undefined": count - values.count(axis=1)}
    found |= {
        name: part.mean(axis=1).where(own, end)
        for name, part, end in zip(("low", "high"), (low, high), ends.T, strict=True)
    }
    found |= {"deviation": values.std(axis=1), "seeds": values.count(axis=1)}
    for name, how in {"n": "sum", "undefined": "sum", "chance": "mean", "reference": "mean"}.items():
        if name in frame:
            found[name] = groups[name].agg(how).to_numpy()
    order = [name for name in frame if name in by or name in found]
    return first.assign(**found)[list(dict.fromkeys([*order, *found]))].reset_index(drop=True)


def join_seeds(
    frame: pd.DataFrame,
    control: str,
    bounds: Callable[[pd.Series], tuple[float, float]],
    by: Sequence[str] | None = None,
) -> pd.DataFrame:
    """Average over seeds and put the control's range, of the same `by`, beside each number; its own rows come last."""
    rows = over_seeds(frame, bounds=bounds, controls=[control, SHUFFLED_IMAGES])
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


def seed_intervals(values: pd.DataFrame, low: pd.DataFrame, high: pd.DataFrame, bounds: np.ndarray) -> np.ndarray:
    """Return the 95 % intervals (G, 2) of means over the seeds (G, S), within `bounds` (G, 2); NaN without spread.

    The variance is at least the one that the single runs' errors imply for their mean: a few seeds may agree by chance.
    """
    n, mean = values.count(axis=1), values.mean(axis=1)
    # The longer side: the other one may be clipped at the end of the scale.
    errors = pd.DataFrame(np.maximum(values - low, high - values)) / stats.norm.ppf((1 + CONFIDENCE) / 2)
    error = np.fmax(values.std(axis=1) / np.sqrt(n), np.sqrt((errors**2).sum(axis=1)) / n)
    quantiles = (n - 1).map({freedom: t_quantile(freedom) for freedom in set(n - 1)})
    half = (quantiles * error).mask(error <= _ROUNDING * values.abs().max(axis=1))
    return np.stack([np.maximum(bounds[:, 0], mean - half), np.minimum(bounds[:, 1], mean + half)], axis=1)


def with_random_range(frame: pd.DataFrame, control: str, by: Sequence[str] | None = None) -> pd.DataFrame:
    """Return the rows of all models but `control`, with its ends as ``random_low`` and ``random_high``.

    The control's row is that of the same `by`, by default all other keys but ``what``; NaN where there is none.
    """
    # Where the banks count from is no part of what a number is of.
    on = [name for name in keys(frame) if name not in ("model", "what", "convention")] if by is None else list(by)
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
