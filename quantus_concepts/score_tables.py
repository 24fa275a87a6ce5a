"""Score tables where people look: Markdown to paste, numbers for a tracker of runs."""

from __future__ import annotations

import itertools
import re

import pandas as pd

from captum_concepts.support.checks import check_choice
from captum_concepts.support.files import printable
from quantus_concepts.metrics.concepts.names import INTERVENED
from quantus_concepts.metrics.host.model import RANDOM_BANKS

#: Columns that hold numbers; of the first, those that share a cell with the two ends of their interval.
INTERVALS = {"value": ("low", "high"), "difference": ("low", "high"), "control": ("control_low", "control_high")}
NUMBERS = (
    "value", "low", "high", "n", "undefined", "chance", "control", "control_low", "control_high", "control_coverage",
    "unconverged",
)  # fmt: skip
#: Letters of the parts of a key, of which MLflow takes 250 in all.
_LONGEST_NAME, _LONGEST_KEY = 60, 160


def to_markdown(table: pd.DataFrame, digits: int = 3) -> str:
    """Write a score table as a Markdown table, for a README, an issue or a paper's draft.

    A number shares a cell with its interval, "0.410 (0.305 to 0.515)"; columns that hold nothing are left out,
    chance and control stay. A value that is NaN is "undefined". What Markdown would read in a name is escaped.

    Parameters
    ----------
    table : DataFrame
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
    _check_filled(table)
    if not isinstance(table.index, pd.RangeIndex):
        table = table.reset_index()
    ends = {end for name, both in INTERVALS.items() if {name, *both} <= {*table} for end in both}
    columns_to_write = [
        place
        for place, name in enumerate(table)
        if name not in ends and (name == "value" or _has_content(table.iloc[:, place]))
    ]
    columns = [_pad_cells(*_cells(table, place, digits)) for place in columns_to_write]
    return "".join(f"| {' | '.join(row)} |\n" for row in zip(*columns, strict=True))


def summary_metrics(table: pd.DataFrame, only: str = "headline") -> dict[str, float]:
    """Flatten a score table to one dictionary of numbers, for `mlflow.log_metrics` or `wandb.log`.

    A number's key describes its row, ``"Saliency/CEM"``. By default there is one number for each metric of a model or
    method, about ten for a table of `score_concepts`; all of its numbers are several hundred. NaN is left out, since a
    tracker would draw it as 0 or break the line. Keys have two parts, by which MLflow and W&B group them, and hold what
    MLflow allows, letters, digits and ``_-.``; anything else becomes "_", long names are clipped, and a key that is
    taken gets a number.

    Parameters
    ----------
    table : DataFrame
        With a column ``value``: what `summarise` gives, or a ``score_`` function that sums up.
    only : str
        "headline" for the values alone of one variant of each metric: over all images, of the contribution, with the
        smallest ``l`` and ``alpha``, without single concepts and classes, baselines and intervened numbers. "all" for
        every number, with further keys ``"Saliency/CEM_low"``, ``_high``, ``_n``, ``_undefined``, ``_chance``,
        ``_control`` and the other columns of numbers; a score whose key is missing while its ``_undefined`` exists is
        undefined.

    Returns
    -------
    dict of str to float
        In the order of the rows.

    Raises
    ------
    ValueError
        If it has no row, or no column ``value``, or `only` is something else.

    Examples
    --------
    >>> from quantus_concepts import summarise, summary_metrics
    >>> summary = summarise({"Saliency": {"CEM": [1.0, 0.0, 1.0, 1.0]}}, {"CEM": None})
    >>> summary_metrics(summary)
    {'Saliency/CEM': 0.75}
    >>> list(summary_metrics(summary, only="all"))[:3]
    ['Saliency/CEM', 'Saliency/CEM_low', 'Saliency/CEM_high']
    """
    _check_filled(table)
    if "value" not in table:
        raise ValueError(
            f"Expected argument `table` to have a column `value` but it has {[str(name) for name in table]}. Give what "
            "`summarise` returns, or a `score_` function that sums up."
        )
    check_choice("only", only, ("headline", "all"))
    if only == "headline":
        table = _headline(table)
        table = table[[name for name in ("model", "method", "metric", "value") if name in table]]
    labels = [name for name in table if name not in NUMBERS and name != "reason"]
    suffixes = {name: "" if name == "value" else f"_{name}" for name in NUMBERS if name in table}
    numbers: dict[str, float] = {}
    used_keys: set[str] = set()
    for row in table.to_dict("records"):
        first, *further_parts = [_key(name, row[name]) for name in labels] or [""]
        further_text = "_".join(filter(None, further_parts))[:_LONGEST_KEY]
        # Keys have the same depth: MLflow's file store cannot hold both "a" and "a/b".
        key = f"{first or '_'}/{further_text or '_'}" if further_parts else first or "_"
        candidates = itertools.chain([key], (f"{key}_{number}" for number in itertools.count(2)))
        key = next(name for name in candidates if not used_keys & {name + suffix for suffix in suffixes.values()})
        used_keys |= {key + suffix for suffix in suffixes.values()}
        numbers |= {key + suffix: float(row[name]) for name, suffix in suffixes.items() if not pd.isna(row[name])}
    return numbers


def _check_filled(table: pd.DataFrame) -> None:
    if table.empty:
        raise ValueError("Expected argument `table` to hold at least one row and one column but it is empty.")


def _headline(table: pd.DataFrame) -> pd.DataFrame:
    """Return one row for each metric and model, or method."""
    plain = {"item": (), "baseline": (), "explanation": ("contribution",), "item_kind": ("concept",)}
    rows = table[table["metric"] != INTERVENED] if "metric" in table else table
    if "model" in rows:
        rows = rows[~rows["model"].astype(str).str.startswith(RANDOM_BANKS)]
    for name, choices in plain.items():
        if name in rows:
            column = rows[name]
            rows = rows[column.isna() | column.astype(str).isin(("", *choices))]
    about = [name for name in ("model", "method", "metric") if name in rows]
    return (
        rows.sort_values([name for name in ("l", "alpha", "set") if name in rows], kind="stable")
        .drop_duplicates(about)
        .sort_index()
        if about
        else rows
    )


def _has_content(column: pd.Series) -> bool:
    return bool((column.notna() & (column.astype(str) != "")).any())


def _cells(table: pd.DataFrame, place: int, digits: int) -> tuple[list[str], bool]:
    """Return the head and the cells of a column, and whether they stand on the right."""
    name, column = table.columns[place], table.iloc[:, place]
    head = _escape(" ".join(map(str, name)) if isinstance(name, tuple) else name)
    if not pd.api.types.is_numeric_dtype(column) or pd.api.types.is_bool_dtype(column):
        return [head, *("" if pd.isna(cell) else _escape(cell) for cell in column)], False
    if pd.api.types.is_integer_dtype(column) or name in ("l", "alpha"):
        return [head, *("" if pd.isna(cell) else f"{cell:.10g}" for cell in column)], True
    texts = [_round_text(cell, digits) or ("undefined" if name == "value" else "") for cell in column]
    low, high = INTERVALS.get(name, ("", ""))
    if low not in table or high not in table:
        return [head, *texts], True
    spans = [
        f" ({_round_text(least, digits)} to {_round_text(most, digits)})" if least <= most else ""
        for least, most in zip(table[low], table[high], strict=True)
    ]
    return [head, *(text + span for text, span in zip(texts, spans, strict=True))], False


def _pad_cells(cells: list[str], right: bool) -> list[str]:
    """Return the cells of a column in its width, below the first the rule."""
    width = max(4, *map(len, cells))
    head, *body = (cell.rjust(width) if right else cell.ljust(width) for cell in cells)
    return [head, f"{'-' * (width - 1)}:" if right else f":{'-' * (width - 1)}", *body]


def _round_text(number: float, digits: int) -> str:
    """Return a number with so many digits, and one that they would make a 0 by its power of ten."""
    if pd.isna(number):
        return ""
    value = float(number)
    return f"{value:.1e}" if 0 < abs(value) < 0.5 * 10**-digits else f"{value:.{digits}f}"


def _escape(name: object) -> str:
    """Return a name that Markdown shows as it is, on one line."""
    return re.sub(r"([\\`*|<\[])", r"\\\1", printable(" ".join(str(name).split())))


def _key(name: str, value: float | str) -> str:
    """Return one part of a key: a name, or a number behind what it is the number of."""
    if pd.isna(value) or value == "":
        return ""
    text = value if isinstance(value, str) else f"{name} {value:g}"
    clean = re.sub(r"[^A-Za-z0-9_\-. ]", "_", text).strip()[:_LONGEST_NAME].strip().replace(" ", "_")
    # Dots in front would lead out of a folder.
    return re.sub(r"^\.+", lambda dots: "_" * len(dots[0]), clean)
