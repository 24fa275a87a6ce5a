"""The alternate constructor of metrics whose defaults differ from what their paper prints."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, Self


class AsPrinted:
    """Base of metrics that can be made with the settings that their paper prints."""

    #: The paper's settings, in place of our defaults.
    printed: ClassVar[Mapping[str, Any]]

    @classmethod
    def as_printed(cls, **settings: Any) -> Self:
        """Make the metric with the settings that its paper prints, `printed`, in place of our defaults.

        Parameters
        ----------
        **settings
            Arguments of the constructor, by keyword. One that `printed` has too is taken from here.

        Returns
        -------
        Self
            The metric.

        Raises
        ------
        TypeError
            If an argument is of the wrong kind, or the constructor has none of this name.
        ValueError
            If a setting is out of its range.
        """
        return cls(**{**cls.printed, **settings})
