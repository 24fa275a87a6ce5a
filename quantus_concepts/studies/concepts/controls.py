"""The random control: what many random banks score, and how a number stands to it."""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Iterable, Sequence
from typing import Any

from quantus_concepts.functional.intervals import distribution, relation
from quantus_concepts.studies.concepts.results import RANDOM, Record, mean_of


def control_records(banks: Sequence[Sequence[Record]]) -> list[Record]:
    """Return the random control: of each number its mean over random banks, and where 95 % of them lie."""
    groups: dict[tuple[Any, ...], list[Record]] = {}
    for record in itertools.chain.from_iterable(banks):
        groups.setdefault(record.key[1:], []).append(record)
    joined = []
    for group in groups.values():
        value, low, high = distribution([record.value for record in group])
        missing = sum(math.isnan(record.value) for record in group)
        joined.append(
            dataclasses.replace(
                group[0],
                model=RANDOM,
                value=value,
                low=low,
                high=high,
                chance=mean_of([record.chance for record in group]),
                n=len(group) - missing,
                undefined=missing,
            )
        )
    return joined


def against_control(records: Iterable[Record], record: Record | None) -> str:
    """Say whether a number lies above, among ("at") or below what 95 % of the random banks score."""
    control = control_of(records, record)
    if record is None or control is None or record.model == RANDOM:
        return ""
    return relation((record.value, record.value), (control.low, control.high))


def control_of(records: Iterable[Record], record: Record | None) -> Record | None:
    """Return the random control of a number, None where there is none."""
    if record is None:
        return None
    wanted = (RANDOM, *record.key[1:])
    return next((found for found in records if found.key == wanted and not math.isnan(found.value)), None)
