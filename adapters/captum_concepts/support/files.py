"""Read files of users safely, print their texts without harm, and write files atomically."""

from __future__ import annotations

import json
import os
import pickle
import re
import socket
import stat
import uuid
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

#: Control characters, which move a terminal's cursor; those that turn the direction of writing; halves of
#: characters, and code points that are no characters.
_UNSEEN = re.compile("[\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff\ufffe\uffff]")
_KINDS = (
    (stat.S_ISDIR, "a folder"),
    (stat.S_ISFIFO, "a named pipe"),
    (stat.S_ISSOCK, "a socket"),
    (stat.S_ISCHR, "a device"),
    (stat.S_ISBLK, "a device"),
)
_SHOWN = 300
#: Whether this is Linux, macOS or another Unix, and not Windows.
POSIX = os.name == "posix"


def non_file_kind(path: Path) -> str:
    """Return what a path or its target is unless a file: reading a pipe or a device may never end."""
    if path.is_symlink() and not path.exists():
        return "a link to nothing"
    mode = path.stat().st_mode
    return next((name for is_kind, name in _KINDS if is_kind(mode)), "")


def check_plain_file(path: Path, what: str) -> None:
    """Raise unless a path is that of a file."""
    if kind := non_file_kind(path):
        raise ValueError(f"{what} {path} cannot be read: it is {kind}. Expected a file.")


def read_bytes(path: Path, what: str, limit: int) -> bytes:
    """Read a file of at most `limit` bytes; what is larger, or no file, raises a ValueError and is not opened."""
    check_plain_file(path, what)
    if (size := path.stat().st_size) > limit:
        raise ValueError(f"{what} {path} cannot be read: it has {size} bytes, and at most {limit} are expected.")
    return path.read_bytes()


def check_files(folder: Path, what: str) -> None:
    """Raise unless a folder holds only files and folders, before a library opens all of them."""
    for path in sorted(folder.iterdir()):
        if path.exists() and not path.is_dir():
            check_plain_file(path, f"{what} file")


def read_text(path: Path, what: str) -> str:
    """Read a text in UTF-8, with or without a byte order mark; a ValueError names the file."""
    try:
        check_plain_file(path, what)
        return path.read_text(encoding="utf-8-sig")
    except OSError as error:
        raise ValueError(f"{what} {path} cannot be read ({error.strerror or error}).") from error
    except UnicodeDecodeError as error:
        raise ValueError(f"{what} {path} is no text in UTF-8 ({error}). Save or download it again.") from error


def read_json(path: Path, what: str) -> Any:
    """Read a JSON file; a ValueError names it."""
    text = read_text(path, what)
    try:
        return parse_json(text)
    except ValueError as error:
        raise ValueError(f"{what} {path} is no JSON ({error}). Write or download it again.") from error


def parse_json(text: str | bytes) -> Any:
    """Parse JSON; a ValueError also where brackets are nested thousands deep, or an object has a key twice."""
    try:
        return json.loads(text, object_pairs_hook=_unique_keys)
    except RecursionError as error:
        raise ValueError("its brackets are nested too deep") from error


def _unique_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    mapping = dict(pairs)
    if len(mapping) < len(pairs):
        twice = next(key for key, count in Counter(key for key, _ in pairs).items() if count > 1)
        raise ValueError(f"an object has the key {quote(twice)} twice")
    return mapping


def printable(text: object) -> str:
    """Return a text as a terminal may show it: control characters are written out, not sent."""
    return _UNSEEN.sub(lambda match: match[0].encode("unicode_escape").decode("ascii"), str(text))


def shorten(text: object) -> str:
    """Return a text for a message: printable, on one line, truncated."""
    line = printable(" ".join(str(text).split()))
    return line if len(line) <= _SHOWN else f"{line[:_SHOWN]} ..."


def quote(value: object) -> str:
    """Return a value as it would be written in a program, for a message."""
    return shorten(repr(value))


def list_some(entries: Iterable[object], limit: int = 5) -> str:
    """Write out the first few of a list."""
    words = [entry.as_posix() if isinstance(entry, Path) else entry for entry in entries]
    more = f", and {len(words) - limit} more" if len(words) > limit else ""
    return ", ".join(map(shorten, words[:limit])) + more


def reason_of(error: BaseException) -> str:
    """Return the text of an error for a message, or its class if it has none."""
    return shorten(without_advice(error)) or type(error).__name__


def without_advice(error: BaseException) -> str:
    """Return the text of an error, without PyTorch's advice to unpickle a file anyway."""
    if not isinstance(error, pickle.UnpicklingError):
        return str(error)
    return "it is damaged, or holds Python objects, which are never unpickled: save its tensors with safetensors"


#: How the names of files begin that are being written; then come the host, the process and the suffix.
_PARTIAL = ".quantus-concepts-partial"


@contextmanager
def write_atomically(path: str | os.PathLike[str]) -> Iterator[Path]:
    """Yield a temporary path in the file's folder, and rename it to the file if the block succeeds."""
    target = Path(path)
    temporary = target.parent / f"{_PARTIAL}-{_host()}-{os.getpid()}-{uuid.uuid4().hex}{target.suffix}"
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
    """Whether a process of this machine runs; True if that cannot be determined."""
    if not POSIX:  # on Windows, `os.kill` would end the process
        return True
    try:
        os.kill(process, 0)
    except (ProcessLookupError, OverflowError):  # no system has numbers of 14 digits
        return False
    except OSError:  # it belongs to another user
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


def subfolders(root: Path) -> list[Path]:
    """Return the folders in a folder, hidden ones left out, in the order of their names."""
    folders = sorted(path for path in root.iterdir() if path.is_dir() and not path.name.startswith("."))
    for path in folders:
        # Bytes that are no UTF-8 become surrogates in Python, which can be neither drawn nor written.
        if any("\ud800" <= letter <= "\udfff" for letter in path.name):
            raise ValueError(f"Expected a folder of images to have a name in UTF-8 but got {quote(str(path))}.")
    return folders


def image_files(folder: Path, suffixes: Sequence[str]) -> list[Path]:
    """Return the images in a folder, hidden files left out, in the order of their names."""
    paths = sorted(
        path for path in folder.iterdir() if path.suffix.lower() in suffixes and not path.name.startswith(".")
    )
    for path in paths:
        check_plain_file(path, "Image")
    return paths
