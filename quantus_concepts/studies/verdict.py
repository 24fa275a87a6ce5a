"""What a report says in plain sentences."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Verdict:
    """What the numbers say on one question."""

    topic: str
    text: str

    def __str__(self) -> str:
        """Return topic and text on one line."""
        return f"{self.topic}: {self.text}"
