"""Score tables where people look: Markdown and LaTeX to paste, and the rows that a reader wants of a long table."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd

from captum_concepts.support.checks import check_kind
from captum_concepts.support.files import printable, quote
from quantus_concepts.metrics.concepts.names import INTERVENED, RANDOM_RANGE
from quantus_concepts.metrics.host.model import RANDOM_BANKS
from quantus_concepts.results.verdicts import BY_CONVENTION, RANKINGS, with_verdicts

#: The metrics that notice most planted damage and that fewest models without knowledge pass (docs/metrics/index.md).
NOTICE_MOST = ("concept AUC", "CEM gain", "CGIM correlation", "oracle accuracy")
#: Means of scores that cancel miss 0 by so much.
_ROUNDING = 1e-15
#: What a number and the range of its random banks have in common.
_BANK_KEYS = ("metric", "explanation", "set", "l", "alpha", "item_kind", "item")

#: Columns that share a cell with the two ends of their interval.
INTERVALS = {"value": ("low", "high"), "difference": ("low", "high"), "control": ("control_low", "control_high")}
INTERVALS |= {"random": ("random_low", "random_high")}


def to_markdown(table: pd.DataFrame | pd.Series, digits: int = 3) -> str:
    """Write a score table as a Markdown table, for a README, an issue or a paper's draft.

    A number shares a cell with its interval, "0.410 (0.305 to 0.515)"; columns that hold nothing are left out,
    chance and control stay. A value that is NaN is "undefined". What Markdown would read in a name is escaped.

    Parameters
    ----------
    table : DataFrame or Series
        Result of `summarise`, `score_concepts`, `score_explanations` or any other ``score_`` function, of `compare`, or
        some of its rows and columns, or a pivot of them.
    digits : int
        Behind the decimal point.

    Returns
    -------
    str
        Lines, each ending in a newline.

    Raises
    ------
    TypeError
        If `table` is neither.
    ValueError
        If `table` has no row or no column.

    Examples
    --------
    >>> from quantus_concepts import summarise, to_markdown
    >>> scores = {"Saliency": {"CEM": [1.0, 0.0, 1.0, 1.0]}, "random": {"CEM": [0.0, 0.5]}}
    >>> print(to_markdown(summarise(scores, {"CEM": None}), digits=2))
    | method   | metric | value                |    n | undefined |
    | :------- | :----- | :------------------- | ---: | --------: |
    | Saliency | CEM    | 0.75 (0.30 to 0.95)  |    4 |         0 |
    | random   | CEM    | 0.25 (-2.93 to 3.43) |    2 |         0 |
    <BLANKLINE>
    """
    columns = [_pad_cells(*column) for column in _columns(_as_table(table), digits, _escape)]
    return "".join(f"| {' | '.join(row)} |\n" for row in zip(*columns, strict=True))


def to_latex(
    table: pd.DataFrame | pd.Series, caption: str | None = None, label: str | None = None, digits: int = 3
) -> str:
    r"""Write a score table for a paper in LaTeX, with the rules of the package booktabs.

    As `to_markdown`, a number shares a cell with its interval, here under the head "value (low to high)"; p-values
    (columns ``p`` and ``p_...``) have three digits, "< .001" below that. Names and the caption are escaped: they are
    printed as they are.

    Parameters
    ----------
    table : DataFrame or Series
        As in `to_markdown`.
    caption : str, optional
        Caption; with it, or a label, the table is a float.
    label : str, optional
        Label, "tab:cem" for instance.
    digits : int
        Behind the decimal point.

    Returns
    -------
    str
        Lines, each ending in a newline.

    Raises
    ------
    TypeError
        If `table` is neither.
    ValueError
        If `table` has no row or no column, or `label` holds what LaTeX does not take in one.

    Examples
    --------
    >>> from quantus_concepts import summarise, to_latex
    >>> scores = {"Saliency": {"CEM": [1.0, 0.0, 1.0, 1.0]}, "random": {"CEM": [0.0, 0.5]}}
    >>> print(to_latex(summarise(scores, {"CEM": None})[["method", "value", "low", "high"]], digits=2))
    \begin{tabular}{ll}
    \toprule
    method & value (low to high) \\
    \midrule
    Saliency & 0.75 (0.30 to 0.95) \\
    random & 0.25 ($-$2.93 to 3.43) \\
    \bottomrule
    \end{tabular}
    <BLANKLINE>
    """
    if label is not None and not re.fullmatch(r"[A-Za-z0-9:_.-]+", label):
        raise ValueError(f"Expected argument `label` to be of letters, digits and :_.- but got {quote(label)}.")
    columns = _columns(_as_table(table), digits, escape_latex)
    head, *rows = (" & ".join(row) + r" \\" for row in zip(*(cells for cells, _ in columns), strict=True))
    kinds = "".join("r" if right else "l" for _, right in columns)
    lines = [rf"\begin{{tabular}}{{{kinds}}}", r"\toprule", head, r"\midrule", *rows, r"\bottomrule", r"\end{tabular}"]
    if caption is not None or label is not None:
        about = [] if caption is None else [rf"\caption{{{escape_latex(caption)}}}"]
        about += [] if label is None else [rf"\label{{{label}}}"]
        lines = [r"\begin{table}", r"\centering", *about, *lines, r"\end{table}"]
    return "\n".join(lines) + "\n"


def escape_latex(text: object) -> str:
    """Return a text that LaTeX prints as it is, on one line."""
    # A blank line would end a paragraph, and "[" or "*" after the end of a row would be its argument.
    return printable(" ".join(str(text).split())).translate(_LATEX)


def headline(table: pd.DataFrame) -> pd.DataFrame:
    """Return the rows that a reader wants of a long table, with verdicts: one for each metric of a model or method.

    Of a metric's variants it is that over all images, with the smallest ``l`` and ``alpha``, by the effect and, below
    it, by the value: these rankings are fixed before looking. A metric that has neither stands there by contribution,
    without a range and a verdict, since it depends on where the zero of the values is. Single concepts and classes,
    baselines and intervened numbers are left out. Of each model come first the metrics that notice most planted damage
    (`NOTICE_MOST`, `testing.meta_evaluate`); the others stay in their order.

    Parameters
    ----------
    table : DataFrame
        Result of `summarise`, `score_concepts` or any other ``score_`` function that sums up.

    Returns
    -------
    DataFrame
        Some of its rows, about fifteen for a table of `score_concepts`; columns that hold nothing are left out. Where
        the table has random banks, ``random`` is their mean and ``random_low`` to ``random_high`` their range beside
        each number, ``verdict`` says whether it lies above, within or below (`results.verdicts.RULE`), and
        ``why`` what speaks against a verdict or against praise: "no verdict" stands for an "above" of a model that does
        not know its concepts, "–" where random banks are no baseline.

    Raises
    ------
    ValueError
        If `table` has no row or no column, or no column ``metric``.

    Examples
    --------
    >>> from quantus_concepts import headline, summarise
    >>> summary = summarise({"Saliency": {"CEM": [1.0, 0.0, 1.0, 1.0]}}, {"CEM": None})
    >>> rows = headline(summary).itertuples()
    >>> {
    ...     f"{row.method}/{row.metric}": row.value for row in rows
    ... }  # for mlflow.log_metrics, wandb.log
    {'Saliency/CEM': 0.75}
    """
    table = _as_table(table)
    if "metric" not in table:
        raise ValueError(
            f"Expected argument `table` to have a column `metric` but it has {[str(name) for name in table]}. Pass "
            "what `summarise` returns, or a `score_` function that sums up."
        )
    is_range = table["what"] == RANDOM_RANGE if "what" in table else pd.Series(False, table.index)
    has_banks = bool(is_range.any())
    rows = with_verdicts(_with_banks(table[~is_range], table[is_range])) if has_banks else table
    rows = rows[rows["metric"] != INTERVENED]
    for name in ("item", "baseline"):
        rows = rows[_is_one_of(rows, name, ())]
    rows = rows[_is_one_of(rows, "item_kind", ("concept",))]
    about = [name for name in ("model", "method", "metric") if name in rows]
    if "explanation" in rows:
        rows = _by_ranking(rows, about)
        about = [*about, "explanation"]
        if has_banks:
            of_convention = rows["explanation"].isin(BY_CONVENTION)
            rows = rows.assign(
                **{name: rows[name].mask(of_convention) for name in ("random", "random_low", "random_high")},
                against=rows["against"].mask(of_convention, ""),
            )
    order = {name: place for place, name in enumerate(_by_notice(rows).index)}
    rows = rows.sort_values([name for name in ("l", "alpha", "set") if name in rows], kind="stable")
    rows = rows.drop_duplicates(about)
    rows = rows.loc[sorted(rows.index, key=order.__getitem__)].drop(columns="random_convention", errors="ignore")
    return rows[[name for name in rows if name == "value" or _has_content(rows[name])]]


def _by_notice(rows: pd.DataFrame) -> pd.DataFrame:
    """Return rows with the metrics of each model as they notice planted damage, others after them."""
    if "model" not in rows:
        return rows
    place = rows["metric"].map({name: place for place, name in enumerate(NOTICE_MOST)}).fillna(len(NOTICE_MOST))
    return rows.iloc[np.lexsort((place, rows.groupby("model", sort=False, dropna=False).ngroup()))]


def _is_one_of(rows: pd.DataFrame, name: str, choices: Sequence[str]) -> pd.Series:
    """Return which rows have one of these names in a column, or none."""
    if name not in rows:
        return pd.Series(True, rows.index)
    return rows[name].isna() | rows[name].astype(str).isin(("", *choices))


def _by_ranking(rows: pd.DataFrame, about: Sequence[str]) -> pd.DataFrame:
    """Return rows of the fixed rankings, the first one first; the contribution of a metric that has none of them."""
    ranking = rows["explanation"].fillna("").astype(str)
    fixed = ranking.isin(("", *RANKINGS))
    has_fixed = fixed.groupby([rows[name] for name in about], sort=False, dropna=False).transform("any")
    rows = rows[fixed | (~has_fixed & (ranking == "contribution"))]
    # Metrics stay in their order, and rankings of one metric change places.
    metric = rows.groupby(list(about), sort=False, dropna=False).ngroup()
    place = rows["explanation"].map({name: place for place, name in enumerate(RANKINGS)}).fillna(0)
    return rows.iloc[np.lexsort((place, metric))]


def _with_banks(rows: pd.DataFrame, banks: pd.DataFrame) -> pd.DataFrame:
    """Put the mean and the range of the random banks, of each model or of all, beside its numbers."""
    keys = [name for name in _BANK_KEYS if name in rows]

    def names(row: Mapping[Hashable, Any]) -> tuple[str, ...]:
        return tuple(str(row[name]) for name in keys)

    known = {(row["model"], *names(row)): row for row in banks.to_dict("records")}
    shared = next((name for name in banks["model"] if not name.startswith(f"{RANDOM_BANKS} of ")), "")
    found = []
    for row in rows.to_dict("records"):
        own = known.get((f"{RANDOM_BANKS} of {row['model']}", *names(row)), known.get((shared, *names(row)), {}))
        found.append(own if not row.get("baseline") else {})
    ends = {"random": "value", "random_low": "low", "random_high": "high"}
    numbers = {name: [float(row.get(end, math.nan)) for row in found] for name, end in ends.items()}
    return rows.assign(**numbers, random_convention=[str(row.get("convention", "")) for row in found])


def _as_table(table: pd.DataFrame | pd.Series) -> pd.DataFrame:
    """Return a table with at least one cell; a series, as of a mean by group, is its column."""
    if isinstance(table, pd.Series):
        table = table.to_frame("value" if table.name is None else table.name)
    check_kind("table", table, pd.DataFrame, "a DataFrame")
    if table.empty:
        raise ValueError("Expected argument `table` to hold at least one row and one column but it is empty.")
    return table


def _has_content(column: pd.Series) -> bool:
    return bool((column.notna() & (column.astype(str) != "")).any())


def _columns(table: pd.DataFrame, digits: int, escape: Callable[[object], str]) -> list[tuple[list[str], bool]]:
    """Return the columns to write: head and cells, and whether they stand on the right."""
    # An index of whole numbers without a name holds the places of the rows in a longer table.
    if table.index.name is not None or not pd.api.types.is_integer_dtype(table.index.dtype):
        table = table.reset_index()
    ends = {end for name, both in INTERVALS.items() if {name, *both} <= {*table} for end in both}
    places = [
        place
        for place, name in enumerate(table)
        if name not in ends and (name == "value" or _has_content(table.iloc[:, place]))
    ]
    columns = [_cells(table, place, digits, escape) for place in places]
    if escape is escape_latex:
        for place, (cells, _) in zip(places, columns, strict=True):
            _for_latex(cells, table.iloc[:, place], f"{INTERVALS.get(table.columns[place], ('',))[0]}" in ends)
    return columns


def _for_latex(cells: list[str], column: pd.Series, has_interval: bool) -> None:
    """Write minus signs, p-values and the head of an interval as papers do."""
    if not pd.api.types.is_numeric_dtype(column) or pd.api.types.is_bool_dtype(column):
        return
    if has_interval:
        ends = (end.removeprefix(f"{column.name}_") for end in INTERVALS[str(column.name)])
        cells[0] += f" ({' to '.join(map(escape_latex, ends))})"
    if str(column.name) == "p" or str(column.name).startswith("p_"):
        cells[1:] = ["" if pd.isna(p) else "$<$ .001" if p < 0.001 else f"{p:.3f}".removeprefix("0") for p in column]
    else:
        cells[1:] = [cell.replace("-", "$-$") for cell in cells[1:]]


def _cells(table: pd.DataFrame, place: int, digits: int, escape: Callable[[object], str]) -> tuple[list[str], bool]:
    """Return the head and the cells of a column, and whether they stand on the right."""
    name, column = table.columns[place], table.iloc[:, place]
    head = escape(" ".join(map(str, name)) if isinstance(name, tuple) else name)
    if not pd.api.types.is_numeric_dtype(column) or pd.api.types.is_bool_dtype(column):
        return [head, *("" if pd.isna(cell) else escape(cell) for cell in column)], False
    if pd.api.types.is_integer_dtype(column) or name in ("l", "alpha"):
        return [head, *("" if pd.isna(cell) else f"{cell:.10g}" for cell in column)], True
    is_latex = escape is escape_latex
    texts = [_round_text(cell, digits, is_latex) or ("undefined" if name == "value" else "") for cell in column]
    low, high = INTERVALS.get(name, ("", ""))
    if low not in table or high not in table:
        return [head, *texts], True
    spans = [
        f" ({_round_text(least, digits, is_latex)} to {_round_text(most, digits, is_latex)})" if least <= most else ""
        for least, most in zip(table[low], table[high], strict=True)
    ]
    return [head, *(text + span for text, span in zip(texts, spans, strict=True))], False


def _pad_cells(cells: list[str], right: bool) -> list[str]:
    """Return the cells of a column in its width, below the first the rule."""
    width = max(4, *map(len, cells))
    head, *body = (cell.rjust(width) if right else cell.ljust(width) for cell in cells)
    return [head, f"{'-' * (width - 1)}:" if right else f":{'-' * (width - 1)}", *body]


def _round_text(number: float, digits: int, is_fixed: bool) -> str:
    """Return a number with so many digits; unless fixed, one that they would make a 0 by its power of ten."""
    if pd.isna(number):
        return ""
    value = 0.0 if abs(number) <= _ROUNDING else float(number)
    return f"{value:.1e}" if not is_fixed and 0 < abs(value) < 0.5 * 10**-digits else f"{value:z.{digits}f}"


#: What LaTeX prints as these signs.
_LATEX = str.maketrans(
    {sign: f"\\{sign}" for sign in "&%$#_{}"}
    | {"\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}", "[": "{[}", "*": "{*}"}
    | {"<": "$<$", ">": "$>$", "−": "$-$", "±": r"$\pm$", "×": r"$\times$", "≤": r"$\leq$", "≥": r"$\geq$"}
    | {"θ": r"$\theta$", "α": r"$\alpha$", "ρ": r"$\rho$", "τ": r"$\tau$", "²": "$^2$", "\u00a0": "~"}
)


def _escape(name: object) -> str:
    """Return a name that Markdown shows as it is, on one line."""
    return re.sub(r"([\\`*|<\[])", r"\\\1", printable(" ".join(str(name).split())))
