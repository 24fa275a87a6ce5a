"""A run killed before each change of its folder: nothing foreign is lost, and the same command goes on.

``python tests/folder_kills.py FOLDER`` does it in a process of its own: a fork of that of the tests takes long.
"""

from __future__ import annotations

import shutil
import signal
import sys
from collections.abc import Mapping
from contextlib import suppress
from functools import partial
from itertools import count
from pathlib import Path

import torch

from kills import contents, killed
from quantus_concepts.studies._kit.folder import REPORT, RunFolder

#: Return the texts of a folder by the names of the files.
texts = partial(contents, read=Path.read_text)
OLD, NEW = {"epochs": "1"}, {"epochs": "2"}
OLD_FILES = {"results.csv": "old", "figures/gone.png": "old g", "only/old.txt": "o", REPORT: "old report"}
NEW_FILES = {"results.csv": "new", "figures/b.png": "new b", REPORT: "new report"}
MINE = {"mine.txt": "mine", "figures/mine.png": "mine"}


def write(path: Path, files: Mapping[str, str], settings: Mapping[str, str], *, overwrite: bool = False) -> None:
    """Do a run that caches one thing and writes these files, the report last."""
    with RunFolder("toy", settings, path, overwrite=overwrite) as folder:
        assert folder.cached("scores", settings, lambda: {"x": torch.zeros(1)})["x"] == 0
        for name, text in files.items():
            folder.write(name, text)


def put(path: Path, files: Mapping[str, str]) -> None:
    """Write files of the user's."""
    for name, text in files.items():
        (path / name).parent.mkdir(parents=True, exist_ok=True)
        (path / name).write_text(text)


def check_a_first_run(root: Path) -> None:
    """A report stands only in a complete folder, the same command ends with the same files, and the user's stay."""
    for number in count(1):
        path, other = root / f"first {number}", root / f"mine {number}"
        ended = killed(lambda path=path: write(path, NEW_FILES, NEW), number)  # type: ignore[misc]
        assert ended in (0, -signal.SIGKILL), (number, ended)
        there = texts(path)
        assert there.items() <= NEW_FILES.items(), number
        assert REPORT not in there or there == NEW_FILES, number
        if path.exists():
            shutil.copytree(path, other)
        write(path, NEW_FILES, NEW)
        assert texts(path) == NEW_FILES, number
        # What the user puts in the place of a file after a kill is neither overwritten nor removed.
        mine = {name: f"mine {name}" for name in NEW_FILES if name not in there}
        put(other, mine)
        for settings, overwrite in ((NEW, False), (NEW, True), (OLD, True)):
            with suppress(ValueError):
                write(other, NEW_FILES, settings, overwrite=overwrite)
            assert texts(other).items() >= mine.items(), (number, settings, overwrite)
        if ended == 0:
            break
    assert number > 20, number


def check_another_run(root: Path) -> None:
    """A folder with a report holds one run, never two; the user's files stay."""
    write(root / "run", OLD_FILES, OLD)
    put(root / "run", MINE)
    for number in count(1):
        path = root / f"another {number}"
        shutil.copytree(root / "run", path)
        ended = killed(lambda path=path: write(path, NEW_FILES, NEW, overwrite=True), number)  # type: ignore[misc]
        assert texts(path).items() >= MINE.items(), number
        assert REPORT not in texts(path) or texts(path) in (OLD_FILES | MINE, NEW_FILES | MINE), number
        with suppress(ValueError):  # the folder holds a run: a third one changes nothing
            before = texts(path)
            write(path, {}, {"epochs": "3"})
        assert texts(path) == before, number
        write(path, NEW_FILES, NEW, overwrite=True)
        assert texts(path) == NEW_FILES | MINE, number
        if ended == 0:
            break
    assert number > 25, number


if __name__ == "__main__":
    check_a_first_run(Path(sys.argv[1]))
    check_another_run(Path(sys.argv[1]))
