"""Packages whose names are imported on access (PEP 562), and extras that may not be installed."""

from __future__ import annotations

import ast
from collections.abc import Callable
from importlib import import_module
from importlib.util import find_spec
from pkgutil import get_data
from typing import Any

import lazy_loader


def attach_stub(package: str) -> tuple[Callable[[str], Any], Callable[[], list[str]], list[str]]:
    """Return `__getattr__`, `__dir__` and `__all__` of a package, from what its `__init__.pyi` imports."""
    # As `lazy_loader.attach_stub`, which reads no stub in a zip and knows no star.
    modules, places = list[str](), dict[str, list[str]]()
    for node in ast.parse(get_data(package, "__init__.pyi") or b"").body:
        if isinstance(node, ast.ImportFrom):
            names = [alias.name for alias in node.names]
            if node.module is None:
                modules += names
            else:
                # A star stands for all that another lazy package exports.
                star = import_module(f"{package}.{node.module}").__all__ if names == ["*"] else names
                places.setdefault(node.module, []).extend(star)
    return lazy_loader.attach(package, modules, places)


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
