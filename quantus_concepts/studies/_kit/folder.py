"""The folder of a run: new, empty or its own. Each file is renamed into place; nothing in it is believed."""

from __future__ import annotations

import hashlib
import json
import os
import re
import stat
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from datetime import datetime
from pathlib import Path, PurePosixPath
from types import TracebackType
from typing import Any, BinaryIO, TypeVar

import pandas as pd
import safetensors.torch
import typer
from filelock import FileLock, Timeout
from torch import Tensor

from captum_concepts.fingerprints import fingerprint_of, hash_file
from captum_concepts.support.files import reason_of
from captum_concepts.support.log import LOG

PROGRAM = "quantus-concepts"
RUN, LOCK, CACHE, REPORT = "run.json", ".lock", "cache", "report.html"
#: Largest run.json that is read, in bytes, and most parts of a name in it.
_MAX_RUN, _MAX_PARTS = 16_000_000, 4
#: How every run.json begins.
_HEAD = f'{{\n "program": "{PROGRAM}"'.encode()
#: Parts of names that some system takes for a separator, a drive, a device, or another name.
_ODD = re.compile(r"\.part-.*|.*[\\:\x00-\x1f\ud800-\udfff].*|.*[. ]|(con|prn|aux|nul|com\d|lpt\d)(\..*)?", re.I | re.S)
#: Seconds in which the reading processes of a killed run end and give the lock free.
_PATIENCE = 10.0

Cached = TypeVar("Cached", pd.DataFrame, dict[str, Tensor])


