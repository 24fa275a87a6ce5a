"""The folder of a run: new, empty or its own. Each file is renamed into place; nothing in it is believed."""

from __future__ import annotations

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
from typing import Any, TypeVar

import pandas as pd
import safetensors.torch
import typer
from filelock import FileLock, Timeout
from safetensors import SafetensorError
from torch import Tensor

from captum_concepts._support.fingerprints import fingerprint_of

PROGRAM = "quantus-concepts"
RUN, LOCK, CACHE, REPORT = "run.json", ".lock", "cache", "report.html"
#: Seconds in which the reading processes of a killed run end and give the lock free.
_PATIENCE = 10.0

Cached = TypeVar("Cached", pd.DataFrame, dict[str, Tensor], bytes)


class RunFolder:
    """The folder of one run, used as a context manager.

    ``run.json`` says which command and settings the folder belongs to, and lists every file before it is written.
    Only listed names are ever replaced or removed, only as plain files in plain folders.
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
        self._files: list[str] = []
        self._made: list[Path] = []
        self._lock: Any = None

    def __enter__(self) -> RunFolder:
        try:
            if self._named is None:
                self.path = self._new_folder()
            self._check(self._read_run())
            self._make(self.path)
            self._lock = FileLock(self.path / LOCK, timeout=_PATIENCE)
            self._lock.acquire()
            earlier = self._read_run()
            self._check(earlier)
            self._files = [name for name in (earlier or {}).get("files", []) if isinstance(name, str)]
            finished = REPORT in self._files and _is_plain(self.path / REPORT)
            if earlier is not None and (finished or self._difference(earlier)) and self.overwrite:
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
        self._leave()

    def note(self, *texts: str) -> None:
        """Add what a reader of the report has to know, each text once."""
        self.notes += [text for text in dict.fromkeys(texts) if text not in self.notes]

    @contextmanager
    def file(self, name: str) -> Iterator[Path]:
        """Yield a temporary path in place of a file, which is renamed to the file when the block ends well."""
        target, temporary = self._place(name), self._place(_temporary(name))
        listed = name in self._files
        if os.path.lexists(target) and not (listed and _is_plain(target)):
            raise ValueError(f"{target} was not written by this program: move it away, or choose another --out.")
        if os.path.lexists(temporary):
            if not (listed and _is_plain(temporary)):
                raise ValueError(f"{temporary} is in the way: move it away, or choose another folder (--out).")
            temporary.unlink()
        if not listed:
            self._files.append(name)
            self._write_run()
        if not name.startswith(f"{CACHE}/") and REPORT in self._files and _is_plain(self.path / REPORT):
            # A folder with a report is complete.
            (self.path / REPORT).unlink()
        with temporary.open("xb"):
            pass
        try:
            yield temporary
            temporary.replace(target)
        finally:
            with suppress(OSError):
                temporary.unlink()

    def write(self, name: str, content: str | bytes) -> None:
        """Write one file; a text as UTF-8."""
        with self.file(name) as path:
            path.write_bytes(content.encode("utf-8", "backslashreplace") if isinstance(content, str) else content)

    def cached(self, name: str, key: Any, make: Callable[[], Cached]) -> Cached:
        """Return what is expensive to make: read from the folder's cache, or made and written there.

        `key` is all that it depends on, as `fingerprint_of` takes it. Notes and warnings of `make` are kept as well.
        """
        stem = f"{CACHE}/{re.sub(r'[^A-Za-z0-9_.-]+', '_', name)}-{fingerprint_of(key)[:16]}"
        for suffix, read in _READERS.items():
            path = self.path / (stem + suffix)
            if _is_plain(path) and stem + suffix in self._files:
                with suppress(OSError, ValueError, KeyError, SafetensorError):
                    content: Any = read(path)
                    notes = self._place(f"{stem}.notes")
                    self.note(*(json.loads(notes.read_text(encoding="utf-8")) if _is_plain(notes) else ()))
                    return content
        before = list(self.notes)
        with warnings_as_notes(self):
            made = make()
        if new := [note for note in self.notes if note not in before]:
            self.write(f"{stem}.notes", json.dumps(new))
        suffix = ".csv" if isinstance(made, pd.DataFrame) else ".bin" if isinstance(made, bytes) else ".safetensors"
        with self.file(stem + suffix) as path:
            _write(made, path)
        # As the same command reads it again.
        read_again: Any = _READERS[suffix](self._place(stem + suffix))
        return read_again

    def _new_folder(self) -> Path:
        if self._root.is_symlink():
            raise ValueError(f"{self._root} is a link. Name the folder to write to (--out).")
        self._make(self._root)
        stem = f"{self.command.replace(' ', '-')}-{datetime.now():%Y%m%d-%H%M%S}"
        number = 1
        while True:
            path = self._root / (stem if number == 1 else f"{stem}-{number}")
            try:
                path.mkdir()
            except FileExistsError:
                number += 1
                continue
            self._made.append(path)
            return path

    def _make(self, path: Path) -> None:
        missing = [folder for folder in (path, *path.parents) if not folder.exists()]
        for folder in reversed(missing):
            folder.mkdir(exist_ok=True)
            self._made.append(folder)

    def _read_run(self) -> dict[str, Any] | None:
        """Return what run.json says; None where there is none of ours."""
        if not _is_plain(self.path / RUN):
            return None
        try:
            run = json.loads((self.path / RUN).read_text(encoding="utf-8"))
        except (OSError, ValueError, RecursionError):
            return None
        ours = isinstance(run, dict) and run.get("program") == PROGRAM and isinstance(run.get("files"), list)
        return run if ours else None

    def _check(self, run: dict[str, Any] | None) -> None:
        """Raise where something of the user's, a link, or another run is in the way."""
        if self.path.exists() and not self.path.is_dir():
            raise ValueError(f"The output folder {self.path} is a file. Choose a folder (--out).")
        entries = sorted(entry.name for entry in self.path.iterdir()) if self.path.exists() else []
        for name in entries:
            kind = (self.path / name).lstat().st_mode
            if (name in (RUN, LOCK, _temporary(RUN)) and not stat.S_ISREG(kind)) or (
                name in (CACHE, "figures", "tables") and run is not None and not stat.S_ISDIR(kind)
            ):
                raise ValueError(f"{self.path / name} is a link, or no file or folder of this program. Remove it.")
        if run is None and (foreign := [name for name in entries if name not in (LOCK, _temporary(RUN))]):
            raise ValueError(
                f"The output folder {self.path} holds other files ({', '.join(foreign[:3])}), no run of this program. "
                "Choose another folder, or an empty one (--out)."
            )
        if run is not None and not self.overwrite and (difference := self._difference(run)):
            raise ValueError(
                f"The output folder {self.path} holds another run ({difference}). Give the same options to go on with "
                "it, choose another folder (--out), or replace it (--overwrite)."
            )

    def _difference(self, run: Mapping[str, Any]) -> str:
        there = {"command": run.get("command"), **(run["settings"] if isinstance(run.get("settings"), dict) else {})}
        here = {"command": self.command, **self.settings}
        names = [name for name in {**there, **here} if there.get(name) != here.get(name)]
        return "; ".join(f"{name}: {there.get(name, 'none')} there, {here.get(name, 'none')} here" for name in names)

    def _place(self, name: str) -> Path:
        """Return where a file of the run lies; its folders are made, and raise where one is a link."""
        pure = PurePosixPath(name)
        if pure.is_absolute() or ".." in pure.parts or not pure.parts:
            raise ValueError(f"Expected the name of a file inside the output folder but got {name!r}.")
        folder = self.path
        for part in pure.parts[:-1]:
            folder /= part
            with suppress(FileExistsError):
                folder.mkdir()
                self._made.append(folder)
            if not stat.S_ISDIR(folder.lstat().st_mode):
                raise ValueError(f"{folder} is a link or a file in the place of a folder. Remove it.")
        return folder / pure.name

    def _remove_listed(self) -> None:
        """Remove the files that run.json lists: plain files in plain folders inside; and the folders left empty."""
        folders = set[Path]()
        # The report first: a folder with a report is complete.
        for name in sorted(self._files, key=lambda name: name != REPORT):
            pure = PurePosixPath(name)
            parents = [self.path / parent for parent in pure.parents if parent.parts]
            if pure.is_absolute() or ".." in pure.parts or not pure.parts or not all(map(_is_folder, parents)):
                continue
            for path in (self.path / pure, self.path / _temporary(name)):
                if _is_plain(path):
                    path.unlink()
            folders.update(parents)
        for folder in sorted(folders, key=lambda folder: -len(folder.parts)):
            with suppress(OSError):  # holds files of the user's
                folder.rmdir()
        self._files = []

    def _write_run(self) -> None:
        run = {"program": PROGRAM, "command": self.command, "settings": self.settings, "files": self._files}
        temporary = self.path / _temporary(RUN)
        temporary.unlink(missing_ok=True)
        with temporary.open("x", encoding="utf-8") as file:
            json.dump(run, file, indent=1)
        temporary.replace(self.path / RUN)

    def _leave(self) -> None:
        if self._lock is None:
            self._remove_made()
            return
        if self._lock.is_locked and not self._files and self._made:
            for name in (RUN, LOCK):
                (self.path / name).unlink(missing_ok=True)
        self._lock.release()
        self._remove_made()

    def _remove_made(self) -> None:
        for folder in reversed(self._made):
            with suppress(OSError):  # holds the run
                folder.rmdir()


def _temporary(name: str) -> str:
    pure = PurePosixPath(name)
    return str(pure.with_name(f".{pure.name}.part"))


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


def _write(content: pd.DataFrame | Mapping[str, Tensor] | bytes, path: Path) -> None:
    if isinstance(content, bytes):
        path.write_bytes(content)
    elif isinstance(content, pd.DataFrame):
        # The kind of each column stands in its head: a class may be called 001, and an empty text is no NaN.
        kinds = {name: "text" if content[name].dtype.kind == "O" else str(content[name].dtype) for name in content}
        content.rename(columns={name: f"{name}|{kind}" for name, kind in kinds.items()}).to_csv(path, index=False)
    else:
        tensors = {name: tensor.detach().cpu().contiguous() for name, tensor in content.items()}
        path.write_bytes(safetensors.torch.save(tensors))


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
_READERS: dict[str, Callable[[Path], Any]] = {
    ".csv": _read_frame,
    ".safetensors": _read_tensors,
    ".bin": Path.read_bytes,
}
