"""Arguments named as the options of a command that they come from."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterator
from contextlib import contextmanager

from quantus_concepts.studies.command import Options, option_name


@contextmanager
def named_as_typed(options: type[Options], **others: str) -> Iterator[None]:
    """Name options as they are typed where a function that got them refuses them by the names of its arguments."""
    names = {field.name: field.metadata["flag"] or option_name(field.name) for field in dataclasses.fields(options)}
    names |= others
    try:
        yield
    except (ValueError, TypeError, OSError) as error:
        told = re.sub(r"`(\w+)`", lambda found: f"`{names.get(found[1], found[1])}`", str(error))
        if told == str(error):
            raise
        raise ValueError(told) from error