class RunFolder:
    """The folder of one run, used as a context manager.

    ``run.json`` says which command and settings the folder belongs to, and lists every file with the hash of what it
    holds. Only a file that holds what is listed is ever read, replaced or removed, as a plain file in plain folders.
    """

    def __init__(
        self,
        command: str,
        settings: Mapping[str, str],
        out: Path | str | None = None,
        *,
        overwrite: bool = False,
        root: Path | str = "reports",
    ) -> None:
        self.command, self.settings, self.overwrite = command, dict(settings), overwrite
        #: What a reader of the report has to know.
        self.notes: list[str] = []
        self._root = Path(root)
        self._named = None if out is None else Path(out).expanduser()
        self.path = self._named or self._root
        self._files: dict[str, str] = {}
        self._writing: set[str] = set()
        self._read: list[Path] = []
        self._new = False
        self._made: list[Path] = []
        self._lock: Any = None

    def __enter__(self) -> RunFolder:
        try:
            if self._named is None:
                self._make(self._root)
                self.path = new_folder(self.command, self._root)
                self._made.append(self.path)
            self._check(self._read_run())
            self._make(self.path)
            self._lock = FileLock(self.path / LOCK, timeout=_PATIENCE)
            self._lock.acquire()
            earlier = self._read_run()
            self._check(earlier)
            self._new = earlier is None
            self._files = {} if earlier is None else earlier["files"]
            self._check_listed()
            for name in () if earlier is None else earlier["writing"]:
                self._remove_abandoned(name)
            if earlier is not None and self.overwrite and (self._is_ours(REPORT) or self._difference(earlier)):
                self._remove_listed()
            self._write_run()
        except Timeout as error:
            raise ValueError(
                f"The folder {self.path} is in use by another run. Choose another folder (--out)."
            ) from error
        except BaseException as error:
            self._leave()
            if isinstance(error, OSError):
                reason = error.strerror or error
                raise ValueError(
                    f"The folder {self.path} cannot be written ({reason}). Choose another (--out)."
                ) from error
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is not None and self._files:
            typer.echo(
                f"What is finished is kept: the same command with --out {self.path} goes on from there.", err=True
            )
        if isinstance(error, Exception) and self._read:
            typer.echo(
                f"It read results of an earlier run, {self._read[-1]} last: if they are damaged, add --overwrite.",
                err=True,
            )
        self._leave()

    def note(self, *texts: str) -> None:
        """Add what a reader of the report has to know, each text once."""
        self.notes += [text for text in dict.fromkeys(texts) if text not in self.notes]

    @contextmanager
    def file(self, name: str) -> Iterator[BinaryIO]:
        """Yield a new file under a temporary name, which is renamed to the file when the block ends well."""
        target, temporary = self._place(name), self.path / _temporary(name)
        if os.path.lexists(target) and not self._is_ours(name):
            raise ValueError(f"{target} was not written by this program: move it away, or choose another --out.")
        if os.path.lexists(temporary):
            raise ValueError(f"{temporary} is in the way: move it away, or choose another folder (--out).")
        self._writing.add(name)
        self._write_run()
        # Only this handle writes and reads it: its name may have become that of a link.
        handle = temporary.open("x+b")
        try:
            with handle:
                yield handle
                size = handle.seek(0, os.SEEK_END)
                handle.seek(0)
                content = f"{hashlib.file_digest(handle, 'sha256').hexdigest()} {size}"
            if not name.startswith(f"{CACHE}/"):
                # A folder with a report is complete.
                self._remove(REPORT)
            self._remove(name)
            self._files[name] = content
            self._write_run()
            temporary.replace(target)
        finally:
            with suppress(OSError):
                temporary.unlink()
            self._writing.discard(name)

    def write(self, name: str, content: str | bytes) -> None:
        """Write one file; a text as UTF-8."""
        with self.file(name) as file:
            file.write(content.encode("utf-8", "backslashreplace") if isinstance(content, str) else content)

    def cached(self, name: str, key: object, make: Callable[[], Cached]) -> Cached:
        """Return what is expensive to make: read from the folder's cache, or made and written there.

        `key` is all that it depends on, as `fingerprint_of` takes it. Notes and warnings of `make` are kept as well.
        """
        stem = f"{CACHE}/{re.sub(r'[^A-Za-z0-9_.-]+', '_', name)}-{fingerprint_of(key)[:16]}"
        for suffix, read in _READERS.items():
            path = self.path / (stem + suffix)
            if self._is_ours(stem + suffix):
                try:
                    content: Any = read(path)
                    notes = self.path / f"{stem}.notes"
                    told = json.loads(notes.read_text(encoding="utf-8")) if self._is_ours(f"{stem}.notes") else []
                    self.note(*map(str, told))
                except Exception as error:  # a damaged file may raise anything
                    self.note(f"{path.name} of the cache could not be read ({reason_of(error)}): it was made anew.")
                else:
                    self._read.append(path)
                    return content
        before = list(self.notes)
        LOG.line(f"{self.command}: {name}")
        with warnings_as_notes(self):
            made = make()
        if new := [note for note in self.notes if note not in before]:
            self.write(f"{stem}.notes", json.dumps(new))
        suffix = ".csv" if isinstance(made, pd.DataFrame) else ".safetensors"
        with self.file(stem + suffix) as file:
            _write(made, file)
        # As the same command reads it again.
        read_again: Any = _READERS[suffix](self._place(stem + suffix))
        return read_again

    def load(self, key: str) -> dict[str, Tensor] | None:
        """Return tensors of the cache, as a store of `score_ranges`."""
        name = f"{CACHE}/{key}.safetensors"
        return _read_tensors(self.path / name) if self._is_ours(name) else None

    def save(self, key: str, tensors: dict[str, Tensor]) -> None:
        """Keep tensors in the cache, as a store of `score_ranges`."""
        with self.file(f"{CACHE}/{key}.safetensors") as file:
            _write(tensors, file)

    def _make(self, path: Path) -> None:
        missing = [folder for folder in (path, *path.parents) if not folder.exists()]
        for folder in reversed(missing):
            folder.mkdir(exist_ok=True)
            self._made.append(folder)

    def _read_run(self) -> dict[str, Any] | None:
        """Return what run.json says; None where there is none of ours."""
        path = self.path / RUN
        if not _is_plain(path) or path.stat().st_size > _MAX_RUN:
            return None
        try:
            run = json.loads(path.read_text(encoding="utf-8"))
        except (OSError, ValueError, RecursionError):
            return None
        if not isinstance(run, dict) or run.get("program") != PROGRAM or not isinstance(run.get("files"), dict):
            return None
        writing = run["writing"] if isinstance(run.get("writing"), list) else []
        files = {name: text for name, text in run["files"].items() if _is_inside(name) and isinstance(text, str)}
        return run | {"files": files, "writing": [name for name in writing if _is_inside(name)]}

    def _check(self, run: dict[str, Any] | None) -> None:
        """Raise where something of the user's, a link, or another run is in the way."""
        if self.path.exists() and not self.path.is_dir():
            raise ValueError(f"The output folder {self.path} is a file. Choose a folder (--out).")
        entries = sorted(entry.name for entry in self.path.iterdir()) if self.path.exists() else []
        for name in entries:
            entry = (self.path / name).lstat()
            if (
                (name in (RUN, LOCK, _temporary(RUN)) and not stat.S_ISREG(entry.st_mode))
                or (name in (CACHE, "figures", "tables") and run is not None and not stat.S_ISDIR(entry.st_mode))
                # Some versions of filelock empty the file that they lock, and with it what it is a hard link to.
                or (name == LOCK and (entry.st_nlink > 1 or (run is not None and entry.st_size)))
                or (name == _temporary(RUN) and not _is_part_of_run(self.path / name))
            ):
                raise ValueError(f"{self.path / name} is a link, or no file or folder of this program. Remove it.")
        # What a run leaves that was killed before it wrote its run.json.
        empty = [name for name in entries if name == LOCK and not (self.path / name).lstat().st_size]
        if run is None and (foreign := sorted({*entries} - {*empty, _temporary(RUN)})):
            raise ValueError(
                f"The output folder {self.path} holds other files ({', '.join(foreign[:3])}), no run of this program. "
                "Choose another folder, or an empty one (--out)."
            )
        if run is not None and not self.overwrite and (difference := self._difference(run)):
            raise ValueError(
                f"The output folder {self.path} holds another run ({difference}). Give the same options to go on with "
                "it, choose another folder (--out), or replace it (--overwrite)."
            )

    def _check_listed(self) -> None:
        """Raise where a link, or something of the user's, took the place of a file or folder of the run."""
        for name in self._files:
            for folder in self._parents(name):
                if os.path.lexists(folder) and not _is_folder(folder):
                    raise ValueError(f"{folder} is a link or a file in the place of a folder. Remove it.")
            path = self.path / name
            if os.path.lexists(path) and not self._is_ours(name):
                raise ValueError(f"{path} is not as this program wrote it: move it away, or choose another --out.")

    def _difference(self, run: Mapping[str, Any]) -> str:
        there = {"command": run.get("command"), **(run["settings"] if isinstance(run.get("settings"), dict) else {})}
        here = {"command": self.command, **self.settings}
        names = [name for name in {**there, **here} if there.get(name) != here.get(name)]
        return "; ".join(f"{name}: {there.get(name, 'none')} there, {here.get(name, 'none')} here" for name in names)

    def _place(self, name: str) -> Path:
        """Return where a file of the run lies; its folders are made, and raise where one is a link."""
        if not _is_inside(name):
            raise ValueError(f"Expected the name of a file inside the output folder but got {name!r}.")
        for folder in reversed(self._parents(name)):
            with suppress(FileExistsError):
                folder.mkdir()
                self._made.append(folder)
            if not stat.S_ISDIR(folder.lstat().st_mode):
                raise ValueError(f"{folder} is a link or a file in the place of a folder. Remove it.")
        return self.path / name

    def _parents(self, name: str) -> list[Path]:
        """Return the folders of a file inside the run's own, the innermost first."""
        return [self.path / parent for parent in PurePosixPath(name).parents if parent.parts]

    def _is_ours(self, name: str) -> bool:
        """Whether a file is there and holds what run.json says."""
        path = self.path / name
        digest, _, size = self._files.get(name, "").partition(" ")
        return (
            bool(digest)
            and all(map(_is_folder, self._parents(name)))
            and _is_plain(path)
            and size == str(path.stat().st_size)
            and hash_file(path) == digest
        )

    def _remove(self, name: str) -> None:
        if self._is_ours(name):
            (self.path / name).unlink()

    def _remove_abandoned(self, name: str) -> None:
        """Remove what a run left of a file that it was writing when it was killed."""
        temporary = self.path / _temporary(name)
        if all(map(_is_folder, self._parents(name))) and _is_plain(temporary):
            temporary.unlink()

    def _remove_listed(self) -> None:
        """Remove the files that run.json lists, and the folders left empty."""
        folders = set[Path]()
        # The report first: a folder with a report is complete.
        for name in sorted(self._files, key=lambda name: name != REPORT):
            self._remove(name)
            folders.update(filter(_is_folder, self._parents(name)))
        for folder in sorted(folders, key=lambda folder: -len(folder.parts)):
            with suppress(OSError):  # holds files of the user's
                folder.rmdir()
        self._files = {}

    def _write_run(self) -> None:
        run = {"program": PROGRAM, "command": self.command, "settings": self.settings, "files": self._files}
        run["writing"] = sorted(self._writing)
        temporary = self.path / _temporary(RUN)
        temporary.unlink(missing_ok=True)
        with temporary.open("x", encoding="utf-8", newline="\n") as file:
            json.dump(run, file, indent=1)
        temporary.replace(self.path / RUN)

    def _leave(self) -> None:
        if self._lock is None:
            self._remove_made()
            return
        if self._lock.is_locked and self._new and not self._files:
            for name in (RUN, LOCK):
                with suppress(OSError):  # Windows keeps a lock that is open
                    (self.path / name).unlink()
        self._lock.release()
        self._remove_made()

    def _remove_made(self) -> None:
        for folder in reversed(self._made):
            with suppress(OSError):  # holds the run
                folder.rmdir()


