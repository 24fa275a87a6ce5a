"""How numbers of the attribution benchmark are written."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable

from quantus_concepts.studies.attribution.results import Record


def minus(text: str) -> str:
    """Write a number with the sign for minus."""
    return text.replace("-", "−")


def contrast(value: float) -> str:
    """Write a difference of concept attributions."""
    return "0" if value == 0 else minus(f"{value:z.3f}")


def ratio(value: float) -> str:
    """Write a ratio that may be of any size."""
    if value == 0 or 0.1 <= value < 100:
        return f"{value:.2f}"
    return f"{value:.0f}" if 100 <= value < 10_000 else _two_digits(value)


def points(value: float) -> str:
    """Write a share in percent without the sign."""
    return minus(f"{100 * value:z.1f}")


def whole(value: float) -> str:
    """Write a share in whole percents without the sign."""
    return f"{100 * value:.0f}"


def correlation(value: float) -> str:
    """Write a correlation."""
    return minus(f"{value:z.2f}")


def divergence(value: float) -> str:
    """Write a Kullback-Leibler divergence, which may be of any size."""
    return _two_digits(value)


def _two_digits(value: float) -> str:
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
    "correlation": correlation,
}


def span(record: Record, write: Callable[[float], str] | None = None) -> str:
    """Write a record's interval."""
    if math.isnan(record.low) or math.isnan(record.high) or record.low == record.high:
        return ""
    write = write or WRITERS[record.metric]
    return f"{write(record.low)}{' to ' if record.low < 0 else '–'}{write(record.high)}"


def enumerate_names(names: Iterable[str]) -> str:
    """Write names as a list in a sentence."""
    *rest, last = names
    return f"{', '.join(rest)} and {last}" if rest else last
