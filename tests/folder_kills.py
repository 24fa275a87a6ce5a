"""A folder's run killed at each change of the file system.

``python tests/folder_kills.py NAME FOLDER`` does it in a process of its own, which has loaded little: a fork of that of
the tests, where PyTorch is, takes a hundred times as long.
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
from typing import Any

from captum_concepts._support.whole_folder import WORK, WholeFolder
from kills import contents, killed

#: Return the texts of a folder by the names of the files.
texts = partial(contents, read=Path.read_text)
OLD, NEW = {"--epochs": "1"}, {"--epochs": "2"}
OLD_FILES = {"results.csv": "old", "figures/a.png": "old a", "figures/gone.png": "old g", "only/old.txt": "o"}
NEW_FILES = {"results.csv": "new", "figures/a.png": "new a", "figures/b.png": "new b", "deep/er/c.txt": "c"}
MINE = {"mine.txt": "mine", "figures/mine.png": "mine"}


def write(path: Path, files: Mapping[str, str], settings: Mapping[str, str], **options: Any) -> None:
    """Do a run that keeps one thing and leaves these files."""
    with WholeFolder(path, settings, **options) as folder:
        folder.kept.mkdir(exist_ok=True)
        (folder.kept / "model").write_text("trained")
        for name, text in files.items():
            (folder.new / name).parent.mkdir(parents=True, exist_ok=True)
            (folder.new / name).write_text(text)


def write_old(path: Path) -> Path:
    """Do a run whose folder the user puts files of their own into."""
    write(path, OLD_FILES, OLD)
    for name, text in MINE.items():
        (path / name).write_text(text)
    return path


def of_one_run(folder: Path) -> bool:
    """Whether all files but the user's are of one run, the run before or the next: all of them, or some."""
    files = texts(folder).items()
    return MINE.items() <= files and (files <= (OLD_FILES | MINE).items() or files <= (NEW_FILES | MINE).items())


def check_another_run(root: Path) -> None:
    """Files of one run, never of both, and the same run then goes on to its end."""
    folder = write_old(root / "run")
    for number in count(1):
        path = root / f"run {number}"
        shutil.copytree(folder, path)
        ended = killed(lambda path=path: write(path, NEW_FILES, NEW, overwrite=True), number)  # type: ignore[misc]
        assert of_one_run(path), (number, texts(path))
        if ended == 0:
            break
        assert ended == -signal.SIGKILL, (number, ended)
        write(path, NEW_FILES, NEW, overwrite=True)
        assert texts(path) == NEW_FILES | MINE, number
        assert not (path / WORK).exists(), number
    assert number > 30, number


def check_a_first_run(root: Path) -> None:
    """Nothing or some of it, and the same run then goes on."""
    for number in count(1):
        path = root / f"run {number}"
        ended = killed(lambda path=path: write(path, NEW_FILES, NEW), number)  # type: ignore[misc]
        assert texts(path).items() <= NEW_FILES.items(), number
        if ended == 0:
            break
        # Killed when there was nothing left to do but to clear up, it is finished.
        finished = texts(path) == NEW_FILES and not (path / WORK / "run.json").exists()
        if not finished:
            write(path, NEW_FILES, NEW)
        assert texts(path) == NEW_FILES, number
    assert number > 20, number


def check_runs_in_between(root: Path) -> None:
    """A run of other settings that finds a killed one leaves one of both runs in whole, and the user's files."""
    folder = write_old(root / "run")
    for number in count(1):
        path = root / f"run {number}"
        shutil.copytree(folder, path)
        if killed(lambda path=path: write(path, NEW_FILES, NEW, overwrite=True), number) == 0:  # type: ignore[misc]
            break
        with suppress(ValueError):  # the folder holds a run
            write(path, {}, {"--epochs": "3"})
        assert texts(path) in (OLD_FILES | MINE, NEW_FILES | MINE), number
    assert number > 30, number


CHECKS = {"another run": check_another_run, "a first run": check_a_first_run, "runs in between": check_runs_in_between}

if __name__ == "__main__":
    assert "torch" not in sys.modules
    CHECKS[sys.argv[1]](Path(sys.argv[2]))
