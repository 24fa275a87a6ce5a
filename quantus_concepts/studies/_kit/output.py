"""The folder a command writes to: checked before any work, and replaced in whole at the end."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from datetime import datetime
from pathlib import Path, PurePosixPath
from types import TracebackType

from safetensors import SafetensorError

from captum_concepts._support.files import write_atomically
from captum_concepts._support.whole_folder import WholeFolder, WriteError, is_interrupted


class OutputFolder:
    """A folder for the files of one run, used as a context manager; it holds them when the block ends well."""

    def __init__(
        self,
        command: str = "concepts",
        out: Path | str | None = None,
        settings: Mapping[str, str] | None = None,
        *,
        overwrite: bool = False,
        root: Path | str = "reports",
        now: datetime | None = None,
    ) -> None:
        self.command = command
        self.out = None if out is None else Path(out)
        self.settings = {"command": command, **(settings or {})}
        self.overwrite = overwrite
        self.root = Path(root)
        self.now = now
        self._whole: WholeFolder | None = None
        self._new: Path | None = None

    @property
    def path(self) -> Path:
        """The folder; there only inside the ``with`` block and after it."""
        return self._entered.path

    @property
    def new(self) -> Path:
        """The folder of the files of the run until it ends."""
        return self._entered.new

    @property
    def resumed(self) -> bool:
        """Whether the run goes on where one of the same settings was interrupted."""
        return self._entered.resumed

    @property
    def kept(self) -> Path:
        """The folder of what an interrupted run goes on from."""
        self._entered.check_held()
        self._entered.kept.mkdir(exist_ok=True)
        return self._entered.kept

    @property
    def started(self) -> bool:
        """Whether something is kept, or written, from which a run can go on."""
        return self._entered.started

    def __enter__(self) -> OutputFolder:
        # An empty folder of our own goes away on leaving.
        path = self._default() if self.out is None else self.out
        folder = WholeFolder(path, self.settings, overwrite=self.overwrite)
        try:
            self._whole = folder.__enter__()
        except BaseException:
            if path == self._new:
                with suppress(OSError):
                    path.rmdir()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._entered.__exit__(kind, error, trace)
        for folder in (self._new, self.root if self._new is not None else None):
            if folder is not None:
                with suppress(OSError):  # holds files
                    folder.rmdir()

    @contextmanager
    def file(self, name: str) -> Iterator[Path]:
        """Yield a temporary path to write one file to; it is a file of the run when the block ends well."""
        pure = PurePosixPath(name)
        if pure.is_absolute() or ".." in pure.parts or not pure.parts:
            raise ValueError(f"Expected argument `name` to be a path inside the output folder but got {name!r}.")
        self._entered.check_held()
        try:
            target = self.new / pure
            target.parent.mkdir(parents=True, exist_ok=True)
            with write_atomically(target) as temporary:
                yield temporary
        except (OSError, SafetensorError) as error:
            done = sorted(path.relative_to(self.new).as_posix() for path in self.new.rglob("[!.]*") if path.is_file())
            saved = f"Complete are, in {self.new}: {', '.join(done)}. " if done else ""
            raise WriteError(
                f"{self.path / pure} cannot be written ({getattr(error, 'strerror', None) or error}). {saved}"
                f"The same command with --out {self.path} goes on from what is kept."
            ) from error

    def write_bytes(self, name: str, data: bytes) -> Path:
        """Write one file, and return where it lies until the run ends."""
        with self.file(name) as temporary:
            temporary.write_bytes(data)
        return self.new / name

    def write_text(self, name: str, text: str) -> Path:
        """Write one text file as UTF-8."""
        return self.write_bytes(name, text.encode("utf-8"))

    @property
    def _entered(self) -> WholeFolder:
        if self._whole is None:
            raise ValueError("The output folder is made on entering: use `with OutputFolder(...) as folder:`.")
        return self._whole

    def _default(self) -> Path:
        """Return the latest folder in which the same run was interrupted, or a new one."""
        for path in sorted(self.root.glob(f"{self.command}-*"), reverse=True):
            if is_interrupted(path, self.settings):
                return path
        now = self.now or datetime.now()
        stem = self.root / f"{self.command}-{now:%Y%m%d-%H%M%S}"
        try:
            self.root.mkdir(parents=True, exist_ok=True)
            path, number = stem, 1
            while True:
                try:
                    path.mkdir()
                except FileExistsError:
                    number += 1
                    path = stem.with_name(f"{stem.name}-{number}")
                else:
                    break
        except OSError as error:
            raise ValueError(
                f"The output folder `{self.root}` cannot be written ({error.strerror or error}). "
                "Choose another one (--out)."
            ) from error
        self._new = path
        return path
