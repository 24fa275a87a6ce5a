"""The folder a command writes to: checked before any work, never left with half a file."""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path, PurePosixPath
from types import TracebackType

from captum_concepts.writing import written

MANIFEST = ".quantus-concepts.json"
#: Of what an interrupted run goes on from.
KEPT = "kept"


class OutputFolder:
    """A folder for the files of one run, used as a context manager."""

    # Entering checks and makes the folder, so that nothing is computed for a place that cannot take it. Every file
    # is written under a temporary name and renamed when it is complete. A run that ends early leaves only complete
    # files, and no folder if there is none. A manifest (a hidden file) lists what was written.

    def __init__(
        self,
        command: str = "concepts",
        out: Path | str | None = None,
        *,
        overwrite: bool = False,
        root: Path | str = "reports",
        now: datetime | None = None,
    ) -> None:
        self.command = command
        self.out = None if out is None else Path(out)
        self.overwrite = overwrite
        self.root = Path(root)
        self.now = now
        self._path: Path | None = None
        self._made: list[Path] = []
        self._stale: list[str] = []
        self._written: list[str] = []
        self._unfinished = False

    @property
    def path(self) -> Path:
        """The folder; there only inside the ``with`` block and after it."""
        if self._path is None:
            raise ValueError("The output folder is made on entering: use `with OutputFolder(...) as folder:`.")
        return self._path

    @property
    def files(self) -> list[Path]:
        """The files written so far, the latest last."""
        return [self.path / name for name in self._written]

    def __enter__(self) -> OutputFolder:
        try:
            self._path = self._default() if self.out is None else self._given(self.out)
            self._probe(self._path)
        except OSError as error:
            self._discard()
            place = self.root if self.out is None else self.out
            raise ValueError(
                f"The output folder `{place}` cannot be written ({error.strerror or error}). "
                "Choose another one with --out."
            ) from error
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._discard()

    @contextmanager
    def file(self, name: str) -> Iterator[Path]:
        """Yield a temporary path to write one file to; it takes its name when the block ends well."""
        pure = PurePosixPath(name)
        if pure.is_absolute() or ".." in pure.parts or not pure.parts:
            raise ValueError(f"Expected argument `name` to be a path inside the output folder but got {name!r}.")
        target = self.path / pure
        self._make(target.parent)
        temporary = target.with_name(f".{uuid.uuid4().hex}{target.suffix}")
        try:
            yield temporary
            self._clear_stale()
            # A file of the user's own stays; ours then takes the next free name.
            ours = target.relative_to(self.path).as_posix() in self._written
            target = target if ours else _free(target)
            temporary.replace(target)
        finally:
            temporary.unlink(missing_ok=True)
        relative = target.relative_to(self.path).as_posix()
        if ours:
            self._written.remove(relative)
        self._written.append(relative)
        self._write_manifest()

    def keep(self) -> Path:
        """Return the folder of what an interrupted run goes on from; the same --out is then taken again."""
        self._unfinished = True
        kept = self.path / KEPT
        self._make(kept)
        self._write_manifest()
        return kept

    @property
    def kept_any(self) -> bool:
        """Whether something is kept for a run to go on from."""
        kept = self.path / KEPT
        return kept.is_dir() and any(kept.iterdir())

    def finish(self) -> None:
        """Say that the run is complete, so that its folder is not taken for an interrupted one."""
        if self._unfinished:
            self._unfinished = False
            self._write_manifest()

    def write_bytes(self, name: str, data: bytes) -> Path:
        """Write one file."""
        with self.file(name) as temporary:
            temporary.write_bytes(data)
        return self.files[-1]

    def write_text(self, name: str, text: str) -> Path:
        """Write one text file as UTF-8."""
        return self.write_bytes(name, text.encode("utf-8"))

    def _default(self) -> Path:
        now = self.now or datetime.now()
        stem = self.root / f"{self.command}-{now:%Y%m%d-%H%M%S}"
        self._make(self.root)
        while True:
            path = _free(stem)
            try:
                path.mkdir()
            except FileExistsError:  # another run took the name in this very moment
                continue
            self._made.append(path)
            return path

    def _given(self, path: Path) -> Path:
        if path.exists() and not path.is_dir():
            raise ValueError(f"The output folder `{path}` is a file. Choose a folder with --out.")
        if path.is_dir():
            present = sorted(entry.name for entry in path.iterdir())
            self._stale, interrupted = _read_manifest(path) if present else ([], "")
            if interrupted != self.command:
                self._check_free(path, present)
        self._make(path)
        return path

    def _check_free(self, path: Path, present: list[str]) -> None:
        if not present or (self.overwrite and MANIFEST in present):
            return
        shown = ", ".join([name for name in present if name != MANIFEST][:3])
        if self.overwrite:
            raise ValueError(
                f"The output folder `{path}` holds files that this program did not write ({shown}). "
                "They are not overwritten: choose another folder with --out."
            )
        raise ValueError(
            f"The output folder `{path}` already holds files ({shown}). "
            "Choose another one with --out, or replace an earlier run with --overwrite."
        )

    def _make(self, path: Path) -> None:
        missing = [folder for folder in [path, *path.parents] if not folder.exists()]
        for folder in reversed(missing):
            folder.mkdir(exist_ok=True)
            self._made.append(folder)

    @staticmethod
    def _probe(path: Path) -> None:
        # Permission bits do not tell it all (read-only disks, quotas): only writing does.
        probe = path / f".{uuid.uuid4().hex}"
        try:
            probe.write_bytes(b"x")
        finally:
            probe.unlink(missing_ok=True)

    def _discard(self) -> None:
        for folder in reversed(self._made):
            try:
                folder.rmdir()
            except OSError:  # holds files, which stay
                continue
        self._made.clear()

    def _clear_stale(self) -> None:
        for name in self._stale:
            file = self.path / name
            file.unlink(missing_ok=True)
            if file.parent != self.path and file.parent.is_dir() and not any(file.parent.iterdir()):
                file.parent.rmdir()
        self._stale = []

    def _write_manifest(self) -> None:
        content: dict[str, object] = {"program": "quantus-concepts", "command": self.command, "files": self._written}
        content |= {"finished": False} if self._unfinished else {}
        with written(self.path / MANIFEST) as temporary:
            temporary.write_text(json.dumps(content, indent=1), encoding="utf-8")


def _read_manifest(path: Path) -> tuple[list[str], str]:
    """Return the files of an earlier run that lie in its folder, and the command it was if it did not end."""
    try:
        content = json.loads((path / MANIFEST).read_text(encoding="utf-8"))
        names, interrupted = content["files"], "" if content.get("finished", True) else content["command"]
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return [], ""
    if not isinstance(names, list):
        return [], ""
    inside = (PurePosixPath(name) for name in names if isinstance(name, str))
    return [
        str(name) for name in inside if not name.is_absolute() and ".." not in name.parts and name.parts
    ], interrupted


def _free(path: Path) -> Path:
    """Return the path, or the first of its variants -2, -3, ... that does not exist."""
    candidate, number = path, 1
    while candidate.exists() or candidate.is_symlink():
        number += 1
        candidate = path.with_name(f"{path.stem}-{number}{path.suffix}")
    return candidate
