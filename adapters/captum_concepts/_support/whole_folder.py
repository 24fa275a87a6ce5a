"""A folder that one process writes in whole: it holds the files of the run before until it holds those of the new."""

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

from captum_concepts._support.files import POSIX, is_alive, write_atomically

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
    # Leaving the block without an exception swaps `new` in (see `_swap`). A run of other settings is refused there.

    def __init__(self, path: Path, settings: Mapping[str, str], *, overwrite: bool = False) -> None:
        self.path = path
        self.settings = dict(settings)
        self.overwrite = overwrite
        self.resumed = False
        self._work = path / WORK
        self._run = self._work / "run.json"
        self._journal = self._work / "swap.json"
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
            self._recover()
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
            failed = isinstance(error or sys.exception(), WriteError)
            try:
                self._recover()
            finally:
                self._leave(failed=failed)

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
            self._swap()
            # Without it the run is finished.
            self._run.unlink()
        except OSError as error:
            raise WriteError(
                f"The files of `{self.path}` cannot be put in their places ({error.strerror or error}). They are "
                f"complete in {self.new}; the same command goes on from what is kept."
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
            # With a journal the next process ends the swap, for which it needs all there is.
            unfinished = self._journal.exists()
            if not failed and not unfinished:
                shutil.rmtree(self.new, ignore_errors=True)
            if not unfinished and not self.started and not self.new.exists():
                # The lock goes last, while it is held: another process finds all of it or nothing.
                for entry in sorted(self._work.glob("*"), key=lambda entry: entry.name == "lock"):
                    # Windows removes no open file: there FileLock removes its own on release.
                    with suppress(PermissionError):
                        shutil.rmtree(entry) if entry.is_dir() else entry.unlink(missing_ok=True)
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

    # The swap is one rename. First every file of the run before gets a second name in `old`, and its place is taken
    # by a symbolic link by way of `shown`, a link to the folder `old`; names that are new get a link too, which leads
    # nowhere yet. Then `shown` is replaced by a link to `new`: that is the moment. At last the new files are renamed
    # over their links. A process that is killed on the way leaves the journal, by which the next one undoes what was
    # before the moment, or does what is left to do after it. Without symbolic links files are renamed one by one.

    def _swap(self) -> None:
        names = sorted(_files(self.new))
        write_mapping(self.new / MANIFEST, {"program": "quantus-concepts", "settings": self.settings, "files": names})
        names.append(MANIFEST)
        finished = read_mapping(self.path / MANIFEST) or {}
        old = [name for name in [*self._inside(finished.get("files")), MANIFEST] if (self.path / name).is_file()]
        foreign = [name for name in names if name not in set(old) and os.path.lexists(self.path / name)]
        if foreign:
            raise ValueError(
                f"The output folder `{self.path}` holds files that this program did not write, where its own were to "
                f"go ({', '.join(foreign[:3])}). Move them away and give the same command again: it goes on."
            )
        shutil.rmtree(self._work / "old", ignore_errors=True)
        links = _has_links(self._work)
        write_mapping(self._journal, {"old": old, "new": names})
        for name in old:
            _second_name(self.path / name, self._work / "old" / name)
        if links:
            self._point(self._work / "old")
            for name in [*old, *(name for name in names if name not in set(old))]:
                self._place_link(name, replace=name in set(old))
            self._point(self.new)
        else:
            write_mapping(self._journal, {"old": old, "new": names, "decided": True})
        self._recover()

    def _recover(self) -> None:
        """End a swap that was begun, one way or the other."""
        journal = read_mapping(self._journal)
        if journal is None:
            return
        old, new = (self._inside(journal.get(key)) for key in ("old", "new"))
        link = self._work / "shown"
        decided = journal.get("decided") or (link.is_symlink() and link.readlink().name == self.new.name)
        source, here = (self.new, new) if decided else (self._work / "old", old)
        for name in here:
            if (source / name).is_file() and (decided or self._is_link(name)):
                target = self.path / name
                target.parent.mkdir(parents=True, exist_ok=True)
                (source / name).replace(target)
        for name in {*old, *new}.difference(here):
            if self._is_link(name) or (journal.get("decided") and (self.path / name).is_file()):
                (self.path / name).unlink()
            self._remove_empty((self.path / name).parent)
        link.unlink(missing_ok=True)
        self._journal.unlink()
        shutil.rmtree(self._work / "old", ignore_errors=True)

    def _inside(self, names: Any) -> list[str]:
        """Return those names of a manifest that lead to a place inside the folder, links followed."""
        root = self.path.resolve()
        pure = (PurePosixPath(name) for name in names if isinstance(name, str)) if isinstance(names, list) else ()
        inside = (name for name in pure if name.parts and not name.is_absolute() and ".." not in name.parts)
        return [str(name) for name in inside if (root / name).parent.resolve().is_relative_to(root)]

    def _point(self, folder: Path) -> None:
        with write_atomically(self._work / "shown") as link:
            link.symlink_to(folder.name)

    def _place_link(self, name: str, *, replace: bool) -> None:
        place = self.path / name
        place.parent.mkdir(parents=True, exist_ok=True)
        target = self._link_to(name)
        if not replace:
            place.symlink_to(target)  # fails where someone put a file in the meantime, which stays
            return
        with write_atomically(place, folder=self._work) as link:
            link.symlink_to(target)

    @staticmethod
    def _link_to(name: str) -> Path:
        return Path(*[".."] * (len(PurePosixPath(name).parts) - 1), WORK, "shown", name)

    def _is_link(self, name: str) -> bool:
        place = self.path / name
        return place.is_symlink() and place.readlink() == self._link_to(name)

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


def _has_links(folder: Path) -> bool:
    if not POSIX:  # Windows replaces no link to a folder, where it makes links at all
        return False
    try:
        with write_atomically(folder / "probe") as link:
            link.symlink_to("probe")
    except (OSError, NotImplementedError):
        return False
    (folder / "probe").unlink()
    return True


def _second_name(path: Path, name: Path) -> None:
    name.parent.mkdir(parents=True, exist_ok=True)
    try:
        os.link(path, name)
    except OSError:  # a file system without hard links
        shutil.copy2(path, name)


def _difference(there: Any, here: Mapping[str, str]) -> str:
    there = there if isinstance(there, dict) else {}
    unlike = [key for key in {**there, **here} if there.get(key) != here.get(key)]
    differences = [f"{key}: {there.get(key, 'none')} there, {here.get(key, 'none')} here" for key in unlike]
    return "; ".join(differences)
