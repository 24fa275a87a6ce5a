"""How numbers of this study are written."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

from quantus_concepts.studies.findings import minus, number


def contrast(value: float) -> str:
    """Write a difference of concept attributions."""
    return "0" if value == 0 else minus(f"{value:z.3f}")


def ratio(value: float) -> str:
    """Write a ratio that may be of any size."""
    if value == 0 or 0.1 <= value < 100:
        return f"{value:.2f}"
    return f"{value:.0f}" if 100 <= value < 10_000 else two_digits(value)


def points(value: float) -> str:
    """Write a share in percent without the sign."""
    return minus(f"{100 * value:z.1f}")


def whole(value: float) -> str:
    """Write a share in whole percents without the sign."""
    return f"{100 * value:.0f}"


def two_digits(value: float) -> str:
    """Write a number of any size, a divergence for instance."""
    text = f"{value:#.2g}".rstrip(".")
    number, sign, power = text.partition("e")
    return minus(f"{number}e{int(power)}" if sign else text)


WRITERS: dict[str, Callable[[float], str]] = {
    "MCS": contrast,
    "MCS baseline": contrast,
    "relative MCS": contrast,
    "robustness": contrast,
    "IDR": points,
    "IIR": points,
    "perturbation": ratio,
    "correlation": number,
}


def span(row: Mapping[str, Any], write: Callable[[float], str] | None = None) -> str:
    """Write a row's interval."""
    low, high = row["low"], row["high"]
    if math.isnan(low) or math.isnan(high) or low == high:
        return ""
    write = write or WRITERS[row["metric"]]
    return f"{write(low)}{' to ' if low < 0 else '–'}{write(high)}"
