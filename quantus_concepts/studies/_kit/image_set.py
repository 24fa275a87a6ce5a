"""The folder of a set of images that a command writes: nothing in it is replaced, and an interrupted set goes on."""

from __future__ import annotations

import json
import os
import stat
from collections.abc import Callable, Mapping
from pathlib import Path, PurePosixPath

from captum_concepts.support.files import clear_abandoned, read_json, write_atomically


class ImageSet:
    """A folder that is new, empty, or has images of the same settings; nothing in it is replaced.

    A run's folder lists every file before it is written, which takes too long for tens of thousands. Here a file is
    written beside its place and renamed, where there is none: several processes may write into one folder.
    """

    def __init__(self, path: Path, settings: Mapping[str, str], file: str) -> None:
        self.path, self.settings, self.file = path, dict(settings), file
        there = next(folder for folder in (path, *path.parents) if os.path.lexists(folder))
        if not there.is_dir():
            raise ValueError(f"The output folder {path} cannot be made: {there} is a file. Choose a folder (--out).")
        for folder in (path, *(entry for entry in path.rglob("*") if entry.is_dir() and not entry.is_symlink())):
            clear_abandoned(folder)
        if not path.is_dir() or not any(path.iterdir()):
            return
        theirs = read_json(path / file, "Settings") if self.has(file) else None
        if not isinstance(theirs, dict):
            raise ValueError(f"The folder {path} holds other files. Choose another one (--out).")
        different = [name for name in {**theirs, **settings} if theirs.get(name) != settings.get(name)]
        if different:
            text = "; ".join(
                f"{name}: {theirs.get(name, 'none')} there, {settings.get(name, 'none')} here" for name in different
            )
            raise ValueError(
                f"The folder {path} holds images of other settings ({text}). Give the same to go on, or choose another "
                "folder (--out)."
            )

    def has(self, name: str) -> bool:
        """Whether a plain file is there, in plain folders."""
        return self._is(name, stat.S_ISREG) and all(self._is(parent, stat.S_ISDIR) for parent in _parents(name))

    def names(self, folder: str) -> set[str]:
        """Return the names of the files in one of its folders, without what ended processes left half-written."""
        if not self._is(folder, stat.S_ISDIR):
            return set()
        clear_abandoned(self.path / folder)
        return {path.name for path in (self.path / folder).iterdir()}

    def write(self, name: str, content: bytes) -> bool:
        """Write a file where there is none, and return whether there was none."""
        try:
            if name != self.file and not self.has(self.file):
                self.path.mkdir(parents=True, exist_ok=True)
                self.write(self.file, json.dumps(self.settings, indent=1).encode())
            for parent in _parents(name):
                (self.path / parent).mkdir(exist_ok=True)
                if not self._is(parent, stat.S_ISDIR):
                    raise ValueError(f"{self.path / parent} is a link in the place of a folder. Remove it.")
            if os.path.lexists(self.path / name):
                return False
            with write_atomically(self.path / name) as temporary:
                temporary.write_bytes(content)
        except OSError as error:
            raise OSError(
                f"{self.path / name} cannot be written ({error.strerror or error}). The images that are complete stay; "
                f"make room, and give the same command again with --out {self.path}: it goes on."
            ) from error
        return True

    def _is(self, name: str, kind: Callable[[int], bool]) -> bool:
        path = self.path / name
        return os.path.lexists(path) and kind(path.lstat().st_mode)


def _parents(name: str) -> list[str]:
    """Return the folders of a file, the outermost first."""
    return [str(parent) for parent in reversed(PurePosixPath(name).parents[:-1])]
