"""What every object says of itself."""

from __future__ import annotations

import re
from types import ModuleType
from typing import Any


def check_one_line(value: Any) -> str:
    """Assert that an object tells its class on one short line, without an address and without the numbers it holds."""
    line = repr(value)
    name = "explain_func" if type(value).__name__ == "CaptumExplainer" else type(value).__name__
    assert line.startswith(f"{name}("), line
    assert "\n" not in line, line
    assert len(line) < 200, line
    assert not re.search("0x[0-9a-f]{4}|tensor\\(|array\\(|dtype", line), line
    return line


def public_classes(package: ModuleType) -> dict[str, type]:
    """Return the classes that a package exports, by name; a protocol has no objects of its own."""
    classes = {name: value for name in package.__all__ if isinstance(value := getattr(package, name), type)}
    return {name: value for name, value in classes.items() if not getattr(value, "_is_protocol", False)}
