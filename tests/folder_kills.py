"""A run killed before each change of its folder: nothing foreign is lost, and the same command goes on.

``python tests/folder_kills.py NAME FOLDER`` does it in a process of its own: a fork of that of the tests takes long.
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

from kills import contents, killed
from quantus_concepts.studies._kit.folder import REPORT, RunFolder

#: Return the texts of a folder by the names of the files.
texts = partial(contents, read=Path.read_text)
OLD, NEW = {"epochs": "1"}, {"epochs": "2"}
OLD_FILES = {"results.csv": "old", "figures/a.png": "old a", "figures/gone.png": "old g", "only/old.txt": "o"}
NEW_FILES = {"results.csv": "new", "figures/a.png": "new a", "figures/b.png": "new b", "deep/er/c.txt": "c"}
OLD_FILES[REPORT], NEW_FILES[REPORT] = "old report", "new report"
MINE = {"mine.txt": "mine", "figures/mine.png": "mine"}


def write(path: Path, files: Mapping[str, str], settings: Mapping[str, str], *, overwrite: bool = False) -> None:
    """Do a run that caches one thing and writes these files, the report last."""
    with RunFolder("toy", settings, path, overwrite=overwrite) as folder:
        assert folder.cached("scores", settings, lambda: b"scored") == b"scored"
        for name, text in files.items():
            folder.write(name, text)


def write_old(path: Path) -> Path:
    """Do a run whose folder the user puts files of their own into."""
    write(path, OLD_FILES, OLD)
    for name, text in MINE.items():
        (path / name).write_text(text)
    return path


def check_a_first_run(root: Path) -> None:
    """A report stands only in a complete folder, and the same command then ends with the same files."""
    for number in count(1):
        path = root / f"run {number}"
        ended = killed(lambda path=path: write(path, NEW_FILES, NEW), number)  # type: ignore[misc]
        assert texts(path).items() <= NEW_FILES.items(), number
        assert REPORT not in texts(path) or texts(path) == NEW_FILES, number
        write(path, NEW_FILES, NEW)
        assert texts(path) == NEW_FILES, number
        if ended == 0:
            break
        assert ended == -signal.SIGKILL, (number, ended)
    assert number > 25, number


def check_a_run_goes_on_in_a_finished_folder(root: Path) -> None:
    """The same command in its own finished folder, killed, and again."""
    write_old(root / "run")
    for number in count(1):
        path = root / f"run {number}"
        shutil.copytree(root / "run", path)
        ended = killed(lambda path=path: write(path, OLD_FILES, OLD), number)  # type: ignore[misc]
        assert texts(path).items() >= MINE.items(), number
        assert REPORT not in texts(path) or texts(path) == OLD_FILES | MINE, number
        write(path, OLD_FILES, OLD)
        assert texts(path) == OLD_FILES | MINE, number
        if ended == 0:
            break
    assert number > 20, number


def check_another_run(root: Path) -> None:
    """A folder with a report holds one run, never two; the user's files stay."""
    write_old(root / "run")
    for number in count(1):
        path = root / f"run {number}"
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
    assert number > 30, number


def check_files_of_the_user_after_a_kill(root: Path) -> None:
    """What the user puts in the place of a file after a kill is neither overwritten nor removed."""
    for number in count(1):
        path = root / f"run {number}"
        ended = killed(lambda path=path: write(path, NEW_FILES, NEW), number)  # type: ignore[misc]
        mine = {name: f"mine {name}" for name in NEW_FILES if not (path / name).exists()}
        for name, text in mine.items():
            (path / name).parent.mkdir(parents=True, exist_ok=True)
            (path / name).write_text(text)
        for settings, overwrite in ((NEW, False), (NEW, True), (OLD, True)):
            with suppress(ValueError):
                write(path, NEW_FILES, settings, overwrite=overwrite)
            assert texts(path).items() >= mine.items(), (number, settings, overwrite)
        if ended == 0:
            break
    assert number > 25, number


CHECKS = {
    name.removeprefix("check_").replace("_", " "): check for name, check in globals().items() if name[:6] == "check_"
}

if __name__ == "__main__":
    CHECKS[sys.argv[1]](Path(sys.argv[2]))
