"""A folder that one process writes: the files of the run before go, and those of the new come, once all are written."""

from __future__ import annotations

import errno
import json
import os
import shutil
import socket
import sys
import warnings
from collections.abc import Iterator, Mapping
from contextlib import suppress
from datetime import datetime
from pathlib import Path, PurePosixPath
from types import TracebackType
from typing import Any

from filelock import FileLock, Timeout

from captum_concepts._support.files import is_alive, write_atomically

#: Lists the files of a finished run, and what it was.
MANIFEST = ".quantus-concepts.json"
#: All that a run has not finished: it is gone when the run is complete.
WORK = ".quantus-concepts"
#: Of file systems that lock no files.
_NO_LOCKS = (errno.ENOLCK, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS)
#: Seconds in which children of a process that was killed end too, and with them its lock.
_CHILDREN = 15.0


class WriteError(OSError):
    """A file of a run cannot be written; those that are complete stay in `new` for the user."""


class WholeFolder:
    """The folder, its lock and its files in the making, used as a context manager."""

    # Everything that is not finished lies in the hidden folder WORK: the lock; run.json, which tells whose run it is
    # and with which settings; `kept`, from which the same run goes on after an interruption; `new`, the files to be,
    # which are written anew by each run but stay for the user to find where one failed to write.
    # Leaving the block without an exception puts the files of `new` in their places. A run of other settings is refused
    # there.

    def __init__(self, path: Path, settings: Mapping[str, str], *, overwrite: bool = False) -> None:
        self.path = path
        self.settings = dict(settings)
        self.overwrite = overwrite
        self.resumed = False
        self._work = path / WORK
        self._run = self._work / "run.json"
        self._moves = self._work / "moves.json"
        self._lock = FileLock(self._work / "lock", timeout=0, thread_local=False)
        self._entered = False
        self._locked: tuple[int, int] | None = None
        self._made: list[Path] = []

    @property
    def new(self) -> Path:
        """Where files are written that the folder is to hold."""
        return self._work / "new"

    @property
    def kept(self) -> Path:
        """Where lies what an interrupted run goes on from."""
        return self._work / "kept"

    def __enter__(self) -> WholeFolder:
        try:
            if "\0" in str(self.path):
                raise ValueError(f"Expected the output folder (--out) to be a path but got {str(self.path)!r}.")
            if self.path.exists() and not self.path.is_dir():
                raise ValueError(f"The output folder `{self.path}` is a file. Choose a folder (--out).")
            if self._work.is_symlink():
                raise ValueError(f"The output folder `{self.path}` has a link called {WORK} in it. Remove that.")
            if not self._work.exists():
                self._check()
            self._make(self._work)
            self._take_lock()
            self._locked = self._inode()
            self._entered = True
            self._move()
            self.resumed = self._check()
            self._begin()
        except BaseException as error:
            self._leave()
            if isinstance(error, OSError):
                raise ValueError(
                    f"The output folder `{self.path}` cannot be written ({error.strerror or error}). "
                    "Choose another one (--out)."
                ) from error
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._inode() != self._locked:
            # What is there now belongs to another run.
            self._lock.release()
            self._entered = False
            if error is None:
                self.check_held()
            return
        try:
            if error is None:
                self._finish()
        finally:
            self._leave(failed=isinstance(error or sys.exception(), WriteError))

    def check_held(self) -> None:
        """Raise if the folder was removed, and perhaps made again by another run, since this run locked it."""
        if self._inode() != self._locked:
            raise WriteError(
                f"The output folder `{self.path}` was removed or replaced while this run wrote to it. Nothing more is "
                "written there. Run the command again."
            )

    def _inode(self) -> tuple[int, int] | None:
        """Return which file the lock is; None if it is gone."""
        try:
            status = (self._work / "lock").stat()
        except OSError:
            return None
        return status.st_dev, status.st_ino

    @property
    def started(self) -> bool:
        """Whether there is something from which the same run goes on."""
        return any(_files(self.kept))

    def _check(self) -> bool:
        """Return whether an interrupted run goes on; raise for what is in the way."""
        finished, going = read_mapping(self.path / MANIFEST), read_mapping(self._run)
        present = sorted(entry.name for entry in self.path.iterdir()) if self.path.is_dir() else []
        present = [name for name in present if name not in (WORK, MANIFEST)]
        same = going is not None and going.get("settings") == self.settings
        if same and (finished is None or finished.get("settings") == self.settings or self.overwrite):
            return True
        if going is not None and not same and not self.overwrite and self.started:
            raise ValueError(
                f"The output folder `{self.path}` holds an interrupted run with other settings "
                f"({_difference(going.get('settings'), self.settings)}). Give the same settings to go on with it, "
                "choose another folder (--out), or discard it (--overwrite)."
            )
        if present and not (self.overwrite and finished is not None):
            examples = ", ".join(present[:3])
            raise ValueError(
                f"The output folder `{self.path}` holds files that this program did not write ({examples}). "
                "They are not overwritten: choose another folder (--out)."
                if self.overwrite
                else f"The output folder `{self.path}` already holds files ({examples}). "
                "Choose another one (--out), or replace an earlier run (--overwrite)."
            )
        return False

    def _finish(self) -> None:
        try:
            self._list_moves()
            self._move()
            # Without it the run is finished.
            self._run.unlink()
        except OSError as error:
            raise WriteError(
                f"The files of `{self.path}` cannot be put in their places ({error.strerror or error}). Those that are "
                f"not there yet are complete in {self.new}; the same command puts them there."
            ) from error
        shutil.rmtree(self.kept, ignore_errors=True)

    def _begin(self) -> None:
        for folder in (self.new,) if self.resumed else (self.new, self.kept):
            shutil.rmtree(folder, ignore_errors=True)
        for path in [path for path in self._work.rglob(".*") if path.is_file()]:
            path.unlink()  # what was half-written when an earlier process was killed
        self.new.mkdir()
        since = datetime.now().astimezone().isoformat(timespec="seconds")
        holder = {"process": os.getpid(), "host": socket.gethostname(), "since": since}
        write_mapping(self._run, {"settings": self.settings} | holder)

    def _take_lock(self) -> None:
        try:
            try:
                self._lock.acquire()
            except Timeout:
                holder = read_mapping(self._run) or {}
                if holder.get("host") != socket.gethostname() or is_alive(int(holder.get("process", 0))):
                    raise
                # Its children, which read images, notice in some seconds that it is gone.
                self._lock.acquire(timeout=_CHILDREN)
        except Timeout as error:
            holder = read_mapping(self._run) or {}
            who = " on ".join(str(holder[key]) for key in ("process", "host") if key in holder) or "unknown"
            since = f" since {holder['since']}" if "since" in holder else ""
            raise ValueError(
                f"The output folder `{self.path}` is in use: process {who} writes to it{since}. Wait until it ends, or "
                "choose another folder (--out)."
            ) from error
        except OSError as error:
            if error.errno not in _NO_LOCKS:
                raise
            warnings.warn(
                f"The file system of {self.path} locks no files: let no second run write to that folder.",
                UserWarning,
                stacklevel=4,
            )

    def _leave(self, *, failed: bool = False) -> None:
        if self._entered:
            try:
                # The next process needs all there is to end the moves.
                unfinished = self._moves.exists()
                if not failed and not unfinished:
                    shutil.rmtree(self.new, ignore_errors=True)
                if not unfinished and not self.started and not self.new.exists():
                    # The lock goes last, while it is held: another process finds all of it or nothing.
                    for entry in sorted(self._work.glob("*"), key=lambda entry: entry.name == "lock"):
                        # Windows removes no open file: there FileLock removes its own on release.
                        with suppress(PermissionError):
                            shutil.rmtree(entry) if entry.is_dir() else entry.unlink(missing_ok=True)
            finally:
                self._lock.release()
                self._entered = False
            with suppress(OSError):  # holds what the same run goes on from
                self._work.rmdir()
        for folder in reversed(self._made):
            with suppress(OSError):  # holds files, which stay
                folder.rmdir()
        self._made.clear()

    def _make(self, path: Path) -> None:
        missing = [folder for folder in [path, *path.parents] if not folder.exists()]
        for folder in reversed(missing):
            folder.mkdir(exist_ok=True)
            self._made.append(folder)

    # A list of all moves is written first. Then the files of the run before are removed, and the new ones take their
    # places: the folder never holds files of both. A process that is killed on the way leaves the list, by which the
    # next one goes on.

    def _list_moves(self) -> None:
        new = sorted(_files(self.new))
        write_mapping(self.new / MANIFEST, {"program": "quantus-concepts", "settings": self.settings, "files": new})
        new.append(MANIFEST)
        finished = read_mapping(self.path / MANIFEST) or {}
        old = [name for name in [*self._inside(finished.get("files")), MANIFEST] if (self.path / name).is_file()]
        foreign = [name for name in new if name not in old and os.path.lexists(self.path / name)]
        if foreign:
            raise ValueError(
                f"The output folder `{self.path}` holds files that this program did not write, where its own were to "
                f"go ({', '.join(foreign[:3])}). Move them away and give the same command again: it goes on."
            )
        write_mapping(self._moves, {"old": old, "new": new})

    def _move(self) -> None:
        """Do the moves that are listed, or what a process that was killed left of them."""
        moves = read_mapping(self._moves)
        if moves is None:
            return
        new = self._inside(moves.get("new"))
        for name in self._inside(moves.get("old")):
            # What is no longer in `new` is in its place already.
            if name not in new or (self.new / name).is_file():
                (self.path / name).unlink(missing_ok=True)
        for name in new:
            if (self.new / name).is_file():
                (self.path / name).parent.mkdir(parents=True, exist_ok=True)
                (self.new / name).replace(self.path / name)
        for name in self._inside(moves.get("old")):
            self._remove_empty((self.path / name).parent)
        self._moves.unlink()

    def _inside(self, names: Any) -> list[str]:
        """Return those names of a manifest that lead to a place inside the folder, links followed."""
        root = self.path.resolve()
        pure = (PurePosixPath(name) for name in names if isinstance(name, str)) if isinstance(names, list) else ()
        inside = (name for name in pure if name.parts and not name.is_absolute() and ".." not in name.parts)
        return [str(name) for name in inside if (root / name).parent.resolve().is_relative_to(root)]

    def _remove_empty(self, folder: Path) -> None:
        while folder != self.path:
            try:
                folder.rmdir()
            except OSError:
                return
            folder = folder.parent