def new_folder(command: str, root: Path = Path("reports")) -> Path:
    """Make a folder that was not there, named after the command and the time."""
    if root.is_symlink():
        raise ValueError(f"{root} is a link. Name the folder to write to (--out).")
    root.mkdir(parents=True, exist_ok=True)
    stem = f"{command.replace(' ', '-')}-{datetime.now():%Y%m%d-%H%M%S}"
    number = 1
    while True:
        path = root / (stem if number == 1 else f"{stem}-{number}")
        try:
            path.mkdir()
        except FileExistsError:
            number += 1
            continue
        return path


def _temporary(name: str) -> str:
    pure = PurePosixPath(name)
    return str(pure.with_name(f".part-{pure.name}"))


def _is_inside(name: object) -> bool:
    """Whether a name is that of a file inside a folder on every system, and not one by which the folder is run."""
    if not isinstance(name, str) or len(name) > 1000 or name.casefold() in (RUN, LOCK):
        return False
    parts = name.split("/")
    return len(parts) <= _MAX_PARTS and not any(part == "" or _ODD.fullmatch(part) for part in parts)


def plain_name(name: str) -> str:
    """Return the name of a file, with a sign in place of what some system takes for a separator or a drive."""
    return re.sub(r"[\\:\x00-\x1f\ud800-\udfff]", "_", name)


