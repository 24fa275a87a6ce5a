"""Files that appear under their names only when they are complete."""

from __future__ import annotations

import os
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path


@contextmanager
def written(path: str | os.PathLike[str], beside: Path | None = None) -> Iterator[Path]:
    """Give a temporary path, in the file's folder or `beside` it, which takes its name when the block ends well."""
    target = Path(path)
    # On the same file system, or the rename would not be atomic.
    temporary = (beside or target.parent) / f".{uuid.uuid4().hex}{target.suffix}"
    try:
        yield temporary
        temporary.replace(target)
    finally:
        with suppress(OSError):
            temporary.unlink()


def check_target(path: str | os.PathLike[str], what: str) -> Path:
    """Return where a file is to be written; raise where that is a folder, or in none."""
    target = Path(path)
    if target.is_dir():
        raise IsADirectoryError(f"Cannot write {what} to {target}: it is a folder. Name a file in it.")
    if not target.parent.is_dir():
        raise FileNotFoundError(f"Cannot write {target}: the folder {target.parent} does not exist.")
    return target
