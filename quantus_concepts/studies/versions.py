"""What a report says of the program and what it stands on."""

from __future__ import annotations

import importlib.metadata
import platform

PACKAGES = ("quantus-concepts", "quantus", "captum", "torch", "torchvision", "scikit-learn", "numpy")


def versions() -> dict[str, str]:
    """Return versions by name, of Python, the platform and the packages that are installed."""
    found = {"Python": platform.python_version(), "platform": platform.platform()}
    for package in PACKAGES:
        try:
            found[package] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:  # run from a checkout
            continue
    return found
