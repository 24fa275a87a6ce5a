"""Files that appear under their names only when they are complete."""

from __future__ import annotations

import os
import socket
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

#: How the names of files begin that are being written; then come the host, the process and the suffix.
_PARTIAL = ".quantus-concepts-partial"


@contextmanager
def written(path: str | os.PathLike[str], beside: Path | None = None) -> Iterator[Path]:
    """Give a temporary path, in the file's folder or `beside` it, which takes its name when the block ends well."""
    target = Path(path)
    # On the same file system, or the rename would not be atomic.
    name = f"{_PARTIAL}-{_host()}-{os.getpid()}-{uuid.uuid4().hex}{target.suffix}"
    temporary = (beside or target.parent) / name
    try:
        yield temporary
        temporary.replace(target)
    finally:
        with suppress(OSError):
            temporary.unlink()


def clear_abandoned(folder: Path) -> None:
    """Remove what processes of this machine that are gone left half-written in a folder."""
    with suppress(OSError):
        for path in folder.glob(f"{_PARTIAL}-{_host()}-*"):
            process = path.name.removeprefix(f"{_PARTIAL}-{_host()}-").partition("-")[0]
            if process.isdecimal() and not is_alive(int(process)):
                path.unlink(missing_ok=True)


def is_alive(process: int) -> bool:
    """Tell whether a process of this machine runs; where that cannot be asked, it may."""
    if os.name != "posix":  # there the question would end it
        return True
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except OSError:  # it runs, as another user's
        return True
    return True


def check_target(path: str | os.PathLike[str], what: str) -> Path:
    """Return where a file is to be written; raise where that is a folder, or in none."""
    target = Path(path)
    if target.is_dir():
        raise IsADirectoryError(f"Cannot write {what} to {target}: it is a folder. Name a file in it.")
    if not target.parent.is_dir():
        raise FileNotFoundError(f"Cannot write {target}: the folder {target.parent} does not exist.")
    return target


def _host() -> str:
    # Process numbers mean nothing on another machine, or in another container, that shares the folder.
    return "".join(letter for letter in socket.gethostname() if letter.isalnum()) or "host"
