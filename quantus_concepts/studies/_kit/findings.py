"""Sentences of a report: how numbers are written, and a small grammar of findings.

A finding is made of a row of the results (``value``, ``low``, ``high``) and of what it is compared with: a baseline
(`sentence`), the other rows (`leader`, `compared`), or an earlier row (`trend`). `answer` is its short form.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pandas as pd

from captum_concepts._support.files import printable
from quantus_concepts.studies._kit.results import against

#: How a number stands to another; "" where neither has an interval.
RELATIONS = {"above": "above", "at": "not distinguishable from", "below": "below", "": "compared with"}
#: The text of a topic without a number.
NO_NUMBER = "There is no number to judge by, or none with an interval."
#: A sentence lists at most so many names, and counts more.
FEW = 3
Row = Mapping[str, Any]
#: A row or a number to compare with; None where it is missing.
Baseline = Row | float | None
Writer = Callable[[float], str]
#: How a row is named: by a column, or a function of the row.
Name = str | Callable[[pd.Series], str]


@dataclass(frozen=True)
class Finding:
    """The answer of the numbers to one question."""

    text: str
    topic: str = ""

    def __str__(self) -> str:
        """Return topic and text on one line, as a terminal may show them."""
        return printable(f"{self.topic}: {self.text}" if self.topic else self.text)


def said(*findings: Finding | str | None) -> list[Finding]:
    """Return the findings, each once; a topic whose findings all lack their number says so, None does not apply."""
    present = [Finding(finding) if isinstance(finding, str) else finding for finding in findings if finding is not None]
    answered = {finding.topic for finding in present if finding.text}
    return list(
        dict.fromkeys(
            Finding(finding.text or NO_NUMBER, finding.topic)
            for finding in present
            if finding.text or finding.topic not in answered
        )
    )


def number(value: float, decimals: int = 2) -> str:
    """Write a number with a true minus; "–" where it is not defined."""
    return "–" if math.isnan(value) else minus(f"{value:z.{decimals}f}")


def three(value: float) -> str:
    """Write a number with three decimals."""
    return number(value, 3)


def minus(text: str) -> str:
    """Put a true minus in place of hyphens."""
    return text.replace("-", "−")


def percent(value: float) -> str:
    """Write a share in percent, with a decimal where it is small or nearly whole."""
    return f"{number(100 * value, share_decimals(value))} %"


def points(value: float) -> str:
    """Write a share in percent without the sign."""
    return number(100 * value, 1)


def share_decimals(value: float) -> int:
    """Return the decimals that a share in percent needs."""
    return int(0 < abs(value) < 0.2 or 0.99 <= value < 1)


def ends(row: Row, write: Writer = percent) -> str:
    """Write an interval or a range: "15–26" of shares in percent, "−0.10 to 0.15" of other or negative numbers."""
    if write is percent:
        texts = [number(100 * row[end], share_decimals(row["value"])) for end in ("low", "high")]
        return ("–" if row["low"] >= 0 else " to ").join(texts)
    return " to ".join(write(row[end]) for end in ("low", "high"))


def with_interval(row: Row, write: Writer = percent) -> str:
    """Write a number with its 95 % interval."""
    interval = "" if pd.isna(row["low"]) else f" (95 % interval {ends(row, write)})"
    return f"{write(row['value'])}{interval}"


def with_intervals(rows: pd.DataFrame) -> pd.DataFrame:
    """Return the rows that can be compared: a single image, and fewer than 3 splits, have no interval."""
    return rows[rows["low"].notna()]


def _namer(name: Name) -> Callable[[pd.Series], str]:
    return name if callable(name) else lambda row: str(row[name])


def named_with_interval(column: str, write: Writer = number) -> Callable[[pd.Series], str]:
    """Return how a row is named with its number and interval."""
    return lambda row: f"{row[column]} ({write(row['value'])}, {ends(row, write)})"


def relation_to(row: Row, other: Baseline) -> str:
    """Return "above", "at" or "below" as `against` does, "" without a baseline; a number may be its own interval."""
    if other is None:
        return ""
    low, high = (row["value"] if pd.isna(row[end]) else row[end] for end in ("low", "high"))
    return against({"low": low, "high": high}, other)


def with_noun(n: int, noun: str) -> str:
    """Write how many there are of something."""
    return f"{n} {noun}{'s' * (n != 1)}"


def count_range(counts: pd.Series) -> str:
    """Write the smallest and the largest of some counts: "n = 40–60"."""
    low, high = counts.min(), counts.max()
    return f"n = {low}" if low == high else f"n = {low}–{high}"


def join_words(parts: Sequence[str], last: str = "and") -> str:
    """Write parts as a list in a sentence."""
    return parts[0] if len(parts) == 1 else f"{', '.join(parts[:-1])} {last} {parts[-1]}" if parts else ""


def sentence(
    text: str,
    row: Row | None,
    baselines: Mapping[str, Baseline] | None = None,
    *,
    draws: Sequence[str] = (),
    write: Writer = percent,
    more: str = "",
) -> str:
    """Return `text`, with the number for ``{}``, compared with baselines by name; "" where it is NaN.

    Baselines named in `draws` are many random models: the range of 95 % is written. A missing row is reported.
    """
    if row is None:
        return f"{text.format('–')}: there is no such number in this run."
    if pd.isna(row["value"]):
        return ""
    parts = []
    for name, other in (baselines or {}).items():
        if other is not None:
            value = other if isinstance(other, float) else other["value"]
            span = f", 95 % of them {ends(other, write)}" if name in draws and not isinstance(other, float) else ""
            parts.append(f"{RELATIONS[relation_to(row, other)]} {name} ({write(value)}{span})")
    parts += [more] if more else []
    return f"{text.format(with_interval(row, write))}{': ' if parts else ''}{'; '.join(parts)}."


def leader(rows: pd.DataFrame, text: str, name: Name = "model", write: Writer = percent) -> str:
    """Say of which row the number is highest, which others cannot be distinguished from it, and of which it is lowest.

    `text` begins the sentence: "S+ is highest for". `name` is the column that names a row, or a function of the row.
    """
    name_of = _namer(name)
    rows = rows[rows["value"].notna()].sort_values("value", kind="stable")
    if rows.empty:
        return ""
    worst, best = rows.iloc[0], rows.iloc[-1]
    alike = [name_of(row) for _, row in rows.iloc[-2::-1].iterrows() if relation_to(row, best) == "at"]
    which = join_words(alike) if len(alike) <= FEW else f"{len(alike)} of the {len(rows) - 1} others"
    as_high = f", not distinguishable from {which}" if alike else ""
    lowest = f"; lowest for {name_of(worst)}, {with_interval(worst, write)}" if len(rows) > 1 else ""
    return f"{text} {name_of(best)}, {with_interval(best, write)}{as_high}{lowest}."


def compared(
    rows: pd.DataFrame,
    baseline: Baseline | Callable[[pd.Series], Baseline],
    text: str,
    name: Name = "model",
) -> str:
    """Say which rows are above, at and below a baseline, which `text` names: "Above random directions (50 %)".

    The baseline may be a function of the row, where each row has one of its own; rows without one are left out.
    """
    name_of = _namer(name)
    by_relation: dict[str, list[str]] = {relation: [] for relation in RELATIONS}
    for _, row in rows[rows["value"].notna()].iterrows():
        by_relation[relation_to(row, baseline(row) if callable(baseline) else baseline)].append(name_of(row))
    most = max(by_relation, key=lambda relation: len(by_relation[relation]))
    parts = []
    for relation, phrase in {"above": text, "at": "not distinguishable from it", "below": "below it"}.items():
        members = by_relation[relation]
        # The longest list is counted, the others are given.
        whom = f"{len(members)} others" if relation == most and len(members) > 4 else join_words(members)
        parts += [f"{phrase}: {whom if members else 'none'}"] if members or relation == "above" else []
    return f"{'; '.join(parts)}." if len(rows) else ""


def trend(first: Row, last: Row, write: Writer = percent) -> str:
    """Say how a number goes from the first to the last of a series."""
    relation = RELATIONS[relation_to(last, first)]
    return f"from {with_interval(first, write)} to {with_interval(last, write)}, {relation} where it began"


def answer(pairs: Mapping[str, tuple[Row | None, Row | None]], baseline: str, write: Writer = percent) -> str:
    """Return the short form: which of the named numbers are above those of the baseline paired with each, with both.

    For instance "yes by value (97 %, random 24 %); not distinguishable from random directions by weight (24 %, ...)".
    """
    phrases = {"above": "yes", "at": f"not distinguishable from {baseline}", "below": f"below {baseline}"}
    groups: dict[str, list[str]] = {}
    for how, (row, other) in pairs.items():
        if row is not None:
            random = "" if other is None else f", random {write(other['value'])}"
            phrase = phrases.get(relation_to(row, other), "")
            groups.setdefault(phrase, []).append(f"{how} ({write(row['value'])}{random})".strip())
    return "; ".join(f"{phrase} {join_words(parts)}".strip() for phrase, parts in groups.items())