def is_interrupted(path: Path, settings: Mapping[str, str]) -> bool:
    """Tell whether a folder holds an interrupted run of these settings that no process is at."""
    going = read_mapping(path / WORK / "run.json")
    if going is None or going.get("settings") != dict(settings):
        return False
    lock = FileLock(path / WORK / "lock", timeout=0, thread_local=False)
    try:
        with lock:
            return True
    except (Timeout, OSError, NotImplementedError):
        return False


def _files(folder: Path) -> Iterator[str]:
    for path in folder.rglob("*"):
        if path.is_file() and not path.name.startswith("."):
            yield path.relative_to(folder).as_posix()


def read_mapping(path: Path) -> dict[str, Any] | None:
    if not path.is_file():
        return None
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return None
    return content if isinstance(content, dict) else None


def write_mapping(path: Path, content: Mapping[str, Any]) -> None:
    with write_atomically(path) as temporary:
        temporary.write_text(json.dumps(content, indent=1), encoding="utf-8")


def _difference(there: Any, here: Mapping[str, str]) -> str:
    there = there if isinstance(there, dict) else {}
    unlike = [key for key in {**there, **here} if there.get(key) != here.get(key)]
    differences = [f"{key}: {there.get(key, 'none')} there, {here.get(key, 'none')} here" for key in unlike]
    return "; ".join(differences)
