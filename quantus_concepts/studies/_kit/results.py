"""Result frames: rows, intervals over seeds, the paper's figures, and CSV files that spreadsheets open safely."""

from __future__ import annotations

import math
import os
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from importlib import resources
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from scipy import stats

from captum_concepts._support.files import printable
from quantus_concepts.functional.intervals import CONFIDENCE, relation

#: Signs with which a formula of a spreadsheet begins, also those of full width.
STARTS = tuple("=+-@\t\r\n\uff1d\uff0b\uff0d\uff20")
WORKBOOK = "results.xlsx"


def write_csv(frame: pd.DataFrame, path: str | os.PathLike[str] | Path) -> None:
    """Write a frame so that no name in it is computed by a spreadsheet: with ' before = + - @; numbers stay numbers."""
    guarded = frame.rename(columns=as_cell)
    for place, (_, column) in enumerate(frame.items()):
        if column.dtype.kind == "O":
            cells = pd.Series([as_cell(value) for value in column], frame.index, object)
            guarded.isetitem(place, cells)
    guarded.to_csv(path, index=False, errors="backslashreplace")


def write_workbook(sheets: Iterable[tuple[str, Sequence[Sequence[Any]]]], path: str | os.PathLike[str]) -> None:
    """Write sheets, each a name and rows of cells, to a workbook in which no text is computed; numbers are numbers.

    A pair is a number with a sign that is shown in front of it.
    """
    from openpyxl import Workbook

    book = Workbook()
    book.remove(book.active)
    for name, rows in sheets:
        # openpyxl numbers sheets of the same name, in the last of the 31 letters that a name may have.
        title = re.sub(r"[][:*?/\\]", " ", printable(name))[:28].strip(" '")
        sheet = book.create_sheet(title or None)
        for place, row in enumerate(rows, start=1):
            for at, content in enumerate(row, start=1):
                mark, value = content if isinstance(content, tuple) else ("", content)
                cell = sheet.cell(place, at, as_cell(printable(value)) if isinstance(value, str) else value)
                if mark:
                    cell.number_format = f'"{mark}"General'
                if isinstance(value, str):
                    # It would take "#N/A" for an error.
                    cell.data_type = "s"
    book.save(path)


def frame_grid(frame: pd.DataFrame) -> list[list[Any]]:
    """Return a frame as rows of cells for a workbook, the head first; what is NaN is empty."""
    return [list(frame), *frame.astype(object).where(frame.notna(), None).to_numpy().tolist()]


def as_cell(value: Any) -> Any:
    """Return the text of a value in a cell."""
    # A text that begins as a guarded one is guarded too, or `from_cell` would take its sign away.
    if not isinstance(value, str) or not value.lstrip("'").startswith(STARTS) or _is_number(value):
        return value
    return f"'{value}"


def from_cell(value: Any) -> Any:
    """Return the value of a cell."""
    guarded = isinstance(value, str) and value.startswith("'") and as_cell(value[1:]) == value
    return value[1:] if guarded else value


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return text.isascii() and "_" not in text and text == text.strip()


PAPER = "paper"
#: Columns that hold what was found; all others say of what.
NUMBERS = ("value", "low", "high", "random_low", "random_high", "n", "undefined", "chance", "reference", "seed")
UNBOUNDED = (-math.inf, math.inf)
#: Spread of equal numbers, relative to their size.
_ROUNDING = 1e-12


def pick(frame: pd.DataFrame, **values: Any) -> pd.DataFrame:
    """Return the rows that have the values wanted; a list stands for any of its values, None for none."""
    mask = np.ones(len(frame), dtype=bool)
    for name, value in values.items():
        column = frame[name]
        one_of = column.isin(value) if isinstance(value, list | tuple | set) else column == value
        mask &= np.asarray(column.isna() if value is None else one_of, dtype=bool)
    return frame[mask]


def one(frame: pd.DataFrame, **values: Any) -> pd.Series | None:
    """Return the first row that has the values wanted, None where there is none or its value is NaN."""
    rows = pick(frame, **values)
    rows = rows[rows["value"].notna()]
    return None if rows.empty else rows.iloc[0]


def names(frame: pd.DataFrame, column: str, order: Sequence[str] = ()) -> list[Any]:
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
    mean, half = values.mean(), stats.t.ppf((1 + CONFIDENCE) / 2, len(runs) - 1) * error
    return float(max(bounds[0], mean - half)), float(min(bounds[1], mean + half))


def against_control(frame: pd.DataFrame, control: str) -> pd.Series:
    """Say of each row whether it lies above, at or below what 95 % of a random control score, by its 95 % interval.

    The control is the rows whose model is `control` and whose other keys are the same; "" where there are none. A row
    without an interval stands for itself.
    """
    # By the value alone what is said hangs on how numbers are rounded, wherever a value lies near the control's end.
    by = [name for name in keys(frame) if name != "model"]
    ends = frame.loc[frame["model"] == control, [*by, "low", "high"]].drop_duplicates(by)
    joined = frame[by].merge(ends, on=by, how="left")
    low, high = (frame[end].fillna(frame["value"]) for end in ("low", "high"))
    relations = [
        relation(ours, range_) if model != control else ""
        for model, ours, range_ in zip(
            frame["model"], zip(low, high, strict=True), zip(joined["low"], joined["high"], strict=True), strict=True
        )
    ]
    return pd.Series(relations, index=frame.index, dtype=object)


def with_random_range(frame: pd.DataFrame, control: str, by: Sequence[str] | None = None) -> pd.DataFrame:
    """Return the rows of all models but `control`, with its ends as ``random_low`` and ``random_high``.

    The control's row is that of the same `by`, which are all other keys by default; NaN where there is none.
    """
    on = [name for name in keys(frame) if name != "model"] if by is None else list(by)
    ends = frame.loc[frame["model"] == control, [*on, "low", "high"]].drop_duplicates(on)
    ends = ends.rename(columns={"low": "random_low", "high": "random_high"})
    return frame[frame["model"] != control].merge(ends, on=on, how="left")


def against(row: Mapping[str, Any], reference: Mapping[str, Any] | float) -> str:
    """Say whether a number lies above, at or below another, or a value, by its 95 % interval; "" without intervals."""
    other = (reference, reference) if isinstance(reference, float | int) else (reference["low"], reference["high"])
    return relation((row["low"], row["high"]), other)


def baseline_of(frame: pd.DataFrame, row: pd.Series, model: str) -> pd.Series | None:
    """Return the number of a baseline model for the same metric and all else that `row` is of, None without one."""
    same = [name for name in keys(frame) if name not in ("model", "mark")]
    return one(frame, model=model, **{name: None if pd.isna(row[name]) else row[name] for name in same})


def load_paper(package: str, **types: Any) -> pd.DataFrame:
    """Read the paper's numbers, the ``paper.csv`` of a study, whose rows have "paper" in place of a model.

    Columns are texts and the numbers of every study; `types` are those of others, in which an empty field is NaN.
    """
    with resources.files(package).joinpath("paper.csv").open(encoding="utf-8") as file:
        return pd.read_csv(
            file, keep_default_na=False, na_values={name: [""] for name in (*NUMBERS, *types)}, dtype=types
        )
