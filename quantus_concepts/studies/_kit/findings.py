"""What a report says in plain sentences, and how its numbers are written."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from captum_concepts._support.files import printable

#: How a number stands to another.
RELATIONS = {"above": "above", "at": "not distinguishable from", "below": "below"}


@dataclass(frozen=True)
class Finding:
    """What the numbers say on one question."""

    text: str
    topic: str = ""

    def __str__(self) -> str:
        """Return topic and text on one line, as a terminal may show them."""
        return printable(f"{self.topic}: {self.text}" if self.topic else self.text)


def said(*findings: Finding | str | None) -> list[Finding]:
    """Return the findings there are, each once."""
    made = (Finding(finding) if isinstance(finding, str) else finding for finding in findings if finding)
    return list(dict.fromkeys(finding for finding in made if finding.text))


def number(value: float, decimals: int = 2) -> str:
    """Write a number with a true minus; "–" where it is not defined."""
    return "–" if math.isnan(value) else minus(f"{value:z.{decimals}f}")


def minus(text: str) -> str:
    """Put a true minus in place of hyphens."""
    return text.replace("-", "−")


def percent(value: float) -> str:
    """Write a share in percent, with a decimal where it is small or nearly whole."""
    return f"{100 * value:.{share_decimals(value)}f} %"


def share_decimals(value: float) -> int:
    """Return the decimals that a share in percent needs."""
    return int(0 < value < 0.2 or 0.99 <= value < 1)


def percent_with_interval(row: Mapping[str, Any]) -> str:
    """Write a share in percent with its 95 % interval."""
    value = row["value"]
    if math.isnan(row["low"]):
        return percent(value)
    low, high = (f"{100 * row[end]:.{share_decimals(value)}f}" for end in ("low", "high"))
    return f"{percent(value)} (95 % interval {low}–{high})"


def listed(parts: Sequence[str], last: str = "and") -> str:
    """Write parts as a list in a sentence."""
    return parts[0] if len(parts) == 1 else f"{', '.join(parts[:-1])} {last} {parts[-1]}" if parts else ""
