"""The random control: what many random banks score, and how a number stands to it."""

from __future__ import annotations

import math
from collections.abc import Iterable

from quantus_concepts.functional.intervals import relation
from quantus_concepts.studies.concepts.results import RANDOM, Record


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