def _is_part_of_run(path: Path) -> bool:
    """Whether a file holds the beginning of a run.json, as a killed run leaves it."""
    with path.open("rb") as file:
        content = file.read(len(_HEAD))
    return _HEAD.startswith(content)


def _is_plain(path: Path) -> bool:
    return os.path.lexists(path) and stat.S_ISREG(path.lstat().st_mode)


def _is_folder(path: Path) -> bool:
    return os.path.lexists(path) and stat.S_ISDIR(path.lstat().st_mode)


@contextmanager
def warnings_as_notes(folder: RunFolder) -> Iterator[None]:
    """Turn warnings inside the block into notes of the report."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("default")
        warnings.filterwarnings("ignore", category=DeprecationWarning)
        yield
    folder.note(*(" ".join(str(warning.message).split()) for warning in caught))


def _write(content: pd.DataFrame | Mapping[str, Tensor], file: BinaryIO) -> None:
    if isinstance(content, pd.DataFrame):
        # The kind of each column stands in its head: a class may be called 001, and an empty text is no NaN.
        kinds = {name: "text" if content[name].dtype.kind == "O" else str(content[name].dtype) for name in content}
        content.rename(columns={name: f"{name}|{kind}" for name, kind in kinds.items()}).to_csv(file, index=False)
    else:
        tensors = {name: tensor.detach().cpu().contiguous() for name, tensor in content.items()}
        file.write(safetensors.torch.save(tensors))


def _read_frame(path: Path) -> pd.DataFrame:
    # Not pandas' own parser of numbers, whose last bits depend on its version.
    texts = pd.read_csv(path, dtype=str, keep_default_na=False)
    columns = {}
    for head in texts:
        name, _, kind = head.rpartition("|")
        read = _CELLS.get(pd.api.types.pandas_dtype(kind).kind) if kind != "text" else None
        columns[name] = texts[head] if read is None else pd.array([read(cell) for cell in texts[head]], dtype=kind)
    return pd.DataFrame(columns)


def _read_tensors(path: Path) -> dict[str, Tensor]:
    return safetensors.torch.load(path.read_bytes())


#: How a cell is read, by the kind of its column.
_CELLS: dict[str, Callable[[str], Any]] = {
    "b": "True".__eq__,
    "f": lambda cell: float(cell or "nan"),
    "i": lambda cell: int(cell) if cell else pd.NA,
}
_READERS: dict[str, Callable[[Path], Any]] = {".csv": _read_frame, ".safetensors": _read_tensors}
