"""Import errors that say what to install."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

LIBRARY = re.compile(r"lib[\w+.-]+?\.so[.\d]*")


def import_advice(error: ImportError) -> ImportError:
    """Return an error that says what to install if Quantus's OpenCV lacks a system library; else the error itself."""
    missing = LIBRARY.search(str(error))
    if error.name != "cv2" or missing is None:
        return error
    return ImportError(
        f"Quantus imports OpenCV, which needs {missing[0]} of the system, and slim images of servers have none. On "
        "Debian and Ubuntu: apt-get install libgl1 libglib2.0-0. Or, without the rights to do so, take the build that "
        "needs neither: python -m pip uninstall -y opencv-python && python -m pip install opencv-python-headless."
    )


def with_import_advice(get: Callable[[str], Any]) -> Callable[[str], Any]:
    """Wrap the `__getattr__` of a package, so that a name of it that cannot be imported says what to install."""

    def __getattr__(name: str) -> Any:  # noqa: N807
        try:
            return get(name)
        except ImportError as error:
            explanation = import_advice(error)
            if explanation is error:
                raise
            raise explanation from error

    return __getattr__
