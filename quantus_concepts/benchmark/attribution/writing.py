"""How numbers of the attribution benchmark are written."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable

from quantus_concepts.benchmark.attribution.results import Record


def minus(text: str) -> str:
    """Write a number with the sign for minus.

    Parameters
    ----------
    text : str
        The number.

    Returns
    -------
    str
        With "−" for "-".
    """
    return text.replace("-", "−")


def contrast(value: float) -> str:
    """Write a difference of concept attributions.

    Parameters
    ----------
    value : float
        In [-1, 1].

    Returns
    -------
    str
        Three decimals; a plain 0 only for exactly zero.
    """
    return "0" if value == 0 else minus(f"{value:z.3f}")


def ratio(value: float) -> str:
    """Write a ratio that may be of any size.

    Parameters
    ----------
    value : float
        At least 0.

    Returns
    -------
    str
        Two decimals, none where it is large, or two digits and the power of ten.
    """
    if value == 0 or 0.1 <= value < 100:
        return f"{value:.2f}"
    return f"{value:.0f}" if 100 <= value < 10_000 else _two_digits(value)


def points(value: float) -> str:
    """Write a share in percent without the sign.

    Parameters
    ----------
    value : float
        In [0, 1].

    Returns
    -------
    str
        One decimal.
    """
    return minus(f"{100 * value:z.1f}")


def whole(value: float) -> str:
    """Write a share in whole percents without the sign.

    Parameters
    ----------
    value : float
        In [0, 1].

    Returns
    -------
    str
        No decimals.
    """
    return f"{100 * value:.0f}"


def correlation(value: float) -> str:
    """Write a correlation.

    Parameters
    ----------
    value : float
        In [-1, 1].

    Returns
    -------
    str
        Two decimals.
    """
    return minus(f"{value:z.2f}")


def divergence(value: float) -> str:
    """Write a Kullback-Leibler divergence, which may be of any size.

    Parameters
    ----------
    value : float
        At least 0.

    Returns
    -------
    str
        Two digits.
    """
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
    """Write a record's interval.

    Parameters
    ----------
    record : Record
        The number.
    write : callable, optional
        Writes an end; as the metric's numbers are written by default.

    Returns
    -------
    str
        For instance "12.0–14.1" or "−0.02 to 0.01"; "" where there is none or it is a point.
    """
    if math.isnan(record.low) or math.isnan(record.high) or record.low == record.high:
        return ""
    write = write or WRITERS[record.metric]
    return f"{write(record.low)}{' to ' if record.low < 0 else '–'}{write(record.high)}"


def enumerate_names(names: Iterable[str]) -> str:
    """Write names as a list in a sentence.

    Parameters
    ----------
    names : iterable of str
        In their order.

    Returns
    -------
    str
        For instance "a, b and c".
    """
    *rest, last = names
    return f"{', '.join(rest)} and {last}" if rest else last
