"""Packages whose names are imported on access (PEP 562)."""

from __future__ import annotations

import ast
import sys
from collections.abc import Callable
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any


def lazily(package: str, file: str) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """Return `__getattr__` and `__dir__` of a package, which import what its file has under ``if TYPE_CHECKING:``."""
    # So names are declared once, where type checkers and editors read them.
    places: dict[str, str] = {}
    for statement in ast.parse(Path(file).read_text(encoding="utf-8")).body:
        if isinstance(statement, ast.If) and isinstance(statement.test, ast.Name):
            imports = (node for node in statement.body if isinstance(node, ast.ImportFrom))
            for module, name in ((str(node.module), alias.name) for node in imports for alias in node.names):
                # A star stands for all that another lazy package exports.
                names = import_module(module).__all__ if name == "*" else [name]
                places |= dict.fromkeys(names, module)

    def __getattr__(name: str) -> Any:  # noqa: N807
        # What is imported from the package itself are its modules.
        if places.get(name, package) != package:
            value = getattr(import_module(places[name]), name)
        elif not name.startswith("_") and find_spec(f"{package}.{name}"):
            value = import_module(f"{package}.{name}")
        else:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        # The next access finds the attribute itself.
        setattr(sys.modules[package], name, value)
        return value

    def __dir__() -> list[str]:  # noqa: N807
        return sorted({*vars(sys.modules[package]), *places})

    return __getattr__, __dir__


class MissingExtraError(ImportError, ValueError):
    """A package of an extra is not installed: for who imports an ImportError, for a command bad input like other."""


def check_extra(module: str, extra: str, what: str) -> None:
    """Raise where the module that an extra of ours brings is not installed."""
    if find_spec(module) is None:
        # The package is on no index yet, so that its name cannot be installed.
        raise MissingExtraError(
            f"{what} needs the package {module}: python -m pip install '.[{extra}]' in a checkout of quantus-concepts.",
            name=module,
        )
